# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Jobs with odd letters everywhere, and programs in the place of the trainer and of engines."""

import json
import os
import subprocess
import sys
from pathlib import Path

from launch.job import Job, Run
from vit_jax.hardware import topology

ODD = (
    "plain",
    "two  spaces ",
    "",
    'it\'s "quoted" `date`',
    "$HOME ${HOME} $(date) \\ \\n !! #",
    "line\nbreak\ttab\r",
    "über 猫 🐈",
    "--leading=dash",
    "-x",
    "*?[a] {a,b} ~ <folder> %h %% ; & | > <",
    "@file",
    "{{ jinja }} ${{ x }}",
    "key: value # yaml",
    "null",
    "\u2028\x85\x07",
)
ENVIRONMENT = {f"ODD_{i}": text for i, text in enumerate(ODD)}
OVERRIDES = tuple(f"--config.data.source={text}" for text in ODD)

# Notes how it was called; ends with the code in the file `code` beside the notes, if there is one.
_TRAINER = """#!{python}
import json, os, pathlib, sys
notes = pathlib.Path(os.environ["NOTES"])
env = {{k: v for k, v in os.environ.items() if k.startswith(("ODD_", "VIT_JAX_", "XLA_"))}}
job = json.loads(pathlib.Path(sys.argv[1][1:]).expanduser().read_text())
with open(notes / "calls", "a") as file:
    print(json.dumps({{"argv": sys.argv[1:], "job": job, "env": env}}), file=file)
codes = notes / "code"
sys.exit(int(codes.read_text()) if codes.exists() else 0)
"""


def job(folder, accelerator="", *, workdir="/shared/runs/mine", points=0, overrides=(), **more):
    """A job of one run, or a sweep of so many points."""
    names = [f"mine-{i:03}" for i in range(points)] or ["mine"]
    runs = tuple(
        Run(
            name,
            f"{workdir}/{name}" if points else workdir,
            "seed: 1\n",
            "abc",
            tuple(overrides),
            i,
        )
        for i, name in enumerate(names)
    )
    given = {"code": "c0de", "packages": {"jax": "0.10.2"}, "sweep": ("sweep",) if points else ()}
    found = topology.find(accelerator) if accelerator else None
    return Job("mine", runs, workdir, str(folder), found, **given | more)


def odd_job(folder, accelerator, **more):
    """A job in which everything that may be odd is."""
    return job(folder, accelerator, overrides=OVERRIDES, environment=ENVIRONMENT, **more)


def write(rendered, folder):
    """The files of a job, as `launch submit` writes them."""
    from launch import running

    running.write(rendered, "test", Path(folder))


def program(folder, name, text):
    """Puts a program into a folder of programs."""
    path = Path(folder) / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)


def programs(folder, **more):
    """A folder with a trainer that takes notes, and shell scripts by name."""
    program(folder, "vit_jax", _TRAINER.format(python=sys.executable))
    for name, text in more.items():
        program(folder, name, f"#!/bin/bash\n{text}\n")
    return Path(folder)


def bash(words, bin_folder, notes, **env):
    """Runs a script with those programs found first; the completed process."""
    path = f"{bin_folder}:{os.environ['PATH']}"
    Path(notes).mkdir(exist_ok=True)
    given = {**os.environ, "PATH": path, "NOTES": str(notes), **env}
    return subprocess.run(words, env=given, capture_output=True, text=True, timeout=60)


def calls(notes):
    """Returns the calls that the trainer noted, in order."""
    file = Path(notes) / "calls"
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def check_scripts(rendered):
    """Each shell script is one, to bash and, where it is installed, to shellcheck."""
    import shutil

    for file in rendered.files:
        if isinstance(file.content, str) and file.content.startswith("#!/bin/bash"):
            for tool in (["bash", "-n"], ["shellcheck", "-s", "bash"]):
                if shutil.which(tool[0]):
                    found = subprocess.run(
                        [*tool, "/dev/stdin"], input=file.content, capture_output=True, text=True
                    )
                    assert found.returncode == 0, f"{file.name}: {found.stdout}{found.stderr}"
