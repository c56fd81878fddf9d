# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Exports a model for other programs: weights under their names, or the computation itself.

Each file is one format, or a part that all share. The imports of a format happen when it is
written. Open `writer` first and start from `write`.
"""
