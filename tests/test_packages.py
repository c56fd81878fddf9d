# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""The doctor on versions: fake folders of installed packages, and bounds as metadata has them."""

import platform

import pytest

from vit_jax.preflight.doctor import packages

JAX = ("jaxlib<=0.10.2,>=0.10.1", "scipy>=1.14", "kubernetes; extra == 'k8s'",
       'jax-cuda13-plugin[with-cuda]<=0.10.2,>=0.10.2; extra == "cuda13"',
       'jaxlib==0.10.1; extra == "minimum-jaxlib"', 'libtpu==0.0.42.*; extra == "tpu"')  # fmt: skip
OWN = ("jax<0.12,>=0.10", "flax<0.13,>=0.12", 'ruff==0.1; extra == "dev"',
       f'tensorflow-cpu<2.22; platform_machine == "{platform.machine()}"',
       f'tensorflow<2.22; platform_machine != "{platform.machine()}"')  # fmt: skip
GOOD = {
    "vit_jax": ("0.1.0", OWN), "jax": ("0.10.2", JAX), "jaxlib": ("0.10.2", ()),
    "scipy": ("1.15.0", ()), "flax": ("0.12.8", ()), "ruff": ("9", ()),
    "tensorflow_cpu": ("2.21.0", ()),
}  # fmt: skip


def examine(root, changes, python=">=3.11"):
    for name, (version, needs) in {**GOOD, **changes}.items():
        if version:
            folder = root / f"{name}-{version}.dist-info"
            folder.mkdir()
            lines = [
                f"Name: {name.replace('_', '-')}",
                f"Version: {version}",
                f"Requires-Python: {python}",
            ]
            lines += [f"Requires-Dist: {need}" for need in needs]
            (folder / "METADATA").write_text("Metadata-Version: 2.1\n" + "\n".join(lines) + "\n")
    return packages.check([str(root)])


def test_all_is_well_and_named(tmp_path):
    python, found = examine(tmp_path, {"libtpu": ("0.0.42.1", ())})
    assert python.ok
    assert platform.python_version() in python.said
    assert found.ok
    for part in ("jax 0.10.2, jaxlib 0.10.2, libtpu 0.0.42.1, flax 0.12.8", "tensorflow-cpu 2.21"):
        assert part in found.said


@pytest.mark.parametrize(
    "changes, said, fix",
    [
        ({"flax": ("0.13.1", ())}, "flax 0.13.1 is not what vit_jax needs", "'flax<0.13,>=0.12'"),
        ({"flax": (None, ())}, "flax is not installed", "pip install 'flax<0.13,>=0.12'"),
        ({"jaxlib": ("0.9.0", ())}, "jaxlib 0.9.0 is not what jax needs", "'jaxlib<=0.10.2,>="),
        ({"tensorflow_cpu": (None, ())}, "tensorflow-cpu is not installed", "tensorflow-cpu<2.22"),
        ({"libtpu": ("0.0.41", ())}, "libtpu 0.0.41 is not what jax needs", "libtpu==0.0.42.*"),
        ({"jax_cuda13_plugin": ("0.10.1", ())}, "plugin 0.10.1 is not what jax", "plugin<=0.10.2"),
        (
            {
                "jax_cuda13_plugin": ("0.10.2", ("nvidia-cudnn>=9; extra == 'with-cuda'",)),
                "nvidia_cudnn": ("8.1", ()),
            },
            "nvidia-cudnn 8.1 is not what jax-cuda13-plugin needs",
            "nvidia-cudnn>=9",
        ),
    ],
)
def test_what_does_not_fit_is_one_line_with_its_fix(tmp_path, changes, said, fix):
    _, found = examine(tmp_path, changes)
    assert said in found.said
    assert fix in found.fix


def test_python_of_another_version_and_no_installation_at_all(tmp_path):
    python, found = examine(tmp_path, {}, python=">=3.99")
    assert not python.ok
    assert ">=3.99" in python.fix
    assert found.ok
    [found] = packages.check([str(tmp_path / "empty")])
    assert "pip install -e ." in found.fix


def test_this_machine_has_what_setup_asks_for():
    assert [f.line() for f in packages.check() if not f.ok] == []


@pytest.mark.parametrize(
    "version, bounds, fits",
    [
        ("1.2", "", True), ("0.12", ">=0.12,<0.13", True), ("0.12.0", ">=0.12", True),
        ("0.9", ">=0.12", False), ("0.13.0", "<0.13", False), ("2.10", ">2.9", True),
        ("0.10.2.dev3+g1", ">=0.10.2", True), ("3", "!=3.0", False), ("3.1", "==3", False),
        ("0.0.42.7", "==0.0.42.*", True), ("0.0.43", "==0.0.42.*", False),
        ("1.4.9", "~=1.4.2", True), ("1.5", "~=1.4.2", False), ("", ">=1", False),
    ],
)  # fmt: skip
def test_bounds(version, bounds, fits):
    assert packages.fits(version, bounds) is fits
