# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Lists the tables for safetensors files. Start from `FORMATS`."""

from vit_jax.weights.formats import timm, transformers

FORMATS = (*timm.FORMATS, *transformers.FORMATS)
