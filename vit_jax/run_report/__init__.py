# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""The report of a run, and of several beside each other: pages made from workdirs.

`history` reads a workdir, `one` and `several` write the pages, `pictures` draws what needs images
or weights, `ending` makes the report at the end of training.
"""
