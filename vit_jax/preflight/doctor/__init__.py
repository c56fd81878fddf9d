# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""What `vit_jax doctor` looks at: is this machine, as it is now, able to run?

Each file is one check or a few of one kind. None imports jax or TensorFlow in this process:
the checks report what is missing or stuck. Open `examination` first.
"""
