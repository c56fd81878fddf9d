# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""A run of version 0.1 at step 8 of 12 and its weights are continued, loaded and compared.

The last commit before modules moved into rooms made `fixtures/version-0.1.tar.gz`, on one CPU
device: a run without its last step, the metrics of its steps 9 to 12, and its final weights.
"""

import json
import tarfile

import jax
import numpy as np
import pictures
import pytest
from test_train import logged, run

import vit_jax
from vit_jax.cli import main

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def written(tmp_path_factory, root):
    folder = tmp_path_factory.mktemp("version")
    with tarfile.open(root / "tests" / "fixtures" / "version-0.1.tar.gz") as archive:
        archive.extractall(folder, filter="data")
    return folder


@pytest.fixture(scope="module")
def continued(written):
    """The run after its last step, by today's code, on as many devices as tests have."""
    assert run(written / "run") == 0
    return written / "run"


def test_run_goes_on_as_it_would_have(written, continued):
    expected = json.loads((written / "expected.json").read_text(encoding="utf-8"))
    found = {f"{step} {key}": value for (step, key), value in logged(continued).items()}
    assert len(expected) > 20
    assert {key: found[key] for key in expected} == pytest.approx(expected, rel=1e-4, abs=1e-5)


def test_weights_of_the_end_are_those_of_both_formats(written, continued):
    """Adam turns rounding of small gradients into steps, so parameters agree to a step's size."""
    _, npz, _ = vit_jax.load(written / "npz.npz")
    _, big_vision, _ = vit_jax.load(written / "big_vision.npz")
    jax.tree.map(np.testing.assert_array_equal, npz, big_vision)
    _, params, _ = vit_jax.load(continued)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-3), params, npz)


def test_run_is_inspected_used_and_reported(continued, tmp_path):
    image, out = tmp_path / "image.png", tmp_path / "evaluation"
    image.write_bytes(pictures.encode(pictures.noise(8, 8)))
    for words in (
        ["inspect", f"{continued}@8"],
        ["predict", continued, image],
        ["report", continued],
        ["evaluate", continued, f"--out={out}"],
    ):
        assert main.main(list(map(str, words))) == 0
    found = json.loads((out / "evaluation.json").read_text(encoding="utf-8"))
    assert found["top1"] == pytest.approx(logged(continued)[(12, "test/top1")], abs=1e-6)


def test_run_is_branched_off(continued, tmp_path):
    words = [f"--config={continued}/config.yaml", f"--branch={continued}@8"]
    words += [f"--workdir={tmp_path / 'new'}", "--config.length=13 steps"]
    assert main.main(["train", *words]) == 0
    rows = logged(continued)
    assert {row: v for row, v in logged(tmp_path / "new").items() if row[0] <= 8} == {
        row: v for row, v in rows.items() if row[0] <= 8
    }
