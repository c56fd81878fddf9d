# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""The former name of `custom`, kept because users' own models import it."""

from vit_jax.models.custom import OwnConfig

__all__ = ["OwnConfig"]
