# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""The checks of the doctor, one by one: packages, devices, folders, and limits of time."""

import errno
import os
import platform
import threading
import types

import pytest

from vit_jax.preflight import doctor
from vit_jax.preflight.doctor import Finding
from vit_jax.storage import files as storage

GIB = 2**30


# ---------------------------------------------------------------- time limits


def test_late_and_failing_checks_hide_no_others():
    never = threading.Event()

    def late():
        never.wait(60)
        return []

    def absent():
        raise ModuleNotFoundError("No module named 'jax'")

    def broken():
        raise ValueError("odd")

    good = Finding("d", "well")
    checks = {"a": (late, 0.1), "b": (absent, 9), "c": (broken, 9), "d": (lambda: [good], 9)}
    findings = list(doctor.run(checks))
    never.set()
    assert findings[0].text == "no answer within 0.1 s"
    assert not findings[0].ok
    assert "No module named 'jax'" in findings[1].text
    assert findings[1].fix == "run pip install for vit_jax again"
    assert "ValueError: odd" in findings[2].text
    assert not findings[2].ok
    assert findings[3] == good


def test_child_answers_fails_dies_or_is_ended(monkeypatch):
    monkeypatch.setenv("LOGNAME", "ada")
    assert doctor.call("getpass:getuser", 60) == "ada"
    assert doctor.call("getpass:getuser", 60, {"LOGNAME": None, "USER": "bo"}) == "bo"
    with pytest.raises(doctor.Failed, match="failed: ModuleNotFoundError: No module named"):
        doctor.call("absent:f", 60)
    with pytest.raises(doctor.Failed, match="killed by signal 6: "):
        doctor.call("os:abort", 60)
    with pytest.raises(doctor.Failed, match="no answer within 2 s"):
        doctor.call("signal:pause", 2)


# ---------------------------------------------------------------- packages

JAX = ("jaxlib<=0.10.2,>=0.10.1", "scipy>=1.14", "kubernetes; extra == 'k8s'",
       'jax-cuda13-plugin[with-cuda]<=0.10.2,>=0.10.2; extra == "cuda13"',
       'jaxlib==0.10.1; extra == "minimum-jaxlib"', 'libtpu==0.0.42.*; extra == "tpu"')  # fmt: skip
OWN = ("jax<0.12,>=0.10", "flax<0.13,>=0.12", 'ruff==0.1; extra == "dev"',
       f'tensorflow-cpu<2.22,>=2.21; platform_machine == "{platform.machine()}"',
       f'tensorflow<2.22; platform_machine != "{platform.machine()}"')  # fmt: skip
GOOD = {
    "vit_jax": ("0.1.0", OWN), "jax": ("0.10.2", JAX), "jaxlib": ("0.10.2", ()),
    "scipy": ("1.15.0", ()), "flax": ("0.12.8", ()), "ruff": ("9", ()),
    "tensorflow_cpu": ("2.21.0", ()),
}  # fmt: skip


def examine(root, changes, python=">=3.11"):
    for name, (version, needs) in {**GOOD, **changes}.items():
        if version:
            folder = root / f"{name}-{version}.dist-info"
            folder.mkdir()
            lines = [
                f"Name: {name.replace('_', '-')}",
                f"Version: {version}",
                f"Requires-Python: {python}",
            ]
            lines += [f"Requires-Dist: {need}" for need in needs]
            (folder / "METADATA").write_text("Metadata-Version: 2.1\n" + "\n".join(lines) + "\n")
    return doctor.packages([str(root)])


def test_all_is_well_and_named(tmp_path):
    python, found = examine(tmp_path, {"libtpu": ("0.0.42.1", ())})
    assert python.ok
    assert platform.python_version() in python.text
    assert found.ok
    for part in ("flax 0.12.8, jax 0.10.2, jaxlib 0.10.2, libtpu 0.0.42.1", "tensorflow-cpu 2.21"):
        assert part in found.text


@pytest.mark.parametrize(
    "changes, said, fix",
    [
        ({"flax": ("0.13.1", ())}, "flax 0.13.1 is not what vit-jax needs", "'flax<0.13,>=0.12'"),
        ({"flax": (None, ())}, "flax is not installed", "pip install 'flax<0.13,>=0.12'"),
        ({"jaxlib": ("0.9.0", ())}, "jaxlib 0.9.0 is not what jax needs", "'jaxlib<=0.10.2,>="),
        (
            {"tensorflow_cpu": ("2.20", ())},
            "tensorflow-cpu 2.20 is not",
            "tensorflow-cpu<2.22,>=2.21",
        ),
        ({"libtpu": ("0.0.41", ())}, "libtpu 0.0.41 is not what jax needs", "libtpu==0.0.42.*"),
        ({"jax_cuda13_plugin": ("0.10.1", ())}, "plugin 0.10.1 is not what jax", "plugin<=0.10.2"),
        (
            {
                "jax_cuda13_plugin": ("0.10.2", ("nvidia-cudnn>=9; extra == 'with-cuda'",)),
                "nvidia_cudnn": ("8.1", ()),
            },
            "nvidia-cudnn 8.1 is not what jax-cuda13-plugin needs",
            "nvidia-cudnn>=9",
        ),
    ],
)
def test_what_does_not_fit_is_one_line_with_its_fix(tmp_path, changes, said, fix):
    _, found = examine(tmp_path, changes)
    assert said in found.text
    assert fix in found.fix


def test_python_of_another_version_and_no_installation_at_all(tmp_path):
    python, found = examine(tmp_path, {}, python=">=3.99")
    assert not python.ok
    assert ">=3.99" in python.fix
    assert found.ok
    [found] = doctor.packages([str(tmp_path / "empty")])
    assert "pip install -e ." in found.fix


def test_this_machine_has_what_setup_asks_for():
    assert [f.line() for f in doctor.packages() if not f.ok] == []


# ---------------------------------------------------------------- accelerators


def child(monkeypatch, answer):
    calls = []

    def call(function, secs, env=None):
        calls.append(env)
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(doctor, "call", call)
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
    [found] = doctor.devices(platform, present, {})
    assert found.ok
    assert "8 x Chip" in found.text
    assert calls == [{"JAX_PLATFORMS": "cpu"} if platform == "cpu" else {}]


@pytest.mark.parametrize(
    "platform, present, env, fix",
    [
        ("auto", ["gpu"], {}, "pip install 'vit_jax[cuda13]'"),
        ("auto", ["tpu"], {}, "pip install 'vit_jax[tpu]'"),
        ("auto", ["gpu"], {"JAX_PLATFORMS": "cpu"}, "unset JAX_PLATFORMS, which is 'cpu'"),
        ("auto", ["gpu"], {"JAX_PLATFORMS": "cuda,cpu"}, "pip install"),
        ("auto", ["gpu"], {"CUDA_VISIBLE_DEVICES": ""}, "unset CUDA_VISIBLE_DEVICES, which is ''"),
        ("auto", ["gpu"], {"CUDA_VISIBLE_DEVICES": "0"}, "pip install"),
        ("gpu", [], {}, "--config.platform=auto"),
    ],
)
def test_cpu_in_the_place_of_an_accelerator_is_wrong(monkeypatch, platform, present, env, fix):
    child(monkeypatch, seen("cpu", "cuda: no driver"))
    [found] = doctor.devices(platform, present, env)
    assert "is expected (cuda: no driver)" in found.text
    assert fix in found.fix


@pytest.mark.parametrize(
    "present, fix", [(["tpu"], "--worker=all"), (["gpu"], "[cuda13]"), ([], "pip install")]
)
def test_jax_that_does_not_answer_is_wrong(monkeypatch, present, fix):
    child(monkeypatch, doctor.Failed("no answer within 120 s"))
    [found] = doctor.devices("auto", present, {})
    assert "no answer within 120 s" in found.text
    assert fix in found.fix


TPU_FAILED = "failed: RuntimeError: Unable to initialize backend 'tpu': (set JAX_PLATFORMS='' to)"


@pytest.mark.parametrize(
    "said, present, env, fix",
    [
        ("failed: AssertionError:", [], {"JAX_PLATFORMS": "cuda"},
         "unset JAX_PLATFORMS, which is 'cuda', or correct it"),
        ("failed: AssertionError:", ["tpu"], {"JAX_PLATFORMS": "cuda,cpu"},
         "unset JAX_PLATFORMS, which is 'cuda,cpu'"),
        (TPU_FAILED, [], {"JAX_PLATFORMS": "tpu"}, "unset JAX_PLATFORMS, which is 'tpu'"),
        (TPU_FAILED, ["tpu"], {"JAX_PLATFORMS": "tpu"}, "end the process that holds the TPU"),
        ("failed: RuntimeError: x", ["gpu"], {"JAX_PLATFORMS": "cuda"}, "pip install"),
        ("failed: RuntimeError: Unknown backend", [], {"JAX_PLATFORM_NAME": "gpu"},
         "unset JAX_PLATFORM_NAME, which is 'gpu'"),
        ('Invalid value "x" for JAX flag jax_num_cpu_devices', [], {"JAX_NUM_CPU_DEVICES": "x"},
         "unset JAX_NUM_CPU_DEVICES, which is 'x', or correct it"),
        ("Unknown flag in XLA_FLAGS: --odd", ["gpu"], {"XLA_FLAGS": "--odd"}, "unset XLA_FLAGS"),
        ("failed: ImportError: x", [], {"JAX_ENABLE_X64": "1"}, "pip install"),
    ],
)  # fmt: skip
def test_variable_that_keeps_jax_from_starting_is_named(monkeypatch, said, present, env, fix):
    child(monkeypatch, doctor.Failed(said))
    [found] = doctor.devices("auto", present, env)
    assert said.rstrip(":") in found.text
    assert "::" not in found.line()
    assert fix in found.fix


def test_variable_that_a_platform_of_the_configuration_replaces_is_not_blamed(monkeypatch):
    child(monkeypatch, doctor.Failed("failed: ImportError: x"))
    [found] = doctor.devices("cpu", [], {"JAX_PLATFORMS": "cuda"})
    assert "JAX_PLATFORMS" not in found.fix


def test_variables_of_jax_do_not_reach_tensorflow(monkeypatch):
    monkeypatch.setenv("JAX_NUM_CPU_DEVICES", "x")
    calls = child(monkeypatch, ["2.21.0", [], []])
    doctor.tensorflow()
    assert calls[0]["JAX_NUM_CPU_DEVICES"] is None


def test_devices_of_this_process_are_listed():
    found = doctor.list_devices()
    assert (found["count"], found["platform"]) == (8, "cpu")
    assert isinstance(found["reasons"], list)


@pytest.mark.parametrize(
    "answer, part",
    [(["2.21.0", [], []], ""), (["2.21.0", ["/device:GPU:0"], []], "uninstall"),
     (["2.21.0", [], ["/device:GPU:0"]], "uninstall"),
     (doctor.Failed("failed: ModuleNotFoundError: No module named 'tensorflow'"), "pip install")],
)  # fmt: skip
def test_tensorflow_is_there_and_sees_no_accelerator(monkeypatch, answer, part):
    child(monkeypatch, answer)
    [found] = doctor.tensorflow()
    assert found.ok == (part == "")
    assert part in found.fix


# ---------------------------------------------------------------- folders


def test_workdir_that_can_be_written_is_left_as_it_was(tmp_path):
    [found] = doctor.writable(tmp_path / "runs" / "new")
    assert found.ok
    assert f"a run would make it in {tmp_path}" in found.text
    assert list(tmp_path.iterdir()) == []
    [found] = doctor.writable(tmp_path)
    assert found.text == f"{tmp_path} can be written"


@pytest.mark.parametrize("below", ["", "runs/new"])
@pytest.mark.parametrize("what", ["file", "loop", "link to nothing"])
def test_workdir_that_is_no_folder_or_lies_below_none(tmp_path, monkeypatch, what, below):
    free(monkeypatch, 2 * GIB)
    place = tmp_path / "x"
    place.touch() if what == "file" else place.symlink_to("x" if what == "loop" else "absent")
    for found in (doctor.writable(place / below), doctor.room({"workdir": place / below})):
        assert not found[0].ok
        assert f"{place} is not a folder" in found[0].text
    assert list(tmp_path.iterdir()) == [place]


def test_workdir_may_be_a_link_to_a_folder(tmp_path):
    (tmp_path / "there").mkdir()
    (tmp_path / "x").symlink_to("there")
    assert doctor.writable(tmp_path / "x" / "new")[0].ok


@pytest.mark.parametrize("number", [errno.EROFS, errno.EACCES, errno.ENOSPC])
def test_workdir_that_cannot_be_written(tmp_path, monkeypatch, number):
    def refuse(*_):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(storage, "write", refuse)
    [found] = doctor.writable(tmp_path)
    assert os.strerror(number) in found.text
    assert "--workdir" in found.fix


def test_workdir_that_reads_back_something_else(tmp_path, monkeypatch):
    monkeypatch.setattr(storage, "read_all", lambda _: [b"other"])
    [found] = doctor.writable(tmp_path)
    assert "a file reads back with other content" in found.text
    assert list(tmp_path.iterdir()) == []


# ---------------------------------------------------------------- room


def free(monkeypatch, count):
    usage = types.SimpleNamespace(free=count, total=100 * GIB)
    monkeypatch.setattr(doctor.shutil, "disk_usage", lambda _: usage)


@pytest.mark.parametrize("count, ok", [(2 * GIB, True), (GIB, True), (GIB // 2, False)])
def test_a_gib_must_be_free(tmp_path, monkeypatch, count, ok):
    free(monkeypatch, count)
    [found] = doctor.room({"workdir": tmp_path / "new"})
    assert found.ok == ok
    assert f"{count / GIB:.1f} GiB free" in found.text


def test_bucket_is_written_to_and_left_as_it_was(store):
    [found] = doctor.writable(storage.path("gs://bucket/runs/new"))
    assert found.ok
    assert "would make" not in found.line()
    [missing] = doctor.writable(storage.path("gs://another/run"))
    assert not missing.ok
    assert "there is no bucket another" in missing.line()
    assert not store.names("bucket/")
