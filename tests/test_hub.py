# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Weights from and to the Hugging Face hub, against a stand-in of its API."""

import hashlib
import importlib.util
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import types

import fake_hub
import model_commands
import numpy as np
import peer_libraries
import pytest
import tiny
import yaml

import vit_jax
from vit_jax.build import defaults
from vit_jax.config import load as config_lib
from vit_jax.config import provenance
from vit_jax.errors import BadInput
from vit_jax.models import variants
from vit_jax.runtime import coordination
from vit_jax.storage import cache
from vit_jax.training import first_state
from vit_jax.training import workdir as workdir_lib
from vit_jax.weights import download
from vit_jax.weights import hub as hub_lib

if importlib.util.find_spec("huggingface_hub") is None:
    pytest.skip(
        "huggingface_hub is not installed; `pip install 'vit_jax[hub]'`", allow_module_level=True
    )
NAME = "hf:someone/digits"


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """An empty hub, and an empty cache of this process."""
    import huggingface_hub.constants as constants

    with fake_hub.serve() as (hub, address):
        template = constants.HUGGINGFACE_CO_URL_TEMPLATE.replace(constants.ENDPOINT, address)
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
        monkeypatch.setattr(constants, "ENDPOINT", address)
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
        monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)  # the stand-in speaks LFS
        monkeypatch.delenv("HF_TOKEN", raising=False)
        monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "token"))
        hub_lib.local.cache_clear()  # it keeps what a name stood for in this process
        yield hub
        hub_lib.local.cache_clear()


@pytest.fixture(scope="module")
def repository(digits_run, tmp_path_factory):
    """The folder that `push --out` writes for the run of the quickstart."""
    from vit_jax.cli import main

    folder = tmp_path_factory.mktemp("pushed") / "repository"
    words = ["push", str(digits_run), "someone/digits", f"--out={folder}", "--license=cc0-1.0"]
    assert main.main(words) == 0
    return folder


@pytest.fixture
def published(hub, repository):
    for path in repository.iterdir():
        hub.files["someone/digits", path.name] = path.read_bytes()
    return hub


def apply(text):
    model, params, preprocess = vit_jax.load(text)
    image = np.random.default_rng(0).integers(0, 256, (8, 8, 3), np.uint8)
    return model_commands.logits(model, params, preprocess(image))


# ---------------------------------------------------------------- download


@pytest.mark.integration
def test_weights_of_the_hub_are_those_of_the_run_and_are_fetched_once(published, digits_run):
    expected = apply(digits_run)
    np.testing.assert_allclose(apply(NAME), expected, atol=1e-5)
    once = list(published.fetched())
    assert sorted(path.rpartition("/")[2] for path in once) == ["config.json", "model.safetensors"]
    np.testing.assert_allclose(apply(f"{NAME}@main"), expected, atol=1e-5)
    np.testing.assert_allclose(apply(f"{NAME}@{fake_hub.COMMIT}"), expected, atol=1e-5)
    assert published.fetched() == once


def test_weights_of_transformers_have_their_preprocessing(hub, tmp_path):
    cfg = tiny.config(gelu="erf")
    model, params = variants.make(cfg), tiny.params(cfg, 8, 8)
    file = tmp_path / "hf" / "model.safetensors"
    vit_jax.save(file, model, params, format="hf")
    for path in file.parent.iterdir():
        hub.files["google/tiny", path.name] = path.read_bytes()
    image = np.random.default_rng(0).integers(0, 256, (1, 8, 8, 3), np.uint8)
    expected = model_commands.logits(model, params, image / np.float32(127.5) - 1)
    np.testing.assert_allclose(apply("hf:google/tiny"), expected, rtol=1e-4, atol=1e-4)
    assert sorted(path.rpartition("/")[2] for path in hub.fetched()) == [
        "config.json", "model.safetensors", "preprocessor_config.json"
    ]  # fmt: skip


def test_offline_the_cached_copy_is_used(published, monkeypatch):
    before = apply(NAME)
    published.asked.clear()
    hub_lib.local.cache_clear()
    monkeypatch.setattr(cache, "may_download", lambda: False)
    np.testing.assert_array_equal(apply(NAME), before)
    assert published.asked == []


def test_a_name_stands_for_one_commit_in_a_process(published):
    digest, _ = download.identity(NAME)
    published.asked.clear()
    assert download.revision(NAME) == fake_hub.COMMIT
    assert download.identity(NAME)[0] == digest
    assert published.asked == []


@pytest.mark.integration
def test_commands_take_a_name(published, tmp_path, capsys):
    (image,) = model_commands.digit_files(tmp_path / "digits", 1)
    for words in (
        ("inspect", NAME),
        ("predict", NAME, image),
        ("features", NAME, image, f"--out={tmp_path / 'f.npz'}"),
        ("export", NAME, "--format=npz", f"--out={tmp_path / 'x.npz'}"),
    ):
        code, _, said = model_commands.command(capsys, *words)
        assert code == 0, said


def test_the_commit_and_the_checksum_are_recorded(published, repository, tmp_path, root):
    recipe = str(root / "configs" / "finetune.py")
    given = [f"--config.init={NAME}", "--config.data.source=digits"]
    settled = defaults.settle(config_lib.load(recipe, given))
    assert settled.data.image_size == 8
    workdir_lib.prepare(tmp_path / "run", settled, ["a"])
    origin = provenance.read(tmp_path / "run")
    content = (repository / "model.safetensors").read_bytes()
    assert origin.init_revision == fake_hub.COMMIT
    assert origin.init_sha256 == hashlib.sha256(content).hexdigest()


def test_processes_compare_the_commits_that_they_found(published, root, monkeypatch):
    compared = []

    def agree(name, facts):
        compared.append(facts)
        raise BadInput(name)

    monkeypatch.setattr(coordination, "agree", agree)
    for init, facts in ((NAME, {"@REVISION": fake_hub.COMMIT}), ("x.npz", {})):
        config = config_lib.load(str(root / "configs" / "finetune.py"), [f"--config.init={init}"])
        with pytest.raises(BadInput, match="commit of a branch"):
            first_state.weights_of(types.SimpleNamespace(config=config), False, None)
        assert compared.pop() == facts


@pytest.mark.parametrize(
    "name, problem, action",
    [
        ("hf:someone/nothing", "does not exist, or is private", "hf auth login"),
        ("hf:someone/closed", "asks for consent", "accept at http"),
        ("hf:someone/pickled", "has no model.safetensors", "revision"),
        ("hf:someone/digits@v9", "no such revision", "/commits"),
        ("hf:a/b/c", "not a name of the hub", "OWNER/NAME"),
        ("hf:", "not a name", "OWNER/NAME"),
        ("hf:someone/odd", "unknown names", "vit_block"),
    ],
)
def test_errors_are_one_message_with_the_next_action(published, capsys, name, problem, action):
    published.gated.add("someone/closed")
    published.files["someone/pickled", "pytorch_model.bin"] = b""
    from safetensors.numpy import save

    published.files["someone/odd", "model.safetensors"] = save({"vit_block": np.zeros(3)})
    code, shown, said = model_commands.command(capsys, "inspect", name)
    assert (code, shown) == (2, "")
    assert problem in said
    assert action in said
    assert said.count("\n") == 1


@pytest.mark.parametrize("offline", [True, False])
def test_without_a_network_the_message_says_what_to_copy(hub, capsys, monkeypatch, offline, caplog):
    import huggingface_hub.constants as constants

    template = constants.HUGGINGFACE_CO_URL_TEMPLATE
    nobody = template.replace(constants.ENDPOINT, "http://127.0.0.1:9")
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", nobody)
    if offline:
        monkeypatch.setattr(cache, "may_download", lambda: False)
    code, _, said = model_commands.command(capsys, "inspect", NAME)
    assert code == 2
    assert "is not in the cache of the hub" in said
    assert "copy model.safetensors and config.json" in said
    assert ("downloads are forbidden" in said) == offline
    assert ("refused" in said) != offline  # the connection
    assert said.count("\n") == 1
    assert not caplog.records  # the hub's package would ask again and say so each time


def test_without_a_network_the_cached_copy_is_used(published, monkeypatch):
    import huggingface_hub.constants as constants

    before = apply(NAME)
    hub_lib.local.cache_clear()
    template = constants.HUGGINGFACE_CO_URL_TEMPLATE
    nobody = template.replace(constants.ENDPOINT, "http://127.0.0.1:9")
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", nobody)
    np.testing.assert_array_equal(apply(NAME), before)


def test_a_missing_package_is_one_message(capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    code, _, said = model_commands.command(capsys, "inspect", NAME)
    assert code == 2
    assert "pip install 'vit_jax[hub]'" in said


# ---------------------------------------------------------------- upload


def test_card_has_the_facts_of_the_run(repository, digits_run):
    assert {p.name for p in repository.iterdir()} == {
        "README.md", "config.json", "model.safetensors"
    }  # fmt: skip
    text = (repository / "README.md").read_text()
    _, front, body = text.split("---\n", 2)
    assert yaml.safe_load(front)["license"] == "cc0-1.0"
    assert yaml.safe_load(front)["pipeline_tag"] == "image-classification"
    results = json.loads((digits_run / "results.json").read_text())
    assert f"{results['test']['top1']:.2%}" in body
    assert re.search(r"vit_jax train --config=\S*quickstart.py", body)
    assert hashlib.sha256((repository / "model.safetensors").read_bytes()).hexdigest() in body
    for word in ("`digits`", "from scratch", "seed: 0", "hf-hub:someone/digits", "`cc0-1.0`"):
        assert word in body, word


@pytest.mark.integration
def test_a_card_without_a_licence_says_so(digits_run, tmp_path, capsys):
    words = "push", digits_run, "someone/digits", f"--out={tmp_path / 'out'}"
    assert model_commands.command(capsys, *words)[0] == 0
    text = (tmp_path / "out" / "README.md").read_text()
    assert "has not stated a licence" in text
    assert "license:" not in text.split("---\n")[1]
    assert model_commands.command(capsys, *words)[0] == 0  # writes its own files again
    (tmp_path / "out" / "mine.txt").write_text("")
    code, _, said = model_commands.command(capsys, *words)
    assert (code, "give another" in said) == (2, True)


@pytest.mark.integration
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # the hub's package passes data= to httpx
def test_push_uploads_and_the_name_loads(hub, digits_run, capsys, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", fake_hub.TOKEN)
    code, shown, said = model_commands.command(capsys, "push", digits_run, "someone/new")
    assert code == 0, said
    assert f"/someone/new/commit/{fake_hub.COMMIT}" in shown
    assert {path for name, path in hub.files if name == "someone/new"} == {
        "README.md", "config.json", "model.safetensors"
    }  # fmt: skip
    (message,) = hub.messages
    assert message.startswith("Weights of step ")
    np.testing.assert_allclose(apply("hf:someone/new"), apply(digits_run), atol=1e-5)
    code, _, said = model_commands.command(
        capsys, "push", digits_run, "someone/hidden", "--private"
    )
    assert code == 0, said
    hidden = {  # the package says `private` before version 2, `visibility` since
        asked["name"]: asked.get("private") or asked.get("visibility") == "private"
        for asked in hub.created
    }
    assert {name: bool(one) for name, one in hidden.items()} == {"new": False, "hidden": True}


@pytest.mark.parametrize(
    "name, token, words",
    [
        ("someone/new", None, ("there is no token", "--out=FOLDER")),
        ("someone/new", "hf_wrong", ("hub answers 401", "hf auth login")),
        ("someone/kept", fake_hub.TOKEN, ("hub answers 403", "of an account that may do this")),
        ("new", fake_hub.TOKEN, ("not the name of a repository", "OWNER/NAME")),
    ],
)
def test_what_cannot_be_uploaded(hub, digits_run, capsys, monkeypatch, name, token, words):
    hub.read_only.add("someone/kept")
    if token:
        monkeypatch.setenv("HF_TOKEN", token)
    code, _, said = model_commands.command(capsys, "push", digits_run, name)
    assert code == 2
    assert all(word in said for word in words), said
    assert not hub.files


def test_push_takes_a_run(repository, hub, capsys, tmp_path):
    words = "push", repository / "model.safetensors", "a/b", f"--out={tmp_path / 'x'}"
    code, _, said = model_commands.command(capsys, *words)
    assert (code, "is not a run" in said) == (2, True)
    code, _, said = model_commands.command(capsys, "push", tmp_path / "none", "a/b")  # no token
    assert (code, "none" in said, "token" in said) == (2, True, False)


# ---------------------------------------------------------------- the page


@pytest.mark.integration
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_commands_of_the_page(published, repository, digits_run, root, tmp_path, monkeypatch):
    from vit_jax.cli import main

    page = (root / "docs" / "hub.md").read_text()
    blocks = "\n".join(re.findall(r"```bash\n(.*?)```", page, re.DOTALL)).replace("\\\n", " ")
    commands = [shlex.split(line) for line in blocks.splitlines() if line.startswith("vit_jax")]
    assert [words[1] for words in commands] == ["inspect", "predict", "train", "push", "push"]
    for name in set(re.findall(r"hf:([\w./-]+\w)", blocks)):
        for path in repository.iterdir():  # the weights are others, the names are those of the page
            published.files[name, path.name] = path.read_bytes()
    images = tmp_path / "images" / "train" / "0"
    model_commands.digit_files(images, 3)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_TOKEN", fake_hub.TOKEN)
    places = {
        "/path/to/images": str(tmp_path / "images"),
        "runs/quickstart": str(digits_run),
        "configs/": f"{root}/configs/",
    }
    for words in commands:
        for written, place in places.items():
            words = [word.replace(written, place) for word in words]
        if words[1] == "train":  # whether training starts from a file is tested elsewhere
            (spec,) = [w.removeprefix("--config=") for w in words if w.startswith("--config=")]
            overrides = [w for w in words if w.startswith("--config.")]
            defaults.settle(config_lib.load(spec, overrides))
        else:
            assert main.main(words[1:]) == 0, words


# ---------------------------------------------------------------- other programs


def peers_logits(model, image_HWC):
    import torch

    image = (image_HWC.astype(np.float32) / 127.5 - 1).transpose(2, 0, 1)[None]
    with torch.no_grad():
        outputs = model(torch.from_numpy(image))
    return getattr(outputs, "logits", outputs).numpy()


def test_timm_and_transformers_load_the_folder(repository, digits_run):
    timm = peer_libraries.load("timm")
    transformers = peer_libraries.load("transformers")
    expected = apply(digits_run)
    image = np.random.default_rng(0).integers(0, 256, (8, 8, 3), np.uint8)
    model = timm.create_model(f"local-dir:{repository}", pretrained=True).eval()
    np.testing.assert_allclose(peers_logits(model, image), expected, atol=1e-4)
    model = transformers.AutoModelForImageClassification.from_pretrained(repository).eval()
    np.testing.assert_allclose(peers_logits(model, image), expected, atol=1e-4)
    assert model.config.id2label[3] == "3"


@pytest.mark.integration
def test_environment_variables_of_the_hub_are_followed(published, tmp_path, root):
    import huggingface_hub.constants as constants

    shutil.rmtree(tmp_path / "home", ignore_errors=True)
    environment = os.environ | {
        "HF_ENDPOINT": constants.ENDPOINT, "HF_HOME": str(tmp_path / "home"),
    }  # fmt: skip
    command = [sys.executable, "-m", "vit_jax", "inspect", NAME, "--json"]

    def run(**more):
        return subprocess.run(
            command, cwd=root, env=environment | more, capture_output=True, text=True, timeout=120
        )

    refused = run(HF_HUB_OFFLINE="1")
    assert refused.returncode == 2
    assert "downloads are forbidden" in refused.stderr
    assert json.loads(run().stdout)["format"] == "timm"
    published.asked.clear()
    assert json.loads(run(HF_HUB_OFFLINE="1").stdout)["format"] == "timm"
    assert published.asked == []
