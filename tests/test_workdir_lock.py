# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""One run in a workdir: who is refused, who never blocks, and what those see who are overtaken."""

import concurrent.futures
import dataclasses
import errno
import hashlib
import json
import os
import re
import subprocess
import sys
import threading
import time

import pytest
from test_train import run

from vit_jax.errors import BadInput, PeerLost
from vit_jax.runtime import coordination, workdir_lock
from vit_jax.runtime.workdir_lock import BEAT_SECS, DEAD_SECS
from vit_jax.storage import files as storage


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    monkeypatch.setattr(workdir_lock, "SETTLE_SECS", 0.0)


def put(workdir, **changes):
    """A lock of this process, with changes."""
    owner = dataclasses.replace(workdir_lock.this_process(), **changes)
    (workdir / workdir_lock.FILE).write_text(json.dumps(dataclasses.asdict(owner)))
    return owner


class Clock:
    """Time that passes when somebody sleeps, and what happens then."""

    def __init__(self, then=lambda now: None):
        self.now, self.slept, self.then = time.time(), 0.0, then

    def __call__(self):
        return self.now

    def sleep(self, secs):
        self.now += secs
        self.slept += secs
        self.then(self.now)


def test_second_run_is_refused_and_the_first_named(tmp_path):
    first = workdir_lock.acquire(tmp_path)
    with pytest.raises(BadInput) as refused:
        workdir_lock.acquire(tmp_path)
    for part in (str(tmp_path), f"process {os.getpid()} on {first.host}", f"since {first.since}"):
        assert part in str(refused.value)
    workdir_lock.release(tmp_path, first)
    assert list(tmp_path.iterdir()) == []
    workdir_lock.acquire(tmp_path)


def test_a_killed_owner_on_this_host_does_not_block_however_fresh(tmp_path):
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    put(tmp_path, pid=child.pid, started=workdir_lock.started(child.pid))
    with pytest.raises(BadInput, match=f"process {child.pid} on"):
        workdir_lock.acquire(tmp_path)
    child.kill()
    end = time.monotonic() + 20
    while workdir_lock.started(child.pid) and time.monotonic() < end:  # a zombie is dead, too
        time.sleep(0.01)
    workdir_lock.acquire(tmp_path)
    child.wait()
    child.stdin.close()


def test_a_number_that_another_process_has_now_does_not_block(tmp_path):
    before = put(tmp_path, started="1")
    assert workdir_lock.acquire(tmp_path).started != before.started
    assert json.loads((tmp_path / workdir_lock.FILE).read_text())[
        "started"
    ] == workdir_lock.started(os.getpid())


def test_start_of_a_process_is_known_whatever_its_name(tmp_path):
    assert int(workdir_lock.started(os.getpid())) > 0
    assert workdir_lock.started(2**30) == ""


SKEWS = (0, 119, -119, 125, -125, 3600, -3600, 1e9, -1e9)  # seconds that a clock is ahead


@pytest.mark.parametrize("skew", SKEWS)
def test_a_dead_owner_elsewhere_does_not_block(tmp_path, skew):
    clock = Clock()
    put(tmp_path, machine="another", host="elsewhere", beat=clock.now + skew)
    workdir_lock.acquire(tmp_path, clock, clock.sleep)
    assert DEAD_SECS <= clock.slept <= DEAD_SECS + 3
    assert workdir_lock.read(tmp_path).pid == os.getpid()


@pytest.mark.parametrize("skew", SKEWS)
def test_a_live_owner_elsewhere_is_refused_whatever_its_clock_says(tmp_path, skew):
    owner = put(tmp_path, machine="another", host="elsewhere", beat=time.time() + skew)
    clock = Clock()

    def beats(_):
        if clock.slept > BEAT_SECS:
            put(tmp_path, machine="another", host="elsewhere", token=owner.token,
                beat=owner.beat + clock.slept)  # fmt: skip

    clock.then = beats
    with pytest.raises(BadInput, match="on elsewhere, since"):
        workdir_lock.acquire(tmp_path, clock, clock.sleep)
    assert clock.slept <= BEAT_SECS + 2
    assert workdir_lock.read(tmp_path).token == owner.token


@pytest.mark.parametrize("skew", [0, 125, -125, 3600, -3600])
def test_of_two_hosts_whose_clocks_differ_neither_takes_over_the_other(tmp_path, monkeypatch, skew):
    """Both start again and again in turn, while the other is at work."""
    hosts = {"ahead": skew, "behind": 0}
    for owner_host, starter in (("ahead", "behind"), ("behind", "ahead")):
        workdir = tmp_path / owner_host
        workdir.mkdir()
        now = [1.8e9]

        def clock_of(host, now=now):
            return lambda: now[0] + hosts[host]

        monkeypatch.setattr(workdir_lock, "_machine", lambda host=owner_host: host)
        owner = workdir_lock.acquire(workdir, clock_of(owner_host), lambda _: None)
        due = [BEAT_SECS]

        def sleep(secs, workdir=workdir, now=now, owner=owner, due=due, host=owner_host):
            now[0] += secs
            due[0] -= secs
            if due[0] <= 0:
                due[0] = BEAT_SECS
                assert workdir_lock.beat(workdir, owner, clock_of(host)) is None

        monkeypatch.setattr(workdir_lock, "_machine", lambda host=starter: host)
        for _ in range(5):
            with pytest.raises(BadInput, match="another run is at work"):
                workdir_lock.acquire(workdir, clock_of(starter), sleep)
            assert workdir_lock.read(workdir).token == owner.token


def test_an_owner_that_ends_meanwhile_does_not_block(tmp_path):
    put(tmp_path, machine="another")
    clock = Clock(lambda now: (tmp_path / workdir_lock.FILE).unlink(missing_ok=True))
    with pytest.raises(BadInput):  # the same deletes ours, too: it must be noticed
        workdir_lock.acquire(tmp_path, clock, clock.sleep)
    put(tmp_path, machine="another")
    gone = []
    clock = Clock(lambda now: gone or gone.append((tmp_path / workdir_lock.FILE).unlink()))
    workdir_lock.acquire(tmp_path, clock, clock.sleep)


def test_where_numbers_of_processes_mean_nothing_only_signs_of_life_count(tmp_path, monkeypatch):
    """Without /proc."""
    clock = Clock()
    put(tmp_path, machine="", started="", beat=clock.now - DEAD_SECS - 1)
    monkeypatch.setattr(workdir_lock, "_machine", lambda: "")
    workdir_lock.acquire(tmp_path, clock, clock.sleep)
    assert DEAD_SECS <= clock.slept <= DEAD_SECS + 3


@pytest.mark.parametrize(
    "content",
    ["", "{", "[]", "5", '{"pid": 1}', '{"pid": "x"}', "[" * 100_000, "\xff"],
    ids=lambda content: content[:10],
)
def test_a_damaged_lock_does_not_block(tmp_path, content, caplog):
    (tmp_path / workdir_lock.FILE).write_bytes(content.encode("latin-1"))
    workdir_lock.acquire(tmp_path)
    assert "damaged" in caplog.text


@pytest.mark.parametrize("field", ["pid", "beat"])
@pytest.mark.parametrize("value", ["1e999", "-1e999", "NaN", "1" + "0" * 400])
def test_a_lock_with_an_impossible_number_is_damaged(tmp_path, field, value, caplog):
    put(tmp_path, machine="another")
    text = (tmp_path / workdir_lock.FILE).read_text()
    (tmp_path / workdir_lock.FILE).write_text(
        re.sub(rf'"{field}": [0-9.]+', f'"{field}": {value}', text)
    )
    if (field, len(value)) == ("pid", 401):  # a number all the same: of no process here
        assert workdir_lock.read(tmp_path).pid == 10**400
        return
    clock = Clock()
    workdir_lock.acquire(tmp_path, clock, clock.sleep)
    assert clock.slept == 0
    assert "damaged" in caplog.text


@pytest.mark.parametrize("how", ["folder", "link to nothing", "rights"])
def test_a_lock_that_cannot_be_read_is_bad_input(tmp_path, monkeypatch, capsys, how):
    file = tmp_path / workdir_lock.FILE
    if how == "folder":
        file.mkdir()
    elif how == "link to nothing":
        file.symlink_to("absent")
    else:  # root may read all
        put(tmp_path)
        real = storage.read_all

        def refused(places):
            if file in places:
                raise PermissionError(errno.EACCES, "Permission denied", str(file))
            return real(places)

        monkeypatch.setattr(storage, "read_all", refused)
    before = sorted(tmp_path.iterdir())
    assert run(tmp_path) == 2
    said = capsys.readouterr().err
    reason = {"folder": "Is a directory", "rights": "Permission denied"}.get(how, "No such file")
    assert f"{file} cannot be read: {reason}" in said
    assert "Traceback" not in said
    assert sorted(tmp_path.iterdir()) == before


def test_a_lock_that_cannot_be_read_now_does_not_end_the_run_that_holds_it(
    tmp_path, monkeypatch, caplog
):
    monkeypatch.setattr(workdir_lock, "BEAT_SECS", 0.01)
    real, refusals = storage.read_all, []

    def refused(places):
        if threading.current_thread().name == "lock" and len(refusals) < 3:
            refusals.append(places)
            raise PermissionError(errno.EACCES, "Permission denied")
        return real(places)

    monkeypatch.setattr(storage, "read_all", refused)
    with workdir_lock.held(tmp_path):
        first, end = workdir_lock.read(tmp_path).beat, time.monotonic() + 20
        while workdir_lock.read(tmp_path).beat == first and time.monotonic() < end:
            time.sleep(0.01)
        assert workdir_lock.read(tmp_path).beat > first
    assert len(refusals) == 3
    assert "cannot renew" in caplog.text


def test_of_two_that_begin_together_the_one_that_wrote_first_sees_it(tmp_path):
    clock = Clock(lambda now: put(tmp_path, token="other", pid=7))
    with pytest.raises(BadInput, match="process 7 on"):
        workdir_lock.acquire(tmp_path, clock, clock.sleep)
    assert workdir_lock.read(tmp_path).token == "other"  # and leaves it alone


TRIES, PROCESSES = 40, 6
# Processes of one start line take the locks of many folders, one after another.
RACE = f"""
import json, multiprocessing, sys
from pathlib import Path
from vit_jax.runtime import workdir_lock as lock
context = multiprocessing.get_context("fork")
line = context.Barrier({PROCESSES})
def one(number, folder):
    found = []
    for n in range({TRIES}):
        line.wait(60)
        try:
            found.append(lock.acquire(folder / str(n)).pid)
        except Exception as e:
            found.append(str(e))
        line.wait(60)
    (folder / f"{{number}}.json").write_text(json.dumps(found))
children = [context.Process(target=one, args=(i, Path(sys.argv[1]))) for i in range({PROCESSES})]
for child in children:
    child.start()
for child in children:
    child.join()
"""


def leave(folder, before):
    """What those who come find."""
    if before == "damage":
        (folder / workdir_lock.FILE).write_text("{")
    elif before != "nobody":
        put(folder, pid=2**30, started="1", token=folder.name)
    if before == "two dead ones":  # the second when it was about to take over
        content = (folder / workdir_lock.FILE).read_bytes()
        claim = f".{workdir_lock.FILE}.{hashlib.sha256(content).hexdigest()[:16]}"
        (folder / claim).write_bytes(content.replace(b'"started": "1"', b'"started": "2"'))


@pytest.mark.integration
def test_of_several_processes_that_begin_together_one_wins_and_the_others_name_it(tmp_path):
    for n in range(TRIES):
        (tmp_path / str(n)).mkdir()
        leave(tmp_path / str(n), ("nobody", "a dead one", "two dead ones", "damage")[n % 4])
    done = subprocess.run(
        [sys.executable, "-c", RACE, tmp_path], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    told = [json.loads((tmp_path / f"{i}.json").read_text()) for i in range(PROCESSES)]
    for n, found in enumerate(zip(*told, strict=True)):
        winners = [pid for pid in found if isinstance(pid, int)]
        assert len(winners) == 1, found
        refused = [text for text in found if text != winners[0]]
        assert all(f"another run is at work in {tmp_path / str(n)}: " in t for t in refused)
        assert all(f"process {winners[0]} on" in text for text in refused), found
        assert [path.name for path in (tmp_path / str(n)).iterdir()] == [workdir_lock.FILE]
        assert workdir_lock.read(tmp_path / str(n)).pid == winners[0]


@pytest.mark.parametrize("dead", [False, True])
def test_of_several_that_begin_together_in_a_bucket_one_wins(store, dead):
    for n in range(3):
        workdir = storage.path(f"gs://bucket/{n}")
        if dead:
            gone = dataclasses.replace(workdir_lock.this_process(), pid=2**30, started="1")
            storage.write(workdir / workdir_lock.FILE, json.dumps(dataclasses.asdict(gone)))
        line = threading.Barrier(4)

        def one(_, workdir=workdir, line=line):
            line.wait(20)
            try:
                return workdir_lock.acquire(workdir).token
            except BadInput as e:
                return f"{type(e)}: {e}"

        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            found = list(pool.map(one, range(4)))
        assert sum("at work" in text for text in found) == 3, found
        assert workdir_lock.read(workdir).token in found
        assert store.names(f"bucket/{n}/") == [f"bucket/{n}/{workdir_lock.FILE}"]


def test_the_file_is_renewed_and_who_has_taken_over_is_seen(tmp_path):
    me = workdir_lock.acquire(tmp_path)
    assert workdir_lock.beat(tmp_path, me, clock=lambda: 5.0) is None
    assert workdir_lock.read(tmp_path).beat == 5.0
    (tmp_path / workdir_lock.FILE).unlink()
    assert workdir_lock.beat(tmp_path, me) is None  # nobody has it: ours again
    other = put(tmp_path, token="other")
    assert workdir_lock.beat(tmp_path, me) == other
    workdir_lock.release(tmp_path, me)
    assert workdir_lock.read(tmp_path) == other


@pytest.mark.parametrize("refusal, code", [(BadInput, 2), (PeerLost, 43)])
def test_a_run_that_is_overtaken_ends_and_leaves_the_lock(tmp_path, monkeypatch, refusal, code):
    """Slices of one run that train apart start again; other runs need a person."""
    ends = []
    monkeypatch.setattr(workdir_lock, "BEAT_SECS", 0.01)
    monkeypatch.setattr(coordination, "end_all", lambda *given: ends.append(given))
    with workdir_lock.held(tmp_path, refusal):
        end = time.monotonic() + 20
        while not ends and time.monotonic() < end:
            put(tmp_path, token="other", pid=7)  # again, if ours was written at the same moment
            time.sleep(0.02)
    assert ends[0][0] == code
    assert "taken over" in ends[0][1]
    assert "process 7 on" in ends[0][1]
    assert (tmp_path / workdir_lock.FILE).exists()


def test_slices_of_one_run_that_train_apart_start_again(tmp_path):
    with workdir_lock.held(tmp_path):
        with pytest.raises(PeerLost, match=f"process {os.getpid()} on"):
            with workdir_lock.held(tmp_path, PeerLost):
                pass
    (tmp_path / workdir_lock.FILE).mkdir()  # cannot be read: starting again would not help
    with pytest.raises(BadInput, match="cannot be read"), workdir_lock.held(tmp_path, PeerLost):
        pass


def test_workdir_is_made_and_removed_again_if_nothing_was_written(tmp_path):
    with workdir_lock.held(tmp_path / "a"):
        assert [p.name for p in (tmp_path / "a").iterdir()] == [workdir_lock.FILE]
    assert list(tmp_path.iterdir()) == []
    with workdir_lock.held(tmp_path / "a"):
        (tmp_path / "a" / "x").touch()
    assert [p.name for p in (tmp_path / "a").iterdir()] == ["x"]


def test_lock_of_a_bucket_keeps_a_second_run_out_and_is_released(store):
    workdir = storage.path("gs://bucket/run")
    with workdir_lock.held(workdir):
        with pytest.raises(BadInput, match=f"process {os.getpid()} on"), workdir_lock.held(workdir):
            pass
        assert store.names("bucket/run/")
    assert not store.names("bucket/run/")


def test_folders_that_were_made_for_nothing_are_removed_again(tmp_path):
    (tmp_path / "there").mkdir()
    with workdir_lock.held(tmp_path / "there" / "new" / "run"):
        pass
    assert [p.name for p in tmp_path.rglob("*")] == ["there"]
    with workdir_lock.held(tmp_path / "there" / "new" / "run"):
        (tmp_path / "there" / "new" / "run" / "kept").touch()
    assert (tmp_path / "there" / "new" / "run" / "kept").exists()
