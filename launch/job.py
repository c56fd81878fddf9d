# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""What is to run and what an engine makes of it: values only, no engine, no file, no process.

A job is one or several runs (the points of a sweep) on machines of one kind. Start from `Job`.
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

MOST_CHARACTERS = 30  # of a job's name; what engines append must fit into 63 as well
MOST_RESTARTS = 50  # by an engine; the trainer itself gives up earlier if it saves nothing
GRACE_SECS = 120  # from SIGTERM until an engine kills, to save in
CONFIG_FILE = "config.yaml"
AGAIN = tuple(code for code in range(256) if runs_again(code))  # exit codes that restart
Processes = Literal["per_node", "per_gpu"]


# ---------------------------------------------------------------- what is to run


@dataclasses.dataclass(frozen=True)
class Run:
    """One training run.

    Attributes:
      name: of DNS labels, and the same each time that this run is launched.
      workdir: of the trainer.
      config: the whole configuration as YAML; the recipe need not be where it runs.
      fingerprint: of it, as `vit_jax.config.load` has it.
      overrides: `--config.key=value` as they were given; `config` has them already, they say what
        was asked for.
      number: of the point in its stage, however many are finished.
    """

    name: str
    workdir: str
    config: str
    fingerprint: str
    overrides: tuple[str, ...] = ()
    number: int = 0


@dataclasses.dataclass(frozen=True)
class Job:
    """What is handed to an engine.

    Attributes:
      name: of DNS labels, at most `MOST_CHARACTERS`.
      runs: one, or one for each point of a sweep that is not finished.
      workdir: of the run, or of the sweep.
      folder: on this machine, that holds or will hold the files of `Rendered`.
      accelerator: of each run; None: whatever is there.
      slices: of it.
      processes: one for each machine, or one for each GPU.
      environment: variables of the trainer.
      code: hash of the code that is to run, as the processes compare it.
      packages: their versions, which are compared likewise.
      artefact: the code itself, where the launcher brings it.
      parallel: runs at a time; 0: as the engine has it.
      sweep: what follows `vit_jax` to run the whole sweep on this machine; (): it is none.
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
                raise BadInput(f"--env={key}: that is the job's own; leave it out.")

    def prefix(self, run: Run) -> str:
        """The folder of a run's files in that of the job: none for a single one."""
        return f"{run.number}/" if self.sweep else ""

    def files(self, run: Run, at: str) -> tuple["File", "File"]:
        """The job file of a run and its configuration.

        Args:
          run: of this job.
          at: the folder that the two will lie in where it runs.
        """
        words = ("train", f"--config={at}/{CONFIG_FILE}", f"--workdir={run.workdir}")
        told = JobFile((*words, *run.overrides), self.code, run.fingerprint, dict(self.packages))
        prefix = self.prefix(run)
        return File(prefix + FILE, told.to_json()), File(prefix + CONFIG_FILE, run.config)


# ---------------------------------------------------------------- what becomes of it


@dataclasses.dataclass(frozen=True)
class File:
    """A file to be written.

    Attributes:
      name: below the folder of the job.
      content: text, or bytes where it is no text.
      mode: of the file system.
    """

    name: str
    content: str | bytes
    mode: int = 0o644


@dataclasses.dataclass(frozen=True)
class Command:
    """A command of the engine.

    Attributes:
      argv: its words.
      unless: a command that succeeds if this one has been run already.
      dead: what `unless` prints where that has failed, and is in the way.
    """

    argv: tuple[str, ...]
    unless: tuple[str, ...] = ()
    dead: tuple[str, ...] = ()

    def __str__(self) -> str:
        first = f"{shlex.join(self.unless)} >/dev/null 2>&1 || " if self.unless else ""
        return first + shlex.join(self.argv)


@dataclasses.dataclass(frozen=True)
class Rendered:
    """What an engine makes of a job: files, and the commands for each verb."""

    files: tuple[File, ...]
    submit: tuple[Command, ...]
    status: tuple[Command, ...]
    logs: tuple[Command, ...]
    cancel: tuple[Command, ...]


# ---------------------------------------------------------------- options, names, shells


def flag(text: str, default: Any = "", choices: tuple[str, ...] = ()) -> Any:
    """A field of an engine's `Options`, which `main` makes a flag of.

    Args:
      text: help.
      default: also its type; a tuple: may be given several times.
      choices: the values there are; (): any.
    """
    more = {"choices": choices} if choices else {}
    return dataclasses.field(default=default, metadata={"help": text, **more})


def check_name(name: str) -> None:
    """Raises BadInput unless a name can be a DNS label, with room for what engines append."""
    if not re.fullmatch(r"[a-z]([a-z0-9-]*[a-z0-9])?", name) or len(name) > MOST_CHARACTERS:
        raise BadInput(
            f"--name={name!r}: a name has at most {MOST_CHARACTERS} of a-z, 0-9 and -, begins "
            f"with a letter and does not end with -; {name_of(name)!r} would be one."
        )


def name_of(workdir: str) -> str:
    """A name for a workdir: what can be read of it, and a hash that tells it from others."""
    last = workdir.rstrip("/").rpartition("/")[2].lower()
    said = re.sub(r"[^a-z0-9]+", "-", last).strip("-")
    said = said if said[:1].isalpha() else f"run-{said}"
    return f"{said[: MOST_CHARACTERS - 7].strip('-')}-{_hash(workdir, 6)}"


def name_of_run(job: str, run: str) -> str:
    """The name of a point: that of its job, a hash of its stage if it has one, its number."""
    stage, _, point = run.rpartition("/")
    digits = point.partition("-")[0]
    return "-".join(filter(None, (job, _hash(stage, 4) if stage else "", digits)))


def number(run: str) -> int:
    """The number of a point in its stage: 7 of select/007-seed=1."""
    return int(run.rpartition("/")[2].partition("-")[0])


def _hash(text: str, digits: int) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:digits]


def exports(environment: Mapping[str, str]) -> str:
    """Lines of a shell script that set variables, whatever is in their values."""
    return "".join(f"export {key}={shlex.quote(value)}\n" for key, value in environment.items())


def filled(template: str, values: Mapping[str, object]) -> str:
    """A template with each <key> replaced; what is put in is not looked at again."""
    return re.sub(r"<([a-z]+)>", lambda match: str(values[match[1]]), template)


def plain(flag: str, value: str) -> str:
    """A value that goes into a script as it is.

    Raises:
      BadInput: it has more than letters, digits and what names of clusters and clouds have.
    """
    if not re.fullmatch(r"[A-Za-z0-9_.,:/@%=+-]*", value):
        raise BadInput(f"--{flag}={value!r}: expected letters, digits and . , : / @ % = + - _ .")
    return value


def needed(**flags: str) -> None:
    """Raises BadInput for options of an engine that are empty but needed; names all of them."""
    missing = [f"--{name}" for name, value in flags.items() if not value]
    if missing:
        raise BadInput(f"{' and '.join(missing)} missing; see --help and docs/launch.")
