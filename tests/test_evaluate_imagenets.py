# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""`vit_jax evaluate FILE` on the test sets around ImageNet, and the table that it fills."""

import json

import jax
import model_commands
import numpy as np
import paper_runs
import pictures
import pytest
import small_imagenets
import tiny

import vit_jax
from vit_jax import paper
from vit_jax.config import provenance
from vit_jax.data.catalog import imagenet_labels
from vit_jax.experiments.tables import robustness as table
from vit_jax.models import variants
from vit_jax.paper import robustness
from vit_jax.weights import image_chains


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    """A file in the published format with a head of 1,000 classes, and its model."""
    file = tmp_path_factory.mktemp("weights") / "ViT-tiny.npz"
    cfg = tiny.config(classes=1000, depth=1)
    params = tiny.params(cfg, 8, 8)
    params["head"]["bias"] = 3 * params["head"]["bias"]  # so that few images differ in their class
    vit_jax.save(file, variants.make(cfg), params)
    return file


def images(root, classes, each=2):
    """Noise in folders named as ImageNet's classes; returns path -> class number."""
    names, found = imagenet_labels.wnids(), {}
    for label in classes:
        (root / names[label]).mkdir(parents=True, exist_ok=True)
        for k in range(each):
            path = root / names[label] / f"ILSVRC2012_val_{len(found) + 1:08d}.png"
            path.write_bytes(pictures.encode(pictures.noise(8, 8, seed=1000 * label + k)))
            found[path] = label
    return found


def evaluate(capsys, weights, out, *words):
    words = ("evaluate", weights, "--heads=4", f"--out={out}", *words)
    code, printed, said = model_commands.command(capsys, *words)
    assert code == 0, said
    return json.loads((out / "evaluation.json").read_text()), printed


def logits(weights, paths):
    model, params, preprocess = vit_jax.load(weights, heads=4)
    apply = jax.jit(lambda p, x: model.apply({"params": p}, x, train=False))
    return np.asarray(apply(params, preprocess([str(path) for path in paths])))


@pytest.mark.integration
def test_imagenet_a_is_chosen_among_the_classes_of_its_images(weights, tmp_path, capsys):
    of = images(tmp_path / "imagenet-a", [7, 400, 999], each=8)
    scores, labels = logits(weights, of), np.array(list(of.values()))
    among = np.array([7, 400, 999])
    expected = np.mean(among[scores[:, among].argmax(axis=1)] == labels)
    assert expected > np.mean(scores.argmax(axis=1) == labels)  # the choice matters
    data = f"--data=folder:{tmp_path / 'imagenet-a'}"
    found, printed = evaluate(capsys, weights, tmp_path / "a", data, "--classes=present")
    assert found["top1"] == pytest.approx(expected)
    assert found["examples"] == 24
    assert [row["name"] for row in found["classes"]] == [imagenet_labels.wnids()[k] for k in among]
    assert (found["among"], found["model"]["image_size"]) == ("present", 8)
    assert f"top-1 {expected:.2%}" in printed


@pytest.mark.integration
def test_real_takes_its_labels_by_file_name(weights, tmp_path, capsys):
    of = images(tmp_path / "imagenet2012", [3, 5, 8])
    best = logits(weights, of).argmax(axis=1).tolist()
    sets = [[best[0], 1], [2], [], [best[3]], [4, 5], [0]]  # the third is left out
    (tmp_path / "real.json").write_text(json.dumps(sets))
    found, _ = evaluate(
        capsys, weights, tmp_path / "real", f"--data=folder:{tmp_path / 'imagenet2012'}",
        f"--labels={tmp_path / 'real.json'}",
    )  # fmt: skip
    right = [best[k] in labels for k, labels in enumerate(sets) if labels]
    assert (found["top1"], found["examples"]) == (pytest.approx(np.mean(right)), 5)
    assert 0 < np.mean(right) < 1


@pytest.mark.integration
def test_a_fine_tuned_file_of_augreg_is_evaluated_as_its_authors_did(weights, tmp_path, capsys):
    """By its name; the same bytes under another name are resized, as the paper's."""
    name = "B_16-i1k-300ep-lr_0.001-aug_none-wd_0.1-do_0.0-sd_0.0--imagenet2012-steps_20k-lr_0.01"
    tuned = tmp_path / f"{name}-res_384.npz"
    tuned.write_bytes(weights.read_bytes())
    images(tmp_path / "imagenet", [1, 2, 3])
    made = {
        file.name: evaluate(
            capsys, file, tmp_path / "out", f"--data=folder:{tmp_path / 'imagenet'}"
        )[0]
        for file in (tuned, weights)
    }
    first, other = (made[file.name]["model"] for file in (tuned, weights))
    assert first["ops"] == "decode(exif=True)|bv_resize_small({size*7//6})|central_crop({size})"
    assert other["ops"] == "decode(exif=True)|resize({size})"
    assert first["dtype"] == other["dtype"] == "float32"


def test_corruptions_give_the_mean_error(weights, tmp_path, capsys, monkeypatch):
    whole = paper.table("robustness")
    part = {"alexnet_error": {"fog": 0.5, "snow": 0.8}, "severities": [1, 2]}
    monkeypatch.setattr(paper, "table", lambda name: whole | {"imagenet_c": part})
    best = int(logits(weights, images(tmp_path / "x", [0], each=1)).argmax())
    classes, top1 = sorted({best, 1, 2}), {}
    for number, name in enumerate(robustness.parts("{corruption}_{severity}")):
        root = tmp_path / "c" / name.replace("_", "/")
        of = images(root, classes, each=1 + number)
        top1[name] = float(np.mean(logits(weights, of).argmax(axis=1) == list(of.values())))
    data = f"--data=folder:{tmp_path}/c/{{corruption}}/{{severity}}"
    found, printed = evaluate(capsys, weights, tmp_path / "out", data)
    expected = robustness.corruption_errors(top1)
    assert {key: found[key] for key in expected} == pytest.approx(expected)
    assert f"mCE {expected['mce']:.2%}" in printed
    assert found["examples"] == 3 * (1 + 2 + 3 + 4)


def test_objectnet_is_chosen_among_its_own_classes(weights, tmp_path, capsys):
    root = small_imagenets.objectnet(tmp_path / "objectnet-1.0")
    found, _ = evaluate(capsys, weights, tmp_path / "out", f"--data=objectnet:{root}")
    assert len(found["classes"]) == 3
    assert found["examples"] == 6


def test_classes_that_are_not_imagenets_need_names(weights, tmp_path, capsys):
    root = tmp_path / "folder"
    for name in ("cat", "dog"):
        (root / name).mkdir(parents=True)
        (root / name / "0.png").write_bytes(pictures.encode(pictures.noise(8, 8)))
    words = ("evaluate", weights, "--heads=4", f"--data=folder:{root}", f"--out={tmp_path}")
    code, _, said = model_commands.command(capsys, *words)
    assert code == 2
    assert "has 1000 classes without names" in said
    code, _, said = model_commands.command(capsys, *words, "--labels=gone.json")
    assert code == 2
    assert "labels=gone.json" in said
    assert "--data.labels" not in said


# ---------------------------------------------------------------- the table


def written(folder, data, *, weights="/w/mine.npz", top1=0.5, **changes):
    folder.mkdir(parents=True)
    one = {"weights": weights, "data": data, "labels": "", "among": "all", "top1": top1,
           "examples": 50_000, "split": "test", "model": {"image_size": 384}}  # fmt: skip
    (folder / "evaluation.json").write_text(json.dumps(one | changes))


def test_a_row_for_each_file_beside_the_papers_rows(tmp_path, capsys):
    written(tmp_path / "imagenet", "tfds:imagenet2012", top1=0.8466)
    written(tmp_path / "real", "folder:/d/imagenet_val", labels="real.json", top1=0.88,
            examples=46_837)  # fmt: skip
    written(tmp_path / "a", "folder:/d/imagenet-a", among="present", top1=0.25, examples=7_500)
    written(tmp_path / "c", "folder:/d/c/{corruption}/{severity}", mce=0.425, examples=3_750_000)
    written(tmp_path / "other", "tfds:imagenet_sketch", weights="/w/other.npz", examples=50_889,
            model={"image_size": 224, "published": "augreg/x.npz"})  # fmt: skip
    written(tmp_path / "merged", "tfds:imagenet2012", top1=0.8,
            model={"image_size": 224, "published": "augreg/x.npz", "merge": 8})  # fmt: skip
    changed = {"image_size": 240, "published": "augreg/x.npz", "patch": 24, "pack": 512}
    written(tmp_path / "flexi", "tfds:imagenet2012", top1=0.79, model=changed)
    written(tmp_path / "part", "folder:/d/imagenet-r", among="present", top1=0.5, examples=50)
    written(tmp_path / "percent", "folder:/d/imagenet-v2", top1=93.2, examples=10_000)
    code, printed, _ = model_commands.command(
        capsys, "table", "robustness", f"--runs={tmp_path}", "--format=csv"
    )
    assert code == 0
    rows = {line.split(",")[0]: line for line in printed.splitlines()}
    assert '"augreg/x.npz, 8 tokens merged",224,80.00,,,,,' in printed
    assert '"augreg/x.npz, patches of 24 pixels, packed to 512",240,79.00,,,,,' in printed
    assert rows["weights"] == "weights,pixels,ImageNet,ReaL,A,Sketch,C (mCE),ObjectNet"
    assert rows["/w/mine.npz"] == "/w/mine.npz,384,84.66,88.00,25.00,,42.50,"
    assert rows["augreg/x.npz"] == "augreg/x.npz,224,,,,50.00,,"
    assert '"paper: ViT-B/16, ImageNet-21k",384,83.97,88.35,,,,' in printed
    assert '"paper: ViT-H/14, JFT-300M",384,88.04,90.33,,,,\n' in printed
    assert '"paper: ViT-H/14, JFT-300M, evaluated as BiT",,,,,,,61.70\n' in printed
    found = table.read(tmp_path).remarks
    assert len(found) == 2
    assert any("50 of 30,000 images" in text for text in found)
    assert any("93.2 is no share from 0 to 1" in text for text in found)


def test_what_the_table_does_not_count_is_told(tmp_path):
    written(tmp_path / "a", "folder:/d/imagenet-a")  # among all classes
    written(tmp_path / "b", "folder:/d/birds")
    written(tmp_path / "c", "tfds:imagenet2012")
    written(tmp_path / "d", "tfds:imagenet2012", top1=0.6)
    (tmp_path / "e").mkdir()
    (tmp_path / "e" / "evaluation.json").write_text("{}")
    found = table.read(tmp_path)
    said = sorted(text.replace(str(tmp_path), "") for text in found.remarks)
    for words, text in zip(
        ["classes=all, and A needs classes=present", "not a test set of ImageNet",
         "measured twice", "/e/evaluation.json"], said, strict=True,
    ):  # fmt: skip
        assert words in text
    assert [row.name for row in found.rows if not row.name.startswith("paper")] == ["/w/mine.npz"]


def test_files_of_one_name_and_other_bytes_have_a_row_each(tmp_path):
    written(tmp_path / "a", "tfds:imagenet2012", model={"image_size": 384, "sha256": "aa" * 32})
    written(tmp_path / "b", "tfds:imagenet_v2/matched-frequency", examples=10_000,
            model={"image_size": 384, "sha256": "bb" * 32})  # fmt: skip
    rows = {r.name: r.values for r in table.read(tmp_path).rows if not r.name.startswith("paper")}
    assert rows == {"/w/mine.npz, SHA-256 aaaaaaaa": {"imagenet": 50.0},
                    "/w/mine.npz, SHA-256 bbbbbbbb": {"v2": 50.0}}  # fmt: skip


def test_a_checksum_that_older_files_lack_is_that_of_the_only_one_known(tmp_path):
    written(tmp_path / "a", "tfds:imagenet2012")
    written(tmp_path / "b", "tfds:imagenet_v2/matched-frequency", examples=10_000,
            model={"image_size": 384, "sha256": "bb" * 32})  # fmt: skip
    rows = [row for row in table.read(tmp_path).rows if not row.name.startswith("paper")]
    assert [(row.name, row.values) for row in rows] == [
        ("/w/mine.npz", {"imagenet": 50.0, "v2": 50.0})
    ]


@pytest.mark.parametrize("ops, counts", [("", False), (None, True)])
def test_augregs_tuned_files_count_with_its_authors_crop(tmp_path, ops, counts):
    name = "augreg/B_16-i1k-300ep-lr_0.001-aug_none-wd_0.1-do_0.0-sd_0.0"
    name += "--imagenet2012-steps_20k-lr_0.01-res_384.npz"
    ops = image_chains.of_augreg(name)["ops"] if ops is None else ops
    written(tmp_path / "a", "tfds:imagenet2012",
            model={"image_size": 384, "published": name, "ops": ops})  # fmt: skip
    found = table.read(tmp_path)
    assert any(row.name == name for row in found.rows) == counts
    assert ["evaluate again" in text for text in found.remarks] == [True] * (not counts)


@pytest.mark.parametrize(
    "keys, results, said",
    [
        ({}, {}, ""),
        ({}, {"looked_at_test": True}, "looked at test"),
        ({"checkpoint__keep_best": "test/top1"}, {}, "looked at test"),
        ({"data__split": "train+validation"}, {}, "trained on train+validation"),
        ({"data__split": "train[:99%]"}, {}, ""),
    ],
)
def test_a_run_that_saw_test_images_has_no_row(tmp_path, keys, results, said):
    folder = paper_runs.transfer(
        tmp_path / "run", 84.0, "model=B/16,dataset=imagenet", **{"data__split": "train"} | keys
    )
    file = folder / "results.json"
    one = json.loads(file.read_text())
    one["test"]["examples"] = 50_000
    file.write_text(json.dumps(one | results))
    found = table.read(tmp_path)
    assert any(row.name == str(folder) for row in found.rows) == (not said)
    assert [said in text for text in found.remarks] == [True] * bool(said)


@pytest.mark.parametrize("source, said", [("tfds:imagenet2012_corrupted/", 1), ("folder:/c/", 0)])
def test_corruptions_that_are_encoded_again_are_told(tmp_path, source, said):
    written(tmp_path / "c", source + "{corruption}_{severity}", mce=0.425, examples=3_750_000)
    found = table.read(tmp_path)
    assert [row.values for row in found.rows if row.name == "/w/mine.npz"] == [{"c": 42.5}]
    assert sum("TFDS encodes it again" in text for text in found.remarks) == said


def test_files_of_other_content_and_training_images_do_not_count_as_published(tmp_path):
    for name in ("a", "b"):
        written(tmp_path / name, "tfds:imagenet2012", weights=f"/{name}/ViT-B_16.npz")
        file = tmp_path / name / "evaluation.json"
        values = json.loads(file.read_text())
        values["model"]["published"] = provenance.OTHER
        file.write_text(json.dumps(values))
    written(tmp_path / "c", "tfds:imagenet2012", split="train[:50000]")
    report = table.read(tmp_path)
    names = [row.name for row in report.rows if not row.name.startswith("paper")]
    assert names == ["/a/ViT-B_16.npz", "/b/ViT-B_16.npz"]
    assert ["split train[:50000] is not a test split" in text for text in report.remarks] == [True]


@pytest.mark.parametrize(
    "source, labels, name",
    [
        ("tfds:imagenet2012", "", "imagenet"),
        ("folder:/d/imagenet/val", "", "imagenet"),
        ("tfds:imagenet2012", "real.json", "real"),
        ("tfds:imagenet_a", "", "a"),
        ("folder:/d/imagenet-r/images", "", "r"),
        ("tfds:imagenet_v2/topimages", "", "v2_topimages"),
        ("tfds:imagenet_v2/threshold-0.7", "", "v2_threshold"),
        ("tfds:imagenet_sketch", "", "sketch"),
        ("folder:/d/imagenetv2-matched-frequency-format-val", "", "v2"),
        ("objectnet:objectnet-1.0", "", "objectnet"),
        ("tfds:imagenet_a", "real.json", ""),
        ("tfds:imagenet2012:5.1.0", "", "imagenet"),
        ("tar:/d/imagenet/val-*.tar", "", "imagenet"),
        ("folder:/d/imagenet-a-and-r/imagenet-r", "", "r"),
        ("tfds:imagenet21k", "", ""),
        ("folder:/d/imagenet-c/gaussian_noise/5", "", ""),
        ("folder:/d/imagenet-o", "", ""),
        ("folder:/d/imagenet/ILSVRC/Data/CLS-LOC/val", "", "imagenet"),
        ("folder:/d/ILSVRC2012/val", "", "imagenet"),
        ("folder:/d/ILSVRC2012/train", "", ""),
        ("folder:/d/imagenetv2-top-images-format-val", "", "v2_topimages"),
        ("folder:/d/imagenetv2-threshold0.7-format-val", "", "v2_threshold"),
        ("folder:/d/imagenet-v2-stop", "", ""),
        ("folder:/d/imagenet-a_resized", "", ""),
        ("folder:/d/tiny-imagenet-200/val", "", ""),
        ("folder:/d/imagenet/cifar10/test", "", ""),
        ("digits", "", ""),
    ],
)
def test_test_sets_are_known_by_their_sources(source, labels, name):
    assert robustness.name_of(source, labels) == name
