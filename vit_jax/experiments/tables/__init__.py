# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Fills the cells of the papers' tables with runs, and compares with the papers' values.

    cells         a cell, and the run that it wants; every table by name
    transfers     the cells of Tables 2, 5, 6, 7, 9 and Figures 2, 3, 5
    ablations     the cells of Table 8 and Figures 4, 8, 9 and 12
    axial         the cells of Figure 13
    settings      Tables 1, 3 and 4: the models and the recipes themselves
    augreg        the tables of AugReg
    replications  replications by the authors, section 4.6 and appendix D.9
    run_results   the runs in a folder
    lineage       the training data of a run's starting weights
    recipe_diff   differences between a run and its recipe
    filling       runs into cells: mean over seeds, tolerance, status
    compute       exaFLOPs, core-days, chip-hours
    missing_runs  the runs that missing cells need
    rendering     markdown, CSV, HTML
    claims        a criterion as data, a computed verdict
    miniature     the claims of configs/miniature.py
    robustness    the test sets around ImageNet, for files and runs

Imports no jax until models are needed. Start from `cells.find`, then `filling.fill`.
"""
