# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Writers of metrics: their names, their failures, the page about them, and the real packages."""

import importlib.util
import re
import shlex
import sqlite3
import struct
import threading
import time

import pytest

from vit_jax.cli import main
from vit_jax.config import load as config_lib
from vit_jax.config import sections
from vit_jax.errors import BadInput
from vit_jax.training import metric_writer
from vit_jax.training.metric_writer import Report

MODULE = """
import time

class Failing:
    def __init__(self, workdir, config, at):
        self.at = at
        self.reach("creation")
    def write(self, step, values):
        self.reach("write")
    def close(self, failed):
        self.reach("close")
    def reach(self, place):
        if self.at == place:
            raise ConnectionError(f"no server at {place}")

class Leaving(Failing):
    def reach(self, place):
        if self.at == place:
            raise SystemExit(3)

class Hanging(Failing):
    def reach(self, place):
        while self.at == place:
            time.sleep(0.01)

def rows(workdir, config):
    return 1 / 0
"""


@pytest.fixture
def mine(tmp_path, monkeypatch):
    """A module of writers that fail; the workdir of a run."""
    (tmp_path / "lost_writers.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(tmp_path))
    workdir = tmp_path / "run"
    workdir.mkdir()
    return workdir


def write(workdir, writers, config=None, failed=False):
    """Writes three rows, as a run does; returns the seconds that the run waited."""
    start = time.monotonic()
    report = Report(workdir, step=0, writers=writers, config=config)
    for step in (1, 2, 3):
        report.row(step, {"train/loss": 1 / step, "val/examples": step})
    report.close(failed)
    return time.monotonic() - start


@pytest.mark.parametrize("kind", ["Failing", "Leaving", "Hanging"])
@pytest.mark.parametrize("place", ["creation", "write", "close"])
def test_a_writer_that_fails_or_hangs_never_stops_a_run_and_says_so_once(
    mine, caplog, monkeypatch, kind, place
):
    monkeypatch.setattr(metric_writer, "CLOSE_SECS", 0.2)
    name = f"lost_writers:{kind}(at={place!r})"
    metric_writer.check_writers([name])
    assert write(mine, [name]) < 5
    assert (mine / "metrics.jsonl").read_text().count("\n") == 3
    (said,) = [line for line in caplog.messages if "the writer" in line]
    assert name in said
    assert said.endswith("metrics.jsonl has all rows.")
    reason = {"Failing": f"no server at {place}", "Leaving": "SystemExit: 3"}
    assert reason.get(kind, "did not finish within 0.2 s") in said


def test_a_writer_that_does_not_keep_up_is_given_up(mine, caplog, monkeypatch):
    monkeypatch.setattr(metric_writer, "CLOSE_SECS", 0.2)
    monkeypatch.setattr(metric_writer, "WAITING_ROWS", 2)
    write(mine, ["lost_writers:Hanging(at='creation')"])
    (said,) = [line for line in caplog.messages if "the writer" in line]
    assert "does not answer, and 2 rows wait for it" in said


@pytest.mark.parametrize(
    "name, words",
    [
        ("lost_writers:Fading(at='write')", "Fading"),
        ("lost_writers:Failing", "missing a required argument: 'at'"),
        ("nowhere.to:be", "there is no module nowhere"),
        ("json:dumps", "a part of Python"),
    ],
)
def test_a_writer_that_cannot_be_is_bad_input(mine, name, words):
    with pytest.raises(BadInput, match=words):
        metric_writer.check_writers([name])


@pytest.mark.parametrize("name", ["wandb", "mlflow"])
def test_a_package_that_is_missing_is_bad_input(monkeypatch, name):
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(BadInput, match=rf"{name} is not installed.*vit_jax\[{name}\]"):
        metric_writer.check_writers([name])


@pytest.mark.parametrize("value", ["('wandbee',)", "('wandb','wandb')", "(3,)"])
def test_names_are_checked_with_the_configuration(value):
    with pytest.raises(BadInput, match="tensorboard, wandb, mlflow or MODULE:NAME"):
        config_lib.load("configs/quickstart.py", [f"--config.report.writers={value}"])


@pytest.mark.parametrize("saved, writers", [("true", ("tensorboard",)), ("false", ())])
def test_what_earlier_runs_saved_is_read(tmp_path, saved, writers):
    text = config_lib.to_yaml(config_lib.load("configs/quickstart.py"))
    old, count = re.subn(r"writers: \[tensorboard\]", f"tensorboard: {saved}", text)
    assert count == 1
    (tmp_path / "config.yaml").write_text(old)
    assert config_lib.read(str(tmp_path / "config.yaml")).report.writers == writers


def test_only_the_first_process_makes_writers(mine):
    before = set(threading.enumerate())
    report = Report(mine, step=0, writers=["lost_writers:rows"], write=False)
    report.row(1, {"a": 1})
    assert set(threading.enumerate()) <= before
    report.close()


def test_the_example_of_the_page_writes(root, mine, monkeypatch, caplog):
    page = (root / "docs" / "writers.md").read_text()
    (code,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    (name,) = set(re.findall(r"my_writers:\w+", page))
    (mine.parent / "my_writers.py").write_text(code)
    config = dict(config_lib.flatten(sections.Config()))
    metric_writer.check_writers([name])
    write(mine, [name], config)
    assert not [line for line in caplog.messages if "the writer" in line]
    lines = (mine / "metrics.csv").read_text().splitlines()
    assert lines[1:3] == ["1,train/loss,1.0", "1,val/examples,1"]
    assert len(lines) == 7


def installed(name):
    if importlib.util.find_spec(name) is None:
        pytest.skip(f"{name} is not installed; `pip install 'vit_jax[{name}]'`")


def records(content):
    """Yields the records of an offline run: LevelDB's log format, behind 7 bytes of W&B's."""
    place, parts = 7, b""
    while place + 7 <= len(content):
        if 32768 - place % 32768 < 7:  # the rest of a block is too short for a header
            place += 32768 - place % 32768
        size, kind = struct.unpack("<4xHB", content[place : place + 7])
        parts += content[place + 7 : place + 7 + size]
        place += 7 + size
        if kind in (1, 4):  # whole, or the last part
            yield parts
            parts = b""


@pytest.mark.integration
def test_wandb_offline(mine, monkeypatch, caplog):
    installed("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    for failed in (True, False):  # the second start goes on with the same run
        write(mine, ["wandb"], {"schedule.lr": 0.5}, failed)
        time.sleep(1.1)  # W&B names the folders by the second
    assert not [line for line in caplog.messages if "the writer" in line]
    run = (mine / "wandb_run.txt").read_text().strip()
    stores = sorted(mine.glob(f"wandb/offline-run-*-{run}/run-{run}.wandb"))
    assert len(stores) == 2
    from wandb.proto import wandb_internal_pb2

    for store, exit_code in zip(stores, (1, 0), strict=True):
        losses, configured = {}, {}
        for data in records(store.read_bytes()):
            record = wandb_internal_pb2.Record.FromString(data)
            if record.HasField("exit"):
                assert record.exit.exit_code == exit_code
                configured["exit"] = True
            row = {"/".join(i.nested_key) or i.key: i.value_json for i in record.history.item}
            if "train/loss" in row:
                losses[int(row["step"])] = float(row["train/loss"])
            for item in record.run.config.update:
                configured[item.key] = item.value_json
        assert losses == {1: 1.0, 2: 0.5, 3: pytest.approx(1 / 3)}
        assert configured == configured | {"schedule.lr": "0.5", "exit": True}


@pytest.mark.integration
def test_command_of_the_page(root, tmp_path, monkeypatch, caplog):
    installed("wandb")
    page = (root / "docs" / "writers.md").read_text().replace("\\\n", " ")
    (line,) = re.findall(r"^vit_jax train .*", page, re.MULTILINE)
    words = [w.replace("configs/", f"{root}/configs/") for w in shlex.split(line)[1:]]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WANDB_MODE", "offline")
    short = "--config.length=2 steps", "--config.schedule.warmup=0", "--config.report.page=false"
    assert main.main([*words, *short]) == 0
    assert not [line for line in caplog.messages if "the writer" in line]
    assert list(tmp_path.glob("runs/watched/events.out.tfevents.*"))
    assert list(tmp_path.glob("runs/watched/wandb/offline-run-*"))


@pytest.mark.integration
@pytest.mark.filterwarnings("ignore")  # MLflow uses what SQLAlchemy has deprecated
def test_mlflow_in_a_local_database(mine, tmp_path, monkeypatch, caplog):
    installed("mlflow")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/mlflow.db")
    monkeypatch.setattr(metric_writer, "CLOSE_SECS", 120)
    config = dict(config_lib.flatten(config_lib.load("configs/quickstart.py")))
    for failed in (True, False):  # the second start goes on with the same run
        write(mine, ["mlflow"], config, failed)
        with sqlite3.connect(tmp_path / "mlflow.db") as database:
            run = (mine / "mlflow_run.txt").read_text().strip()
            assert database.execute("SELECT run_uuid, status FROM runs").fetchall() == [
                (run, "FAILED" if failed else "FINISHED")
            ]
    assert not [line for line in caplog.messages if "the writer" in line]
    with sqlite3.connect(tmp_path / "mlflow.db") as database:
        rows = database.execute("SELECT step, value FROM metrics WHERE key = 'train/loss'")
        assert dict(rows.fetchall()) == {1: 1.0, 2: 0.5, 3: pytest.approx(1 / 3)}
        params = dict(database.execute("SELECT key, value FROM params").fetchall())
        assert params == {key: str(value) for key, value in config.items()}
