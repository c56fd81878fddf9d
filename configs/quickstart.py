# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Placeholder docstring, replaced below."""

from configs import base


def get_config():
    config = base.get_config()
    return config
