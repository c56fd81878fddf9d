# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Settings that must be made before jax is imported, and the folder of real images."""

import atexit
import fcntl
import gc
import importlib.metadata
import os
import signal
import tempfile
from pathlib import Path

import pytest

# A shell in the background or nohup ignores signals, and so would every process of the tests.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)

# Tracing allocates much, nearly all of which is used on: by Python's thresholds every tenth second
# of a model's tests goes into looking for garbage.
gc.set_threshold(20_000, 20, 20)

_cache = tempfile.TemporaryDirectory(prefix="vit_jax_tests_")
atexit.register(_cache.cleanup)
# Programs that several tests compile are kept; workers of pytest-xdist share the controller's.
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", f"{_cache.name}/compiled")
# Compiling for speed costs more than it saves: most tests run a program a few times at most. By
# the older emitters of fusions, which jaxlib 0.11.2 no longer has, it takes 0.7 times as long.
_older = importlib.metadata.version("jaxlib").startswith("0.10.")
os.environ |= {
    "JAX_PLATFORMS": os.environ.get("VIT_JAX_TEST_PLATFORM", "cpu"),
    "XLA_FLAGS": "--xla_force_host_platform_device_count=8 --xla_backend_optimization_level=0 "
    f"{'--xla_cpu_use_fusion_emitters=false ' * _older}--xla_cpu_parallel_codegen_split_count=1 "
    "--xla_cpu_collective_call_terminate_timeout_seconds=600",  # on a busy machine
    "TF_CPP_MIN_LOG_LEVEL": "2",
    "XDG_CACHE_HOME": _cache.name,
    "HYPOTHESIS_STORAGE_DIRECTORY": f"{_cache.name}/hypothesis",
}

import fake_gcs  # noqa: E402
import hypothesis  # noqa: E402
import jax  # noqa: E402
import numpy as np  # noqa: E402
from PIL import Image  # noqa: E402

# Hostile input: the same few dozen examples always, and `--hypothesis-profile=long` on demand.
_BOTH = {
    "deadline": None,
    "database": None,
    "suppress_health_check": list(hypothesis.HealthCheck),
}
hypothesis.settings.register_profile("short", max_examples=40, derandomize=True, **_BOTH)
hypothesis.settings.register_profile("long", max_examples=5000, print_blob=True, **_BOTH)
hypothesis.settings.load_profile("short")

jax.config.update("jax_numpy_rank_promotion", "raise")

# A line of a program that fails if a backend of jax has started: jax then refuses this setting.
NO_BACKEND = "import jax; jax.config.update('jax_num_cpu_devices', 1)"


def pytest_collection_finish():
    """Leaves modules and tests, which stay to the end, out of every search for garbage."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def _no_names_of_other_tests(monkeypatch):
    """Forgets which names MODULE:NAME were given and read, as a new process has."""
    from vit_jax.config import plugins

    monkeypatch.setenv("VIT_JAX_TRUST_CODE", "")
    monkeypatch.setattr(plugins, "_of_runs", {})


@pytest.fixture(scope="session")
def root() -> Path:
    """The repository."""
    return Path(__file__).resolve().parents[1]


@pytest.fixture(scope="session")
def without_devices() -> str:
    """A program: the command of its arguments succeeds, without TensorFlow or a device."""
    return (
        "import sys; from vit_jax.cli import main; code = main.main(sys.argv[1:]); "
        "assert code == 0; assert 'tensorflow' not in sys.modules; "
        f"{NO_BACKEND}"
    )


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """The folder of real images: $VIT_JAX_TEST_DATA, or shared/data beside the repository."""
    beside = Path(__file__).resolve().parents[2] / "shared" / "data"
    for folder in (os.environ.get("VIT_JAX_TEST_DATA"), beside):
        if folder and Path(folder).is_dir():
            return Path(folder)
    pytest.skip(f"no real images: set VIT_JAX_TEST_DATA, or put them into {beside}")


@pytest.fixture(scope="session")
def image_folder(tmp_path_factory):
    """Class folders of JPEG files: red and blue pictures with noise."""
    root = tmp_path_factory.mktemp("images")
    noise = np.random.default_rng(0)
    for part, count in (("train", 20), ("test", 5)):
        for name, channel in (("red", 0), ("blue", 2)):
            (root / part / name).mkdir(parents=True)
            for i in range(count):
                pixels = noise.integers(0, 100, (32, 32, 3), np.uint8)
                pixels[..., channel] += 100
                Image.fromarray(pixels).save(root / part / name / f"{i}.jpg")
    return root


@pytest.fixture(scope="session")
def digits_run(tmp_path_factory) -> Path:
    """A short run of the quickstart that all workers share: read it, and change only copies."""
    from test_train import run

    folder = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent  # of all workers of this session
    workdir = folder / "digits_run"
    with open(folder / "digits_run.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (workdir / "results.json").exists():
            assert run(workdir) == 0
    return workdir


@pytest.fixture(scope="session")
def _served():
    with fake_gcs.serve("bucket") as (store, environment):
        yield store, environment


@pytest.fixture
def store(_served, monkeypatch):
    """An object store on loopback, with one empty bucket, gs://bucket."""
    found, environment = _served
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    found.reset()
    return found


@pytest.fixture
def drawn(monkeypatch):
    """Fixes what an op draws uniformly: drawn(*values), each in [-1, 1], is all that it gets."""
    from vit_jax.data.tensorflow import tf

    def fix(*values):
        monkeypatch.setattr(
            tf.random, "stateless_uniform", lambda *_, **__: tf.constant(values, tf.float32)
        )

    return fix
