# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Jobs: names, checks before anything is submitted, the code that is sent along, their report."""

import dataclasses
import importlib.util
import io
import json
import os
import re
import shlex
import subprocess
import tarfile
import tomllib

import launch_jobs
import pytest
from hypothesis import given
from hypothesis import strategies as st
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from test_time_accounting import row, start, write

from launch import artefact, check, job, main, report
from launch.job import Command
from vit_jax.config import load as config_lib
from vit_jax.config import recipes
from vit_jax.errors import BadInput
from vit_jax.hardware import topology
from vit_jax.preflight.plan import plan
from vit_jax.runtime import rendezvous
from vit_jax.storage import files as storage

# --- names and files of jobs ---


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
    names = " ".join(f'"${key}"' for key in launch_jobs.ENVIRONMENT)
    script = job.exports(launch_jobs.ENVIRONMENT) + f"printf '%s\\0' {names}"
    said = subprocess.run(["bash", "-c", script], capture_output=True).stdout.decode()
    assert said.split("\0")[:-1] == list(launch_jobs.ODD)


def test_a_variable_that_no_process_can_have_is_refused(tmp_path):
    for environment in ({"A-B": "1"}, {"A": "\0"}):
        with pytest.raises(BadInput, match="--env"):
            launch_jobs.job(tmp_path, environment=environment)


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
    made = launch_jobs.odd_job(tmp_path, "cpu-1")
    file, config = made.files(made.runs[0], "/at")
    told = json.loads(file.content)
    assert told["arguments"][:3] == [
        "train",
        "--config=/at/config.yaml",
        f"--workdir={made.workdir}",
    ]
    assert tuple(told["arguments"][3:]) == launch_jobs.OVERRIDES
    assert (told["code"], told["config"]) == ("c0de", "abc")
    assert told["packages"] == {"jax": "0.10.2"}
    assert config.content == "seed: 1\n"


def test_points_of_a_sweep_have_a_folder_each(tmp_path):
    made = launch_jobs.job(tmp_path, points=2)
    assert [made.prefix(run) for run in made.runs] == ["0/", "1/"]
    assert launch_jobs.job(tmp_path).prefix(launch_jobs.job(tmp_path).runs[0]) == ""


def test_what_is_needed_is_named():
    with pytest.raises(BadInput, match="--zone and --image missing"):
        job.require(project="p", zone="", image="")


# --- checks ---


RECIPE = "configs/quickstart.py"


def checked(accelerator, *overrides, slices=1, processes="per_node", root):
    found = topology.find(accelerator) if accelerator else None
    loaded = config_lib.load(str(root / RECIPE), [f"--config.{o}" for o in overrides])
    check.check(loaded, found, slices, processes)


@pytest.mark.parametrize(
    "accelerator, overrides, slices",
    [
        ("", [], 1),
        ("h100-8", [], 1),
        ("v4-32", ["mesh.fsdp=4"], 1),
        ("v5e-4", ["batch_size=64", "mesh.replica=2"], 2),
        ("cpu-4", ["mesh.replica=2"], 1),
    ],
)
def test_what_fits_passes(accelerator, overrides, slices, root):
    checked(accelerator, *overrides, slices=slices, root=root)


@pytest.mark.parametrize(
    "accelerator, overrides, more, message",
    [
        ("h100-8", ["mesh.fsdp=3"], {}, "mesh .*needs a multiple of 3 devices, there are 8; fsdp="),
        ("v4-64", ["batch_size=48"], {}, "batch_size=48 is not divisible by 32.*use 32 or 64"),
        ("v4-8", ["mesh.data=8"], {}, "there are 4; data=4 fits"),
        ("v4-8", [], {"slices": 0}, "--slices=0"),
        ("h100-8", [], {"slices": 2}, "h100 has no slices; give a larger size"),
        ("", [], {"slices": 2}, "needs --accelerator=NAME"),
        ("v4-8", ["mesh.replica=1", "batch_size=64"], {"slices": 2}, "come in 2 slices"),
        ("v4-8", [], {"processes": "per_gpu"}, "v4-8 has no GPUs"),
        ("v4-8", ["platform=gpu"], {}, "platform=gpu, but v4-8 is a tpu"),
        ("", ["model.variant=B/17x"], {}, "B/17x"),
    ],
)
def test_what_does_not_is_refused(accelerator, overrides, more, message, root):
    with pytest.raises(BadInput, match=message):
        checked(accelerator, *overrides, **more, root=root)


def test_the_mesh_is_judged_as_the_trainer_judges_it(root):
    """The launcher must not refuse what the trainer would run, nor the other way round."""
    from vit_jax.build import placement

    for n in range(1, 9):
        loaded = config_lib.load(str(root / RECIPE), [f"--config.mesh.fsdp={n}"])
        verdicts = []
        for judge in (
            lambda loaded: check.check(loaded, topology.find("cpu-8"), 1, "per_node"),
            placement.make_rules,
        ):
            try:
                judge(loaded)
                verdicts.append("")
            except BadInput as e:
                verdicts.append(str(e))
        assert verdicts[0] == verdicts[1]


def test_machines_are_said(tmp_path):
    assert check.machines(launch_jobs.job(tmp_path)) == "this machine, as it is"
    assert check.machines(launch_jobs.job(tmp_path, "v4-256", slices=2)) == (
        "2 x v4-256: 256 chips on 64 machines; 256 chip-hours for each hour"
    )


def test_a_plan_is_made_where_one_can_be(tmp_path, monkeypatch):
    assert not check.can_plan(launch_jobs.job(tmp_path, "cpu-8"))
    assert check.can_plan(launch_jobs.job(tmp_path, "h100-8"))
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert not check.can_plan(launch_jobs.job(tmp_path, "v4-8"))


@pytest.fixture
def planned(tmp_path, monkeypatch, root):
    """The verdict for a job whose step takes so many bytes."""

    def judged(peak, each=None, estimated=None, **more):
        names = {f.name: 1.0 for f in dataclasses.fields(plan.Measured)}
        names |= {"peak_bytes": peak, "steps": 3600, "how": "counted", "estimated_secs": estimated}
        measured = plan.Measured(**names)
        job = launch_jobs.job(tmp_path, "h100-8", **more)
        found = plan.Plan(job.accelerator, 1, 100, measured, (({"accumulation": 2}, 50),))
        asked = []
        monkeypatch.setattr(plan, "plan", lambda config, *_: asked.append(config) or found)
        configs = [
            config_lib.load(str(root / RECIPE), given) for given in each or [()] * len(job.runs)
        ]
        said = check.plan(job, configs)
        judged.asked = len(asked)
        return said

    return judged


def test_the_cost_is_that_of_all_runs(planned):
    assert "50% of the memory" in planned(50)
    assert "8 chip-hours at best" in planned(50)
    assert "24 chip-hours for 3 runs at best" in planned(50, points=3)
    assert planned.asked == 1
    assert "2.5 hours a run and 20 chip-hours by the compiler's" in planned(50, estimated=2.5)


def test_points_that_cost_something_else_are_planned_apart(planned):
    each = [("--config.seed=1",), ("--config.model.depth=2",), ("--config.schedule.lr=0.1",)]
    assert "24 chip-hours for 3 runs at best" in planned(50, each, points=3)
    assert planned.asked == 2


def test_what_is_not_planned_says_why(tmp_path, monkeypatch):
    assert "those of TPUs and GPUs" in check.plan(launch_jobs.job(tmp_path, "cpu-8"), [])
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert "pip install 'vit_jax[plan]'" in check.plan(launch_jobs.job(tmp_path, "v4-8"), [])


def test_what_does_not_fit_is_not_submitted(planned):
    with pytest.raises(BadInput, match=r"would fit with --config\.accumulation=2\. Nothing"):
        planned(100)


# --- code that is sent along ---


@pytest.fixture
def checkout(tmp_path):
    for name in artefact._FILES:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    for name in ("vit_jax/a.py", "vit_jax/paper/t.json", "configs/c.py", "launch/engines/e.py",
                 "vit_jax/__pycache__/a.pyc", "runs/x/results.json"):  # fmt: skip
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    return tmp_path


def test_the_archive_has_the_code_and_nothing_else(checkout):
    with tarfile.open(fileobj=io.BytesIO(artefact.pack(checkout))) as tar:
        names = tar.getnames()
        assert tar.extractfile("vit_jax/a.py").read() == b"vit_jax/a.py"
    assert sorted(names) == sorted(
        [*artefact._FILES, "vit_jax/a.py", "vit_jax/paper/t.json", "configs/c.py",
         "launch/engines/e.py"]
    )  # fmt: skip


def test_the_archive_has_every_file_that_the_trainer_reads():
    tracked = ["git", "ls-files", "vit_jax", "configs", "launch"]
    files = subprocess.run(tracked, cwd=recipes.root(), capture_output=True, text=True).stdout
    if not files:
        pytest.skip("no git checkout")
    with tarfile.open(fileobj=io.BytesIO(artefact.pack(recipes.root()))) as tar:
        assert set(files.split()) <= set(tar.getnames())


def test_the_same_code_has_the_same_hash_and_other_code_another(checkout):
    first = artefact.digest(artefact.pack(checkout))
    os.utime(checkout / "vit_jax/a.py", (1, 1))
    (checkout / "vit_jax/a.py").chmod(0o700)
    assert artefact.digest(artefact.pack(checkout)) == first
    (checkout / "vit_jax/a.py").write_text("other")
    assert artefact.digest(artefact.pack(checkout)) != first


def test_without_a_checkout_nothing_is_packed(checkout):
    (checkout / "setup.py").unlink()
    with pytest.raises(BadInput, match=r"no setup\.py; launch from a checkout"):
        artefact.pack(checkout)


def test_an_image_is_known_by_its_digest():
    digest = "sha256:" + "0a" * 32
    assert artefact.digest_of_image(f"host.example/x/vit:1@{digest}") == digest


@pytest.mark.parametrize(
    "image", ["", "vit", "vit:latest", "vit@sha256:12", "a b@sha256:" + "0" * 64]
)
def test_an_image_by_tag_is_refused(image):
    with pytest.raises(BadInput, match="by digest"):
        artefact.digest_of_image(image)


def test_the_lock_of_images_has_what_processes_compare(root):
    assert artefact.locked(root).keys() == rendezvous.facts().keys() - {"code"}


def test_every_python_has_a_lock_within_the_bounds_and_images_use_one_of_them(root):
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    pythons = [f"3.{n}" for n in range(30) if f"3.{n}" in SpecifierSet(project["requires-python"])]
    folder = (root / artefact.LOCK_FILE).parent
    locks = {f"3.{path.stem[3:]}": path for path in folder.glob("py3*.lock")}
    assert sorted(locks) == pythons
    assert locks[artefact.PYTHON] == root / artefact.LOCK_FILE
    docker = (root / "Dockerfile").read_text()
    assert f"FROM python:{artefact.PYTHON}-slim" in docker
    assert f"--constraint {artefact.LOCK_FILE}" in docker
    for python, path in locks.items():
        rows = [line for line in path.read_text().splitlines() if not line.startswith("#")]
        pins = [Requirement(row) for row in rows]
        assert all(str(pin.specifier).startswith("==") for pin in pins)  # and no address
        for asked in map(Requirement, project["dependencies"]):
            for machine in ("x86_64", "aarch64"):
                here = {"python_version": python, "python_full_version": f"{python}.0",
                        "platform_machine": machine, "sys_platform": "linux"}  # fmt: skip
                if asked.marker is not None and not asked.marker.evaluate(here):
                    continue
                versions = [
                    next(iter(pin.specifier)).version
                    for pin in pins
                    if canonicalize_name(pin.name) == canonicalize_name(asked.name)
                    and (pin.marker is None or pin.marker.evaluate(here))
                ]
                assert len(versions) == 1, (python, machine, asked.name)
                assert asked.specifier.contains(versions[0]), (python, asked, versions)


def test_a_lock_file_without_them_is_refused(checkout):
    with pytest.raises(BadInput, match="no version of jax"):
        artefact.locked(checkout)
    (checkout / artefact.LOCK_FILE).unlink()
    with pytest.raises(BadInput, match="is missing"):
        artefact.locked(checkout)


# --- report ---


def test_runs_and_their_sum_are_shown(tmp_path, capsys):
    write(tmp_path / "a", start(0, 0, row(3610, "exit", 90, code=0)))
    write(tmp_path / "b", start(0, 0, row(310, "save", 90)))
    assert main.main(["report", str(tmp_path / "a"), str(tmp_path / "b")]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert lines[0] == report.HEADER
    assert lines[2][1:] == ["done", "0", "1:00:10", "1:00:00", "0:10", "0:00", "0:00", "99.7%"]
    assert lines[3][1:] == ["dead", "0", "5:10", "5:00", "0:10", "0:00", "0:00", "96.8%"]
    assert lines[4] == ["all", "0", "1:05:20", "1:05:00", "0:20", "0:00", "0:00", "99.5%"]


def test_report_in_the_buckets_of_the_public_package(tmp_path, capsys):
    write(tmp_path / "a", start(0, 0, row(3610, "exit", 90, code=0)))
    assert main.main(["report", "--json", str(tmp_path / "a")]) == 0
    (found,) = json.loads(capsys.readouterr().out).values()
    assert found["goodput_time"] == {"TOTAL": 3600.0}
    assert found["badput_time"]["OTHER"] == 10.0  # this start wrote no split
    assert found["total_elapsed_time"] == 3610.0


@pytest.mark.parametrize(
    "content", [None, "", "{", '{"step": 1}\n', '{"step": 0, "time": 1.0}\n', '{"time": 1.0}\n']
)
def test_no_run_is_one_message(tmp_path, capsys, content):
    if content is not None:
        (tmp_path / "goodput.jsonl").write_text(content)
    assert main.main(["report", str(tmp_path)]) == 2
    assert "has no goodput.jsonl of a run; give the workdir of a run" in capsys.readouterr().err


def test_what_cannot_be_read_is_one_message(tmp_path, capsys):
    (tmp_path / "goodput.jsonl").mkdir()
    for name in (str(tmp_path), "a" * 300):
        assert main.main(["report", name]) == 2
        assert "cannot be read" in capsys.readouterr().err


def test_store_that_does_not_answer_asks_for_another_start(store, monkeypatch, capsys):
    def lost(*_, **__):
        raise storage.StoreLost("gs://bucket/run: the store does not answer")

    monkeypatch.setattr(storage, "listed", lost)
    assert main.main(["report", "gs://bucket/run"]) == 43
    assert "does not answer" in capsys.readouterr().err


def test_workdir_is_asked_for(capsys):
    assert main.main(["report"]) == 2
    assert "WORKDIR" in capsys.readouterr().err


# --- pages ---


PAGES = ("local", "slurm", "gke", "tpu_vm", "sky")


def commands(root):
    for page in PAGES:
        for block in re.findall(
            r"```sh\n(.*?)```", (root / f"docs/launch/{page}.md").read_text(), re.S
        ):
            for line in block.splitlines():
                yield page, shlex.split(line)


@pytest.mark.integration
def test_commands_render(root, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for page, words in commands(root):
        assert words[:4] == ["python", "-m", "launch", page]
        words = [w.replace("--config=configs", f"--config={root}/configs") for w in words[3:]]
        words = [w.replace("--workdir=/shared", f"--workdir={tmp_path}") for w in words]
        if words[1] == "submit":
            words[1] = "render"
        code = main.main(words)
        out, err = capsys.readouterr()
        if words[1] == "render":
            assert code == 0, err
            assert "# submit" in out
        else:
            assert "nothing was submitted with this --workdir" in err
    assert not list(tmp_path.rglob("launch.json"))


def test_command_of_the_report_runs(root, tmp_path, monkeypatch, capsys):
    text = (root / "docs/launch/README.md").read_text()
    words = shlex.split(re.search(r"```sh\n(.*?)```", text, re.S)[1])
    assert words[:3] == ["python", "-m", "launch"]
    monkeypatch.chdir(tmp_path)
    (tmp_path / words[-1]).mkdir(parents=True)
    rows = [
        {"step": 0, "event": "start", "time": 1.0, "restarts": 0},
        {"step": 9, "event": "exit", "time": 5.0, "code": 0},
    ]
    text = "".join(json.dumps(row) + "\n" for row in rows)
    (tmp_path / words[-1] / "goodput.jsonl").write_text(text)
    assert main.main(words[3:]) == 0
    shown = capsys.readouterr().out.splitlines()[0].split()
    page = (root / "docs/launch/README.md").read_text()
    assert all(f"| `{column}` |" in page for column in shown if column not in ("run", "restarts"))


@pytest.mark.parametrize("page", PAGES)
def test_flags_of_a_page_exist(root, page):
    known = {o for a in main.parser(page)._actions for o in a.option_strings}
    text = (root / f"docs/launch/{page}.md").read_text()
    for flag in re.findall(r"(?<![\w-])python -m launch [^`\n]*", text):
        given = {w.partition("=")[0] for w in flag.split() if w.startswith("--")}
        assert given - {g for g in given if g.startswith("--config.")} <= known


def test_each_page_says_what_people_ask(root):
    for page in PAGES:
        text = (root / f"docs/launch/{page}.md").read_text()
        for said in ("**You need**", "**Logs", "**To stop", "cost"):
            assert said in text, (page, said)


def test_the_image_is_made_of_what_is_there(root):
    text, project = ((root / name).read_text() for name in ("Dockerfile", "pyproject.toml"))
    for line in re.findall(r"^COPY (.*)$", text, re.M):
        for name in line.split()[:-1]:
            assert (root / name).exists()
    for extra in ("cuda12", "cuda13", "tpu"):
        assert extra in text
        assert extra in tomllib.loads(project)["project"]["optional-dependencies"]
