# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Checks for `vit_jax doctor`: can this machine run now? Each check has caught a real fault.

No check hangs. Each has a time limit, and imports of jax and TensorFlow run in child processes: a
backend that is stuck in a driver cannot be interrupted, it can only be left behind. Start from
`examine`.
"""

import contextlib
import dataclasses
import errno
import importlib.metadata
import importlib.util
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from vit_jax.config import sections
from vit_jax.errors import BadInput, PeerLost
from vit_jax.hardware import detect
from vit_jax.storage import files as storage

LEAST_BYTES = 2**30
QUICK_SECS = 20.0  # network storage may need some time
IMPORT_SECS = 120.0  # importing TensorFlow on a busy machine, or starting a TPU, takes long
_AGAIN = "run pip install for vit_jax again"


@dataclasses.dataclass(frozen=True)
class Finding:
    """One line of the doctor.

    Attributes:
      check: name of the check, in one word.
      text: the state of this machine.
      fix: what to do; "" if nothing is wrong.
    """

    check: str
    text: str
    fix: str = ""

    @property
    def ok(self) -> bool:
        """True if nothing is wrong."""
        return not self.fix

    def line(self) -> str:
        """Returns the line for people: `ok   disk   ...` or `bad  disk   ...: what to do`."""
        text = f"{self.text}: {self.fix}" if self.fix else self.text
        return f"{'ok ' if self.ok else 'bad'}  {self.check:<12} {text}"


def examine(workdir: Path, config: sections.Config | None) -> Iterator[Finding]:
    """Runs every check; yields each finding as soon as it is known.

    Args:
      workdir: workdir of the run.
      config: configuration of the run, if known.
    """
    present, asked = detect.present_accelerators(), config.platform if config else "auto"
    data_dir = (config.data.data_dir if config else "") or os.environ.get("TFDS_DATA_DIR")
    folders = {
        "workdir": workdir,
        "temporary files": Path(tempfile.gettempdir()),
        "datasets": Path(os.path.expanduser(data_dir or "~/tensorflow_datasets")),
    }
    late = IMPORT_SECS + 5  # a child ends before that
    yield from run(
        {
            "packages": (packages, QUICK_SECS),
            "devices": (lambda: devices(asked, present, os.environ), late),
            "tensorflow": (tensorflow, late),
            "workdir": (lambda: writable(workdir), QUICK_SECS),
            "disk": (lambda: room(folders), QUICK_SECS),
        }
    )


# ---------------------------------------------------------------- time limits


def run(checks: Mapping[str, tuple[Callable[[], list[Finding]], float]]) -> Iterator[Finding]:
    """Yields the findings of checks (name -> function, seconds) in order; all run at once."""
    began, findings = time.monotonic(), dict[str, list[Finding]]()

    def work(name: str, check: Callable[[], list[Finding]]) -> None:
        try:
            findings[name] = check()
        except Exception as e:  # one broken check must not hide the others
            text = f"the check failed ({type(e).__name__}: {e})"
            fix = _AGAIN if isinstance(e, ImportError) else "mend what it names"
            findings[name] = [Finding(name, text, fix)]

    threads = {
        name: threading.Thread(target=work, args=(name, check), daemon=True)
        for name, (check, _) in checks.items()
    }
    for thread in threads.values():
        thread.start()
    for name, (_, secs) in checks.items():
        threads[name].join(max(0.0, began + secs - time.monotonic()))
        fix = "try again when this machine is less busy; check that its storage answers (df -h)"
        late = Finding(name, f"no answer within {secs:g} s", fix)
        yield from findings.get(name, [late])


_CHILD = """
import importlib, json, sys
module, _, name = sys.argv[1].partition(":")
try:
    answer = getattr(importlib.import_module(module), name)()
except Exception as e:
    sys.exit(f"{type(e).__name__}: {' '.join(str(e).split())}")
print("\\n" + json.dumps(answer))
"""


class Failed(Exception):
    """Raised if a child process ended without an answer; the message says why."""


def call(function: str, secs: float, env: Mapping[str, str | None] = {}) -> Any:
    """Calls `module:function` in a fresh process and returns its result, by way of JSON.

    Args:
      function: name of a function without arguments.
      secs: longest wait in seconds.
      env: changes of the environment; None removes a variable.

    Raises:
      Failed: the process did not answer in time, or ended with an error, whose last line is the
        message.
    """
    whole = {name: value for name, value in {**os.environ, **env}.items() if value is not None}
    child = subprocess.Popen(
        [sys.executable, "-c", _CHILD, function], env=whole, text=True, errors="replace",
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    try:
        answer, error = child.communicate(timeout=secs)
    except subprocess.TimeoutExpired:
        child.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):  # stuck in a driver: left behind
            child.communicate(timeout=2)
        raise Failed(f"no answer within {secs:g} s") from None
    if child.returncode:
        last = [line.strip() for line in error.splitlines() if line.strip()][-1:]
        end = f"killed by signal {-child.returncode}" if child.returncode < 0 else "failed"
        raise Failed(f"{end}: {last[0][:500] if last else 'it printed nothing'}")
    return json.loads(answer.splitlines()[-1])


# ---------------------------------------------------------------- packages


def packages(folders: Sequence[str] | None = None) -> list[Finding]:
    """Compares Python and the packages with what pyproject.toml and jax's accelerators require.

    Args:
      folders: folders of installed packages (default: those of this process).
    """
    from packaging.requirements import Requirement
    from packaging.specifiers import SpecifierSet

    where: Any = {} if folders is None else {"path": list(folders)}
    installed = dict[str, importlib.metadata.Distribution]()
    for dist in importlib.metadata.distributions(**where):  # the first on the path counts
        installed.setdefault(_normal(dist.metadata["Name"] or ""), dist)
    if "vit-jax" not in installed:
        text = "vit_jax is not installed, so its requirements are not known"
        return [Finding("packages", text, "pip install -e . in the folder of its pyproject.toml")]
    version, bounds = platform.python_version(), installed["vit-jax"].metadata["Requires-Python"]
    fits = SpecifierSet(bounds or "").contains(version, prereleases=True)
    fix = "" if fits else f"install Python {bounds} and vit_jax into it"
    findings, missing = [Finding("python", f"{version} at {sys.executable}", fix)], []
    for asks in filter(re.compile(r"vit-jax|jax|jax-(cuda|rocm)\d+-plugin").fullmatch, installed):
        asking = installed[asks].metadata["Name"]
        for requirement in map(Requirement, installed[asks].requires or []):
            name, needs = requirement.name, requirement.specifier
            dist = installed.get(_normal(name))
            needed = requirement.marker is None or requirement.marker.evaluate({"extra": ""})
            if not needed and not (dist and re.match("jax-|libtpu|nvidia-", name)):  # jax's extras
                continue
            if dist is None and re.fullmatch("tensorflow(-cpu)?", name):
                continue  # training may do without; see `tensorflow`
            if dist is None:
                missing.append((f"{name} is not installed", f"pip install '{name}{needs}'"))
            elif not needs.contains(dist.version, prereleases=True):
                text = f"{name} {dist.version} is not what {asking} needs ({needs})"
                missing.append((text, f"pip install '{name}{needs}'"))
    if missing:
        return findings + [Finding("packages", *pair) for pair in dict.fromkeys(missing)]
    shown = re.compile(
        "jax|jaxlib|libtpu|jax-.*-plugin|flax|optax|orbax-checkpoint|tensorflow(-cpu)?"
    )
    names = [f"{n} {d.version}" for n, d in sorted(installed.items()) if shown.fullmatch(n)]
    return [*findings, Finding("packages", ", ".join(names))]


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


# ---------------------------------------------------------------- accelerators


def devices(asked: str, present: Sequence[str], env: Mapping[str, str]) -> list[Finding]:
    """Compares the devices of jax with those that are requested or present.

    Args:
      asked: platform of the configuration: auto, cpu, gpu or tpu.
      present: result of `detect.present_accelerators`.
      env: environment variables.
    """
    wanted = asked if asked != "auto" else (present[0] if present else "cpu")
    choice = {"JAX_PLATFORMS": "cpu"} if asked == "cpu" else {}
    try:
        seen = call("vit_jax.preflight.doctor:list_devices", IMPORT_SECS, choice)
    except Failed as e:
        fix = _advice(wanted, present, {**env, **choice}, str(e))
        return [Finding("devices", f"jax gave no devices, {e}".rstrip(": "), fix)]
    here = " and ".join(map(str.upper, present)) or "no accelerator"
    text = f"{seen['count']} x {seen['kind']}, platform {seen['platform']}; this machine has {here}"
    if seen["platform"] == wanted or (asked == "auto" and seen["platform"] != "cpu"):
        return [Finding("devices", text)]
    reason = next((f" ({reason})" for reason in seen["reasons"]), "")
    text = f"jax uses {text}, {wanted.upper()} is expected{reason}"
    return [Finding("devices", text, _advice(wanted, present, env, ""))]


def _advice(wanted: str, present: Sequence[str], env: Mapping[str, str], error: str) -> str:
    """Returns what to do where jax does not start or does not use the expected accelerator."""
    if wanted not in ("cpu", *present):
        return "give --config.platform=auto, or use a machine that has one"
    names = {"gpu": ("gpu", "cuda", "rocm")}.get(wanted, (wanted,))  # in JAX_PLATFORMS

    def to_blame(name: str, value: str) -> bool:
        if name in ("JAX_PLATFORMS", "JAX_PLATFORM_NAME"):  # jax's own advice may name these
            return bool(value) and value.split(",")[0] not in names
        if name == "CUDA_VISIBLE_DEVICES":
            return wanted == "gpu" and re.fullmatch(r"\s*(-1|\D*)", value) is not None
        return re.match("(JAX|XLA)_", name) is not None and name.lower() in error.lower()

    advice = [f"unset {name}, which is {env[name]!r}, or correct it"
              for name in env if to_blame(name, env[name])]  # fmt: skip
    if wanted == "tpu" and error:
        advice.append("end the process that holds the TPU; on a pod, run this on all hosts at once "
                      "(gcloud ... --worker=all)")  # fmt: skip
    advice.append(detect.extra(wanted) if wanted != "cpu" else _AGAIN)
    return "; or ".join(advice)


def list_devices() -> dict[str, Any]:
    """Returns the devices of jax after a first computation, and why other backends failed."""
    import jax
    import jax.numpy as jnp

    first = jax.devices()[0]
    assert float(jnp.arange(8.0).sum()) == 28.0
    reasons = []
    for name in ("cuda", "rocm", "tpu"):
        try:
            jax.devices(name)
        except RuntimeError as e:  # also where the plugin is not installed, which is no news
            _, failed, text = " ".join(str(e).split()).partition(" failed to initialize: ")
            if failed:
                reasons.append(f"{name}: {text.partition('. Available backends')[0][:200]}")
    kind, count = first.device_kind, len(jax.devices())
    return {"count": count, "kind": kind, "platform": first.platform, "reasons": reasons}


def tensorflow() -> list[Finding]:
    """Checks that TensorFlow, where it is installed, can be imported and sees no accelerator."""
    if importlib.util.find_spec("tensorflow") is None:
        return [Finding("tensorflow", "not installed; pip install 'vit_jax[tf]' for tf.data")]
    own = {name: None for name in os.environ if name.startswith("JAX_")}  # not TensorFlow's fault
    try:
        version, seen, usable = call("vit_jax.data.tensorflow:accelerators", IMPORT_SECS, own)
    except Failed as e:
        return [Finding("tensorflow", f"cannot be imported, {e}", _AGAIN)]
    if not seen and not usable:
        return [Finding("tensorflow", f"{version}, sees no accelerator")]
    text = f"{version} sees {', '.join(seen or usable)}, whose memory and libraries are jax's"
    build = "tensorflow-cpu" if os.uname().machine == "x86_64" else "a build for CPUs"
    return [Finding("tensorflow", text, f"pip uninstall -y tensorflow; pip install {build}")]


# ---------------------------------------------------------------- folders


def writable(folder: Path) -> list[Finding]:
    """Checks that a file can be written, read back and removed where a run would write."""
    try:
        base = storage.existing(storage.workdir(str(folder)))
        path = base / f".vit_jax-doctor-{uuid.uuid4().hex}"
        try:
            storage.write(path, "doctor")
            if storage.read_all([path]) != [b"doctor"]:
                raise OSError(errno.EIO, "a file reads back with other content")
        finally:
            storage.remove(path)
    except (OSError, BadInput, PeerLost) as e:
        text = f"{folder} cannot be written: {getattr(e, 'strerror', None) or e}"
        return [Finding("workdir", text, "give a --workdir that is writable, or mend its rights")]
    new = "" if base == folder.absolute() else f"; a run would make it in {base}"
    return [Finding("workdir", f"{folder} can be written{new}")]


def room(folders: Mapping[str, Path]) -> list[Finding]:
    """Checks that each folder (purpose -> folder) has a GiB free; a bucket has no limit."""
    findings, free = [], []
    for purpose, folder in folders.items():
        if storage.is_remote(folder):
            continue
        try:
            left = shutil.disk_usage(storage.existing(folder)).free
        except OSError as e:
            text = f"{purpose} {folder} cannot be read: {e.strerror}"
            findings.append(Finding("disk", text, "mend its rights, or give another folder"))
            continue
        free.append(f"{purpose} {left / 2**30:,.1f} GiB free")
        if left < LEAST_BYTES:
            text = f"{purpose} {folder} has only {left / 2**30:.1f} GiB free"
            findings.append(Finding("disk", text, "free at least 1 GiB, or give another folder"))
    return findings or [Finding("disk", "; ".join(free))]
