# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Metrics files, rates and tables."""

import dataclasses
import io
import json
import threading
import time

import jax
import numpy as np
import pytest

from vit_jax import console
from vit_jax.config import sections
from vit_jax.data.pipeline import skipped_images
from vit_jax.errors import BadInput
from vit_jax.reports import summary
from vit_jax.storage import files as storage
from vit_jax.storage import jsonl
from vit_jax.training import metric_writer
from vit_jax.training.metric_writer import Report, Throughput


def test_rows_carry_their_step_and_can_be_read_back(tmp_path):
    report = Report(tmp_path, step=0, writers=())
    report.row(1, {"train/loss": 2.5})
    report.row(1, {"val/top1": 0.5})
    report.row(2, {"train/loss": 2.0})
    assert report.at(1) == {"step": 1, "train/loss": 2.5, "val/top1": 0.5}
    report.close()
    lines = (tmp_path / "metrics.jsonl").read_text().splitlines()
    assert json.loads(lines[0]) == {"step": 1, "train/loss": 2.5}
    assert len(lines) == 3


def test_continuing_cuts_later_rows_and_a_torn_line(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 4, "a": 1}\n{"step": 6, "a": 2}\n{"step": 8, "a"')
    report = Report(tmp_path, step=4, writers=())
    report.row(5, {"a": 3})
    report.close()
    assert jsonl.read_rows(path) == [{"step": 4, "a": 1}, {"step": 5, "a": 3}]


def test_files_of_tensorboard_may_lie_in_a_folder_of_any_bytes(tmp_path):
    folder = tmp_path / "\udcff [x]"
    folder.mkdir()
    report = Report(folder, step=0, writers=("tensorboard",))
    report.row(1, {"train/loss": 2.5})
    report.close()
    assert [p.name.split(".")[0] for p in sorted(folder.iterdir())] == ["events", "metrics"]


def test_a_value_that_is_not_finite_is_never_written(tmp_path):
    report = Report(tmp_path, step=0, writers=())
    with pytest.raises(ValueError, match="JSON"):
        report.row(1, {"train/loss": float("nan")})
    report.close()
    assert (tmp_path / "metrics.jsonl").read_text() == ""


def test_atomic_write_leaves_no_other_file(tmp_path):
    storage.write(tmp_path / "a", "old")
    storage.write(tmp_path / "a", "new")
    assert (tmp_path / "a").read_text() == "new"
    assert [p.name for p in tmp_path.iterdir()] == ["a"]


def test_waiting_beside_a_busy_device_is_not_counted():
    times = iter([0.0, 0.0, 1.0, 3.0, 10.0])
    throughput = Throughput(clock=lambda: next(times))
    done = iter([True, False])
    with throughput.wait(lambda: next(done)):  # 0; the device has not ended its step by then
        pass
    with throughput.wait(lambda: next(done)):  # 1 to 3; it has
        pass
    assert throughput.measure(1)["perf/input_wait"] == 0.2  # of 10


def test_throughput_leaves_out_pauses_and_counts_waiting():
    times = iter([0.0, 1.0, 3.0, 4.0, 6.0, 10.0])
    throughput = Throughput(clock=lambda: next(times))  # starts at 0
    with throughput.wait(lambda: False):  # 1 to 3
        pass
    with throughput.pause():  # 4 to 6
        pass
    assert throughput.measure(80) == {"perf/img_per_sec": 10.0, "perf/input_wait": 0.25}  # at 10


def test_time_of_training_goes_on_over_rows_and_stands_still_in_pauses():
    now = [0.0]
    throughput = Throughput(clock=lambda: now[0])
    for training, pausing in ((3.0, 5.0), (2.0, 7.0)):
        before = throughput.training()
        now[0] += training
        with throughput.pause():
            now[0] += pausing
        assert throughput.training() - before == training
        throughput.measure(8)
        assert throughput.training() - before == training


@pytest.mark.parametrize(
    ("steps", "rate", "text"),
    [
        (540, 0.75, "about 12 min for 540 steps at 48 img/s, "),
        (30, 20.0, "about 2 s for 30 steps at 1,280 img/s, "),
        (3, 300.0, "about 1 s for 3 steps"),
        (119, 1.0, "about 119 s "),
        (36_000, 2.0, "about 5.0 h for 36,000 steps"),
    ],
)
def test_estimate_has_a_unit_of_its_size(steps, rate, text):
    assert metric_writer.estimate_line(steps, rate, 64).startswith(text)


@pytest.mark.parametrize(
    ("secs", "text"), [(0, "0:00"), (59.6, "1:00"), (61, "1:01"), (3723, "1:02:03")]
)
def test_durations(secs, text):
    assert console.duration(secs) == text


def test_progress_line_has_what_one_looks_for():
    row = {"train/loss": 0.5, "train/lr": 1e-3, "perf/img_per_sec": 200.0, "perf/input_wait": 0.02}
    line = metric_writer.progress_line(50, 100, row, left_images=2000)
    assert line == "step 50/100  loss 0.5000  lr 1.00e-03  200 img/s  wait 2%  ETA 0:10"
    assert "loss not finite  lr" in metric_writer.progress_line(
        5, 9, {k: v for k, v in row.items() if k != "train/loss"}, left_images=0
    )
    assert "MFU 45.0%" in metric_writer.progress_line(
        50, 100, row | {"perf/mfu": 0.45}, left_images=0
    )


def test_parameter_table_adds_up():
    params = {"a": {"kernel": np.zeros((2, 3))}, "b": jax.ShapeDtypeStruct((4,), np.float32)}
    text = summary.parameter_table(params)
    assert "a/kernel" in text
    assert "2x3" in text
    assert text.splitlines()[-1].split() == ["total", "10"]


RESULTS = {
    "step": 9,
    "checkpoint": "c",
    "test": {"top1": 0.97, "top5": 1.0, "loss": 0.1, "examples": 365},
}


def test_results_table_has_a_line_for_each_split():
    text = summary.results_table(RESULTS)
    assert text.splitlines()[-1].split() == ["test", "97.00%", "100.00%", "0.1000", "365"]


def test_metrics_of_ones_own_are_numbers_and_come_last():
    own = RESULTS["test"] | {"mce": 0.7, "error_fog": 0.5, "mean_error": 0.4, "images": 3}
    lines = summary.results_table({"test": {"my_error": 0.25} | own}).splitlines()
    assert lines[0].split() == [
        "split", "top-1", "top-5", "loss", "examples", "mCE", "my_error", "images",
    ]  # fmt: skip
    assert lines[-1].split()[-3:] == ["70.00%", "0.2500", "3.0000"]
    ((header, rows),) = summary.tables({"test": own | {"step": 9}})
    assert (header[-3:], rows[0][-3:]) == (
        ["mean_error", "images", "step"],
        ["40.00%", "3.0000", "9"],
    )


def test_average_precision_is_in_percent_before_the_loss():
    line = summary.evaluation_line(["val"], {"val/loss": 1.5, "val/ap50": 0.25, "val/examples": 3})
    assert line == "val AP50 25.00% loss 1.5000"


def test_few_shots_are_shares_of_so_many_examples():
    few = {"1shot": 0.4, "5shot": 0.71, "examples": 3669}
    text = summary.results_table(RESULTS | {"fewshot_pets": few})
    assert [line.split() for line in text.splitlines()[-2:]][-1] == [
        "fewshot_pets", "40.00%", "71.00%", "3,669",
    ]  # fmt: skip
    measured = {f"fewshot_pets/{name}": value for name, value in few.items()}
    line = summary.evaluation_line(["fewshot_pets"], measured)
    assert line == "fewshot_pets 1shot 40.00% 5shot 71.00%"


@pytest.mark.parametrize(("value", "word"), [(0.975, "within"), (0.99, "BELOW"), (0.90, "ABOVE")])
def test_measured_against_expected(value, word):
    expected = sections.Expected("test/top1", value, tolerance=0.01, source="s", hardware="h")
    assert f"{word} the tolerance" in summary.verdict(RESULTS, expected)
    for metric in ("", "other/top1"):
        assert summary.verdict(RESULTS, dataclasses.replace(expected, metric=metric)) == ""


def test_a_process_that_does_not_write_remembers_its_rows(tmp_path, capsys):
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 4, "a": 1}\n{"step": 6, "a": 2}\n')
    report = Report(tmp_path, step=4, writers=("tensorboard",), write=False)
    report.row(5, {"a": 3})
    report.sync()
    report.progress("step 5")
    report.close()
    assert report.at(4) == {}  # the process that writes has read it
    assert report.at(5) == {"step": 5, "a": 3}
    assert report.at(6) == {}
    assert path.read_text() == '{"step": 4, "a": 1}\n{"step": 6, "a": 2}\n'
    assert [p.name for p in tmp_path.iterdir()] == ["metrics.jsonl"]
    assert capsys.readouterr().err == ""


def test_what_any_process_of_any_start_skipped_is_read_back(tmp_path, monkeypatch):
    seen = []
    for process, found in [(0, ["a", "b"]), (1, ["b", "c"]), (0, ["d"])]:
        monkeypatch.setattr(jax, "process_index", lambda process=process: process)
        report = metric_writer.Report(tmp_path, step=0, writers=(), write=not process)
        for count in range(len(found) + 1):
            report.skipped([(name, "empty") for name in found[:count]])
        report.close()
        seen += found
        assert skipped_images.read_skipped(tmp_path) == {(name, "empty") for name in seen}
    assert len(list(tmp_path.glob("skipped-*"))) == 2


@pytest.mark.parametrize(
    "text",
    [b"", b'[["a.jpg", "tor', b"[1]", b'[["a"]]', b'[["a", 1]]', b"{}", b"\xff", b"[" * 10**5],
)
def test_damaged_list_of_skipped_images_is_an_empty_one(tmp_path, caplog, text):
    (tmp_path / "skipped-0.json").write_bytes(text)
    (tmp_path / "skipped-1.json").write_text('[["b.jpg", "empty"]]')
    report = Report(tmp_path, step=0, writers=())
    assert [report.bad_images() for _ in range(3)] == [1, 1, 1]
    assert [str(tmp_path / "skipped-0.json") in line for line in caplog.messages] == [True]
    report.skipped([("c.jpg", "empty")])
    assert skipped_images.read_skipped(tmp_path) == {("b.jpg", "empty"), ("c.jpg", "empty")}
    report.close()


def test_metrics_that_cannot_be_read_are_bad_input(tmp_path):
    (tmp_path / "metrics.jsonl").mkdir()
    with pytest.raises(BadInput, match=r"metrics\.jsonl: Is a directory\. Make it readable"):
        Report(tmp_path, step=4, writers=())
    Report(tmp_path, step=4, writers=(), write=False).close()


def test_nothing_skipped_leaves_no_file(tmp_path):
    report = metric_writer.Report(tmp_path, step=0, writers=())
    report.skipped([])
    report.close()
    assert skipped_images.read_skipped(tmp_path) == set()
    assert [path.name for path in tmp_path.iterdir()] == ["metrics.jsonl"]


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_bar_shows_from_the_start_on_a_terminal_and_leaves_nothing(monkeypatch):
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    threads = threading.active_count()
    with console.bar("images") as progress:
        assert terminal.getvalue().startswith("\rimages: 0")  # a compilation may come first
        assert threading.active_count() == threads
        time.sleep(0.6)
        progress(1000, 4000)
        assert "images:  25%" in terminal.getvalue()
        assert "1000/4000" in terminal.getvalue()
        before = terminal.getvalue()
        progress(1001, 4000)  # at once: not drawn again
        assert terminal.getvalue() == before
    assert terminal.getvalue().rpartition("\r")[2] == ""
    assert terminal.getvalue().split("\r")[-2].strip() == ""


def test_bar_is_silent_elsewhere(monkeypatch):
    monkeypatch.setattr("sys.stderr", io.StringIO())
    with console.bar("images") as progress:
        progress(1, 2)
        assert metric_writer.sys.stderr.getvalue() == ""
