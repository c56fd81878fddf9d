# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Pictures of a run: what cannot be made is said, a bug is not hidden."""

import pytest
from workdirs import QUICKSTART, written

from vit_jax.checkpoints import step_folders
from vit_jax.config import load as config_lib
from vit_jax.errors import BadInput, RunFailed
from vit_jax.models import variants
from vit_jax.reports import figures
from vit_jax.reports.figures import Figure
from vit_jax.reports.run import pictures

SIZES = {"width": 16, "depth": 1, "mlp": 16, "heads": 2}


@pytest.fixture
def drawn(tmp_path, monkeypatch):
    """Draws, with weights that never were and figures of which only the names count."""
    folder = written(tmp_path / "run")
    config = config_lib.load(str(folder / "config.yaml"))
    made = {"weights": lambda *_: [Figure("filters", "", "", b"a")],
            "images": lambda *_: [Figure("rollout", "", "", b"b")]}  # fmt: skip
    cfg = variants.config(variant="Ti/2", classes=10, **SIZES)
    monkeypatch.setattr(pictures, "_weights", lambda *_: (cfg, {}))
    monkeypatch.setattr(figures, "draw_weights", lambda *given: made["weights"](*given))
    monkeypatch.setattr(figures, "draw_attention", lambda *given: made["images"](*given))

    def draw(weights=None, images=None):
        made.update({k: v for k, v in (("weights", weights), ("images", images)) if v})
        return pictures.draw(folder, config)

    return draw


def failing(error):
    def fail(*_):
        raise error

    return fail


def test_all_there_is_is_drawn(drawn):
    found = drawn()
    assert found.sheet.startswith(b"\x89PNG")
    assert [figure.name for figure in found.figures] == ["filters", "rollout"]
    assert found.missing == ()


def test_images_are_those_that_are_evaluated_as_the_model_takes_them(drawn):
    seen = []
    drawn(images=lambda *given: seen.append(given) or [])
    ((_, _, images, shown),) = seen
    assert shown.dtype == "uint8"
    assert images.shape == shown.shape == (128, 8, 8, 3)
    assert images.min() == -1.0
    assert images.max() == 1.0


@pytest.mark.parametrize("error", [BadInput("none"), OSError("none"), RunFailed("none")])
def test_what_cannot_be_made_is_left_out_and_said(drawn, caplog, error):
    found = drawn(weights=failing(error))
    assert [figure.name for figure in found.figures] == ["rollout"]
    assert found.missing == ("No figures of the model: none",)
    assert "report: no figures of the model: none" in caplog.messages


def test_device_without_memory_is_no_failure(drawn):
    import jax

    full = jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 1 bytes.")
    assert drawn(images=failing(full)).missing == (
        "No attention: the device has no memory left for it",
    )
    with pytest.raises(jax.errors.JaxRuntimeError):
        drawn(images=failing(jax.errors.JaxRuntimeError("INTERNAL: a bug")))


def test_bug_is_not_hidden(drawn):
    with pytest.raises(ZeroDivisionError):
        drawn(weights=failing(ZeroDivisionError()))


def test_data_that_are_gone_leave_the_filters(drawn, monkeypatch):
    monkeypatch.setattr(pictures.splits, "open_source", failing(BadInput("/data is gone")))
    found = drawn()
    assert found.sheet is None
    assert [figure.name for figure in found.figures] == ["filters"]
    assert found.missing == ("No training images: /data is gone",)


def test_without_a_checkpoint_there_are_no_figures(tmp_path):
    folder = written(tmp_path / "run")
    found = pictures.draw(folder, config_lib.load(str(folder / step_folders.CONFIG_FILE)))
    assert found.sheet is not None
    assert found.figures == ()
    assert "holds no checkpoints" in found.missing[0]


def test_images_are_spread_over_a_split(drawn, monkeypatch):
    """Folders are read class by class: the first images would be those of one class."""
    seen, plain = [], pictures.build.plain_pipeline

    def kept(data, split, size):
        seen.extend(split.name(i) for i in range(len(split)))
        return plain(data, split, size)

    monkeypatch.setattr(pictures.build, "plain_pipeline", kept)
    split = pictures._evaluated(
        config := config_lib.load(QUICKSTART), pictures.splits.open_source(config.data)
    )
    drawn()
    assert len(split) > len(seen) == 128
    assert (seen[0], seen[-1]) == (split.name(0), split.name(len(split) - 1))
