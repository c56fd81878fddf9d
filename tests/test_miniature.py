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
from collections import defaultdict

import jax
import numpy as np
import paper_runs
import pytest
import test_pages
from scipy import stats

from vit_jax.cli import main
from vit_jax.config import load as config_lib
from vit_jax.config import recipes
from vit_jax.errors import BadInput
from vit_jax.experiments.sweeps import points as sweep
from vit_jax.experiments.tables import claims, miniature
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
def evening():
    return points("tier=evening")[""]


@pytest.fixture(scope="module")
def night():
    return points("tier=night")[""]


@pytest.fixture(scope="module")
def every(hour, evening, night):
    """Tier -> its points."""
    return {
        "hour": [p for found in hour.values() for p in found], "evening": evening, "night": night,
    }  # fmt: skip


# ---------------------------------------------------------------- recipe


def model(recipe, name, classes=100):
    return variants.config(classes=classes, **recipe.MODELS[name])


def flops(recipe, name):
    return variants.forward_flops(model(recipe, name), 16, 16)


def test_models_are_small_and_of_about_equal_compute(recipe):
    for name in recipe.MODELS:
        shapes = jax.tree.leaves(variants.shapes(model(recipe, name), 16, 16))
        assert sum(math.prod(leaf.shape) for leaf in shapes) < 1_000_000
        assert flops(recipe, name) == pytest.approx(flops(recipe, "vit"), rel=0.05)
    vit, hybrid = model(recipe, "vit"), model(recipe, "hybrid")
    for field in ("width", "depth", "mlp", "heads"):
        assert getattr(vit, field) == getattr(hybrid, field)
    assert variants.grid(vit, 16, 16) == variants.grid(hybrid, 16, 16) == (4, 4)


def test_pretraining_of_hybrid_and_vit_costs_the_same(recipe):
    cost = {name: images * flops(recipe, name) for name, images in recipe.PRETRAIN.items()}
    assert cost["hybrid"] == pytest.approx(cost["vit"], rel=1e-5)


def test_hour_has_all_runs_with_eight_seeds(hour):
    assert {stage: len(found) for stage, found in hour.items()} == {
        "posemb": 24, "scratch": 8, "pretrain": 16, "transfer": 16,
    }  # fmt: skip
    for found in hour.values():
        seeds = [p.config.seed for p in found]
        assert {seeds.count(seed) for seed in range(8)} == {len(found) / 8}


def test_second_execution_has_other_seeds(evening, night):
    for tier, first in (("evening", evening), ("night", night)):
        second = points(f"tier={tier},execution=2")[""]
        seeds, others = ({p.config.seed for p in found} for found in (first, second))
        assert others == {seed + len(seeds) for seed in seeds}


def test_transfer_starts_from_the_pretraining_of_its_model_and_seed(hour):
    for point in hour["transfer"]:
        said = f"model={point.keys[':model']}_seed={point.config.seed}"
        assert re.fullmatch(rf"pretrain/\d+-{said}", point.config.init)
        assert "init" not in point.run  # the folder's name does not depend on where it lies


def test_images_and_data_sizes(evening, night, recipe):
    sizes = {p.keys[":examples"]: (p.config.data.examples, p.config.length) for p in evening}
    assert sizes == {
        n: (n if n < 48_000 else 0, f"{images} examples") for n, images in recipe.EVENING.items()
    }
    assert {p.config.length for p in night} == {f"{recipe.NIGHT} examples"}
    assert {p.config.data.examples for p in night} == {2500, 10_000, 0}
    assert (len(evening), len(night)) == (8 * 3 * 2, 3 * 3 * 5)
    assert len({p.config.model for p in night}) == 5


def test_early_stopping_sees_val_and_test_at_the_same_steps(every):
    early = [p for p in (*every["hour"], *every["evening"]) if p.config.evals["val"].every != "0"]
    assert len(early) == 8 + 16 + 48
    for point in early:
        assert point.config.recipe.stage == "final"
        assert {e.every for e in point.config.evals.values()} == {"10 percent"}
        assert set(point.config.evals) == {"val", "test"}


@pytest.mark.parametrize("tier, count", [("hour", 15), ("evening", 18)])
def test_rates_are_tried_with_a_seed_of_their_own_and_never_read_test(tier, count, recipe, every):
    tried = [p for found in points(f"tier=rates-{tier}").values() for p in found]
    assert len(tried) == count
    for point in tried:
        assert "test" not in point.config.evals
        assert point.config.recipe.stage == "select"
        assert point.config.seed == recipe.RATES_SEED
    seeds = {p.config.seed for found in every.values() for p in found}
    assert recipe.RATES_SEED not in seeds
    if tier == "evening":
        lengths = {(p.keys[":model"], p.keys[":examples"]): p.config.length for p in tried}
        assert lengths == {
            (p.keys[":model"], p.keys[":examples"]): p.config.length for p in every[tier]
        }


def test_every_arm_trains_at_a_rate_that_was_tried_for_it(recipe, every):
    arms = [(m, n) for n in recipe.SIZES["evening"] for m in recipe.OF_TIER["evening"]]
    arms += [(m, stage) for m in recipe.OF_TIER["hour"] for stage in ("pretrain", "finetune")]
    assert set(recipe.RATES) == {*arms, ("vit", "scratch")}
    for (_, arm), rate in recipe.RATES.items():
        assert rate in (recipe.TRIED_FINETUNE if arm == "finetune" else recipe.TRIED)
    of = {p.config.recipe.protocol: p.config.schedule.lr for p in every["evening"]}
    assert of[recipe.cell(tier="evening", model="bit", examples=2000)] == recipe.RATES["bit", 2000]


def test_sources_are_arguments(recipe):
    spec = f"{SPEC}:cifar100=folder:a,cifar10=folder:b"
    assert config_lib.load(spec).data.source == "folder:a"
    assert config_lib.load(f"{spec},dataset=cifar10").data.source == "folder:b"
    night = config_lib.load(f"{spec},tier=night,examples=2500")
    assert dict(night.fewshot.sources) == {"cifar10": "folder:b"}


@pytest.mark.parametrize(
    "args, parts",
    [
        ("tier=day", ("'day'", "hour, evening, night")),
        ("dataset=cars", ("'cars'", "cifar10")),
        ("model=vit_large", ("'vit_large'", "hybrid")),
        ("tier=night,examples=2500,dataset=cifar10", ("'cifar10'", "cifar100")),
        ("tier=night", ("examples", "'0'", "2500")),
        ("tier=night,examples=2500,lr=0.1", ("leave out lr",)),
        ("tier=evening,examples=2500,model=bit", ("'2500'", "10000")),
        ("method=finetune", ("'finetune'", "scratch")),
        ("dataset=cifar10,model=hybrid", ("give model=vit",)),
        ("dataset=digits,model=hybrid", ("leave out model",)),
        ("posemb=none", ("posemb", "learned1d")),
        ("execution=3", ("'3'", "1, 2")),
    ],
)
def test_arguments_that_do_not_go_together_are_refused(args, parts):
    with pytest.raises(BadInput) as error:
        config_lib.load(f"{SPEC}:{args}")
    assert [part for part in parts if part not in str(error.value)] == []


def test_sweep_of_an_unknown_tier_lists_the_tiers():
    with pytest.raises(BadInput, match=r"'rates'.*rates-hour"):
        points("tier=rates")


# ---------------------------------------------------------------- claims


def test_terms_of_every_claim_are_measured_by_runs_of_its_tier(listed, every):
    for one in listed:
        configs = {p.config.recipe.protocol: p.config for p in every[one["tier"]]}
        for _, cell, metric in one["terms"]:
            evals = configs[cell].evals
            if metric == miniature.EARLY:
                assert {"val", "test"} <= set(evals)
            else:
                assert metric.partition("/")[0] in evals


def test_recipe_and_table_name_early_stopping_alike(recipe):
    assert recipe.EARLY == miniature.EARLY


def test_weights_of_differences_sum_to_zero_and_the_slopes_are_those_of_a_line(listed):
    for one in listed:
        total = math.fsum(weight for weight, _, _ in one["terms"])
        assert total == pytest.approx(0.0, abs=1e-12)
    slopes = [one for one in listed if "tenfold" in one["unit"]]
    assert [one["tier"] for one in slopes] == ["evening", "night"]

    def lead(cell):  # of a ViT that gains 3 points with each tenfold of data, and a flat ResNet
        return 3 * math.log10(int(cell.rpartition("=")[2])) if "bit" not in cell else 7.0

    for slope in slopes:
        assert math.fsum(w * lead(cell) for w, cell, _ in slope["terms"]) == pytest.approx(3)


def finish(root, args, values, metric="test/top1", parent="", **keys):
    """A finished run for each seed, which has measured a percentage at its end.

    Half way its val was better by 1 point, and its test by 2. It started from the run of the parent
    with its seed.
    """
    if parent:
        keys["init"] = f"elsewhere/{root.name}/{parent}-0"
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
        own = own.replace(f"/{parent}-0", f"/{parent}-{seed}")
        (folder / "config.yaml").write_text(own)
        results = {"step": 100, split: {name: value / 100}}
        (folder / "results.json").write_text(json.dumps(results))
        rows = [
            {"step": step, f"{part}/top1": (value + better) / 100}
            for step, gains in ((50, {"val": 1, "test": 2}), (100, {"val": 0, "test": 0}))
            for part, better in gains.items()
        ]
        (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


SPREAD = (0.0, 0.1, -0.1, 0.2, -0.2, 0.1, 0.0, -0.1)


def around(value):
    return [value + error for error in SPREAD]


@pytest.mark.parametrize(
    "key, value",
    [
        ("evals.val.split", "test"), ("evals.test.split", "train"), ("data.mean", "(0,0,0)"),
        ("data.source", "synthetic:cifar100"), ("branch", "runs/a@10"),
    ],
)  # fmt: skip
def test_run_that_measures_or_starts_otherwise_is_left_out(tmp_path, key, value):
    finish(tmp_path, "tier=evening,examples=2000", [9.0], **{key: value})
    report = miniature.judge(tmp_path)
    assert not report.measured
    assert f" is left out: {key}: " in "".join(report.remarks)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """One claim is shown, one opposite, one not shown, one has too few seeds."""
    root = tmp_path_factory.mktemp("runs")
    finish(root, "dataset=digits,posemb=learned1d", around(98.0))
    finish(root, "dataset=digits,posemb=learned2d", around(93.0)[::-1])
    finish(root, "dataset=digits,posemb=none", [90.0, 99.0] * 4)
    finish(root, "dataset=cifar10", around(30.0))
    finish(root, "dataset=cifar10,method=finetune", around(41.0)[::-1], parent="model=vit")
    finish(root, "model=vit", around(26.0), "val/top1")
    hybrid = [44.0, 45.0, 46.0]
    finish(root, "dataset=cifar10,method=finetune,model=hybrid", hybrid, parent="model=hybrid")
    finish(root, "model=hybrid", [26.0, 27.0], "val/top1")
    finish(root, "dataset=cifar10,lr=0.001", [31.0], "val/top1")
    finish(root, "tier=evening,examples=2000", [9.0])
    finish(root, "tier=evening,examples=10000", [19.0])
    finish(root, "tier=evening,examples=48000,model=bit", [39.0], length="10 steps")
    paper_runs.write(root / "begun", f"{SPEC}:tier=evening,examples=2000,model=bit", None, {})
    paper_runs.write(root / "nowhere", f"{SPEC}:dataset=cifar10,method=finetune", None, {"seed": 9})
    (root / "nowhere" / "results.json").write_text('{"step": 100, "test": {"top1": 0.5}}')
    paper_runs.pretrain(root / "other", "model=B/32,dataset=imagenet")
    return root


@pytest.fixture(scope="module")
def made(runs):
    with paper_runs.quick_yaml():
        return miniature.judge(runs)


def judged(made, words):
    (found,) = [one for one in made.judged if words in one.claim.claim]
    return found


def test_claims_are_judged_by_runs(made):
    one = judged(made, "1-D and 2-D")
    (execution,) = one.executions
    assert (one.verdict, len(execution.values)) == ("opposite", 8)
    assert execution.mean == pytest.approx(5.0)
    assert judged(made, "over none").verdict == "not shown"
    transfer = judged(made, "training from scratch")
    assert (transfer.verdict, transfer.executions[0].mean) == ("shown", pytest.approx(11.0))
    hybrid = judged(made, "hybrid")
    assert (hybrid.verdict, len(hybrid.executions[0].values)) == ("missing", 2)
    assert judged(made, "2,000 to 48,000").executions == ()


def test_early_stopping_reads_test_where_val_is_best(made):
    cell = "tier=hour,dataset=cifar10"
    assert made.measured[cell, "test/top1"][0] == pytest.approx(30.0)
    assert made.measured[cell, miniature.EARLY][0] == pytest.approx(32.0)
    assert made.measured[cell, "best val/top1"][0] == pytest.approx(31.0)
    assert made.measured[cell, "share of steps at best val/top1"][0] == 50.0
    assert miniature.EARLY in {m for one in made.judged for _, _, m in one.claim.terms}


def test_runs_that_are_not_as_the_recipe_says_are_left_out_and_named(made):
    (short,) = [text for text in made.remarks if "48000" in text]
    assert re.search(r"length: 10 steps, not \d+ examples", short)
    (rootless,) = [text for text in made.remarks if "nowhere" in text]
    assert "it starts from nothing" in rootless
    (orphan,) = [text for text in made.remarks if "model=hybrid-2 is" in text]
    assert "/model=hybrid-2, not from" in orphan
    assert [text for text in made.remarks if "begun" in text and "running" in text]
    assert len(made.remarks) == 4
    assert not any("48000" in cell for cell, _ in made.measured)


def test_flops_are_those_of_the_images_seen(made, recipe):
    assert made.flops["tier=evening,examples=2000"] == 3 * 100 * 128 * flops(recipe, "vit")


def test_two_runs_of_a_seed_are_refused(tmp_path):
    finish(tmp_path / "a", "model=vit", [12.0])
    finish(tmp_path / "b", "model=vit", [13.0])
    with pytest.raises(BadInput, match=r"are both tier=hour with seed 0"):
        miniature.judge(tmp_path)


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
        r"\| tier=hour,dataset=cifar10 +\| test/top1 +\| 30\.00 +\| 0\.13 +\| 8 +\| 0\.41 ", text
    )


def test_chart_has_a_line_for_each_model_by_training_images(made):
    drawn = miniature.chart(made)
    assert "evening: vit" in drawn
    assert "bit" not in drawn


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


@pytest.mark.integration
def test_commands_of_the_page_and_its_models_are_as_they_are(capsys, root, recipe, monkeypatch):
    monkeypatch.chdir(root)
    page = (root / "docs" / "miniature.md").read_text()
    commands = [shlex.split(line) for c in re.findall(r"```bash\n(.*?)```", page, re.S)
                for line in c.splitlines()]  # fmt: skip
    assert {command[1] for command in commands} == {"sweep", "table"}
    parser = argparse.ArgumentParser()
    main.COMMANDS["sweep"].add_arguments(parser)
    for command in commands:
        if command[1] == "sweep":
            sweep.read(parser.parse_args(command[2:]).config)
        else:
            assert main.main([*command[1:-1], f"--runs={root / 'docs'}"]) == 0
            assert "missing" in capsys.readouterr().out
    for name in recipe.MODELS:
        leaves = jax.tree.leaves(variants.shapes(model(recipe, name), 16, 16))
        said = f"| {sum(math.prod(leaf.shape) for leaf in leaves):,} "
        assert f"`{name}` {said}| {flops(recipe, name) / 1e6:.1f} |" in page


# ---------------------------------------------------------------- its results

ARMS = {  # row of the page -> run of docs/miniature.csv
    "digits, 1-D position embedding": "tier=hour,dataset=digits",
    "digits, 2-D": "tier=hour,dataset=digits,posemb=learned2d",
    "digits, none": "tier=hour,dataset=digits,posemb=none",
    "CIFAR-10 from scratch, `vit`": "tier=hour,dataset=cifar10",
    "CIFAR-10 fine-tuned, `vit`": "tier=hour,dataset=cifar10,method=finetune",
    "CIFAR-10 fine-tuned, `hybrid`": "tier=hour,dataset=cifar10,model=hybrid,method=finetune",
}  # fmt: skip
SIZES = 2_000, 10_000, 48_000
for size in SIZES:
    ARMS |= {f"{size:,} images, `vit`": f"tier=evening,examples={size}",
             f"{size:,} images, `bit`": f"tier=evening,model=bit,examples={size}"}  # fmt: skip


@pytest.fixture(scope="module")
def measured(root):
    """(start of the metric, row of the page) -> percent [2 executions, 8 seeds]."""
    found = defaultdict(dict)
    with (root / "docs" / "miniature.csv").open() as file:
        for row in csv.DictReader(file):
            found[row["metric"].split("/")[0], row["run"]][int(row["seed"])] = float(row["percent"])
    names = {cell: name for name, cell in ARMS.items()}
    assert all(sorted(seeds) == list(range(16)) for seeds in found.values())
    return {
        (metric, names[run]): np.reshape([seeds[i] for i in range(16)], (2, 8))
        for (metric, run), seeds in found.items()
    }


def lines(root):
    """First cell of each table row of the page -> its other cells."""
    page = (root / "docs" / "miniature.md").read_text()
    rows = [line.strip("| ").split(" | ") for line in page.splitlines() if line.startswith("| ")]
    return {first: rest for first, *rest in rows}


def test_means_of_the_page_follow_from_its_seeds(root, measured):
    page = lines(root)
    for name in ARMS:
        expected = [f"{one.mean():.2f} ({one.std(ddof=1):.2f})" for one in measured["test", name]]
        assert page[name][:2] == expected, name


def two_sided(x):
    return stats.ttest_1samp(x, 0).pvalue


def equal(x):
    """Twice the larger p-value of two one-sided tests against 1.5 points."""
    low = stats.ttest_1samp(x, -1.5, alternative="greater").pvalue
    return 2 * max(low, stats.ttest_1samp(x, 1.5, alternative="less").pvalue)


def test_claims_of_the_page_follow_from_its_seeds(root, listed, measured):
    """Means, errors and p-values by numpy and scipy; verdicts by our own rules."""
    top1 = {name: measured["test", name] for name in ARMS}
    one, two, none, scratch, vit, hybrid = [top1[name] for name in list(ARMS)[:6]]
    gaps = [top1[f"{n:,} images, `vit`"] - top1[f"{n:,} images, `bit`"] for n in SIZES]
    slope = np.polyfit(np.log10(SIZES), np.reshape(gaps, (3, 16)), 1)[0].reshape(2, 8)
    seeds = {
        (cell, metric): dict(enumerate(measured[metric.split("/")[0], name].ravel()))
        for name, cell in ARMS.items() for metric in ("test/top1", miniature.EARLY)
    }  # fmt: skip
    verdicts = [found.verdict for found in claims.judge([claims.Claim(**c) for c in listed], seeds)]
    page, numbers = lines(root), (one - none, one - two, vit - scratch, hybrid - vit, slope)
    of_page = list(zip(listed, verdicts, strict=True))[: len(numbers)]
    for (claim, verdict), of_both in zip(of_page, numbers, strict=True):
        start = claim["claim"][:22]  # the page also names margins
        (row,) = [cells for first, cells in page.items() if first.startswith(start)]
        for said, x in zip(row[:2], of_both, strict=True):
            p = equal(x) if claim["test"] == "equal" else two_sided(x)
            assert said.startswith(f"{x.mean():+.2f} ({stats.sem(x):.2f}), {p:.2g}"), start
        assert row[2] == verdict, start


def test_shares_of_the_page_follow_from_its_seeds(root, measured):
    page, shares = lines(root), [key for key in measured if key[0] != "test"]
    assert shares
    for metric, name in shares:
        x = measured[metric, name]
        assert page[name][2] == f"{x.mean():.0f} ({x.std(ddof=1):.0f})", name


# ---------------------------------------------------------------- runs


@pytest.mark.slow
def test_pretraining_and_transfer_run_on_made_images(tmp_path, image_folder, capsys):
    source = f"folder:{image_folder}"
    given = f"cifar100={source},cifar10={source}"
    short = ["--config.length=10 steps", "--config.batch_size=8", "--config.data.examples=0",
             "--config.data.balanced=false"]  # fmt: skip

    def train(name, args, *more):
        words = [f"--config={SPEC}:{given},{args}", f"--workdir={tmp_path / name}"]
        assert main.main(["train", *words, *short, *more]) == 0
        return json.loads((tmp_path / name / "results.json").read_text())

    assert set(train("pre", "model=hybrid")) == {"step", "checkpoint", "val"}
    tuned = "dataset=cifar10,method=finetune,model=hybrid"
    results = train("tuned", tuned, f"--config.init={tmp_path / 'pre'}")
    assert set(results) == {"step", "checkpoint", "val", "test"}
    train("bit", "tier=evening,examples=2000,model=bit")
    capsys.readouterr()
    assert main.main(["table", "miniature", f"--runs={tmp_path}"]) == 0
    assert capsys.readouterr().out.count("length: 10 steps, not") == 3
