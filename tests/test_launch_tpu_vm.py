# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""The commands of gcloud, against its own linter where it is; the script, run by bash."""

import json
import shlex
import shutil
import subprocess

import launch_jobs
import pytest

from launch import artefact, job
from launch.engines import tpu_vm
from launch.engines.tpu_vm import Options
from vit_jax.errors import BadInput

GIVEN = {"project": "p", "zone": "us-central2-b"}
AT = {"--project", "--zone"}
# Recorded from `gcloud meta lint-gcloud-commands` of gcloud 528: command -> (positional, flags).
GRAMMAR = {
    "gcloud compute tpus queued-resources create": (1, AT | {
        "--accelerator-type", "--runtime-version", "--node-id", "--node-count", "--node-prefix",
        "--spot", "--reserved", "--service-account", "--metadata-from-file",
    }),
    "gcloud alpha compute tpus queued-resources create": (1, AT | {
        "--accelerator-type", "--runtime-version", "--node-id", "--node-count", "--node-prefix",
        "--provisioning-model", "--max-run-duration", "--service-account", "--metadata-from-file",
    }),
    "gcloud compute tpus queued-resources describe": (1, AT | {"--format"}),
    "gcloud compute tpus queued-resources delete": (1, AT | {"--force", "--quiet"}),
    "gcloud compute tpus queued-resources ssh": (1, AT | {"--worker", "--node", "--command"}),
    "gcloud compute tpus tpu-vm ssh": (1, AT | {"--worker", "--command"}),
    "gcloud storage cp": (9, set()),
}  # fmt: skip


def made(tmp_path, accelerator="v4-32", options=None, **more):
    packed = b"code"
    given = {"workdir": "gs://bucket/runs/mine", "artefact": packed,
             "code": artefact.digest(packed), **more}  # fmt: skip
    return tpu_vm.render(
        launch_jobs.odd_job(tmp_path, accelerator, **given), options or Options(**GIVEN)
    )


KINDS = {
    "one": {},
    "slices": {"slices": 2},
    "v5e": {"accelerator": "v5e-16"},
    "on demand": {"options": Options(**GIVEN, capacity="on_demand")},
    "reserved": {"options": Options(**GIVEN, capacity="reserved", service_account="a@b.c")},
    "flex": {"options": Options(**GIVEN, capacity="flex_start", time="8h")},
    "ssh": {"options": Options(**GIVEN, mode="ssh")},
    "ssh slices": {"options": Options(**GIVEN, mode="ssh"), "slices": 2},
    "points": {"points": 2},
}


def argvs(rendered):
    commands = [*rendered.submit, *rendered.status, *rendered.logs, *rendered.cancel]
    return [argv for c in commands for argv in (c.argv, c.unless) if argv]


@pytest.mark.parametrize("kind", KINDS)
def test_each_command_is_one_of_gcloud(tmp_path, kind):
    for argv in argvs(made(tmp_path, **KINDS[kind])):
        text = " ".join(argv)
        name = next(name for name in GRAMMAR if text.startswith(f"{name} "))
        most, flags = GRAMMAR[name]
        rest = argv[len(name.split()) :]
        assert {word.partition("=")[0] for word in rest if word.startswith("--")} <= flags
        assert 1 <= len([word for word in rest if not word.startswith("--")]) <= most


def linted(text):
    """Has gcloud's own parser check a command, without an account."""
    if shutil.which("gcloud") is None:
        pytest.skip("gcloud is not installed")
    lint = ["gcloud", "meta", "lint-gcloud-commands", f"--command-string={text}"]
    return json.loads(subprocess.run(lint, capture_output=True, text=True).stdout)[0]


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_each_command_passes_the_linter_of_gcloud(tmp_path, kind):
    for argv in argvs(made(tmp_path, **KINDS[kind])):
        found = linted(shlex.join(argv))
        assert found["success"], found["error_message"]


@pytest.mark.slow
def test_the_linter_notices_a_misspelt_flag():
    assert not linted("gcloud compute tpus queued-resources create a --zone=z --spott")["success"]


def test_what_is_asked_for(tmp_path):
    create = made(tmp_path, "v5e-16").submit[-1]
    assert {"--accelerator-type=v5litepod-16", "--runtime-version=v2-alpha-tpuv5-lite", "--spot",
            "--node-id=mine"} <= set(create.argv)  # fmt: skip
    assert create.unless[4:6] == ("describe", "mine")
    create = made(tmp_path, slices=3).submit[-1]
    assert {"--node-count=3", "--node-prefix=mine"} <= set(create.argv)


# ---------------------------------------------------------------- the script


@pytest.fixture
def start(tmp_path, monkeypatch):
    """Runs the script of a job as root of a machine would, below a folder of its own."""
    monkeypatch.setattr(tpu_vm, "HOME", f"{tmp_path}/opt")
    bucket = tmp_path / "bucket"
    # `gcloud storage cp SOURCE... TARGET`; the last words are files of the bucket and the target.
    gcloud = 'for f in "${@:3:$#-3}"; do cp "$BUCKET/$(basename "$f")" "${!#}"; done'
    # `pip install uv` does nothing, `uv venv` an environment whose only program is the trainer.
    python = """
    [[ $* == *"uv venv"* ]] || exit 0
    mkdir -p venv/bin
    cp "$TRAINER" venv/bin/
    echo "$*" >> "$NOTES/installs"
    """
    # The first call fails if the file `first` is there; nobody waits for the next.
    fails = 'if [ -e "$NOTES/first" ]; then rm "$NOTES/first"; exit 1; fi; '
    unit = """
    printf "%s\\n" "$@" > "$NOTES/unit"
    [[ $1 == --wait ]] || exit 0
    while [[ $1 == --* ]]; do shift; done
    "$@"
    """
    bins = launch_jobs.programs(
        tmp_path / "bin", gcloud=fails + gcloud, python3=python, systemctl="true",
        journalctl="true", sleep='echo "$1" >> "$NOTES/pauses"', **{"systemd-run": unit},
    )  # fmt: skip

    def run(rendered, *arguments, damage=False):
        launch_jobs.write(rendered, tmp_path / "files")
        bucket.mkdir(exist_ok=True)
        code = next(f for f in rendered.files if f.name == "code.tar.gz").content
        target = rendered.submit[0].argv[-1].rpartition("/")[2]
        (bucket / target).write_bytes(b"other" if damage else code)
        for name in ("job.json", "config.yaml"):
            shutil.copy(tmp_path / "files" / name, bucket)
        words = ["bash", f"{tmp_path}/files/startup.sh", *arguments]
        given = {"BUCKET": str(bucket), "TRAINER": f"{bins}/vit_jax"}
        return launch_jobs.bash(words, bins, tmp_path / "notes", **given), tmp_path / "notes"

    return run


@pytest.fixture
def packed(tmp_path, root):
    """An archive of the code, small."""
    import io
    import tarfile

    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as tar:
        tar.addfile(tarfile.TarInfo("setup.py"))
    return {"artefact": out.getvalue(), "code": artefact.digest(out.getvalue())}


def test_what_is_odd_arrives_letter_by_letter(start, tmp_path, packed):
    done, notes = start(made(tmp_path, **packed), "foreground")
    assert done.returncode == 0, done.stderr
    [call] = launch_jobs.calls(notes)
    assert tuple(call["job"]["arguments"][3:]) == launch_jobs.OVERRIDES
    assert call["job"]["arguments"][1] == f"--config={tmp_path}/opt/job/config.yaml"
    assert launch_jobs.ENVIRONMENT.items() <= call["env"].items()
    assert call["env"]["VIT_JAX_CODE"] == call["job"]["code"] == packed["code"]


@pytest.mark.parametrize("code", [0, 1, 42])
def test_in_the_foreground_its_code_is_that_of_the_trainer(start, tmp_path, packed, code):
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes/code").write_text(str(code))
    done, notes = start(made(tmp_path, **packed), "foreground")
    assert done.returncode == code
    unit = (notes / "unit").read_text().splitlines()
    assert "--unit=vit_jax" in unit
    assert not [word for word in unit if "Restart" in word]


def test_a_store_that_does_not_answer_is_asked_again(start, tmp_path, packed):
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes/first").touch()
    done, notes = start(made(tmp_path, **packed), "foreground")
    assert done.returncode == 0, done.stderr
    assert (notes / "pauses").read_text().splitlines()[0] == "10"
    assert len(launch_jobs.calls(notes)) == 1


def test_of_machines_that_are_there_only_the_unit_is_stopped(tmp_path):
    rendered = made(tmp_path, options=Options(**GIVEN, mode="ssh"))
    [cancel], [status] = rendered.cancel, rendered.status
    assert cancel.argv[-1] == "--command=sudo systemctl stop vit_jax"
    assert status.argv[-1] == "--command=systemctl is-active vit_jax"
    assert all("queued-resources" not in command.argv for command in rendered.submit)


def test_what_lies_in_the_bucket_for_machines_that_are_there_stays(tmp_path):
    upload, *others = made(tmp_path, points=2).submit
    assert upload.unless == ()
    assert [command.unless[5] for command in others] == ["mine-000"] * 2 + ["mine-001"] * 2
    assert all("SUSPENDED" in command.dead for command in others)


def test_other_code_than_that_of_the_job_does_not_run(start, tmp_path, packed):
    done, notes = start(made(tmp_path, **packed), "foreground", damage=True)
    assert done.returncode != 0
    assert launch_jobs.calls(notes) == []


def test_a_machine_that_starts_again_does_not_install_again(start, tmp_path, packed):
    for _ in range(2):
        done, notes = start(made(tmp_path, **packed))
        assert done.returncode == 0, done.stderr
    assert (notes / "installs").read_text().count("\n") == 1
    assert launch_jobs.calls(notes) == []  # systemd runs it


def test_the_unit_restarts_as_the_codes_ask(start, tmp_path, packed):
    _, notes = start(made(tmp_path, **packed))
    unit = (notes / "unit").read_text().splitlines()
    force = next(w for w in unit if "RestartForceExitStatus" in w).partition("=")[2]
    codes = {int(w) for w in force.partition("=")[2].split() if w.isdigit()}
    assert codes == set(job.AGAIN)
    assert "--property=RestartPreventExitStatus=0 1 2" in unit
    assert "--property=Restart=on-abnormal" in unit
    assert unit[-1] == f"{tmp_path}/opt/run.sh"


@pytest.mark.parametrize("kind", KINDS)
def test_scripts_are_bash_and_always_the_same(tmp_path, kind):
    rendered = made(tmp_path, **KINDS[kind])
    launch_jobs.check_scripts(rendered)
    assert rendered == made(tmp_path, **KINDS[kind])


@pytest.mark.parametrize(
    "accelerator, options, message",
    [
        ("v4-32", Options(zone="z"), "--project missing"),
        ("v4-32", Options(), "--project and --zone missing"),
        ("h100-8", Options(**GIVEN), "h100-8 is not a TPU VM of gcloud; use slurm, gke or sky"),
        ("tpu7x-8", Options(**GIVEN), "tpu7x-8 is not a TPU VM of gcloud; use gke"),
        ("", Options(**GIVEN), "--accelerator is missing"),
        ("v4-32", Options(**GIVEN, capacity="flex_start"), "needs a duration"),
        ("v4-32", Options(**GIVEN, time="8h"), "only --capacity=flex_start"),
    ],
)
def test_what_cannot_be_is_refused(tmp_path, accelerator, options, message):
    with pytest.raises(BadInput, match=message):
        made(tmp_path, accelerator, options)


def test_a_sweep_needs_machines_of_its_own(tmp_path):
    with pytest.raises(BadInput, match="leave out --sweep"):
        made(tmp_path, options=Options(**GIVEN, mode="ssh"), points=2)
