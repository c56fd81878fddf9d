# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""The file that carries a command, with its expectations, to the place where the command runs.

`vit_jax @job.json` runs the arguments in the file, so that no shell on the way can change them. It
first compares code, packages and configuration with those of the writer of the file. The launcher
writes the file. This module starts nothing. Start from `read`.
"""

import dataclasses
import importlib.metadata
import json
import os
from collections.abc import Mapping, Sequence
from typing import Any

from vit_jax.config import load as config_lib
from vit_jax.errors import BadInput, unknown
from vit_jax.runtime import rendezvous
from vit_jax.storage import files as storage

FILE = "job.json"


@dataclasses.dataclass(frozen=True)
class JobFile:
    """A command and its expectations of the process that runs it.

    Attributes:
      arguments: the arguments after `vit_jax`.
      code: a version from `rendezvous.code_version`; "": any.
      config: a fingerprint from `config.fingerprint`; "": any.
      packages: name -> version.
    """

    arguments: tuple[str, ...]
    code: str = ""
    config: str = ""
    packages: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def to_json(self) -> str:
        """Returns the text that `read` reads."""
        return json.dumps(dataclasses.asdict(self), indent=1, ensure_ascii=False) + "\n"

    def check(self, overrides: Sequence[str], spec: str | None) -> None:
        """Compares the expectations with this process.

        Args:
          overrides: `--config.key=value` among the arguments.
          spec: the value of `--config` among the arguments; None: not given.

        Raises:
          BadInput: the message names the first difference, both values, and what to do.
        """
        again = "Submit again from where the code and the packages are those of the job."
        here = rendezvous.code_version()
        if self.code and self.code != here:
            raise BadInput(f"the job was made with code {self.code}, here is {here}. {again}")
        for name, version in self.packages.items():
            installed = _version(name)
            if installed != version:
                raise BadInput(
                    f"the job was made with {name} {version}, here is {installed}. {again}"
                )
        if self.config and spec is not None:
            fingerprint = config_lib.fingerprint(config_lib.load(spec, overrides))
            if fingerprint != self.config:
                raise BadInput(
                    f"the job was made with configuration {self.config}, --config={spec} is "
                    f"{fingerprint} here: one of the two was changed since. Submit again."
                )


def read(path: str) -> JobFile:
    """Returns the job in a file.

    Raises:
      BadInput: the file does not exist, or is not a job.
    """
    try:
        content: Any = json.loads(storage.read_list(os.path.expanduser(path)))
    except (OSError, ValueError, RecursionError) as e:
        raise BadInput(f"@{path} cannot be read: {e}; give a job file of `launch`.") from e
    known = {field.name for field in dataclasses.fields(JobFile)}
    if not isinstance(content, dict) or "arguments" not in content:
        raise BadInput(f'@{path} is not a job: expected {{"arguments": [...], ...}}.')
    for key in content:
        if key not in known:
            raise unknown(f"key in {path}", key, sorted(known))
    arguments, packages = content["arguments"], content.get("packages", {})
    if not isinstance(arguments, list) or not all(isinstance(a, str) for a in arguments):
        raise BadInput(f"@{path}: arguments={arguments!r}; expected a list of strings.")
    if not isinstance(packages, dict) or not all(isinstance(v, str) for v in packages.values()):
        raise BadInput(f"@{path}: packages={packages!r}; expected names with versions.")
    for key in ("code", "config"):
        if not isinstance(content.get(key, ""), str):
            raise BadInput(f"@{path}: {key}={content[key]!r}; expected a string.")
    return JobFile(**{**content, "arguments": tuple(arguments)})


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "none"
