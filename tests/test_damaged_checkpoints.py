# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Checkpoints after damage and after kills: found, named, set aside, and never all lost."""

import contextlib
import logging
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import endless_saver
import jax
import numpy as np
import orbax.checkpoint as ocp
import pytest
import unprivileged
from test_checkpoint import abstract, make_state
from test_train import QUICKSTART, TINY, logged, run, same_parameters

from vit_jax.checkpoints import retention, step_folders
from vit_jax.checkpoints.checkpoints import Checkpoints
from vit_jax.checkpoints.retention import Damaged
from vit_jax.errors import BadInput, RunFailed
from vit_jax.runtime import coordination

STATES = {step: make_state(step / 7) for step in (4, 8, 12)}
TARGET = abstract(STATES[4])


def equal(a, b):
    return jax.tree.structure(a) == jax.tree.structure(b) and all(
        np.array_equal(x, y) for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)
    )


def names(workdir):
    return sorted(p.name for p in (workdir / "checkpoints").iterdir())


def resumed(workdir, **kwargs):
    """The step that a run continues from, what it restores exactly; None from the beginning."""
    with Checkpoints(workdir, **kwargs) as checkpoints:
        step = checkpoints.newest_good()
        if step is not None:
            assert equal(checkpoints.restore(step, TARGET), STATES[step])
        return step


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A workdir with steps 4 and 8."""
    workdir = tmp_path_factory.mktemp("saved")
    with Checkpoints(workdir, keep_last=2) as checkpoints:
        for step in (4, 8):
            checkpoints.save(step, STATES[step], "seed: 0\n", {"val/top1": 1 / step})
    return workdir


@pytest.fixture
def workdir(saved, tmp_path):
    shutil.copytree(saved, tmp_path, dirs_exist_ok=True)
    return tmp_path


def files(folder):
    return sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file())


def flip(content, bit):
    changed = bytearray(content)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


DAMAGES = {
    "first bit": lambda b: flip(b, 0),
    "bit in the middle": lambda b: flip(b, 4 * len(b)),
    "last bit": lambda b: flip(b, 8 * len(b) - 1),
    "truncated": lambda b: b[: len(b) // 2],
    "empty": lambda b: b"",
    "zeroed": lambda b: bytes(len(b)),
    "deleted": None,
}


def put(path, content):
    path.unlink() if content is None else path.write_bytes(content)


@pytest.mark.integration
@pytest.mark.parametrize("damage", DAMAGES)
def test_damage_in_any_file_of_the_newest_step_is_found(workdir, caplog, damage):
    caplog.set_level(logging.INFO, "vit_jax")
    folder = workdir / "checkpoints" / "8"
    assert len(files(folder)) > 10
    for name in files(folder):
        content = (folder / name).read_bytes()
        put(folder / name, DAMAGES[damage](content) if DAMAGES[damage] else None)
        reader = Checkpoints(workdir, read_only=True)
        caplog.clear()
        if name == "commit_success.txt":  # its content says nothing
            assert resumed(workdir) == (4 if damage == "deleted" else 8)
        else:
            assert reader.steps in ([4, 8], [4])  # whatever is damaged, the others are listed
            with pytest.raises(Damaged, match=name):
                reader.weights(8)
            assert (folder / name).exists() == (damage != "deleted")  # a reader moves nothing
            assert resumed(workdir) == 4
        aside = workdir / "checkpoints" / "8.damaged"
        if aside.exists():
            assert f"step 8 is damaged ({name} " in caplog.text
            assert f"set aside as {aside}; continuing from step 4: 4 steps" in caplog.text
            assert names(workdir) == ["4", "8.damaged"]
            aside.rename(folder)
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(content)
    assert resumed(workdir) == 8


def test_shapes_of_weights_are_not_read_from_damaged_metadata(workdir):
    reader = Checkpoints(workdir, read_only=True)
    assert jax.tree.leaves(reader.weight_shapes(8))
    sharding = workdir / "checkpoints" / "8" / "state" / "_sharding"
    sharding.write_bytes(flip(sharding.read_bytes(), 0))
    with pytest.raises(Damaged, match="_sharding"):
        reader.weight_shapes(8)


def test_run_goes_on_over_what_was_damaged(workdir):
    (workdir / "checkpoints" / "8" / "state" / "_METADATA").write_text("")
    with Checkpoints(workdir) as checkpoints:
        assert checkpoints.newest_good() == 4
        for step in (8, 12):
            checkpoints.save(step, STATES[step], "", {})
            checkpoints.wait()
    assert names(workdir) == ["12", "8.damaged"]
    assert resumed(workdir) == 12


def test_several_damaged_steps_are_all_named(workdir, caplog):
    with Checkpoints(workdir, keep_last=3) as checkpoints:
        checkpoints.save(12, STATES[12], "", {})
    for step in (8, 12):
        (workdir / "checkpoints" / str(step) / "metrics.json").unlink()
    assert resumed(workdir) == 4
    assert "step 12 is damaged (metrics.json is missing)" in caplog.text
    assert "step 8 is damaged (metrics.json is missing)" in caplog.text
    assert "8 steps are done again" in caplog.text
    assert names(workdir) == ["12.damaged", "4", "8.damaged"]


def test_nothing_good_is_for_a_person_and_stays_as_it_is(workdir):
    for step in (4, 8):
        (workdir / "checkpoints" / str(step) / "state" / "manifest.ocdbt").write_bytes(b"x")
    before = files(workdir)
    for _ in range(2):
        with pytest.raises(RunFailed, match="holds no checkpoint that is whole") as caught:
            resumed(workdir)
        assert "step 8 (state/manifest.ocdbt has changed); step 4 (state" in str(caught.value)
        assert "remove that folder" in str(caught.value)
        assert files(workdir) == before
    shutil.rmtree(workdir / "checkpoints" / "4")
    (workdir / "checkpoints" / "8").rename(workdir / "checkpoints" / "8.damaged")
    with pytest.raises(RunFailed, match=r"damaged are 8\.damaged\."):
        resumed(workdir)
    shutil.rmtree(workdir / "checkpoints")
    assert resumed(workdir) is None


MARKS = ("commit_success.txt", "checksums.sha256")


def test_step_that_has_lost_both_marks_is_set_aside_and_the_loss_is_stated(workdir, caplog):
    for mark in MARKS:
        (workdir / "checkpoints" / "8" / mark).unlink()
    assert resumed(workdir) == 4
    assert names(workdir) == ["4", "8.damaged"]
    assert "step 8 is damaged (commit_success.txt is missing); set aside as" in caplog.text
    assert "continuing from step 4: 4 steps are done again" in caplog.text


def test_no_run_begins_anew_where_every_step_has_lost_its_marks(workdir):
    for step in ("4", "8"):
        for name in (*MARKS, "state"):
            path = workdir / "checkpoints" / step / name
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    with pytest.raises(RunFailed, match=r"checkpoint that is whole: damaged are step 8 \(commit"):
        resumed(workdir)
    assert names(workdir) == ["4", "8"]


def test_folder_of_somebody_else_stays(workdir):
    (workdir / "checkpoints" / "7").mkdir()
    (workdir / "checkpoints" / "7" / "my_notes.txt").write_text("mine")
    with Checkpoints(workdir, keep_last=1) as checkpoints:
        assert checkpoints.newest_good() == 8
        checkpoints.save(12, STATES[12], "", {})
    assert names(workdir) == ["12", "7"]
    assert (workdir / "checkpoints" / "7" / "my_notes.txt").read_text() == "mine"


def test_step_that_is_a_link_goes_without_what_it_leads_to(workdir, tmp_path_factory):
    other = tmp_path_factory.mktemp("other") / "4"
    (workdir / "checkpoints" / "4").rename(other)
    (workdir / "checkpoints" / "4").symlink_to(other)
    before = files(other)
    with Checkpoints(workdir, keep_last=1) as checkpoints:
        checkpoints.save(12, STATES[12], "", {})
    assert names(workdir) == ["12"]
    assert files(other) == before


@pytest.mark.parametrize(
    "name",
    ["8/checksums.sha256", "8/state/_METADATA", "8/state", "8", "8/measured.json", ""],
)
def test_a_right_that_is_missing_is_no_damage(workdir, name):
    retention.add(workdir / "checkpoints" / "8", {"val/top1": 0.5})
    path = workdir / "checkpoints" / name
    mode = path.stat().st_mode
    path.chmod(0)
    with unprivileged.plain(), pytest.raises(BadInput) as caught:
        resumed(workdir, keep_best="val/top1")
    path.chmod(mode)
    said = str(caught.value)
    assert str(workdir / "checkpoints" / name) in said
    assert "Permission denied" in said
    assert caught.value.exit_code == 2
    assert names(workdir) == ["4", "8"]
    assert resumed(workdir) == 8


def test_what_may_not_be_set_aside_is_named(workdir):
    (workdir / "checkpoints" / "8" / "state" / "_METADATA").unlink()
    (workdir / "checkpoints").chmod(0o500)
    with (
        unprivileged.plain(),
        pytest.raises(BadInput, match=r"/8 cannot be set aside, .* denied; give"),
    ):
        resumed(workdir)
    (workdir / "checkpoints").chmod(0o700)
    assert names(workdir) == ["4", "8"]
    assert resumed(workdir) == 4


def test_the_last_good_step_is_kept_whatever_is_newer(workdir, monkeypatch):
    """Steps that do not count are no reason to remove one that does."""
    with Checkpoints(workdir, keep_last=1) as checkpoints:
        (workdir / "checkpoints" / "8" / "commit_success.txt").unlink()
        monkeypatch.setattr(ocp.StandardCheckpointHandler, "finalize", lambda *_: 1 / 0)
        checkpoints.save(12, STATES[12], "", {})
        with pytest.raises(ZeroDivisionError):
            checkpoints.wait()
    monkeypatch.undo()
    assert resumed(workdir) == 4


def test_damaged_metrics_do_not_count_as_best(workdir, caplog):
    metrics = workdir / "checkpoints" / "4" / "metrics.json"  # 4 is the best
    metrics.write_text(metrics.read_text().replace("0", "9"))
    reader = Checkpoints(workdir, read_only=True)
    with pytest.raises(Damaged, match=r"metrics\.json has changed"):
        reader.best("val/top1")
    with Checkpoints(workdir, keep_best="val/top1") as checkpoints:
        assert checkpoints.best("val/top1") == 8
        assert "4 is damaged: metrics.json has changed; it cannot count" in caplog.text
        assert checkpoints.newest_good() == 8


def test_metrics_that_were_measured_after_the_save_are_sealed_too(workdir, caplog):
    with Checkpoints(workdir, keep_best="val/top1", keep_last=2) as checkpoints:
        checkpoints.restore(8, TARGET)
        checkpoints.save(8, STATES[4], "", {"val/top1": 0.75})
        checkpoints.save(8, STATES[4], "", {})
    assert Checkpoints(workdir, read_only=True).best("val/top1") == 8
    assert resumed(workdir, keep_best="val/top1") == 8
    path = workdir / "checkpoints" / "8" / "measured.json"
    content = path.read_bytes()
    for damaged in (content.replace(b"0.75", b"0.15"), b"", content[:-3]):
        path.write_bytes(damaged)
        with Checkpoints(workdir, keep_best="val/top1") as checkpoints:
            assert checkpoints.best("val/top1") == 4
        assert "8 is damaged: measured.json cannot be read" in caplog.text
        caplog.clear()
    assert resumed(workdir) == 8


def test_process_that_finds_damage_decides_for_all(workdir, monkeypatch):
    """Two processes read half of the files each; both must come to the same step."""
    for name in files(workdir / "checkpoints" / "8"):
        if name != "commit_success.txt":
            (workdir / "checkpoints" / "8" / name).rename(workdir / "away")
            found = [
                step_folders.damage(workdir / "checkpoints" / "8", part=(i, 2)) for i in (0, 1)
            ]
            assert any(found)
            (workdir / "away").rename(workdir / "checkpoints" / "8" / name)
    other = {"checksums of 8": "state/x has changed", "checksums of 4": ""}
    monkeypatch.setattr(coordination, "gather", lambda name, mine: [mine, other.get(name, mine)])
    assert resumed(workdir) == 4


# ---------------------------------------------------------------- the older layout


@pytest.fixture
def older(tmp_path):
    """Steps 4 and 8 as versions without checksums saved them."""
    options = ocp.CheckpointManagerOptions(best_fn=lambda m: m["val/top1"])
    with ocp.CheckpointManager(tmp_path / "checkpoints", options=options) as manager:
        for step in (4, 8):
            manager.save(
                step,
                args=ocp.args.Composite(
                    state=ocp.args.StandardSave(STATES[step].saved()),
                    config=ocp.args.JsonSave({"yaml": "seed: 0\n"}),
                ),
                metrics={"val/top1": 1 / step},
            )
    return tmp_path


def test_checkpoint_without_checksums_restores_and_the_log_says_so(older, caplog):
    caplog.set_level(logging.INFO, "vit_jax")
    assert Checkpoints(older, read_only=True).best("val/top1") == 4
    assert resumed(older) == 8
    assert "checkpoints/8 has no checksums" in caplog.text
    with Checkpoints(older, keep_best="val/top1") as checkpoints:
        checkpoints.save(12, STATES[12], "", {"val/top1": 0.2})
    assert names(older) == ["12", "4"]  # the best, and the newest
    assert resumed(older) == 12


# ---------------------------------------------------------------- kills


class Snapshots:
    """Copies of a folder as it was before each change of a file or folder in it.

    What Python does announces itself to audit hooks; these cannot be removed, only told to sleep.
    """

    EVENTS = ("open", "os.rename", "os.mkdir", "os.remove", "os.rmdir", "shutil.rmtree")

    def __init__(self, folder, target):
        self.folder, self.target = folder, target
        self.found = {}  # what lies in the folder -> the copy
        self.awake, self.lock, self.inside = True, threading.Lock(), threading.local()
        sys.addaudithook(self.hook)

    def hook(self, event, args):
        if not self.awake or event not in self.EVENTS or getattr(self.inside, "now", False):
            return
        if event == "open" and not (isinstance(args[1], str) and set(args[1]) & set("wax+")):
            return
        self.inside.now = True
        try:
            if str(args[0]).startswith(str(self.folder)) or event == "os.rmdir":
                with self.lock:
                    self.take()
        finally:
            self.inside.now = False

    def take(self):
        files = {}
        for path in sorted(self.folder.rglob("*")):
            with contextlib.suppress(FileNotFoundError):  # threads of tensorstore do not wait
                files[path.relative_to(self.folder)] = path.is_dir() or path.read_bytes()
        key = tuple((name, len(has)) for name, has in files.items() if has is not True)
        if key not in self.found:
            copy = self.found[key] = self.target / str(len(self.found))
            for name, has in files.items():
                if has is True:
                    (copy / name).mkdir(parents=True, exist_ok=True)
                else:
                    (copy / name).parent.mkdir(parents=True, exist_ok=True)
                    (copy / name).write_bytes(has)


@pytest.mark.integration
def test_kill_before_any_change_of_a_file_leaves_a_good_checkpoint(workdir, tmp_path_factory):
    """While 12 is saved and what it replaces is removed."""
    shots = Snapshots(workdir / "checkpoints", tmp_path_factory.mktemp("shots"))
    with contextlib.ExitStack() as stack:
        stack.callback(setattr, shots, "awake", False)
        with Checkpoints(workdir, keep_last=1) as checkpoints:
            checkpoints.save(12, STATES[12], "", {})
    ends = []
    for number, copy in enumerate(shots.found.values()):
        again = workdir / f"again-{number}"
        again.mkdir()
        copy.rename(again / "checkpoints")
        ends.append(resumed(again))
        with Checkpoints(again, keep_last=3) as checkpoints:
            checkpoints.save(16, STATES[4], "", {})
        assert names(again) in (["12", "16"], ["16", "8"], ["12", "16", "8"], ["16", "4", "8"])
    assert len(ends) > 10
    assert ends == sorted(ends)
    assert set(ends) == {8, 12}


@pytest.mark.slow
def test_kill_9_at_random_moments_leaves_a_good_checkpoint(tmp_path):
    """25 lives of a process that does nothing but save, each killed within a second or two."""
    moments = random.Random(7)
    command = [sys.executable, "-W", "ignore", str(Path(endless_saver.__file__)), str(tmp_path)]
    newest, inside = 0, 0
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as parent:
        for _ in range(25):
            parent.stdin.write("\n")
            parent.stdin.flush()
            child = int(parent.stdout.readline())
            end = time.monotonic() + 60
            while max(step_folders.committed(tmp_path), default=0) <= newest:
                assert time.monotonic() < end
                time.sleep(0.01)
            time.sleep(moments.uniform(0, 0.5))
            os.kill(child, signal.SIGKILL)
            while (Path("/proc") / str(child)).exists():
                time.sleep(0.01)
            inside += any("tmp" in name for name in names(tmp_path))
            before = max(step_folders.committed(tmp_path))
            with Checkpoints(tmp_path, keep_last=1, keep_every=50) as checkpoints:
                found = checkpoints.newest_good()
                assert found == before > newest
                assert equal(
                    checkpoints.restore(found, abstract(endless_saver.state(0))),
                    endless_saver.state(found),
                )
            assert all(name.isdecimal() for name in names(tmp_path))
            newest = found
        parent.stdin.close()
    assert inside > 5, inside
    assert set(range(50, newest, 50)) <= set(step_folders.committed(tmp_path))


# ---------------------------------------------------------------- disks


@pytest.fixture
def disk(tmp_path):
    """Mounts a small disk of its own: disk(options) -> folder."""
    mounted = []

    def mount(options):
        folder = tmp_path / "disk"
        folder.mkdir(exist_ok=True)
        command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)]
        done = subprocess.run(command, capture_output=True, text=True) if not mounted else None
        if done is None:
            subprocess.run(["mount", "-o", f"remount,{options}", str(folder)], check=True)
        elif done.returncode:
            pytest.skip(f"no disk can be mounted here: {done.stderr.strip()}")
        mounted[:] = [folder]
        return folder

    yield mount
    for folder in mounted:
        subprocess.run(["umount", str(folder)], check=True)


@pytest.mark.slow
@pytest.mark.parametrize("options", ["size=6m", "size=100m,nr_inodes=45"])
def test_full_disk_during_a_save(disk, options):
    workdir = disk(options) / "run"
    with Checkpoints(workdir, keep_last=9) as checkpoints:
        checkpoints.save(1, endless_saver.state(1), "", {})
        checkpoints.wait()
        checkpoints.save(2, endless_saver.state(2), "", {})
        with pytest.raises(
            RunFailed, match=r"step 2 could not be saved.*no space left.*from step 1"
        ):
            checkpoints.wait()
    assert names(workdir) == ["1"]
    disk("size=100m,nr_inodes=1000")
    with Checkpoints(workdir) as checkpoints:
        assert checkpoints.newest_good() == 1
        checkpoints.save(2, endless_saver.state(2), "", {})
    with Checkpoints(workdir) as checkpoints:
        assert checkpoints.newest_good() == 2
        assert equal(
            checkpoints.restore(2, abstract(endless_saver.state(2))), endless_saver.state(2)
        )


@pytest.mark.slow
def test_run_on_a_full_disk_ends_with_one_message_and_goes_on_once_there_is_room(disk, capfd):
    """The disk is full at the start, before, in and after the save, also for metrics."""
    workdir = disk("size=100m") / "run"
    assert run(workdir) == 0
    used = sum(p.stat().st_blocks * 512 for p in workdir.rglob("*"))
    quiet = shutil.copytree(workdir, workdir.parent.parent / "quiet")
    shutil.rmtree(workdir)
    codes = []
    for size in (4096, *(int(used * share) for share in (0.2, 0.5, 0.8, 1.1))):
        disk(f"size={size // 4096 * 4}k")
        capfd.readouterr()
        codes.append(run(workdir))
        said = capfd.readouterr().err
        if codes[-1]:
            assert "o space left" in said
            assert "Make room" in said
            assert "Traceback" not in said
        disk("size=100m")
        if (workdir / "checkpoints").exists():
            assert all(name.isdecimal() for name in names(workdir)), files(workdir)
    assert set(codes) <= {0, 1}
    assert 1 in codes
    assert run(workdir) == 0
    assert logged(workdir) == logged(quiet)
    assert same_parameters(workdir, quiet)


@pytest.mark.slow
def test_process_on_a_full_disk_says_why_and_nothing_after_that(disk):
    """Also where asyncio tells of errors that nobody asked for: once the process ends."""
    workdir = disk("size=100k") / "run"
    command = [sys.executable, "-m", "vit_jax", "train", f"--config={QUICKSTART}"]
    command += [f"--workdir={workdir}", *TINY]
    for _ in range(2):  # the second finds the disk as full as the first has left it
        done = subprocess.run(command, capture_output=True, text=True, timeout=300)
        assert done.returncode == 1, done.stderr
        assert "no space left" in done.stderr
        assert "Make room" in done.stderr
        for noise in ("Traceback", "never retrieved", "RESOURCE_EXHAUSTED"):
            assert noise not in done.stderr
        (workdir.parent / "filler").write_bytes(bytes(2**12))
        with contextlib.suppress(OSError), open(workdir.parent / "filler", "ab") as file:
            file.write(bytes(2**20))


@pytest.mark.slow
def test_read_only_workdir_is_bad_input(disk, capfd):
    folder = disk("size=100m")
    assert run(folder / "run", "--config.length=4 steps") == 0
    (folder / "run" / "results.json").unlink()
    disk("ro")
    for workdir in (folder / "run", folder / "new"):
        assert run(workdir, "--config.length=4 steps") == 2
        said = capfd.readouterr().err
        assert f"cannot write to {workdir}: Read-only file system" in said
        assert "Traceback" not in said
    checkpoints = Checkpoints(folder / "run", read_only=True)
    assert checkpoints.weights(4)
