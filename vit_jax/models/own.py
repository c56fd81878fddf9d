# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""The earlier name of `custom`, which models that users wrote import."""

from vit_jax.models.custom import OwnConfig

__all__ = ["OwnConfig"]
