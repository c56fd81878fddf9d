# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Which runs fill which cell of the papers, what was expected, what was measured.

    cells         what a cell is, and which run it wants
    transfers     the cells of Tables 2, 5, 6, 7, 9, Figures 2, 3, 5 and of AugReg's Table 3
    ablations     those of Table 8 and Figures 4, 8, 9 and 12
    settings      Tables 1, 3 and 4: the models and the recipes themselves
    evidence      the runs in a folder
    lineage       what the weights that a run started from were trained on
    recipe_diff   whether a run is the recipe's
    filling       runs into cells: mean over seeds, status
    tolerance     the formula
    compute       exaFLOPs, core-days, chip-hours
    missing_runs  the runs that missing cells need
    rendering     markdown, CSV, HTML
    claims        a criterion as data, a verdict that is computed
    miniature     the claims of configs/miniature.py

Imports no jax until models are needed. Start from `catalogue.find`, then `filling.fill`.
"""
