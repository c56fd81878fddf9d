# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Places the packages; pyproject.toml has the metadata.

A wheel has `configs` and `launch` inside `vit_jax`, since other projects use these names too. An
editable install shows the folders as they lie in a checkout.
"""

import sys

from setuptools import find_packages, setup

outside = find_packages(include=["configs", "launch", "launch.*"])
if "editable_wheel" in sys.argv:
    placed = {name: name for name in outside}
else:
    placed = {name: f"vit_jax.{name}" for name in outside}

setup(
    packages=[*find_packages(include=["vit_jax", "vit_jax.*"]), *placed.values()],
    package_dir={there: name.replace(".", "/") for name, there in placed.items()},
)
