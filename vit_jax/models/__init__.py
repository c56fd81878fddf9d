# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""The models; the only room that imports flax.linen. Start from `vit`."""
