# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""States on the hosts' own disks: what a restart takes from them, and what it refuses."""

import errno
import http.client
import json
import logging
import os
import subprocess
import sys
import types
from pathlib import Path

import jax
import numpy as np
import pytest
import tier_pair
from interrupted_runs import assert_equal
from ports import free_port
from test_processes import environment, outcome
from test_train import run

from vit_jax.checkpoints import local_folders, local_tier, peer_copies, restart_limit, shard_files
from vit_jax.checkpoints.checkpoints import Checkpoints
from vit_jax.checkpoints.step_folders import committed
from vit_jax.errors import BadInput
from vit_jax.runtime import coordination, peer_links
from vit_jax.training import refused_start, train, workdir

PLACES = tier_pair.placed(1)


@pytest.fixture
def opened(tmp_path, caplog):
    """Opens the tier in `near`, whose states were saved with a seed."""
    caplog.set_level(logging.INFO, "vit_jax")
    abstract = jax.tree.map(
        lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding),
        tier_pair.state(0, PLACES),
    )

    def open_tier(seed="1", path=tmp_path / "near"):
        more = {"every": 10, "every_minutes": 0}
        return local_tier.opened(str(path), tmp_path, abstract, {"seed": seed}, **more)

    return open_tier


def save(tier, *steps):
    for step in steps:
        tier.save(step, tier_pair.state(step, PLACES))
        tier._writing.result()


def restored(tier, at_least=-1):
    """Returns the step that is restored; its arrays must be those that were saved."""
    newest = tier.newest()
    found = tier.restore(at_least)
    if found is None:
        return None
    tier_pair.assert_is(*found)
    assert found[1] <= newest
    return found[1]


def test_newest_state_comes_back_and_two_are_kept(opened):
    with opened() as tier:
        assert restored(tier) is None
        assert [tier.due(step) for step in (5, 10, 20)] == [False, True, True]
        save(tier, 10, 20, 30)
    with opened() as tier:
        assert restored(tier, 31) is None
        assert restored(tier, 30) == 30
        assert sorted(p.name[:2] for p in tier.folder.iterdir()) == ["20", "30"]
        tier.discard()
        assert not tier.folder.exists()


@pytest.mark.parametrize("name", ["0.arrays", "0.json"])
@pytest.mark.parametrize("how", ["flip", "truncate", "remove"])
def test_damaged_state_is_not_used(opened, name, how):
    with opened() as tier:
        save(tier, 10, 20)
    (file,) = tier.folder.glob(f"20-*/{name}")
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content if how == "flip" else content[:-1])
    if how == "remove":
        file.unlink()
    with opened() as tier:
        assert restored(tier, 11) is None
        assert restored(tier) == 10


def test_tier_of_another_config_or_run_is_ignored_with_one_line(opened, tmp_path, caplog):
    with opened() as tier:
        save(tier, 10)
    with opened(seed="2") as tier:
        assert restored(tier) is None
    assert sum("another configuration" in r.message for r in caplog.records) == 1
    (tmp_path / local_folders.FILE).unlink()  # a new run in the same workdir
    with opened() as tier:
        assert restored(tier) is None
    assert sum("1 other runs, which are ignored" in r.message for r in caplog.records) == 1


def test_full_disk_is_a_warning(opened, caplog, monkeypatch):
    real = shard_files.store

    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with opened() as tier:
        save(tier, 10)
        monkeypatch.setattr(shard_files, "store", full)
        save(tier, 20, 30)
        monkeypatch.setattr(shard_files, "store", real)
        assert restored(tier) == 10
        save(tier, 40)
        assert restored(tier) == 40
    warnings = [r.message for r in caplog.records if r.levelno == logging.WARNING]
    assert len(warnings) == 1
    assert "step 20 is not saved in the local tier: no space left" in warnings[0]


def test_slow_disk_makes_a_save_wait_for_its_turn(opened, caplog):
    with opened() as tier:
        save(tier, 10)
        done, tier._writing = tier._writing, local_tier.Future()
        tier.save(20, tier_pair.state(20, PLACES))
        assert "step 20 is not saved" in caplog.text
        tier._writing = done
        save(tier, 30)
        assert restored(tier) == 30


def test_folder_that_is_not_writable(opened, tmp_path, caplog):
    (tmp_path / "file").touch()
    with pytest.raises(BadInput, match=r"local.path=.*file: cannot write there: Not a dir"):
        opened(path=tmp_path / "file").__enter__()
    with opened(path=tmp_path / "file") as tier:  # the run has begun: it goes on
        assert tier is None
    assert "the run goes on without its local tier" in caplog.text


def test_newest_state_is_progress_and_is_announced(opened, tmp_path):
    with opened() as tier:
        save(tier, 10)
    near = str(tmp_path / "near")
    assert "beginning, or from step 10 if" in workdir.resumption(tmp_path, near)
    assert workdir.resumption(tmp_path) == "Run again to start from the beginning."
    for _ in range(1 + restart_limit.MOST):
        with pytest.raises(KeyboardInterrupt), restart_limit.counted(tmp_path, near):
            raise KeyboardInterrupt
    with opened() as tier:
        tier.newest()
        tier.restore(10)
        save(tier, 20)
    with restart_limit.counted(tmp_path, near):
        pass


def test_rows_stay_after_a_refusal_if_a_state_was_saved(opened, tmp_path):
    rows = tmp_path / "metrics.jsonl"

    def refused_after(*steps):
        near = str(tmp_path / "near")
        with refused_start.unchanged_if_refused(tmp_path, near), opened() as tier:
            rows.write_text("{}\n")
            save(tier, *steps)
            raise BadInput("an image is damaged")

    for steps in ((), (10,)):
        with pytest.raises(BadInput):
            refused_after(*steps)
        assert rows.exists() == bool(steps)
        assert len(list((tmp_path / "near").iterdir())) == len(steps)  # no empty folder is left
    with opened() as tier:
        assert restored(tier) == 10


def test_damaged_step_is_set_aside_when_a_local_state_is_restored(tmp_path, caplog):
    with Checkpoints(tmp_path) as checkpoints:
        (checkpoints.folder / "8").mkdir()
        (checkpoints.folder / "8" / "commit_success.txt").touch()
        checkpoints._damaged = {8: "a file is missing"}
        checkpoints.continue_after(4, 6)
        assert checkpoints.newest_known == 4
        assert [path.name for path in checkpoints.folder.iterdir()] == ["8.damaged"]
    assert "continuing from step 6: 2 steps are done again" in caplog.text


def test_path_must_be_absolute(tmp_path, capsys):
    assert run(tmp_path, "--config.checkpoint.local.path=near") == 2
    assert "checkpoint.local.path='near'" in capsys.readouterr().err


@pytest.mark.parametrize(
    "places, held, peers",
    [
        ("ab", "xx", [None, None]),  # the batch is split, the state is not
        ("ab", "xy", [1, 0]),
        ("aabb", "xyzw", [2, 3, 0, 1]),
        ("aabbc", "xyzwv", [2, 3, 4, 4, 0]),
        ("abcd", "xyxy", [None] * 4),  # two slices
        ("aabb", "xxyy", [2, None, 0, None]),  # the same arrays, but on the same host
        ("aa", "xy", [None, None]),  # one host
    ],
)
def test_arrays_that_no_other_host_holds_have_a_peer(places, held, peers):
    layout = types.SimpleNamespace(held=held.__getitem__)
    hosts = [(place, "/dev/shm/x") for place in places]
    assert [local_tier.peer_of(p, hosts, layout) for p in range(len(places))] == peers
    both = list(zip(places, held, strict=True))
    writers = [local_tier.writes(p, hosts, layout) for p in range(len(places))]
    assert writers == [one not in both[:p] for p, one in enumerate(both)]


def test_own_file_is_taken_before_others_which_share_the_work():
    held = [{"5-ab": [0]}, {"5-ab": [0, 1]}, {}, {}, {"6-ab": [4]}]
    tier = types.SimpleNamespace(
        _held=held, _count=5, _layout=types.SimpleNamespace(held="xxxxx".__getitem__)
    )
    plan = local_tier.LocalTier._plan(tier, "5-ab")
    assert plan == [(0, 0), (1, 0), (0, 0), (1, 0), (0, 0)]
    tier._layout.held = "xxxyx".__getitem__  # process 3 holds what nobody has saved
    assert local_tier.LocalTier._plan(tier, "5-ab") is None


@pytest.mark.parametrize(
    "names, first, expected",
    [
        (["127.0.0.1", "10.0.0.5"], "10.0.0.5", "10.0.0.5"),  # process 0: two hosts
        (["127.0.1.1"], "10.0.0.5", "10.0.0.5"),  # beside process 0
        (["::ffff:10.0.0.7"], "10.0.0.5", "10.0.0.7"),  # elsewhere
        (["::1", "fd00::7"], "fd00::7", "fd00::7"),
        (["127.0.0.1"], "127.0.0.1", "127.0.0.1"),  # one host
    ],
)
def test_other_hosts_reach_the_address_of_a_process(monkeypatch, names, first, expected):
    def channel(name):
        return types.SimpleNamespace(socket=types.SimpleNamespace(getsockname=lambda: (name, 1)))

    links = types.SimpleNamespace(_channels=dict(enumerate(map(channel, names))))
    monkeypatch.setattr(coordination, "share", lambda *_: first)
    assert local_tier._reachable(peer_links.PeerLinks.address(links)) == expected


def test_peer_says_that_its_disk_is_full(tmp_path, monkeypatch):
    def full(folder, process, chunks, *_):
        next(chunks)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    shard_files.store(tmp_path / "b" / "5-ab", 3, [bytes(1 << 25)], "identity")
    monkeypatch.setattr(shard_files, "store", full)
    server = peer_copies.Server(tmp_path / "a", "127.0.0.1", "secret", "identity")
    try:
        with pytest.raises(OSError, match="No space left"):
            peer_copies.send(server.address, "secret", tmp_path / "b" / "5-ab", 3)
    finally:
        server.stop()


def test_files_are_served_only_to_the_run_and_only_whole(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    server = peer_copies.Server(tmp_path / "a", "127.0.0.1", "secret", "identity")
    try:
        shard_files.store(tmp_path / "b" / "5-ab", 3, [b"content"], "identity")
        peer_copies.send(server.address, "secret", tmp_path / "b" / "5-ab", 3)
        assert shard_files.read(tmp_path / "a" / "5-ab", 3).tobytes() == b"content"
        with pytest.raises(OSError, match="403"):
            peer_copies.fetch(server.address, "other", tmp_path / "b" / "5-ab", 3, "identity")
        for path in ("/5-ab/../3", "/../a/3", "/5-ab/3.arrays", "//3", "/"):
            connection = http.client.HTTPConnection(*server.address, timeout=10)
            connection.request("GET", path, headers={"Secret": "secret"})
            assert connection.getresponse().status == 403
            connection.close()
        with pytest.raises(OSError, match="No such file"):
            peer_copies.fetch(server.address, "secret", tmp_path / "b" / "6-ab", 3, "identity")
        (tmp_path / "a" / "5-ab" / "3.arrays").write_bytes(b"conTent")
        with pytest.raises(OSError, match="changed on its way"):
            peer_copies.fetch(server.address, "secret", tmp_path / "b" / "5-ab", 3, "identity")
        assert shard_files.read(tmp_path / "b" / "5-ab", 3).tobytes() == b"content"
        (tmp_path / "b" / "5-ab" / "3.arrays").write_bytes(b"conTent")
        with pytest.raises(OSError, match="changed on its way"):
            peer_copies.send(server.address, "secret", tmp_path / "b" / "5-ab", 3)
    finally:
        server.stop()
    with pytest.raises(OSError, match="refused"):
        peer_copies.send(server.address, "secret", tmp_path / "b" / "5-ab", 3)


# ---------------------------------------------------------------- runs


@pytest.mark.integration
def test_killed_run_continues_from_its_local_tier(tmp_path, digits_run, monkeypatch, caplog):
    tier = (
        f"--config.checkpoint.local.path={tmp_path / 'near'}",
        "--config.checkpoint.local.every=3 steps",
    )
    real = train.Window.add

    def dies(self, step, metrics):
        real(self, step, metrics)
        if step == 8:  # step 4 is in the workdir, step 6 in the local tier
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(train.Window, "add", dies)
        patch.setattr(local_tier.LocalTier, "save", tier_pair.patient)
        with pytest.raises(KeyboardInterrupt):
            run(tmp_path / "run", *tier)
    assert committed(tmp_path / "run") == [4]
    assert run(tmp_path / "run", *tier) == 0
    assert "at step 6, from the local tier" in caplog.text
    assert_equal(tmp_path / "run", digits_run)
    assert not list((tmp_path / "near").iterdir())  # the run is finished


def pair(folder, *what, timeout):
    """Runs the program `tier_pair` twice; returns what both have printed."""
    address, children = f"127.0.0.1:{free_port()}", []
    for index in range(2):
        words = [sys.executable, Path(tier_pair.__file__), str(index), address, folder, *what]
        said = open(folder / f"log.{index}", "w+")
        children.append(
            subprocess.Popen(list(map(str, words)), env=environment(4), stdout=said, stderr=said)
        )
        children[-1].log = said
    codes, texts = outcome(children, timeout)
    assert codes == [0, 0], texts
    return texts


@pytest.mark.integration
@pytest.mark.timeout(900)
def test_lost_host_is_served_by_its_peer(tmp_path):
    texts = pair(tmp_path, "training", timeout=800)
    assert "at step 3, from the local tier" in texts[0]
    assert "other processes serve the arrays of process 1" in texts[0]
    assert_equal(tmp_path / "whole", tmp_path / "cut")


@pytest.mark.integration
@pytest.mark.parametrize("replica", [1, 2])
def test_losses_at_random_leave_what_they_should(tmp_path, replica):
    pair(tmp_path, "rounds", 8, 5, replica, timeout=300)


@pytest.mark.chaos
@pytest.mark.timeout(3600)
def test_a_hundred_losses_at_random(tmp_path):
    count = os.environ.get("VIT_JAX_CHAOS_ROUNDS", "100")
    seed = os.environ.get("VIT_JAX_CHAOS_SEED", "1")
    seen = json.loads(pair(tmp_path, "rounds", count, seed, timeout=3500)[0].splitlines()[-1])
    assert set(seen) == set(tier_pair.LOSSES)
    assert np.size(seen) == int(count)
