# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""The doctor on jax and TensorFlow: what a child answers, or that it does not."""

import pytest

from vit_jax.doctor import accelerators, limits


def child(monkeypatch, answer):
    calls = []

    def call(function, args, secs, env=None):
        calls.append(env)
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(limits, "call", call)
    return calls


def seen(platform, *reasons):
    return {"count": 8, "kind": "Chip", "platform": platform, "reasons": list(reasons)}


@pytest.mark.parametrize(
    "platform, present, sees",
    [("auto", [], "cpu"), ("auto", ["gpu"], "gpu"), ("auto", ["tpu"], "tpu"), ("cpu", [], "cpu"),
     ("cpu", ["gpu"], "cpu"), ("auto", ["gpu", "tpu"], "tpu"), ("auto", [], "gpu")],
)  # fmt: skip
def test_what_is_expected_is_well(monkeypatch, platform, present, sees):
    calls = child(monkeypatch, seen(sees))
    [found] = accelerators.devices(platform, present, {})
    assert found.ok
    assert "8 x Chip" in found.said
    assert calls == [{"JAX_PLATFORMS": "cpu"} if platform == "cpu" else {}]


@pytest.mark.parametrize(
    "platform, present, env, fix",
    [
        ("auto", ["gpu"], {}, "pip install -e '.[cuda13]'"),
        ("auto", ["tpu"], {}, "pip install -e '.[tpu]'"),
        ("auto", ["gpu"], {"JAX_PLATFORMS": "cpu"}, "unset JAX_PLATFORMS, which is 'cpu'"),
        ("auto", ["gpu"], {"JAX_PLATFORMS": "cuda,cpu"}, "pip install"),
        ("auto", ["gpu"], {"CUDA_VISIBLE_DEVICES": ""}, "unset CUDA_VISIBLE_DEVICES, which is ''"),
        ("auto", ["gpu"], {"CUDA_VISIBLE_DEVICES": "0"}, "pip install"),
        ("gpu", [], {}, "--config.platform=auto"),
    ],
)
def test_cpu_in_the_place_of_an_accelerator_is_wrong(monkeypatch, platform, present, env, fix):
    child(monkeypatch, seen("cpu", "cuda: no driver"))
    [found] = accelerators.devices(platform, present, env)
    assert "is expected (cuda: no driver)" in found.said
    assert fix in found.fix


@pytest.mark.parametrize(
    "present, fix", [(["tpu"], "--worker=all"), (["gpu"], "nvidia-smi"), ([], "pip install")]
)
def test_jax_that_does_not_answer_is_wrong(monkeypatch, present, fix):
    child(monkeypatch, limits.Failed("no answer within 120 s"))
    [found] = accelerators.devices("auto", present, {})
    assert "no answer within 120 s" in found.said
    assert fix in found.fix


def test_devices_of_this_process_are_listed():
    found = accelerators.listed()
    assert (found["count"], found["platform"]) == (8, "cpu")
    assert isinstance(found["reasons"], list)


@pytest.mark.parametrize(
    "answer, part",
    [(["2.21.0", [], []], ""), (["2.21.0", ["/device:GPU:0"], []], "uninstall"),
     (["2.21.0", [], ["/device:GPU:0"]], "uninstall"),
     (limits.Failed("failed: ModuleNotFoundError: No module named 'tensorflow'"), "pip install")],
)  # fmt: skip
def test_tensorflow_is_there_and_sees_no_accelerator(monkeypatch, answer, part):
    child(monkeypatch, answer)
    [found] = accelerators.tensorflow()
    assert found.ok == (part == "")
    assert part in found.fix
