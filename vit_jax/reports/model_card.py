# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Writes the model card of a run for a repository of the Hugging Face hub: README.md.

Every number comes from the files of the run. Start from `card`.
"""

import shlex
from collections.abc import Iterator, Mapping, Sequence

from vit_jax import tree
from vit_jax.checkpoints import step_folders
from vit_jax.config import images as images_lib
from vit_jax.config import load as config_lib
from vit_jax.config import provenance, sections
from vit_jax.inference.model import Model
from vit_jax.reports import summary
from vit_jax.storage import jsonl
from vit_jax.weights.loading import Run

FILE = "README.md"


def card(
    run: Run, model: Model, repository: str, *, license_id: str, sha256: str, notes: Sequence[str]
) -> str:
    """Returns the text of the card.

    Args:
      run: the run and the step of the weights.
      model: the model at that step.
      repository: OWNER/NAME.
      license_id: the licence of the weights, as the hub spells it; "": not stated.
      sha256: of the safetensors file.
      notes: facts that the format cannot express.
    """
    config = config_lib.read(str(run.workdir / step_folders.CONFIG_FILE))
    origin = provenance.read(run.workdir)
    parts = [
        _front(model, license_id),
        f"# {repository.rpartition('/')[2]}\n\n{_model(model, config)}",
        _section("Results", _results(run, config)),
        _section("Use", _use(repository, model)),
        _section("Recipe", _recipe(config, origin)),
        _section("Data", _data(config, origin, model)),
        _section("Provenance", "\n".join(_provenance(run, config, origin, sha256, notes))),
        _section("Licence", _licence(license_id)),
    ]
    return "\n\n".join(parts) + "\n"


def _section(title: str, text: str) -> str:
    return f"## {title}\n\n{text}"


def _front(model: Model, license_id: str) -> str:
    task = "image-classification" if model.weights.classes else "image-feature-extraction"
    lines = ["---", "library_name: timm", f"pipeline_tag: {task}"]
    lines += ["tags:", f"- {task}", "- timm", "- transformers", "- vit_jax", "- jax"]
    lines += [f"license: {license_id}"] if license_id else []
    return "\n".join([*lines, "---"])


def _model(model: Model, config: sections.Config) -> str:
    classes = model.weights.classes
    parameters = tree.size(model.params)
    head = f"{classes:,} classes" if classes else "no head"
    return (
        f"{config.model.variant} for images of {images_lib.text(model.size)} pixels, with {head} "
        f"and {parameters:,} parameters, trained with vit_jax."
    )


def _results(run: Run, config: sections.Config) -> str:
    """Returns a table for the splits and one for few-shot tasks, at the step of the weights."""
    names = {*config.evals, *(f"fewshot_{name}" for name, _ in config.fewshot.sources)}
    measured: dict[str, dict[str, float]] = {}
    for row in jsonl.read_rows(run.workdir / jsonl.METRICS_FILE, run.step):
        for key, value in row.items() if row["step"] == run.step else ():
            split, _, metric = key.rpartition("/")
            if split in names:
                measured.setdefault(split, {})[metric] = value
    if not measured:
        return f"The run has no evaluation at step {run.step:,}."
    return f"At step {run.step:,}:\n\n" + "\n\n".join(
        _table(header, rows) for header, rows in summary.tables(measured)
    )


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _use(repository: str, model: Model) -> str:
    auto = "AutoModelForImageClassification" if model.weights.classes else "AutoModel"
    return (
        "```python\n"
        f'import vit_jax\nmodel, params, preprocess = vit_jax.load("hf:{repository}")\n'
        'logits = model.apply({"params": params}, preprocess("image.jpg"), train=False)\n```\n\n'
        "```python\n"
        f'import timm\nmodel = timm.create_model("hf-hub:{repository}", pretrained=True).eval()\n'
        "```\n\n```python\n"
        f"from transformers import {auto}  # needs timm too\n"
        f'model = {auto}.from_pretrained("{repository}")\n```'
    )


def _recipe(config: sections.Config, origin: provenance.Origin) -> str:
    settings = f"<details><summary>All settings</summary>\n\n```yaml\n{config_lib.to_yaml(config)}"
    settings += "```\n\n</details>"
    if origin.recipe is None:
        return settings
    words = ["vit_jax", "train", f"--config={origin.recipe.config}", "--workdir=WORKDIR"]
    command = shlex.join([*words, *origin.recipe.overrides])
    return f"```bash\n{command}\n```\n\n{settings}"


def _data(config: sections.Config, origin: provenance.Origin, model: Model) -> str:
    lines = [f"- source: `{config.data.source}`, split `{config.data.split}`"]
    lines += [f"- training examples: {origin.examples}"] if origin.examples else []
    lines.append(f"- training images: `{config.data.train_ops}`")
    lines.append(f"- evaluation images: `{config.data.eval_ops}`")
    if model.names:
        shown = ", ".join(model.names[:10]) + (", ..." if len(model.names) > 10 else "")
        lines.append(f"- {len(model.names):,} classes, in config.json: {shown}")
    return "\n".join(lines)


def _provenance(
    run: Run, config: sections.Config, origin: provenance.Origin, sha256: str, notes: Sequence[str]
) -> Iterator[str]:
    yield f"- weights: step {run.step:,}, model.safetensors with SHA-256 `{sha256}`"
    began: Mapping[str, str] = {
        "commit": origin.init_revision,
        "SHA-256": origin.init_sha256,
        "published as": origin.init_published,
    }
    facts = "".join(f", {name} `{value}`" for name, value in began.items() if value)
    yield f"- start: {f'`{config.init}`{facts}' if config.init else 'from scratch'}"
    yield f"- seed: {config.seed}"
    if origin.devices:
        yield f"- hardware: {origin.devices}"
    if origin.versions:
        yield f"- versions: {', '.join(f'{n} {v}' for n, v in origin.versions.items())}"
    for note in notes:
        yield f"- note: {note}"


def _licence(license_id: str) -> str:
    if license_id:
        return f"The weights are licensed under `{license_id}`."
    return "The owner has not stated a licence for these weights; ask before you use them."
