# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""A loaded model that runs on images on all devices; `export` hands it to other programs.

Imports `build` and the rooms below it. Open `model` first.
"""
