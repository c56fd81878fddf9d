# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""The miniature reproduction: its models, its sweep, and claims judged by runs that nobody ran."""

import argparse
import csv
import io
import json
import math
import re
import shlex

import jax
import paper_runs
import pytest
import test_pages

from vit_jax.cli import main, table
from vit_jax.config import load as config_lib
from vit_jax.config import recipes
from vit_jax.errors import BadInput
from vit_jax.experiments.sweeps import points as sweep
from vit_jax.experiments.tables import miniature
from vit_jax.models import variants

SPEC = "configs/miniature.py"


@pytest.fixture(scope="module")
def recipe(root):
    """The recipe as a module."""
    return recipes._run_file(root / SPEC)


@pytest.fixture(scope="module")
def listed(recipe):
    return recipe.claims()


def points(args):
    """All points of a sweep: stage -> list; those of functions from imagined rows."""
    return sweep.read(f"{SPEC}:{args}").expected


@pytest.fixture(scope="module")
def hour():
    return points("tier=hour")


@pytest.fixture(scope="module")
def night():
    return points("tier=night")[""]


# ---------------------------------------------------------------- recipe


def model(recipe, name, classes=100):
    return variants.config(classes=classes, **recipe.MODELS[name])


def test_models_of_the_hour_are_below_a_million_on_a_grid_of_4_by_4(recipe):
    for name in recipe.HOUR:
        cfg = model(recipe, name, 102)
        shapes = jax.tree.leaves(variants.shapes(cfg, 32, 32))
        assert sum(math.prod(leaf.shape) for leaf in shapes) < 1_000_000
        assert variants.grid(cfg, 32, 32) == (4, 4)
    bit = model(recipe, "bit").resnet
    assert (len(bit.stages), bit.width, bit.stem) == (3, 32, "small")
    vit, hybrid = model(recipe, "vit"), model(recipe, "hybrid")
    assert (vit.width, vit.depth, vit.patch, hybrid.backbone.stem) == (128, 4, 8, "small")
    for field in ("width", "depth", "mlp", "heads"):
        assert getattr(vit, field) == getattr(hybrid, field)


def test_longer_vit_has_the_flops_of_the_hybrid(recipe):
    vit, hybrid = (variants.forward_flops(model(recipe, n), 32, 32) for n in ("vit_long", "hybrid"))
    assert vit * recipe.LONGER == pytest.approx(hybrid, rel=0.001)


def test_hour_has_all_runs_with_three_seeds(hour, recipe):
    assert {stage: len(found) for stage, found in hour.items()} == {
        "posemb": 9, "scratch": 27, "pretrain": 12, "transfer": 30,
    }  # fmt: skip
    for found in hour.values():
        seeds = [p.config.seed for p in found]
        assert {seeds.count(seed) for seed in recipe.SEEDS} == {len(found) / 3}


def test_transfer_starts_from_the_pretraining_of_its_model_and_seed(hour):
    for point in hour["transfer"]:
        said = f"model={point.keys[':model']}_seed={point.config.seed}"
        assert re.fullmatch(rf"pretrain/\d+-{said}", point.config.init)
        assert "init" not in point.run  # the folder's name does not depend on where it lies
    large = [p for p in hour["transfer"] if p.config.data.image_size == 64]
    assert {p.config.recipe.protocol for p in large} == {
        "tier=hour,dataset=flowers,method=finetune,size=64"
    }


def test_images_are_equal_for_all_models(hour, night, recipe):
    lengths = {p.keys[":model"]: p.config.length for p in hour["pretrain"]}
    assert {lengths[name] for name in recipe.HOUR} == {f"{recipe.PRETRAIN_IMAGES} examples"}
    assert {p.config.length for p in [*hour["scratch"], *hour["transfer"]]} == {
        f"{recipe.TRANSFER_IMAGES} examples"
    }
    assert {p.config.length for p in night} == {f"{recipe.NIGHT_IMAGES} examples"}
    assert {p.config.data.val_percent for p in hour["pretrain"]} == {2}  # 49k and 1k


def test_night_has_sizes_models_and_seeds(night):
    assert len(night) == 3 * 5 * 3
    assert {p.config.data.examples for p in night} == {2500, 10_000, 0}
    assert len({p.config.model for p in night}) == 5


def test_nothing_is_selected_and_val_of_transfer_is_not_read(hour, night):
    for point in [*night, *(p for found in hour.values() for p in found)]:
        assert point.config.recipe.stage == "final"
        assert point.config.checkpoint.keep_best == ""
    assert {tuple(p.config.evals) for p in hour["transfer"]} == {("test",)}


def test_sources_are_arguments(recipe):
    spec = f"{SPEC}:cifar100=folder:a,cifar10=folder:b,flowers=csv:c,fashion=tar:d"
    config = config_lib.load(spec)
    assert config.data.source == "folder:a"
    assert dict(config.fewshot.sources) == {
        "cifar10": "folder:b", "flowers": "csv:c", "fashion": "tar:d",
    }  # fmt: skip
    assert config_lib.load(f"{spec},dataset=flowers").data.source == "csv:c"
    assert config_lib.load(f"{SPEC}:dataset=fashion").data.source == "tfds:fashion_mnist"


@pytest.mark.parametrize(
    "args, parts",
    [
        ("tier=day", ("'day'", "hour, night")),
        ("dataset=cars", ("'cars'", "flowers")),
        ("model=vit_large", ("'vit_large'", "hybrid")),
        ("tier=night,examples=2500,dataset=cifar10", ("'cifar10'", "cifar100")),
        ("tier=night", ("examples", "'0'", "2500")),
        ("method=finetune", ("'finetune'", "scratch")),
        ("dataset=cifar10,size=64", ("'64'", "32")),
        ("dataset=digits,model=bit", ("leave model out",)),
        ("dataset=flowers,model=vit_long", ("give model=vit",)),
        ("posemb=none", ("posemb", "learned1d")),
    ],
)  # fmt: skip
def test_arguments_that_do_not_go_together_are_refused(args, parts):
    with pytest.raises(BadInput) as error:
        config_lib.load(f"{SPEC}:{args}")
    assert [part for part in parts if part not in str(error.value)] == []


# ---------------------------------------------------------------- claims


def test_terms_of_every_claim_are_measured_by_runs_of_its_tier(listed, hour, night):
    runs = {"night": night, "hour": [p for found in hour.values() for p in found]}
    for one in listed:
        configs = {p.config.recipe.protocol: p.config for p in runs[one["tier"]]}
        for _, cell, metric in one["terms"]:
            split = metric.partition("/")[0]
            config = configs[cell]
            tasks = [f"fewshot_{name}" for name, _ in config.fewshot.sources]
            learned = config.model.posemb == "learned1d"
            assert split in [*config.evals, *tasks] or (split == "posemb" and learned)


def test_weights_of_differences_sum_to_zero_and_the_slope_is_that_of_a_line(listed):
    for one in listed:
        total = math.fsum(weight for weight, _, _ in one["terms"])
        single = len(one["terms"]) == 1
        assert total == pytest.approx(1.0 if single else 0.0, abs=1e-12)
        assert single == (one["unit"] == "rank correlation")
    (slope,) = [one for one in listed if "tenfold" in one["unit"]]

    def lead(cell):  # of a ViT that gains 3 points with each tenfold of data, and a flat ResNet
        return 3 * math.log10(int(cell.rpartition("=")[2])) if "bit" not in cell else 7.0

    assert math.fsum(w * lead(cell) for w, cell, _ in slope["terms"]) == pytest.approx(3)


def finish(root, args, values, metric="test/top1", **keys):
    """A finished run for each seed, which has measured a percentage."""
    split, name = metric.split("/")
    text = None
    for seed, value in enumerate(values):
        folder = root / f"{args}-{seed}"
        if text is None:
            paper_runs.write(folder, f"{SPEC}:{args}", None, keys)
            text = (folder / "config.yaml").read_text()
            assert "\nseed: 0\n" in text or text.startswith("seed: 0\n")
        folder.mkdir(exist_ok=True)
        own = re.sub(r"^seed: 0$", f"seed: {seed}", text, flags=re.MULTILINE)
        (folder / "config.yaml").write_text(own)
        results = {"step": 100, split: {name: value / 100}}
        (folder / "results.json").write_text(json.dumps(results))


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Position embeddings: a claim that is shown, one that is opposite, one that is not shown."""
    root = tmp_path_factory.mktemp("runs")
    finish(root, "dataset=digits,posemb=learned1d", [98.0, 98.1, 97.9])
    finish(root, "dataset=digits,posemb=learned2d", [93.0, 93.3, 92.9])
    finish(root, "dataset=digits,posemb=none", [90.0, 97.0, 97.0])
    finish(root, "model=vit", [12.0, 13.0, 14.0], "val/top1")
    finish(root, "dataset=cifar10", [30.0, 31.0, 32.0])
    finish(root, "dataset=cifar10,method=finetune", [40.0, 42.0, 41.0], init="pre")
    finish(root, "dataset=flowers,method=finetune", [40.0])  # from nowhere
    finish(root, "dataset=fashion", [77.0], length="10 steps")
    paper_runs.write(root / "begun", f"{SPEC}:model=bit", None, {})
    paper_runs.pretrain(root / "other", "model=B/32,dataset=imagenet")
    return root


@pytest.fixture(scope="module")
def made(runs):
    values = {"0": -0.4, "1": -0.5, "2": -0.6}
    with paper_runs.quick_yaml():
        return miniature.judge(runs, lambda folder: values[folder.name[-1]])


def judged(made, words):
    (found,) = [one for one in made.judged if words in one.claim.claim]
    return found


def test_claims_are_judged_by_runs(made):
    one = judged(made, "1-D and 2-D")
    assert (one.verdict, len(one.values)) == ("opposite", 3)
    assert one.mean == pytest.approx((5.0 + 4.8 + 5.0) / 3)
    assert judged(made, "worse than 1-D").verdict == "not shown"
    falls = judged(made, "similarity")
    assert (falls.verdict, falls.mean) == ("shown", pytest.approx(-0.5))
    assert {judged(made, "cifar10").verdict, judged(made, "more pixels").verdict} == {"missing"}


def test_runs_that_are_not_as_the_recipe_says_are_left_out_and_named(made):
    (short,) = [text for text in made.remarks if "dataset=fashion" in text]
    assert re.search(r"length: 10 steps, not \d+ examples", short)
    (rootless,) = [text for text in made.remarks if "dataset=flowers" in text]
    assert "init: none" in rootless
    assert [text for text in made.remarks if "begun" in text and "running" in text]
    assert len(made.remarks) == 3
    cells = {cell for cell, _ in made.measured}
    assert not any("fashion" in cell or "flowers" in cell for cell in cells)


def test_flops_are_those_of_the_images_seen(made, recipe):
    expected = 3 * 100 * 32 * variants.forward_flops(model(recipe, "vit"), 32, 32)
    assert made.flops == {"tier=hour": expected}


def test_two_runs_of_a_seed_are_refused(tmp_path):
    finish(tmp_path / "a", "model=vit", [12.0])
    finish(tmp_path / "b", "model=vit", [13.0])
    with pytest.raises(BadInput, match=r"are both tier=hour with seed 0"):
        miniature.judge(tmp_path, lambda _: 0.0)


def test_every_format_has_every_claim_and_its_verdict(made):
    rows = list(csv.reader(io.StringIO(miniature.render(made, "csv"))))
    assert rows[0][-1] == "verdict"
    assert [row[1] for row in rows[1:]] == [one.claim.claim for one in made.judged]
    assert {row[-1] for row in rows[1:]} == {"shown", "not shown", "opposite", "missing"}
    page = test_pages.check(miniature.render(made, "html"))
    text = miniature.render(made, "md")
    assert page.tables[0][1] == rows
    assert all(one.claim.claim in text for one in made.judged)
    assert len(page.all("svg")) == 1
    assert re.search(
        r"\| tier=hour,dataset=cifar10 +\| test/top1 \| 31\.00 +\| 1\.00 +\| 3 +\|", text
    )


@pytest.mark.parametrize(
    "args, part",
    [
        ([], "give --runs=DIR"),
        (["--runs=."  , "--plan"], "neither --plan"),
        (["--runs=.", "--protocol=paper"], "nor --protocol"),
        (["--runs=/no/such"], "does not exist"),
        (["--runs=.", "--format=pdf"], "md, csv, html"),
    ],
)  # fmt: skip
def test_bad_input_of_the_command(capsys, args, part):
    assert main.main(["table", "miniature", *args]) == 2
    out = capsys.readouterr()
    assert part in out.err
    assert out.out == ""


def test_command_without_runs_says_that_all_is_missing(capsys, tmp_path):
    assert main.main(["table", "miniature", f"--runs={tmp_path}", "--format=csv"]) == 0
    rows = list(csv.reader(io.StringIO(capsys.readouterr().out)))
    assert {row[-1] for row in rows[1:]} == {"missing"}


def test_commands_of_the_page_and_its_models_are_as_they_are(capsys, root, recipe, monkeypatch):
    monkeypatch.chdir(root)
    page = (root / "docs" / "miniature.md").read_text()
    commands = [shlex.split(c) for c in re.findall(r"```bash\n(.*?)\n```", page)]
    assert [command[:2] for command in commands] == [["vit_jax", "sweep"], ["vit_jax", "table"]]
    parser = argparse.ArgumentParser()
    main.COMMANDS["sweep"].add_arguments(parser)
    sweep.read(parser.parse_args(commands[0][2:]).config)
    assert main.main([*commands[1][1:-1], f"--runs={root / 'docs'}"]) == 0
    assert "missing" in capsys.readouterr().out
    for name in recipe.HOUR:
        cfg = model(recipe, name)
        leaves = jax.tree.leaves(variants.shapes(cfg, 32, 32))
        said = f"| {sum(math.prod(leaf.shape) for leaf in leaves):,} "
        assert f"`{name}` {said}| {variants.forward_flops(cfg, 32, 32) / 1e6:.1f} |" in page


def test_verdicts_of_the_page_follow_from_its_figures(root, recipe):
    page = (root / "docs" / "miniature.md").read_text().partition("## Measured: the hour")[2]
    rows = re.findall(r"^\| (.+?) \| (.+?) \| ([+-][\d.]+) \| ([\d.]+) \| (.+?) \|$", page, re.M)
    hour = [claim["claim"] for claim in recipe.claims() if claim["tier"] == "hour"]
    assert [row[0] for row in rows] == hour
    for claim, criterion, mean, error, verdict in rows:
        low, high = (float(mean) + sign * 2.92 * float(error) for sign in (-1, 1))
        if criterion.startswith("within"):
            margin = float(criterion.split()[1])
            shown, opposite = -margin < low < high < margin, low > margin or high < -margin
        else:
            shown, opposite = low > 0, high < 0
            if criterion.endswith("below 0"):
                shown, opposite = opposite, shown
        expected = "shown" if shown else "opposite" if opposite else "not shown"
        assert verdict == expected, claim


# ---------------------------------------------------------------- runs


@pytest.mark.slow
def test_pretraining_and_transfer_run_on_made_images(tmp_path, image_folder, capsys):
    source = f"folder:{image_folder}"
    given = ",".join(f"{name}={source}" for name in ("cifar100", "cifar10", "flowers", "fashion"))
    short = ["--config.length=2 steps", "--config.batch_size=8"]

    def train(name, args, *more):
        words = [f"--config={SPEC}:{given},{args}", f"--workdir={tmp_path / name}"]
        assert main.main(["train", *words, *short, *more]) == 0
        return json.loads((tmp_path / name / "results.json").read_text())

    results = train("pre", "model=vit")
    assert set(results["fewshot_flowers"]) == {"5shot", "25shot"}
    assert -1 <= table.posemb_correlation(tmp_path / "pre") <= 1
    large = "dataset=flowers,method=finetune,size=64"
    results = train("large", large, f"--config.init={tmp_path / 'pre'}")
    assert set(results) == {"step", "checkpoint", "test"}
    train("bit", "dataset=flowers,model=bit")
    with pytest.raises(BadInput, match="learned 1-D"):
        table.posemb_correlation(tmp_path / "bit")
    capsys.readouterr()
    assert main.main(["table", "miniature", f"--runs={tmp_path}"]) == 0
    assert capsys.readouterr().out.count("length: 2 steps, not") == 3
