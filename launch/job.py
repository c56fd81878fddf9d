# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Values for a job and for the result of an engine; no engine, no file, no process.

A job is one run or several (the points of a sweep) on machines of one kind. Start from `Job`.
"""

import dataclasses
import hashlib
import re
import shlex
from collections.abc import Mapping
from typing import Any, Literal

from vit_jax.errors import BadInput, runs_again
from vit_jax.hardware.topology import Accelerator
from vit_jax.runtime.job_file import FILE, JobFile

MOST_CHARACTERS = 30  # limit for a job's name; with the engines' suffixes it must fit into 63
MOST_RESTARTS = 50  # by an engine; the trainer gives up earlier if it saves nothing
GRACE_SECS = 120  # from SIGTERM until an engine kills, for saving
CONFIG_FILE = "config.yaml"
NODE = f"{__package__}.node"  # a wheel has this package inside vit_jax
AGAIN = tuple(code for code in range(256) if runs_again(code))  # exit codes that restart
Processes = Literal["per_node", "per_gpu"]


# ---------------------------------------------------------------- the job


@dataclasses.dataclass(frozen=True)
class Run:
    """One training run.

    Attributes:
      name: DNS labels, the same each time that this run is launched.
      workdir: workdir of the trainer.
      config: the whole configuration as YAML, so the machines do not need the recipe.
      fingerprint: fingerprint of the configuration, as `vit_jax.config.load` computes it.
      overrides: `--config.key=value` arguments as given. They are already part of `config` and only
        record the request.
      number: number of the point in its stage, independent of finished points.
    """

    name: str
    workdir: str
    config: str
    fingerprint: str
    overrides: tuple[str, ...] = ()
    number: int = 0


@dataclasses.dataclass(frozen=True)
class Job:
    """The input of an engine.

    Attributes:
      name: DNS labels, at most `MOST_CHARACTERS`.
      runs: one run, or one for each unfinished point of a sweep.
      workdir: workdir of the run or of the sweep.
      folder: folder on this machine for the files of `Rendered`.
      accelerator: accelerator of each run; None uses whatever is present.
      slices: number of slices of that accelerator.
      processes: one for each machine, or one for each GPU.
      environment: variables of the trainer.
      code: hash of the code to run, which the processes compare.
      packages: package versions, which are compared likewise.
      artefact: the code itself, if the launcher transports it.
      parallel: runs at the same time; 0 leaves it to the engine.
      sweep: arguments of `vit_jax` that run the whole sweep on this machine; () without a sweep.
    """

    name: str
    runs: tuple[Run, ...]
    workdir: str
    folder: str
    accelerator: Accelerator | None = None
    slices: int = 1
    processes: Processes = "per_node"
    environment: Mapping[str, str] = dataclasses.field(default_factory=dict)
    code: str = ""
    packages: Mapping[str, str] = dataclasses.field(default_factory=dict)
    artefact: bytes = dataclasses.field(default=b"", repr=False)
    parallel: int = 0
    sweep: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_name(self.name)
        for key, value in self.environment.items():
            if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", key) or "\0" in value:
                raise BadInput(f"--env={key}={value!r}; give NAME=VALUE, NAME of letters, digits.")
            if key == "VIT_JAX_CODE":
                raise BadInput(f"--env={key}: the job sets it; leave it out.")

    def prefix(self, run: Run) -> str:
        """Returns the folder of a run's files inside the job's folder; "" for a single run."""
        return f"{run.number}/" if self.sweep else ""

    def files(self, run: Run, at: str) -> tuple["File", "File"]:
        """Returns the job file of a run and its configuration.

        Args:
          run: a run of this job.
          at: folder of the two files on the machine that runs them.
        """
        words = ("train", f"--config={at}/{CONFIG_FILE}", f"--workdir={run.workdir}")
        told = JobFile((*words, *run.overrides), self.code, run.fingerprint, dict(self.packages))
        prefix = self.prefix(run)
        return File(prefix + FILE, told.to_json()), File(prefix + CONFIG_FILE, run.config)


# ---------------------------------------------------------------- the result of an engine


@dataclasses.dataclass(frozen=True)
class File:
    """A file to write.

    Attributes:
      name: path below the folder of the job.
      content: text, or bytes for a binary file.
      mode: file system mode.
    """

    name: str
    content: str | bytes
    mode: int = 0o644


@dataclasses.dataclass(frozen=True)
class Command:
    """A command of the engine.

    Attributes:
      argv: its words.
      unless: command that succeeds if this one has already been run.
      dead: outputs of `unless` that mean a failed earlier run is in the way.
    """

    argv: tuple[str, ...]
    unless: tuple[str, ...] = ()
    dead: tuple[str, ...] = ()

    def __str__(self) -> str:
        first = f"{shlex.join(self.unless)} >/dev/null 2>&1 || " if self.unless else ""
        return first + shlex.join(self.argv)


@dataclasses.dataclass(frozen=True)
class Rendered:
    """The result of an engine: files, and the commands for each verb."""

    files: tuple[File, ...]
    submit: tuple[Command, ...]
    status: tuple[Command, ...]
    logs: tuple[Command, ...]
    cancel: tuple[Command, ...]


# ---------------------------------------------------------------- options, names, shells


def flag(text: str, default: Any = "", choices: tuple[str, ...] = ()) -> Any:
    """Makes a field of an engine's `Options`, which `main` turns into a flag.

    Args:
      text: help text.
      default: default, which also sets the type; a tuple allows several values.
      choices: allowed values; () allows any.
    """
    more = {"choices": choices} if choices else {}
    return dataclasses.field(default=default, metadata={"help": text, **more})


def check_name(name: str) -> None:
    """Raises BadInput unless a name can be a DNS label, with room for the engines' suffixes."""
    if not re.fullmatch(r"[a-z]([a-z0-9-]*[a-z0-9])?", name) or len(name) > MOST_CHARACTERS:
        raise BadInput(
            f"--name={name!r}: a name has at most {MOST_CHARACTERS} of a-z, 0-9 and -, begins "
            f"with a letter and does not end with -; {name_of(name)!r} would be one."
        )


def name_of(workdir: str) -> str:
    """Returns a name for a workdir: its readable part, and a hash that makes it unique."""
    last = workdir.rstrip("/").rpartition("/")[2].lower()
    readable = re.sub(r"[^a-z0-9]+", "-", last).strip("-")
    readable = readable if readable[:1].isalpha() else f"run-{readable}"
    return f"{readable[: MOST_CHARACTERS - 7].strip('-')}-{_hash(workdir, 6)}"


def name_of_run(job: str, run: str) -> str:
    """Returns the name of a point: its job's name, a hash of its stage if any, and its number."""
    stage, _, point = run.rpartition("/")
    digits = point.partition("-")[0]
    return "-".join(filter(None, (job, _hash(stage, 4) if stage else "", digits)))


def number(run: str) -> int:
    """Returns the number of a point in its stage: 7 for select/007-seed=1."""
    return int(run.rpartition("/")[2].partition("-")[0])


def _hash(text: str, digits: int) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:digits]


def exports(environment: Mapping[str, str]) -> str:
    """Returns lines of a shell script that set variables; any value is safe."""
    return "".join(f"export {key}={shlex.quote(value)}\n" for key, value in environment.items())


def fill(template: str, values: Mapping[str, object]) -> str:
    """Returns a template with each <key> replaced; does not scan replacements again."""
    return re.sub(r"<([a-z]+)>", lambda match: str(values[match[1]]), template)


def checked(flag: str, value: str) -> str:
    """Returns a value that can go into a script as it is.

    Raises:
      BadInput: the value has characters other than letters, digits and those in names of clusters
        and clouds.
    """
    if not re.fullmatch(r"[A-Za-z0-9_.,:/@%=+-]*", value):
        raise BadInput(f"--{flag}={value!r}: expected letters, digits and . , : / @ % = + - _ .")
    return value


def require(**flags: str) -> None:
    """Raises BadInput if required options of an engine are empty; names all of them."""
    missing = [f"--{name}" for name, value in flags.items() if not value]
    if missing:
        raise BadInput(f"{' and '.join(missing)} missing; see --help and docs/launch.")
