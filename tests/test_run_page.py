# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""The page of one run says what its workdir does, in every state."""

import json

import pytest
from test_pages import check
from workdirs import rows, turns, written

from vit_jax.reports.figures import Figure
from vit_jax.reports.run import history, single
from vit_jax.reports.run.pictures import Pictures

NONE = Pictures(None, (), ())


def page(folder, *overrides, drawn=NONE, **given):
    return single.page(history.read(written(folder, *overrides, **given)), drawn)


def words(text):
    return check(text).words


def table(text, heading, number=0):
    return check(text).table(heading, number)


def test_what_it_was_and_what_it_reached(tmp_path):
    text = page(tmp_path / "mine", "--config.seed=7", metrics=rows(top1=0.985))
    found = words(text)
    assert "Run mine" in found
    assert "This run is done." in found
    assert "1 x toy (toy), 1 process" in found
    assert any(w.endswith("configs/quickstart.py --config.seed=7") for w in found)
    assert any("width 64, depth 3, mlp 128, heads 4" in w for w in found)
    assert "1:00" in found  # a minute
    (verdict,) = [w for w in found if w.startswith("test/top1")]
    assert "measured 0.9850, expected 0.9890" in verdict
    assert "within" in verdict
    assert table(text, "Results") == [
        ["split", "top-1", "top-5", "loss", "examples", "step"],
        ["val", "98.50%", "95.00%", "0.6667", "152", "1,000"],
        ["test", "98.50%", "97.00%", "1.0000", "365", "1,000"],
    ]
    assert table(text, "Results", 1) == [
        ["few-shot", "5shot", "examples", "step"],
        ["fewshot_pets", "40.00%", "30", "1,000"],
    ]
    assert table(text, "Differences from")[1:] == [["seed", "0", "7"]]


def test_time_adds_up(tmp_path):
    found = {row[0]: row[1:3] for row in table(page(tmp_path / "a"), "Where the time went")}
    assert found["start-up"] == ["0:10", "16.7%"]
    assert found["steps"] == ["0:40", "66.6%"]  # 999 steps of 0.04 s
    assert found["evaluation"] == ["0:03", "5.0%"]
    assert found["saving and the rest"] == ["0:07", "11.7%"]
    assert found["lost"] == found["down"] == ["0:00", "0.0%"]
    assert found["all"] == ["1:00", "100.0%"]


def test_restart_is_shown_in_its_parts(tmp_path):
    parts = [["noticing", 1.5], ["imports", 3.0], ["data", 4.0], ["restore", 0.25], ["data", 1.0]]
    new = {"step": 3, "event": "new_step", "time": 1.8e9 + 20, "parts": parts}
    text = page(tmp_path / "a", life=[*turns()[:-1], new, turns()[-1]])
    assert any("to the first new step of the next: 9.8." in word for word in words(text))
    assert table(text, "Restarts") == [
        ["part", "seconds", "bucket"],
        ["noticing", "1.50", "INFRASTRUCTURE_RECOVERY_FROM_DISRUPTION"],
        ["imports", "3.00", "TRAINING_PREP"],
        ["data", "5.00", "DATA_LOADING_SYNC"],
        ["restore", "0.25", "UNPRODUCTIVE_CHECKPOINT_RESTORE_TIME"],
    ]
    assert "Restarts" not in words(page(tmp_path / "b"))


def test_waiting_for_images_says_what_to_change(tmp_path):
    slow = [r | {"perf/input_wait": 0.3} if "perf/input_wait" in r else r for r in rows()]
    (said,) = [w for w in words(page(tmp_path / "a", metrics=slow)) if "devices waited for" in w
               and "more than" in w]  # fmt: skip
    assert "30.0% of the time, which is more than 2%" in said
    assert "data.workers" in said
    assert "data prepare" in said
    assert "data.device_ops" in said
    assert "docs/feeding.md" in said
    assert not [w for w in words(page(tmp_path / "b")) if "which is more than" in w]


@pytest.mark.parametrize(
    "end, said, style",
    [
        ([], "This run ended without recording why; its last row is of step 1,000.", "bad"),
        ([{"event": "exit", "code": 1}], "This run failed (exit 1)", "bad"),
        ([{"event": "exit", "code": 42}], "This run was stopped and saved at step 1,000", "some"),
    ],
)
def test_run_that_is_not_done_is_shown_as_such(tmp_path, end, said, style):
    life = turns()[:-1] + [row | {"step": 1000, "time": 1.8e9 + 60} for row in end]
    texts = check(page(tmp_path / "a", life=life, done=False)).texts
    assert [t for _, _, a, t in texts if a == {"class": style} and t.startswith(said)]


def test_what_is_missing_is_said(tmp_path):
    drawn = Pictures(None, (), ("No training images: /data is gone", "No attention: none"))
    metrics = [{"step": 1, "train/loss": 2.0}]
    found = words(
        page(tmp_path / "a", metrics=metrics, life=[], recipe=False, done=False, drawn=drawn)
    )
    assert "No training images: /data is gone" in found
    assert "No attention: none" in found
    assert "Nothing has been evaluated yet." in found
    assert "Not known: the workdir has no whole goodput.jsonl." in found
    assert "Not recorded by this run." in found
    assert "This run has no results yet; its last row is of step 1." in found


def test_pictures_and_versions_are_on_it(tmp_path):
    figure = Figure("filters", "Filters", "What is seen.", b"two")
    text = page(tmp_path / "a", drawn=Pictures(b"one", (figure,), ()))
    sources = [a["src"] for tag, a in check(text).seen if tag == "img"]
    assert sources == ["data:image/png;base64,b25l", "data:image/png;base64,dHdv"]
    assert "What is seen." in words(text)
    assert {"python", "jax", "flax"} <= set(words(text))


def test_images_that_were_skipped_are_named(tmp_path):
    folder = written(tmp_path / "a")
    pairs = [[f"{i:03}.jpg", "is <cut> short"] for i in range(30)]
    (folder / "skipped-0.json").write_text(json.dumps(pairs))
    text = single.page(history.read(folder), NONE)
    found = words(text)
    assert "30 images were skipped." in found
    assert "019.jpg" in found
    assert "020.jpg" not in found
    assert "10 more" in found


def test_run_that_selected_on_test_says_so(tmp_path):
    text = page(tmp_path / "a", "--config.checkpoint.keep_best=test/top1")
    assert any("Something was selected by" in w for w in words(text))
    assert not any("Something was selected by" in w for w in words(page(tmp_path / "b")))


def test_stopped_run_names_the_step_that_it_saved(tmp_path):
    life = [
        *turns()[:3],
        {"step": 437, "event": "save", "time": 1.8e9 + 30},
        {"step": 437, "event": "exit", "time": 1.8e9 + 31, "code": 42},
    ]
    found = words(page(tmp_path / "r", metrics=rows(400), life=life, done=False))
    assert [w for w in found if w.startswith("This run was stopped and saved at step 437;")]
