# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Names of jobs, what goes into shells, and the file that carries a command."""

import json
import re
import subprocess

import launching
import pytest
from hypothesis import given
from hypothesis import strategies as st

from launch import job
from launch.job import Command
from vit_jax.errors import BadInput

LABEL = r"[a-z]([a-z0-9-]*[a-z0-9])?"


@given(st.text(st.characters(exclude_characters="\0"), min_size=1))
def test_a_name_is_a_dns_label_whatever_the_workdir(workdir):
    name = job.name_of(workdir)
    assert re.fullmatch(LABEL, name)
    assert len(name) <= job.MOST_CHARACTERS
    job.check_name(name)


def test_names_are_stable_and_tell_workdirs_apart():
    assert job.name_of("/runs/ViT_B.16") == job.name_of("/runs/ViT_B.16")
    assert job.name_of("/runs/ViT_B.16").startswith("vit-b-16-")
    assert job.name_of("/runs/a") != job.name_of("/other/a")


@pytest.mark.parametrize("run", ["003-lr=0.01,seed=1", "select/003-lr=0.01", "final/12345-x"])
def test_names_of_points_are_labels_with_room_for_what_engines_append(run):
    name = job.name_of_run("x" * job.MOST_CHARACTERS, run)
    assert re.fullmatch(LABEL, name)
    assert len(f"{name}-slice-999-999") <= 63


def test_points_of_two_stages_have_two_names():
    assert job.name_of_run("a", "select/000-x") != job.name_of_run("a", "final/000-x")


@pytest.mark.parametrize("name", ["", "Upper", "a_b", "-a", "a-", "1a", "a" * 31, "a\n"])
def test_a_name_that_is_no_label_is_refused(name):
    with pytest.raises(BadInput, match="--name"):
        job.check_name(name)


def test_exit_codes_that_restart():
    assert {42, 43, 134, 137, 139, 143, 255} <= set(job.AGAIN)
    assert not {0, 1, 2, 3, 126, 127, 128} & set(job.AGAIN)


def test_variables_survive_the_shell():
    names = " ".join(f'"${key}"' for key in launching.ENVIRONMENT)
    script = job.exports(launching.ENVIRONMENT) + f"printf '%s\\0' {names}"
    said = subprocess.run(["bash", "-c", script], capture_output=True).stdout.decode()
    assert said.split("\0")[:-1] == list(launching.ODD)


def test_a_variable_that_no_process_can_have_is_refused(tmp_path):
    for environment in ({"A-B": "1"}, {"A": "\0"}):
        with pytest.raises(BadInput, match="--env"):
            launching.job(tmp_path, environment=environment)


def test_a_template_is_filled_once():
    assert job.fill("<a> <b> < c", {"a": "<b>", "b": "1"}) == "<b> 1 < c"


@pytest.mark.parametrize("value", ["a b", "$x", "a;b", "a\nb", "'"])
def test_values_that_go_into_scripts_as_they_are_are_plain(value):
    with pytest.raises(BadInput, match="--qos"):
        job.checked("qos", value)
    assert job.checked("qos", "gpu-a_1,b") == "gpu-a_1,b"


def test_a_command_is_shown_as_a_shell_takes_it():
    assert str(Command(("a", "b c"))) == "a 'b c'"
    assert str(Command(("a",), unless=("b", "c"))) == "b c >/dev/null 2>&1 || a"


def test_the_job_file_has_the_arguments_letter_by_letter(tmp_path):
    made = launching.odd_job(tmp_path, "cpu-1")
    file, config = made.files(made.runs[0], "/at")
    told = json.loads(file.content)
    assert told["arguments"][:3] == [
        "train",
        "--config=/at/config.yaml",
        f"--workdir={made.workdir}",
    ]
    assert tuple(told["arguments"][3:]) == launching.OVERRIDES
    assert (told["code"], told["config"]) == ("c0de", "abc")
    assert told["packages"] == {"jax": "0.10.2"}
    assert config.content == "seed: 1\n"


def test_points_of_a_sweep_have_a_folder_each(tmp_path):
    made = launching.job(tmp_path, points=2)
    assert [made.prefix(run) for run in made.runs] == ["0/", "1/"]
    assert launching.job(tmp_path).prefix(launching.job(tmp_path).runs[0]) == ""


def test_what_is_needed_is_named():
    with pytest.raises(BadInput, match="--zone and --image missing"):
        job.require(project="p", zone="", image="")
