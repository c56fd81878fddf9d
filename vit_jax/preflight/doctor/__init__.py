# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""The checks of `vit_jax doctor`: is this machine able to run now?

Each file has one check, or a few of one kind. They import neither jax nor TensorFlow in this
process, because they report missing or stuck installations. Open `examination` first.
"""
