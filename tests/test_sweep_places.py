# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""`--parallel=auto`: which runs of a sweep share a machine, by what it has and what they need."""

import json
import logging

import jax
import pytest

from vit_jax.config import load as config_lib
from vit_jax.errors import BadInput
from vit_jax.experiments.sweeps import places
from vit_jax.experiments.sweeps.places import GIB, Fixed, Machine, Need
from vit_jax.hardware import topology

H100, V5E = "NVIDIA H100 80GB HBM3", "TPU v5 lite"


def configs(count, **mesh):
    overrides = [f"--config.mesh.{axis}={n}" for axis, n in mesh.items()]
    return [config_lib.load("configs/quickstart.py", overrides)] * count


def machine(platform, count, kind, **given):
    rest = {"cores": 64, "host_bytes": 500 * GIB, "device_bytes": 80 * GIB} | given
    return Machine(platform, kind=kind, devices=count, **rest)


def needing(gib_by_chips, hours=1.0):
    """A plan in which a run needs these GiB on a number of chips, of which 70 fit."""

    def plan(config, accelerator):
        gib = gib_by_chips[accelerator.chips]
        return Need(int(gib * GIB), gib <= 70, hours)

    return plan


def variables(found, name):
    return [place.environment.get(name) for place in found]


# ---------------------------------------------------------------- CPU


def tell(folder, *gib):
    folder.mkdir(exist_ok=True)
    rows = [{"step": i, "memory/host_bytes": int(n * GIB)} for i, n in enumerate(gib, 1)]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


@pytest.mark.parametrize(
    "cores, free, runs, count",
    [
        (2, 64, 9, 2),  # a run for each core
        (64, 64, 9, 9),  # no more places than runs
        (64, 10, 9, 3),  # 0.9 x 10 GiB hold three of 1.25 x 2 GiB
        (64, 1, 9, 1),  # one in any case
    ],
)
def test_on_a_cpu_cores_and_measured_memory_decide(tmp_path, cores, free, runs, count, caplog):
    caplog.set_level(logging.INFO, "vit_jax")
    folders = [tmp_path / str(i) for i in range(runs)]
    chosen = places.OnCpu(folders, Machine("cpu", cores, free * GIB))
    assert len(chosen.now()) == 1  # nothing is known yet
    tell(folders[0], 1, 2, 1.5)
    chosen._looked = 0.0
    assert [place.number for place in chosen.now()] == list(range(count))
    assert all(place.environment == {} for place in chosen.now())  # as one after another
    (line,) = caplog.messages
    assert line.startswith(f"--parallel=auto: {count} run")
    assert f"{cores} cores" in line
    assert "2.5 GiB, as measured" in line


def test_a_sweep_that_continues_knows_the_memory_at_once(tmp_path):
    folders = [tmp_path / "a", tmp_path / "b"]
    tell(folders[1], 1)
    assert len(places.OnCpu(folders, Machine("cpu", 8, 100 * GIB)).now()) == 2


# ---------------------------------------------------------------- GPUs


def test_each_run_has_a_gpu_of_its_own(monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    found, why = places.on_devices(configs(9), machine("gpu", 4, H100), needing({1: 60}))
    assert variables(found, "CUDA_VISIBLE_DEVICES") == ["0", "1", "2", "3"]
    assert variables(found, places.FRACTION) == [None] * 4
    assert "60.0 GiB" in why


def test_gpus_that_are_hidden_stay_hidden(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5,GPU-3c,7")
    found, _ = places.on_devices(configs(9), machine("gpu", 3, H100), needing({1: 60}))
    assert variables(found, "CUDA_VISIBLE_DEVICES") == ["5", "GPU-3c", "7"]


def test_a_run_that_needs_more_memory_gets_more_gpus(monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    plan = needing({1: 150, 2: 75, 4: 40, 8: 20})
    found, _ = places.on_devices(configs(9), machine("gpu", 8, H100), plan)
    assert variables(found, "CUDA_VISIBLE_DEVICES") == ["0,1,2,3", "4,5,6,7"]


def test_a_mesh_asks_for_its_devices(monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    found, _ = places.on_devices(configs(9, fsdp=2), machine("gpu", 4, H100), needing({2: 3, 4: 2}))
    assert variables(found, "CUDA_VISIBLE_DEVICES") == ["0,1", "2,3"]


@pytest.mark.parametrize(
    "gib, runs, gpus, shared",
    [
        # By hand: of 80 GiB, n runs take 0.95 / n less 1 GiB each, and a step may fill 0.92.
        (16.5, 9, 1, 4),  # 0.92 x (19 - 1) = 16.56
        (16.6, 9, 1, 3),  # 0.92 x (25.33 - 1) = 22.4
        (35, 9, 1, 1),  # 0.92 x (38 - 1) = 34.04
        (16.5, 3, 2, 2),  # two on one GPU, one on the other
        (16.5, 2, 2, 1),  # none shares without need
    ],
)
def test_small_runs_share_a_gpu(monkeypatch, gib, runs, gpus, shared):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.delenv(places.FRACTION, raising=False)
    many = machine("gpu", gpus, H100)
    found, _ = places.on_devices(configs(runs), many, needing({1: gib, 2: gib}))
    assert len(found) == min(runs, gpus * shared)
    fractions = {float(text) for text in variables(found, places.FRACTION) if text}
    assert fractions == (set() if shared == 1 else {round(0.95 / shared - 1 / 80, 4)})
    if gpus > 1:
        assert variables(found, "CUDA_VISIBLE_DEVICES") == ["0", "1", "0"][:runs]


def test_a_share_of_the_memory_that_the_user_has_set_stays(monkeypatch):
    monkeypatch.setenv(places.FRACTION, "0.3")
    found, _ = places.on_devices(configs(9), machine("gpu", 2, H100), needing({1: 1, 2: 1}))
    assert variables(found, places.FRACTION) == [None, None]


@pytest.mark.parametrize("why", ["no plan", "another GPU"])
def test_without_a_plan_no_gpu_is_shared(monkeypatch, why):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)

    def plan(config, accelerator):
        raise BadInput("its size is not known:\nprepare it")

    kind = H100 if why == "no plan" else "Some GPU"
    found, said = places.on_devices(configs(9), machine("gpu", 2, kind), plan)
    assert variables(found, "CUDA_VISIBLE_DEVICES") == ["0", "1"]
    assert ("its size is not known:)" in said) == (why == "no plan")


def test_cores_limit_runs_on_gpus_too(monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    few = machine("gpu", 8, H100, cores=3)
    assert len(places.on_devices(configs(9), few, needing({1: 60}))[0]) == 3


# ---------------------------------------------------------------- TPUs


def test_each_run_has_a_tpu_chip_and_looks_for_no_other(monkeypatch):
    monkeypatch.delenv("TPU_VISIBLE_CHIPS", raising=False)
    found, _ = places.on_devices(configs(9), machine("tpu", 4, V5E), needing({1: 10}))
    assert variables(found, "TPU_VISIBLE_CHIPS") == ["0", "1", "2", "3"]
    for name in ("TPU_CHIPS_PER_PROCESS_BOUNDS", "TPU_PROCESS_BOUNDS"):
        assert variables(found, name) == ["1,1,1"] * 4
    from vit_jax.runtime import process_identity

    assert process_identity.resolve({}, found[0].environment, tpu=True) is None
    assert process_identity.resolve({}, {}, tpu=True) == "tpu"  # as without the variables


def test_a_chip_may_have_two_devices():
    found, _ = places.on_devices(configs(9), machine("tpu", 8, "TPU v3"), needing({1: 10}))
    assert variables(found, "TPU_VISIBLE_CHIPS") == ["0", "1", "2", "3"]


@pytest.mark.parametrize(
    "plan, given, said",
    [
        (needing({1: 90, 4: 20}), {}, "it takes all of 4 x TPU v5 lite"),
        (needing({1: 90, 4: 90}), {}, "it takes all of"),
        (needing({}), {"hosts": 4}, "4 hosts"),
    ],
)
def test_a_run_may_need_the_whole_tpu(plan, given, said):
    found, why = places.on_devices(configs(9), machine("tpu", 4, V5E, **given), plan)
    assert [place.environment for place in found] == [{}]
    assert said in why


def test_accelerators_of_a_part_are_those_of_the_compiler():
    v5e, v4 = map(topology.generation_of, ("TPU v5 lite", "TPU v4"))
    assert [places._accelerator(v5e, n).shape for n in (1, 4, 8)] == ["1x1", "2x2", "2x4"]
    assert [places._accelerator(v4, n).shape for n in (1, 4)] == ["1x1x1", "2x2x1"]


# ---------------------------------------------------------------- this machine


def test_without_an_accelerator_the_machine_is_a_cpu(tmp_path):
    found = places.here("auto", str(tmp_path))
    assert (found.platform, found.devices) == ("cpu", 0)
    assert found.cores >= 1
    assert found.host_bytes > 0


@pytest.mark.parametrize("platform, hosts", [("tpu", 2), ("gpu", 1)])
def test_an_accelerator_is_asked_about_in_another_process(tmp_path, monkeypatch, platform, hosts):
    class Told:
        def __init__(self, make, died):
            self.make = make

        def __enter__(self):
            return self

        def __exit__(self, *_):
            pass

        def ask(self, question):
            return self.make()(question) | {"platform": platform}

    monkeypatch.setattr(places, "Child", Told)
    monkeypatch.setattr(places.detect, "present_accelerators", lambda root: [platform])
    monkeypatch.setenv("TPU_WORKER_HOSTNAMES", "a,b")
    monkeypatch.setenv("XLA_PYTHON_CLIENT_PREALLOCATE", "")
    monkeypatch.delenv("JAX_PLATFORMS", raising=False)
    found = places.here("auto", str(tmp_path))
    assert (found.platform, found.kind, found.hosts) == (platform, "cpu", hosts)
    assert found.devices == len(jax.local_devices())
    assert places.here("cpu", str(tmp_path)).platform == "cpu"
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    assert places.here("auto", str(tmp_path)).platform == "cpu"


def test_a_fixed_number_of_places_are_different():
    assert len(set(place.number for place in Fixed(3).now())) == 3
