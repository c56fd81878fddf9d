# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Operations on one example in numpy, without TensorFlow: a second form of those in `ops`.

A chain is parsed in `ops/chain.py`, and each op states its arguments there. This folder holds what
an op does to a numpy array: the same as in TensorFlow, with the same random numbers, within one
grey level. Imports `ops`, and neither TensorFlow nor jax: worker processes import it. Open `chain`
first.
"""
