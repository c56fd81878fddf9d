# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Completion in bash, zsh and fish, by the shells themselves."""

import shutil
import subprocess

import pytest

from vit_jax.cli import main
from vit_jax.config import sections

MOST_MS = 150  # that one may wait for after Tab
_IN_BASH = """
source "$1"
words=$(complete -p vit_jax); function=${words##*-F }; function=${function%% *}
shift
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMP_LINE="$*"
start=$EPOCHREALTIME
$function vit_jax "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD-1]}"
echo $(( (${EPOCHREALTIME/./} - ${start/./}) / 1000 ))
printf '%s\\n' "${COMPREPLY[@]}"
"""
TYPED = [
    (("tr",), {"train"}),
    (("data", "ch"), {"check"}),
    (("completion", "z"), {"zsh"}),
    (("train", "--workd"), {"--workdir"}),
    (("train", "--config.schedule.l"), {"--config.schedule.lr", "--config.schedule.linear.end"}),
    (("plan", "--config.report.w"), {"--config.report.writers"}),
    (("sweep", "--config.evals.test.every"), {"--config.evals.test.every"}),
    (("inspect", "--config.schedule.l"), set()),
]  # fmt: skip


@pytest.fixture(scope="module")
def scripts(tmp_path_factory):
    """Shell -> file with its script."""
    folder = tmp_path_factory.mktemp("completion")
    files = {}
    for shell in ("bash", "zsh", "fish"):
        with pytest.MonkeyPatch.context() as patch:
            files[shell] = folder / shell
            with files[shell].open("w") as out:
                patch.setattr("sys.stdout", out)
                assert main.main(["completion", shell]) == 0
    return files


def of_shell(shell, program, *arguments):
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    done = subprocess.run(
        [shell, "-c", program, *map(str, arguments)], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout.splitlines()


@pytest.mark.parametrize("typed, expected", TYPED)
def test_bash_completes_and_starts_no_program(scripts, typed, expected):
    program = f"PATH=\n{_IN_BASH}"  # nothing that the function could start is there
    msecs, *words = of_shell("bash", program, "bash", scripts["bash"], "vit_jax", *typed)
    assert {word for word in words if word} == expected
    assert int(msecs) < MOST_MS


@pytest.mark.parametrize("typed, expected", TYPED)
def test_fish_completes(scripts, typed, expected):
    program = f"source {scripts['fish']}; complete -C 'vit_jax {' '.join(typed)}'"
    words = {line.partition("\t")[0] for line in of_shell("fish", program)}
    assert words == expected


@pytest.mark.filterwarnings("ignore:os.fork:RuntimeWarning")  # only zsh runs in the child
def test_zsh_completes_on_tab(scripts, tmp_path):
    if shutil.which("zsh") is None:
        pytest.skip("zsh is not installed")
    pexpect = pytest.importorskip("pexpect", reason="needed to press Tab in a terminal")
    shutil.copy(scripts["zsh"], tmp_path / "_vit_jax")
    shell = pexpect.spawn("zsh", ["-f", "-i"], encoding="utf-8", timeout=20, dimensions=(50, 200))
    shell.sendline(f"fpath=({tmp_path} $fpath); autoload -Uz compinit; compinit -u -D")
    shell.sendline("print re''ady")
    shell.expect("ready")
    for typed, completed in (("tr", "vit_jax train"), ("train --workd", "train --workdir")):
        shell.send(f"vit_jax {typed}\t")
        shell.expect(completed)
        shell.send("\x15")  # forgets the line
    shell.close(force=True)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_script_has_every_command_and_key(scripts, shell):
    text = scripts[shell].read_text()
    assert all(name in text for name in main.COMMANDS)
    for key in sections.KEYS:
        name = f"config.{key.replace('*', 'val')}"
        assert (f"--{name}" if shell != "fish" else name) in text, key


def test_an_unknown_shell_is_refused(capsys):
    assert main.main(["completion", "ksh"]) == 2
    assert "bash, zsh" in capsys.readouterr().err.replace("'", "")
