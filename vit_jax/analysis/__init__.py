# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""What is inside a model (Figures 6, 7, 10 and 11 of arXiv:2010.11929): numbers, then pictures.

Numbers: `filters`, `similarity`, `distance`, `rollout`, and `maps`, which has the model make the
attention that the last two are of. Pictures: `drawing`. Start from `figures`.
"""
