# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""A model as an artefact that others read: weights by other names, or the computation itself.

Each file is a format, or a part of all; what a format needs is imported when it is written.
Open `writer` first and start from `write`.
"""
