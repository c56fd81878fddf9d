# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Checkpoints keep, restore and refuse what they promise."""

import errno
import gc
import json
import logging
import os
import tempfile
import time

import jax
import jax.numpy as jnp
import numpy as np
import optax
import orbax.checkpoint as ocp
import pytest
import tiny
from jax.sharding import NamedSharding, PartitionSpec
from test_train_step import rules_of

from vit_jax import sharding, tree
from vit_jax.checkpoints import step_folders
from vit_jax.checkpoints.checkpoints import Checkpoints
from vit_jax.checkpoints.retention import Damaged
from vit_jax.errors import BadInput, PeerLost, RunFailed
from vit_jax.models import variants
from vit_jax.step import state
from vit_jax.storage import checksums
from vit_jax.storage import files as storage

TX = optax.chain(optax.clip_by_global_norm(1.0), optax.scale_by_adam())


def make_state(value, *, ema=True):
    params = {"blocks": {"kernel": jnp.full((2, 8, 4), value)}, "bias": jnp.arange(3.0)}
    return jax.jit(lambda p: state.from_params(p, TX, ema=ema))(params)


def abstract(tree):
    return jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding), tree)


@pytest.fixture
def opened(tmp_path):
    made = []

    def make(**kwargs):
        made.append(Checkpoints(tmp_path, **kwargs))
        return made[-1]

    yield make
    for checkpoints in made:
        checkpoints.close()


def test_state_comes_back_bit_for_bit(opened):
    saved = make_state(1 / 3)
    checkpoints = opened()
    checkpoints.save(5, saved, "seed: 0\n", {})
    checkpoints.wait()
    restored = checkpoints.restore(5, abstract(saved))
    assert jax.tree.structure(restored) == jax.tree.structure(saved)
    for a, b in zip(jax.tree.leaves(restored), jax.tree.leaves(saved), strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(a, b)


def test_the_next_interface_of_orbax_reads_the_same_files(opened, tmp_path):
    saved = make_state(1 / 3)
    checkpoints = opened()
    checkpoints.save(5, saved, "seed: 0\n", {})
    checkpoints.wait()
    wanted = abstract(saved).saved()
    read = ocp.v1.load_checkpointables(tmp_path / "checkpoints" / "5", {"state": wanted})["state"]
    jax.tree.map(np.testing.assert_array_equal, read, saved.saved())


def test_state_saved_on_one_mesh_restores_on_another(opened):
    saved = make_state(0.5)
    checkpoints = opened()
    checkpoints.save(1, saved, "", {})
    checkpoints.wait()
    mesh = sharding.make_mesh(replica=1, data=2, fsdp=4, tensor=1)
    split = NamedSharding(mesh, PartitionSpec(None, "fsdp"))
    whole = NamedSharding(mesh, PartitionSpec())
    target = jax.tree.map(
        lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=split if x.ndim == 3 else whole),
        saved,
    )
    restored = checkpoints.restore(1, target)
    assert restored.params["blocks"]["kernel"].sharding.is_equivalent_to(split, 3)
    np.testing.assert_array_equal(restored.params["blocks"]["kernel"], np.full((2, 8, 4), 0.5))


def placed(cfg, shape):
    """The abstract state of a model with AdamW and an average on a mesh."""
    rules = rules_of(shape)

    def begin(params):
        return state.from_params(params, optax.adamw(1e-3), ema=True)

    params = tiny.shapes(cfg, 24, 24)
    whole = jax.eval_shape(begin, params)
    places = sharding.place(whole, sharding.param_axes(params, variants.axes(cfg)), rules)
    return jax.tree.map(
        lambda x, s: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=s), whole, places
    )


@pytest.mark.integration
@pytest.mark.parametrize("family", ["vit", pytest.param("hybrid", marks=pytest.mark.slow)])
def test_state_of_eight_devices_restores_anywhere(opened, family):
    cfg = tiny.FAMILIES[family]()
    target = placed(cfg, (1, 2, 2, 2))
    numbers = np.random.default_rng(0)

    def filled(leaf):
        values = numbers.normal(size=leaf.shape) * 100
        return jax.device_put(np.asarray(values, leaf.dtype), leaf.sharding)

    saved = jax.tree.map(filled, target)  # every leaf differs: parameters, moments, average, counts
    expected = dict(tree.leaves_with_paths(jax.tree.map(np.asarray, saved)))
    checkpoints = opened()
    checkpoints.save(3, saved, "", {})
    checkpoints.wait()
    # 1, 2 and 4 devices; and all in another way.
    for shape in [(1, 1, 1, 1), (1, 1, 1, 2), (1, 1, 4, 1), (1, 1, 2, 4), (2, 2, 2, 1)]:
        wanted = placed(cfg, shape)
        restored = checkpoints.restore(3, wanted)
        found = dict(tree.leaves_with_paths(restored))
        assert found.keys() == expected.keys()
        for (path, leaf), place in zip(found.items(), jax.tree.leaves(wanted), strict=True):
            np.testing.assert_array_equal(np.asarray(leaf), expected[path], err_msg=path)
            assert leaf.dtype == expected[path].dtype
            assert leaf.sharding.is_equivalent_to(place.sharding, leaf.ndim), path
            assert len(leaf.sharding.device_set) == np.prod(shape)
        if np.prod(shape) > 1:
            for part in ("params/", "opt_state/", "ema/"):
                split = [p for p, x in found.items() if not x.sharding.is_fully_replicated]
                assert any(p.startswith(part) for p in split)
    plain = dict(tree.leaves_with_paths(checkpoints.weights(3)))
    for path, leaf in plain.items():
        assert type(leaf) is np.ndarray
        np.testing.assert_array_equal(leaf, expected[f"ema/{path}"], err_msg=path)
    assert {f"ema/{path}" for path in plain} == {p for p in expected if p.startswith("ema/")}


def test_arrays_may_be_donated_while_the_save_is_under_way(opened):
    value = make_state(7.0)
    target = abstract(value)
    change = jax.jit(lambda s: jax.tree.map(lambda x: x + 1, s), donate_argnums=0)
    checkpoints = opened()
    checkpoints.save(1, value, "", {})
    for _ in range(20):
        value = change(value)
    checkpoints.wait()
    np.testing.assert_array_equal(
        checkpoints.restore(1, target).params["blocks"]["kernel"], np.full((2, 8, 4), 7.0)
    )


def test_newest_periodic_and_best_are_kept(opened):
    checkpoints = opened(keep_last=1, keep_every=4, keep_best="val/top1")
    scores = {1: 0.5, 2: 0.9, 3: 0.7, 4: None, 5: 0.8, 6: None}
    for step, score in scores.items():
        measured = {} if score is None else {"val/top1": score}
        checkpoints.save(step, make_state(float(step)), "", measured)
    checkpoints.wait()
    assert checkpoints.steps == [2, 4, 6]
    assert checkpoints.best("val/top1") == 2
    assert checkpoints.latest == 6


def test_best_survives_a_restart(opened):
    first = opened(keep_best="val/loss")
    for step, loss in ((1, 0.3), (2, 0.1)):
        first.save(step, make_state(1.0), "", {"val/loss": loss})
    first.wait()
    second = opened(keep_best="val/loss")
    assert not second.is_best({"val/loss": 0.2})
    assert second.is_best({"val/loss": 0.05})
    for step in (3, 4):
        second.save(step, make_state(2.0), "", {"val/loss": 0.2})
    second.wait()
    assert second.steps == [2, 4]


def test_best_counts_only_the_metric_that_is_kept(opened):
    checkpoints = opened(keep_best="val/top1")
    assert not checkpoints.is_best({"test/top1": 1.0})
    assert checkpoints.is_best({"val/top1": 0.1})
    assert not opened().is_best({"val/top1": 1.0})


def test_last_n_are_kept(opened):
    checkpoints = opened(keep_last=3)
    for step in range(1, 6):
        checkpoints.save(step, make_state(1.0), "", {})
    checkpoints.wait()
    assert checkpoints.steps == [3, 4, 5]


@pytest.mark.parametrize(("ema", "expected"), [(True, 3.0), (False, 2.0)])
def test_weights_are_the_average_where_there_is_one(opened, ema, expected):
    saved = make_state(2.0, ema=ema)
    if ema:
        saved.ema = jax.tree.map(lambda x: x + 1, saved.ema)
    checkpoints = opened()
    checkpoints.save(1, saved, "", {})
    checkpoints.wait()
    kernel = checkpoints.weights(1)["blocks"]["kernel"]
    assert isinstance(kernel, np.ndarray)
    np.testing.assert_array_equal(kernel, np.full((2, 8, 4), expected))


def test_another_tree_is_refused(opened):
    checkpoints = opened()
    checkpoints.save(1, make_state(1.0), "", {})
    checkpoints.wait()
    other = abstract(make_state(1.0))
    other.params["extra"] = other.params["bias"]
    other.params["bias"] = jax.ShapeDtypeStruct((5,), jnp.float32, sharding=other.step.sharding)
    with pytest.raises(BadInput) as caught:
        checkpoints.restore(1, other)
    assert "missing      params/extra (3,)" in str(caught.value)
    assert "wrong shape  params/bias: (3,), expected (5,)" in str(caught.value)
    assert "opt_state" not in str(caught.value)


def test_unfinished_save_does_not_count(opened, tmp_path):
    checkpoints = opened()
    checkpoints.save(1, make_state(1.0), "", {})
    checkpoints.wait()
    half = tmp_path / "checkpoints" / "2.orbax-checkpoint-tmp"
    (half / "state").mkdir(parents=True)
    assert opened(read_only=True).latest == 1
    assert half.exists()  # a reader does not tidy up
    checkpoints = opened()
    assert checkpoints.latest == 1
    assert half.exists()  # nor does a start that may still be refused
    checkpoints.save(2, make_state(2.0), "", {})
    checkpoints.wait()
    assert opened().steps == [2]
    assert not half.exists()


def test_a_step_that_is_saved_stays_as_it_is(opened, tmp_path):
    checkpoints = opened()
    for value in (1.0, 2.0):
        checkpoints.save(3, make_state(value), "", {})
        checkpoints.wait()
    restored = checkpoints.restore(3, abstract(make_state(1.0)))
    np.testing.assert_array_equal(restored.params["blocks"]["kernel"], np.full((2, 8, 4), 1.0))
    again = opened()
    again.restore(3, abstract(make_state(1.0)))
    again.save(3, make_state(5.0), "", {})
    again.wait()
    assert (again.weights(3)["blocks"]["kernel"] == 1.0).all()


def test_metrics_and_config_are_beside_the_arrays(opened, tmp_path):
    checkpoints = opened()
    checkpoints.save(3, make_state(1.0), "seed: 0\n", {"val/top1": 0.5})
    checkpoints.wait()
    folder = tmp_path / "checkpoints" / "3"
    assert (folder / "config.yaml").read_text() == "seed: 0\n"
    assert json.loads((folder / "metrics.json").read_text()) == {"val/top1": 0.5}


# ---------------------------------------------------------------- saves that fail


class Recorder(logging.Handler):
    def __init__(self):
        super().__init__()
        self.said = []

    def emit(self, record):
        self.said.append(record.getMessage())


@pytest.fixture
def said():
    """Collects what absl logs from here on, which is what a user would see of orbax."""
    recorder = Recorder()
    logging.getLogger("absl").addHandler(recorder)
    yield recorder.said
    logging.getLogger("absl").removeHandler(recorder)


def save_and_go_on(checkpoints, step):
    """A save, and steps of training until its failure is raised."""
    checkpoints.save(step, make_state(2.0), "", {})
    end = time.monotonic() + 60
    while time.monotonic() < end:
        checkpoints.check()
        time.sleep(0.01)


def failing(error):
    def fail(*_, **__):
        raise error

    return fail


FULL = (OSError(errno.ENOSPC, "No space left on device"), ValueError(
    "RESOURCE_EXHAUSTED: Error writing in OCDBT: No space left on device [os_error_code='28']"
))  # fmt: skip


@pytest.mark.parametrize(
    ("where", "error"),
    [
        ((os, "mkdir"), FULL[0]),
        ((ocp.StandardCheckpointHandler, "finalize"), FULL[1]),
        ((os, "rename"), FULL[0]),
    ],
    ids=lambda x: x[1] if isinstance(x, tuple) else "",
)
def test_full_disk_is_one_message_and_what_was_saved_stays(
    opened, tmp_path, monkeypatch, said, where, error
):
    checkpoints = opened(keep_last=1)
    checkpoints.save(4, make_state(1.0), "", {})
    checkpoints.wait()
    with monkeypatch.context() as patch:
        patch.setattr(*where, failing(error))
        with pytest.raises(RunFailed) as caught:
            save_and_go_on(checkpoints, 8)
    message = str(caught.value)
    for part in (
        "step 8 could not be saved", "no space left on the disk of", "MiB are free",
        "Make room", "run the same command again: it continues from step 4",
    ):  # fmt: skip
        assert part in message
    assert caught.value.exit_code == 1
    assert "os_error_code" not in message
    assert not said
    checkpoints.wait()  # a failure is raised once
    assert [p.name for p in (tmp_path / "checkpoints").iterdir()] == ["4"]
    again = opened()
    assert again.newest_good() == 4
    again.save(8, make_state(2.0), "", {})  # there is room again
    again.wait()
    assert again.newest_good() == 8


def test_other_failure_of_a_save_says_why(opened, monkeypatch):
    checkpoints = opened()
    monkeypatch.setattr(checksums, "write", failing(PermissionError(errno.EACCES, "Denied")))
    checkpoints.save(8, make_state(2.0), "", {})
    with pytest.raises(RunFailed, match=r"step 8 .*: Denied\. Mend .* from the beginning\."):
        checkpoints.wait()
    assert checkpoints.latest is None


def test_bug_in_a_save_keeps_its_traceback(opened, monkeypatch):
    checkpoints = opened()
    monkeypatch.setattr(checksums, "write", failing(KeyError("bug")))
    checkpoints.save(8, make_state(2.0), "", {})
    with pytest.raises(KeyError):
        checkpoints.wait()


def test_failed_save_is_raised_by_the_next_save_and_by_the_end(opened, monkeypatch):
    monkeypatch.setattr(checksums, "write", failing(FULL[0]))
    checkpoints = opened()
    checkpoints.save(1, make_state(2.0), "", {})
    with pytest.raises(RunFailed, match="step 1"):
        checkpoints.save(2, make_state(2.0), "", {})
    checkpoints = opened()
    with pytest.raises(RunFailed, match="step 3"), checkpoints:
        checkpoints.save(3, make_state(2.0), "", {})
    checkpoints = opened()
    checkpoints.save(4, make_state(2.0), "", {})
    with pytest.raises(ZeroDivisionError), checkpoints:  # an error that is there already stays
        raise ZeroDivisionError


def test_checkpoint_that_cannot_be_removed_is_named(opened, monkeypatch):
    checkpoints = opened()
    checkpoints.save(1, make_state(1.0), "", {})
    checkpoints.wait()
    with monkeypatch.context() as patch:
        patch.setattr(step_folders, "remove", failing(PermissionError(errno.EACCES, "Denied")))
        with pytest.raises(RunFailed, match=r"checkpoints/1, which nothing keeps, .*Denied"):
            save_and_go_on(checkpoints, 2)
    assert checkpoints.newest_good() == 2


def test_process_that_waits_for_another_is_lost(opened, monkeypatch):
    checkpoints = opened()
    monkeypatch.setattr(jax, "process_count", lambda: 2)
    error = checkpoints._failure(3, TimeoutError("async_write_complete"))
    assert isinstance(error, PeerLost)


def test_folder_that_cannot_be_made_is_bad_input(tmp_path):
    (tmp_path / "checkpoints").write_text("a file")
    with pytest.raises(BadInput, match="cannot write"):
        Checkpoints(tmp_path)


@pytest.mark.parametrize("error", [RuntimeError("HTTP 503"), OSError(5, "no answer")])
def test_store_that_takes_no_save_is_asked_again_by_another_start(store, monkeypatch, error):
    checkpoints = Checkpoints(storage.path("gs://bucket/run"))
    monkeypatch.setattr(ocp.AsyncCheckpointer, "save", failing(error))
    with pytest.raises(PeerLost, match=r"step 3 could not be saved.*Run again"):
        checkpoints.save(3, make_state(1.0), "", {})
    checkpoints.close()


def test_store_that_fails_while_old_steps_are_removed_asks_for_another_start(store, monkeypatch):
    checkpoints = Checkpoints(storage.path("gs://bucket/run"))
    monkeypatch.setattr(checkpoints._writer, "wait", lambda: None)
    for error in (storage.StoreLost("gone"), RuntimeError("gone")):
        monkeypatch.setattr(step_folders, "committed", failing(error))
        with pytest.raises(PeerLost, match="gone"):
            checkpoints._complete(3)
    checkpoints.close()


@pytest.mark.parametrize("place, expected", [("gs://bucket/run", PeerLost), ("", RunFailed)])
def test_read_that_fails_is_no_other_state(store, tmp_path, monkeypatch, place, expected):
    checkpoints = Checkpoints(storage.path(place or str(tmp_path)))
    monkeypatch.setattr(ocp.Checkpointer, "restore", failing(ValueError("UNAVAILABLE")))
    with pytest.raises(expected, match=r"checkpoints/3 could not be read: .*UNAVAILABLE.* again"):
        checkpoints.restore(3, abstract(make_state(1.0)))
    checkpoints.close()


# A letter of two code points, and a name that is not UTF-8.
NAMES = ("*", "my [!a] %20b#c?d{f}$HOME\\", "new\nline \U0001f600 e\u0301", "\udcff")


def check_name(root, name):
    """Saves and restores beside a neighbour that a pattern would find as well."""
    values = {name: 1.0, "xx": 2.0}
    for folder, value in values.items():
        with Checkpoints(root / folder) as checkpoints:
            checkpoints.save(1, make_state(value), "", {})
    for folder, value in values.items():
        with Checkpoints(root / folder) as checkpoints:
            restored = checkpoints.restore(1, abstract(make_state(0.0)))
        reader = Checkpoints(root / folder, read_only=True)
        found = (restored.params, reader.weights(1))
        reader.close()
        for params in found:
            kernel = params["blocks"]["kernel"]
            np.testing.assert_array_equal(kernel, np.full((2, 8, 4), value))


@pytest.mark.parametrize("name", NAMES, ids=ascii)
def test_folder_of_any_name_is_saved_to_and_read(tmp_path, monkeypatch, name):
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    check_name(tmp_path, name)
    assert not list((tmp_path / "temporary").iterdir())


@pytest.mark.slow
def test_folder_of_every_printable_name_is_saved_to_and_read(tmp_path):
    for code in range(1, 127):
        if chr(code) != "/":
            check_name(tmp_path / str(code), f"x{chr(code)}")


def test_folder_that_no_plain_path_leads_to_is_bad_input(tmp_path, monkeypatch):
    for place, said in (("[x]", r"plain name, not .*\[x\]"), ("none", "No such file")):
        (tmp_path / "[x]").mkdir(exist_ok=True)
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / place))
        with pytest.raises(BadInput, match=f"{said}.*set TMPDIR to"):
            Checkpoints(tmp_path / "my [runs]")


def test_arrays_that_are_lost_are_one_error(opened, tmp_path, capfd):
    """An earlier version wrote no checksums, so orbax is the first to notice."""
    checkpoints = opened()
    many = {f"kernel{n}": jnp.arange(4096.0) for n in range(9)}  # smaller ones are in the manifest
    checkpoints.save(1, jax.jit(lambda p: state.from_params(p, TX, ema=False))(many), "", {})
    checkpoints.wait()
    step = tmp_path / "checkpoints" / "1"
    (step / checksums.FILE).unlink()
    (step / "_CHECKPOINT_METADATA").write_text("{}")
    for path in (step / "state").glob("ocdbt.process_0/d/*"):
        path.unlink()
    for _ in range(3):
        reader = opened(read_only=True)
        with pytest.raises(ValueError, match="Error reading"):
            reader.weights(1)
    (step / "state" / "manifest.ocdbt").unlink()
    with pytest.raises(Damaged, match="checkpoints/1 holds no arrays"):
        reader.weights(1)
    gc.collect()
    assert "Event loop is closed" not in capfd.readouterr().err
