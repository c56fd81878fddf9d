# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""How many of our files a command imports; each number is counted in a process of its own."""

import json
import subprocess
import sys

import pytest

pytestmark = pytest.mark.integration

_COUNT = """
import json, os, sys
def show():
    names = [n for n in sys.modules if n.split(".")[0] in ("vit_jax", "configs")]
    files = {n: getattr(sys.modules[n], "__file__", None) or "" for n in names}
    print("FILES", json.dumps([n for n, f in files.items() if f]), flush=True)
"""
_HELP = "from vit_jax.cli import main; main.main(['--help']); show()"
_FIRST_STEP = """
from vit_jax.training import metric_writer
def before(self, step):  # called before a step is dispatched
    show()
    os._exit(0)
metric_writer.Profile.before = before
from vit_jax.cli import main
main.main(["train", "--config=configs/quickstart.py", "--workdir=" + sys.argv[1]])
"""
# Only several processes need these.
_TOGETHER = ("vit_jax.runtime.peer_links", "vit_jax.runtime.rendezvous")
# Only a run with a local tier needs these.
_LOCAL = tuple(
    f"vit_jax.checkpoints.{name}" for name in ("local_tier", "peer_copies", "shard_files")
)
# These belong to `naflex`, `data.device_ops` and `data.stage`, which a quickstart does not set.
_NOT_SET = ("build.naflex", "data.ops.naflex", "models.naflex", "build.device_ops")
_NOT_SET += ("step.device_ops", "build.staged")
# A ViT without a backbone needs none of these.
_OTHER_FAMILIES = tuple(f"vit_jax.models.{name}" for name in ("bit", "custom", "mixer", "resnet"))


@pytest.fixture
def imported(root, tmp_path):
    """Returns the names of our modules and packages that a program imports."""

    def run(program):
        done = subprocess.run(
            [sys.executable, "-c", _COUNT + program, str(tmp_path / "run")],
            cwd=root, capture_output=True, text=True, timeout=300,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout.rpartition("FILES ")[2])

    return run


def test_help_imports_at_most_eight_of_our_files(imported):
    files = imported(_HELP)
    assert len(files) <= 8, sorted(files)


def test_quickstart_has_imported_at_most_120_of_our_files_at_its_first_step(imported):
    files = imported(_FIRST_STEP)
    assert len(files) <= 120, sorted(files)
    assert not set(_TOGETHER + _LOCAL) & set(files)
    assert not set(_OTHER_FAMILIES) & set(files)
    assert not {f"vit_jax.{name}" for name in _NOT_SET} & set(files)
