# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Text of a person, or YAML and JSON of a stranger, is refused or read right."""

import functools
import json
import math
import shlex

import hostile
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from vit_jax.config import load as config_lib
from vit_jax.config import sections
from vit_jax.data.catalog import imagenet_labels, prepared
from vit_jax.data.ops import chain as preprocess
from vit_jax.data.ops.decode import MOST_PIXELS
from vit_jax.data.sources import folders, mixture
from vit_jax.data.sources import registry as sources
from vit_jax.data.sources.source import Options
from vit_jax.errors import BadInput
from vit_jax.experiments.sweeps import folder as sweep_folder
from vit_jax.experiments.tables import run_results
from vit_jax.storage import jsonl
from vit_jax.training import workdir
from vit_jax.weights import download, loading
from vit_jax.weights.formats import json_config

RECIPE = "configs/quickstart.py"
DEEP = "[" * 100_000
DIGITS = "9" * 5000  # more than Python makes a number of
TEXT = st.text(st.characters(codec=None), max_size=12)  # half characters too


@pytest.fixture(scope="module", autouse=True)
def from_the_repository(root):
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(root)
        yield


@functools.cache
def keys():
    return sorted(dict(config_lib.flatten(config_lib.load(RECIPE))))


def loaded(path, text: str):
    path.write_text(text, errors="surrogatepass")
    return config_lib.load(str(path))


# --- configurations ---

TAGS = ("!!timestamp", "!!bool", "!!int", "!!float", "!!binary", "!!set", "!!omap", "!!pairs",
        "!!merge", "!!python/name:os.system", "!!python/object/apply:os.system")  # fmt: skip
LINES = st.one_of(
    st.sampled_from(["seed: 1", "evals: {test: {every: '0'}}", "model: {variant: S/16}", "x"]),
    st.builds("seed: {} {}".format, st.sampled_from(TAGS), st.sampled_from(["x", "''", "[a]"])),
    st.builds(
        "{}: {}".format,
        st.sampled_from(["seed", "model", "data", "batch_size", "<<", "?", "evals", "[a]"]),
        st.sampled_from(["{", "*a", "&a [*a]", "- x", "|", "1:2:3", "2001-01-01", ".nan", "~"]),
    ),
)


def nested(of: str) -> str:
    """Nine lines that stand for a billion values."""
    ten = ["1"] * 10
    lines = []
    for n in range(9):
        inside = ", ".join(f"k{i}: {v}" if of == "{}" else v for i, v in enumerate(ten))
        lines.append(f"a{n}: &a{n} {of[0]}{inside}{of[1]}")
        ten = [f"*a{n}"] * 10
    return "\n".join(lines)


@hostile.few
@given(st.lists(LINES, max_size=4).map("\n".join) | st.text(max_size=40))
@example("seed: 1")
@example("seed: !!timestamp x")
@example("seed: !!bool x")
@example("seed: !!int ''")
@example("seed: &a [*a]")
@example("seed: &a {x: *a}")
@example("evals: {__class__: {every: '0'}}")
@example(nested("[]"))
@example(nested("{}"))
def test_yaml_is_a_configuration_or_refused(tmp_path_factory, text):
    path = tmp_path_factory.getbasetemp() / "hostile.yaml"
    config = hostile.answer(loaded, path, text)
    assert config is None or isinstance(config, sections.Config)


def test_yaml_of_a_stranger_runs_nothing(tmp_path):
    touched = tmp_path / "touched"
    text = f"seed: !!python/object/apply:os.system ['touch {shlex.quote(str(touched))}']"
    with pytest.raises(BadInput, match="not readable YAML"):
        loaded(tmp_path / "c.yaml", text)
    assert not touched.exists()


@hostile.few
@given(st.data())
def test_override_is_a_value_that_is_saved_and_read_back_or_refused(tmp_path_factory, data):
    key = data.draw(st.sampled_from(keys()) | TEXT)
    value = data.draw(
        TEXT | st.sampled_from(["1e400", "nan", DIGITS, "(1j, 2, 3)", "({1: 2},)", "(b'x',)", DEEP,
                                "((1, 2), 3)", "0x10", "1_0", "True", "'a'", "(None,)"])
    )  # fmt: skip
    config = hostile.answer(config_lib.load, RECIPE, [f"--config.{key}={value}"])
    if config is not None:
        path = tmp_path_factory.getbasetemp() / "override.yaml"
        again = loaded(path, config_lib.to_yaml(config))
        assert config_lib.fingerprint(again) == config_lib.fingerprint(config)


def test_a_tuple_that_yaml_cannot_write_is_refused():
    with pytest.raises(BadInput, match="not of type tuple"):
        config_lib.load(RECIPE, ["--config.data.mean=(1j, 2, 3)"])


@given(st.lists(st.one_of(TEXT, st.sampled_from(["n=1", "n", "f=1e999", "t=(1,)", "b=maybe"]))))
def test_recipe_arguments_have_their_types_or_are_refused(parts):
    defaults = {"n": 1, "f": 0.5, "s": "x", "b": False, "t": ()}
    found = hostile.answer(config_lib.parse_args, ",".join(parts), **defaults)
    if found is not None:
        assert {k: type(v) for k, v in found.items()} == {k: type(v) for k, v in defaults.items()}


# --- chains of ops ---

CALLS = st.builds(
    "{}{}".format,
    st.sampled_from([*preprocess.OPS, "nothing", "__import__('os').system", "decode.x"]),
    st.sampled_from(["", "()", "(8)", "(8, 9)", "(size=8)", "(-1)", "(1e999)", "({size})", "(8",
                     "(True)", "('x')", "({size*9999//1})", "(**{})", "(*[1])", "(8, size=8)",
                     "(exec('1'))", "(lambda: 1)", "(...)", "('\\d')", "(1if 1else 2)"]),
)  # fmt: skip


@given(st.lists(CALLS | TEXT, max_size=4).map("|".join))
@example("(" * 300)
@example("resize(" * 300)
@example("-" * 5000 + "1")
@example(f"resize({DIGITS})")
def test_chain_is_of_known_ops_within_their_ranges_or_refused(chain):
    found = hostile.answer(preprocess.parse, "data.train_ops", chain, 16)
    for op in found or ():
        assert type(op) in preprocess.OPS.values()
        for name, value in vars(op).items():
            if name == "channels":  # of data.channels, never of a chain
                continue
            low, high = preprocess.RANGES.get(name, (0, 1))
            assert low <= value <= high


# --- sources, splits, names of weights ---


NOWHERE = [
    "folder:~nobody/x", "csv:~nobody/x", "objectnet:~nobody/x", "records:~nobody/x", "tar:\0",
    "folder:" + "a" * 5000, f"mix:{DIGITS}*digits,1*digits", "mix:", "tar:" + "[" * 99,
]  # fmt: skip


@pytest.mark.parametrize("spec", NOWHERE, ids=lambda spec: ascii(spec)[:20])
def test_source_that_is_nowhere_is_refused(tmp_path, spec):
    options = Options(data_dir=str(tmp_path))
    with pytest.raises(BadInput):
        sources.open_source(spec, options, val_percent=10, test_percent=10)


@given(st.lists(st.sampled_from(["3", "*", "digits", ",", "mix:", DIGITS, " ", ":"])).map("".join))
@example("3*digits,1*folder:A")
def test_mixture_is_of_weights_and_sources_or_refused(text):
    found = hostile.answer(mixture.parse, text)
    assert found is None or (len(found[0]) == len(found[1]) >= 2 and min(found[0]) >= 1)
    assert found is not None or text != "3*digits,1*folder:A"


@pytest.fixture(scope="module")
def digits():
    return sources.open_source("digits", Options(), val_percent=10, test_percent=10)


@given(st.lists(st.sampled_from(["train", "[", ":", "]", "%", "5", "-", "٣", DIGITS])))
@example(["train", "[", DIGITS, ":", "]"])
@example(["train", "[", ":", "9" * 400, "%", "]"])
def test_slice_is_of_the_split_or_refused(digits, parts):
    found = hostile.answer(digits.split, "".join(parts))
    assert found is None or 0 < len(found) <= len(digits.splits["train"])


NAMES = TEXT | st.builds(
    "{}://{}".format,
    st.sampled_from(["http", "https", "gs", "file", "ftp"]),
    st.lists(st.sampled_from(["h", "/", "..", ".", "%2e%2e", "%2f", "\\", "?", "#", "\0", "\udcff",
                              "\ud800", "[", "@", ":", "a.npz", " "]), max_size=8).map("".join),
)  # fmt: skip


@given(NAMES)
def test_download_lands_in_the_cache_folder(name):
    address = hostile.answer(download.url, name)
    path = address and hostile.answer(download.cache_path, address)
    if path:
        assert path.resolve().is_relative_to(download.cache.root().resolve())
        assert "\0" not in str(path)


@given(NAMES)
@example("~nobody/x")
@example("a" * 5000)
@example(f"x@{DIGITS}")
@example("\0")
def test_weights_that_are_nowhere_are_refused(name):
    assert hostile.answer(loading.find_run, name) is None


# --- JSON ---

INFO = {
    "name": "pets",
    "version": "1.0.0",
    "fileFormat": "tfrecord",
    "splits": [{"name": "train", "shardLengths": ["1"], "filepathTemplate": "{DATASET}-{SPLIT}"}],
}
FEATURES = {"featuresDict": {"features": {"label": {"classLabel": {"numClasses": "3"}}}}}
NOTES = {"fingerprints": {"train": "x"}, "classes": {"label": "x"}, "left_out": [["a", "b"]]}


@given(hostile.misplaced({"info": INFO, "features": FEATURES, "notes": NOTES}))
@example({"info": [], "features": {}, "notes": {}})
@example({"info": INFO, "features": [], "notes": []})
@example({"info": {"splits": [{"shardLengths": [float("inf")]}]}, "features": {}, "notes": {}})
@example({"info": INFO, "features": FEATURES, "notes": {"left_out": [1]}})
def test_description_of_a_prepared_dataset_is_as_written_or_refused(tmp_path_factory, files):
    folder = tmp_path_factory.getbasetemp() / "1.0.0"
    folder.mkdir(exist_ok=True)
    for name, value in zip(("dataset_info", "features", "vit_jax"), files.values(), strict=True):
        (folder / f"{name}.json").write_text(json.dumps(value))
    found = hostile.answer(prepared.check, folder)
    assert found is None or found.problems
    for paths, _ in (hostile.answer(prepared.files, folder) or {}).values():
        assert all(path.parent == folder for path in paths)


def test_template_of_file_names_is_no_program(tmp_path):
    splits = [{"name": "train", "shardLengths": ["1"]}]
    for template in ("{DATASET:>3000000000}", "{DATASET.__class__}", "{0}", "../{SPLIT}"):
        splits[0]["filepathTemplate"] = template
        (tmp_path / "dataset_info.json").write_text(json.dumps(INFO | {"splits": splits}))
        found = hostile.answer(prepared.files, tmp_path)
        for path in found["train"][0] if found else ():
            assert path.parent == tmp_path
            assert len(path.name) < 100


@pytest.mark.parametrize("text", [DEEP, "[]", "[[1.5]]", "[[true]]", "[[1000]]", '{"a": 1}', "5"])
def test_label_sets_of_another_kind_are_refused(tmp_path, text):
    (tmp_path / "real.json").write_text(text)
    with pytest.raises(BadInput):
        imagenet_labels.read_label_sets(str(tmp_path / "real.json"), "")


@given(st.sampled_from(["timm", "hf"]), hostile.misplaced({
    "architecture": "vit", "model_args": {"img_size": 32, "num_heads": 2}, "global_pool": "token",
    "pretrained_cfg": {"input_size": [3, 32, 32]}, "hidden_size": 8, "layer_norm_eps": 1e-6,
    "image_size": [32, 32], "hidden_act": "gelu", "id2label": {"0": "a", "1": "b"},
    "label_names": ["a", "b"], "vit_jax": {"gelu": "tanh", "ln_epsilon": 1e-6},
}))  # fmt: skip
@example("hf", {"image_size": [float("inf"), 3]})
@example("hf", {"layer_norm_eps": 10**400})
@example("hf", {"image_size": -5})
def test_what_lies_beside_weights_is_understood_or_refused(name, given):
    found = hostile.answer(json_config.read, name, given)
    if found and "image_size" in found:
        assert all(0 < side <= MOST_PIXELS for side in found["image_size"])


@given(st.lists(TEXT | st.sampled_from(["a.png", "~nobody/x", "label", "", DIGITS]), max_size=9))
@example(["~nobody/x.png", "a", "b.png", "b"])
@example(["x.png", DIGITS, "y.png", "b"])
def test_csv_without_its_images_is_refused(tmp_path_factory, cells):
    path = tmp_path_factory.getbasetemp() / "hostile.csv"
    rows = [",".join(cells[i : i + 2]) for i in range(0, len(cells), 2)]
    path.write_text("\n".join(rows), errors="surrogatepass")
    with pytest.raises(BadInput):
        folders.open_csv(str(path), None)


# --- the folder of a stranger's run ---

RESULTS = {"step": 3, "test": {"top1": 0.5, "examples": 10}}
SWEEP = {"stages": {"": [{"run": "000-x", "keys": {"seed": 1}, "test": False}]}}


@hostile.few
@given(hostile.misplaced(RESULTS))
@example({"test": 5})
@example({"test": {"examples": "x"}})
@example({"test": {"top1": 10**400}})
def test_results_are_numbers_or_refused(tmp_path_factory, results):
    folder = tmp_path_factory.getbasetemp()
    (folder / "config.yaml").write_text(config_lib.to_yaml(config_lib.load(RECIPE)))
    (folder / "results.json").write_text(json.dumps(results))
    run = hostile.answer(run_results.open_run, folder, errors=(run_results.Unreadable,))
    if run is not None:
        value = run.metric("test/top1")
        assert value is None or math.isfinite(value)


@given(hostile.misplaced(SWEEP))
@example({"stages": {"": [{"run": "../x", "keys": {}, "test": False}]}})
@example({"stages": {"": [{"run": "x"}]}})
def test_sweep_is_of_runs_in_its_folder_or_refused(tmp_path_factory, record):
    folder = tmp_path_factory.getbasetemp()
    (folder / "sweep.json").write_text(json.dumps(record))
    for entry in hostile.answer(sweep_folder.entries, folder) or ():
        assert (folder / entry.run).resolve().is_relative_to(folder.resolve())


@given(hostile.changed([b'{"step": 1, "train/loss": 0.5}\n{"step": 2}\n']))
@example(b"5\n{}\n[1]\n" + b"[" * 100_000 + b"\n\xff\xfe\n")
def test_rows_are_objects_with_a_step(tmp_path_factory, content):
    path = tmp_path_factory.getbasetemp() / "metrics.jsonl"
    path.write_bytes(content)
    assert all(type(row["step"]) is int for row in jsonl.read_rows(path))


@pytest.mark.parametrize("text", [DEEP, "5", "{", "\udcff"])
def test_damaged_results_of_a_finished_run_are_bad_input(tmp_path, monkeypatch, text):
    monkeypatch.setattr(workdir.defaults, "take_from_run", lambda config, _: config)
    monkeypatch.setattr(workdir.build, "check", lambda *_: None)
    config = config_lib.load(RECIPE)
    (tmp_path / "config.yaml").write_text(config_lib.to_yaml(config))
    (tmp_path / "results.json").write_text(text, errors="surrogateescape")
    with pytest.raises(BadInput, match=r"results\.json"):
        workdir.continue_or_check(config, tmp_path)
