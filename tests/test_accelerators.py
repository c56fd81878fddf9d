# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""The doctor on jax and TensorFlow: what a child answers, or that it does not."""

import pytest

from vit_jax.preflight.doctor import accelerators, limits


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


TPU_FAILED = "failed: RuntimeError: Unable to initialize backend 'tpu': (set JAX_PLATFORMS='' to)"


@pytest.mark.parametrize(
    "said, present, env, fix",
    [
        ("failed: AssertionError:", [], {"JAX_PLATFORMS": "cuda"},
         "unset JAX_PLATFORMS, which is 'cuda', or give what is here: JAX_PLATFORMS=cpu"),
        ("failed: AssertionError:", ["tpu"], {"JAX_PLATFORMS": "cuda,cpu"},
         "JAX_PLATFORMS=cpu or JAX_PLATFORMS=tpu"),
        (TPU_FAILED, [], {"JAX_PLATFORMS": "tpu"}, "unset JAX_PLATFORMS, which is 'tpu'"),
        (TPU_FAILED, ["tpu"], {"JAX_PLATFORMS": "tpu"}, "end who holds the TPU"),
        ("failed: RuntimeError: x", ["gpu"], {"JAX_PLATFORMS": "cuda"}, "nvidia-smi"),
        ("failed: RuntimeError: Unknown backend", [], {"JAX_PLATFORM_NAME": "gpu"},
         "unset JAX_PLATFORM_NAME, which is 'gpu'"),
        ('Invalid value "x" for JAX flag jax_num_cpu_devices', [], {"JAX_NUM_CPU_DEVICES": "x"},
         "unset JAX_NUM_CPU_DEVICES, which is 'x', or give it"),
        ("Unknown flag in XLA_FLAGS: --odd", ["gpu"], {"XLA_FLAGS": "--odd"}, "unset XLA_FLAGS"),
        ("failed: ImportError: x", [], {"JAX_ENABLE_X64": "1"}, "pip install"),
    ],
)  # fmt: skip
def test_variable_that_keeps_jax_from_starting_is_named(monkeypatch, said, present, env, fix):
    child(monkeypatch, limits.Failed(said))
    [found] = accelerators.devices("auto", present, env)
    assert said.rstrip(":") in found.said
    assert "::" not in found.line()
    assert fix in found.fix


def test_variable_that_a_platform_of_the_configuration_replaces_is_not_blamed(monkeypatch):
    child(monkeypatch, limits.Failed("failed: ImportError: x"))
    [found] = accelerators.devices("cpu", [], {"JAX_PLATFORMS": "cuda"})
    assert "JAX_PLATFORMS" not in found.fix


def test_variables_of_jax_do_not_reach_tensorflow(monkeypatch):
    monkeypatch.setenv("JAX_NUM_CPU_DEVICES", "x")
    calls = child(monkeypatch, ["2.21.0", [], []])
    accelerators.tensorflow()
    assert calls[0]["JAX_NUM_CPU_DEVICES"] is None


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
