# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Makes the objective that a configuration names: one of this package, or a user's own.

Start from `make`.
"""

import dataclasses
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp

from vit_jax.config import frozen, plugins, sections
from vit_jax.config import images as images_lib
from vit_jax.config.load import flatten
from vit_jax.data.example import FIELDS, GRID, SPATIAL
from vit_jax.data.ops import chain as preprocess
from vit_jax.data.splits.split import Split
from vit_jax.data.tasks.test_sets import Evaluation
from vit_jax.errors import BadInput, unknown
from vit_jax.models import variants
from vit_jax.step.objective import Objective

if TYPE_CHECKING:
    from vit_jax.data.texts import Texts

# Name in `objective` -> class. `auto` stands for the three that have sections of their own.
OBJECTIVES = {
    "contrastive": "vit_jax.step.contrastive:Contrastive",
    "detection": "vit_jax.step.detection:Detection",
    "dino": "vit_jax.step.dino:Dino",
    "mae": "vit_jax.step.mae:MAE",
    "segmentation": "vit_jax.step.segmentation:Segmentation",
    "siglip": "vit_jax.step.siglip:Siglip",
}
# Every objective uses some of them, or none.
_SECTIONS = ("distillation", "loss", "masked", "mixup")
_HEAD = ("model.representation", "model.head_bias")  # keys of the head on classes


def make(config: sections.Config, cfg: variants.Config) -> Objective:
    """Returns the objective of a configuration, for a model with a head on classes.

    Raises:
      BadInput: the objective does not exist or does not fit the model, a value cannot be used, or a
        key is set that has no use with it.
    """
    objective = _auto(config, cfg) if config.objective == "auto" else _named(config.objective)
    objective = objective.for_classes(cfg.classes)
    if config.objective != "auto" or not objective.LABELLED:
        _check_unused(config, objective)
    dropped = getattr(cfg, "patch_dropout", 0.0)
    if dropped and not getattr(objective.model(cfg), "patch_dropout", 0.0):
        raise BadInput(
            f"model.patch_dropout={dropped}: objective={config.objective} needs every patch; leave "
            "model.patch_dropout out."
        )
    if config.fewshot.method == "zero_shot" and objective.texts is None:
        raise BadInput(
            f"fewshot.method=zero_shot needs a text tower, and objective={config.objective} has "
            "none; give ridge or knn."
        )
    if objective.AVERAGE and not config.ema.decay:
        raise BadInput(
            f"objective={config.objective} learns from the average of the parameters, its teacher; "
            "give ema.decay, e.g. --config.ema.decay=0.996 --config.ema.final=1."
        )
    return objective


def _auto(config: sections.Config, cfg: variants.Config) -> Objective:
    if config.masked.target != "none":
        from vit_jax.step import masked_patches

        if config.data.channels != 3:
            raise BadInput(
                f"masked.target={config.masked.target} predicts colours of RGB images, and "
                f"data.channels={config.data.channels}; leave masked.target out."
            )
        masked, size = config.masked, images_lib.of(config.data).size
        variant = config.model.variant
        return masked_patches.make(cfg, variant, *size, target=masked.target, rate=masked.rate)
    from vit_jax.step.classification import Classification

    learned: dict[str, Any] = {
        "classes": cfg.classes,
        "loss": config.loss.name,
        "label_smoothing": config.loss.label_smoothing,
        "mixup": config.mixup.alpha,
        "cutmix": config.mixup.cutmix,
    }
    taught = frozen.arguments(config.distillation)
    teacher, settings = taught.pop("teacher"), taught.pop("teacher_settings")
    if teacher:
        from vit_jax.build import read_models
        from vit_jax.step.distillation import Distillation

        images = images_lib.of(config.data)
        model = read_models.describe("distillation.teacher", teacher, images, settings)
        return Distillation(**learned, **taught, teacher=model, token=cfg.two_heads)
    if config.distillation != sections.Distillation():
        raise BadInput(
            "distillation.kind, temperature, share and view have no use without a teacher; give "
            "--config.distillation.teacher=FILE_OR_RUN, or leave them out."
        )
    return Classification(**learned)


def _named(text: str) -> Objective:
    """Returns `NAME(key=value)` of this package, or a user's `MODULE:NAME(key=value)`."""
    name, bracket, arguments = text.partition("(")
    place = name
    if not plugins.is_own(name):
        if name not in OBJECTIVES:
            options = ["auto", *(f"{known}(...)" for known in OBJECTIVES), plugins.USAGE]
            raise unknown("objective", text, options)
        place = OBJECTIVES[name]
    plugin = plugins.find(f"objective={text!r}", f"{place}{bracket}{arguments}")
    try:
        objective = plugin()
    except (TypeError, ValueError) as e:
        raise BadInput(f"objective={text!r}: {e}") from e
    if not isinstance(objective, Objective):
        raise BadInput(
            f"objective={text!r} gave {type(objective).__name__}, expected an object of a subclass "
            "of vit_jax.step.objective.Objective; see docs/extending_objective.md."
        )
    return objective


def _check_unused(config: sections.Config, objective: Objective) -> None:
    """Raises BadInput for a key that has no use with this objective."""
    name = config.objective
    if name == "auto":
        name = f"masked.target={config.masked.target}"
    unused = [section for section in _SECTIONS if section not in objective.SECTIONS]
    for key, value in flatten(config):
        declared = sections.find(key)
        mine = key.partition(".")[0] not in unused and (objective.LABELLED or key not in _HEAD)
        if mine or declared is None or value == declared.default:
            continue
        raise BadInput(
            f"{key}={value!r} has no use with {name}, which has its own loss and head; "
            "leave it out."
        )
    for evaluation, section in config.evals.items():
        if "{corruption}" in section.source and not objective.LABELLED:
            raise BadInput(
                f"evals.{evaluation}.source={section.source!r} measures errors of classes, but "
                f"{name} learns none; leave it out."
            )
        if section.classes != "all" and not objective.LABELLED:
            raise BadInput(
                f"evals.{evaluation}.classes={section.classes!r} chooses among classes, but {name} "
                "learns none; leave it out."
            )
        if section.evaluator and not hasattr(objective, "scores"):
            raise BadInput(
                f"evals.{evaluation}.evaluator={section.evaluator!r} measures classes, but {name} "
                "learns none; leave it out."
            )


def check_views(config: sections.Config, objective: Objective) -> None:
    """Raises BadInput unless training batches hold just the images that the objective takes."""
    images = images_lib.of(config.data)
    size, channels = images.size, images.channels
    made = {"image": images.shape}
    if views := preprocess.parse_views("data.views", config.data.views, size, channels):
        made = {
            view.name: (*([view.count] if view.count else []), *view.size(size), channels)
            for view in views
        }
    needed = {name: field.shape for name, field in objective.batch(*images.shape).items()}
    spatial = spatial_fields(objective, images)
    own = {*spatial, *(["tokens"] if objective.texts else [])}
    needed = {name: shape for name, shape in needed.items() if name not in own}
    _check_spatial(config.objective, spatial, images.size if "image" in needed else None)
    if made != needed:
        several = [name for name, shape in needed.items() if len(shape) > 3]
        advice = "leave data.views empty and set data.train_ops"
        if needed.keys() != {"image"}:
            text = " ; ".join(
                f"{name}{f'*{needed[name][0]}' if name in several else ''}: {config.data.train_ops}"
                for name in needed
            )
            advice = f"give --config.data.views='{text}'"
        raise BadInput(
            f"data.views={config.data.views!r} makes {_listed(made)} of an image, but "
            f"objective={config.objective} takes {_listed(needed)}; {advice}."
        )


def _check_spatial(
    objective: str,
    spatial: Mapping[str, jax.ShapeDtypeStruct],
    size: tuple[int, int] | None,
) -> None:
    """Raises BadInput for fields beside the images that no example can have.

    Args:
      objective: the objective's name, for messages.
      spatial: from `spatial_fields`.
      size: rows and columns of the view `image`; None if it takes no such view.
    """
    most = spatial["boxes"].shape[0] if "boxes" in spatial else 0
    possible = {"mask": size, "boxes": (most, 4), "box_classes": (most,)}
    for name, field in spatial.items():
        dtype = FIELDS[name].dtype
        if size is None:
            expected = "an image beside it, whose pixels it belongs to"
        elif field.shape != possible[name] or field.dtype.name != dtype or 0 in field.shape:
            axes = {"boxes": "[M, 4], M from 1 on", "box_classes": "[M], as many as its boxes"}
            expected = f"{dtype} {axes.get(name, list(size))}"
        else:
            continue
        raise BadInput(
            f"objective={objective} takes {name} {field.dtype.name} {list(field.shape)}, expected "
            f"{expected}; correct its method batch."
        )


def spatial_fields(
    objective: Objective, images: images_lib.Images
) -> dict[str, jax.ShapeDtypeStruct]:
    """Returns what an objective takes of an example besides images: its mask and boxes."""
    batch = objective.batch(*images.shape)
    return {name: batch[name] for name in SPATIAL if name in batch}


def spatial_names(config: sections.Config) -> tuple[str, ...]:
    """Returns the names of `spatial_fields` without a model; those that are trained on."""
    if config.objective == "auto":  # classes of images, or patches
        return ()
    return tuple(spatial_fields(_named(config.objective), images_lib.of(config.data)))


def host_fields(objective: Objective, data: sections.Data) -> dict[str, jax.ShapeDtypeStruct]:
    """Returns what an objective takes of an example as the host makes it, before `device_ops`."""
    images = images_lib.of(data)
    fields = dict(objective.batch(*images.shape))
    ops = preprocess.parse("data.train_ops", data.train_ops, images.size, images.channels)
    if preprocess.adds_grid(ops[-1]) and not data.views:
        fields[GRID] = jax.ShapeDtypeStruct((2,), jnp.int32)
    if data.device_ops:
        from vit_jax.build import device_ops

        fields["image"] = jax.ShapeDtypeStruct(device_ops.host_shape(data), fields["image"].dtype)
    return fields


@dataclasses.dataclass(frozen=True)
class Fields:
    """What an objective takes of an example.

    Attributes:
      spatial: its mask and boxes, from `spatial_fields`.
      tokens: how its text becomes tokens; None without.
    """

    spatial: Mapping[str, jax.ShapeDtypeStruct]
    tokens: "Texts | None"

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the fields to read."""
        text = ["text"] if self.tokens and self.tokens.field == "text" else []
        return ("image", "labels", *self.spatial, *text)

    @property
    def most_boxes(self) -> int:
        """The number of boxes of every example after filling up; 0 without boxes."""
        return self.spatial["boxes"].shape[0] if "boxes" in self.spatial else 0

    def texts(self, *, drawn: bool) -> "Texts | None":
        """Returns how texts become tokens, if they do; `drawn`: in training."""
        return self.tokens and dataclasses.replace(self.tokens, drawn=drawn)


def check_boxes(text: str, wanted: Fields, split: Split) -> None:
    """Raises BadInput if an image of the source has more boxes than the objective takes.

    Args:
      text: config.objective.
      wanted: what the objective takes of an example.
      split: any split of the source.
    """
    name, most = split.table.most_boxes
    if not 0 < wanted.most_boxes < most:
        return
    remedy = f"let the method batch of {text} give boxes [{most}, 4]"
    if text.partition("(")[0] == "detection":
        arguments = re.sub(
            r"\bmost\s*=\s*\d+\s*,?", "", text.partition("(")[2].strip().removesuffix(")")
        )
        joined = ",".join(filter(None, [arguments.strip(", "), f"most={most}"]))
        remedy = f"write --config.objective='detection({joined})'"
    raise BadInput(
        f"the image {name} has {most} boxes, and the objective takes {wanted.most_boxes}; {remedy}."
    )


def fields(objective: Objective, images: images_lib.Images, classes: Sequence[str]) -> Fields:
    """Returns what an objective takes of an example; `classes` are the names of those of the data.

    Raises:
      BadInput: texts cannot become tokens; the message says why.
    """
    texts = objective.texts
    if texts is not None:
        texts = dataclasses.replace(texts, names=tuple(classes))
        texts.check()
    return Fields(spatial_fields(objective, images), texts)


def check_classes(config: sections.Config, objective: Objective, classes: int) -> None:
    """Raises BadInput for data with fewer classes than the objective needs to learn from."""
    templates = objective.texts is not None and objective.texts.templates
    one = classes == 1 and objective.LABELLED and config.loss.name == "softmax"
    if one or (not classes and (objective.LABELLED or templates)):
        what = "makes texts of the names of classes" if templates else "learns classes"
        raise BadInput(
            f"data.source={config.data.source!r} has {'one class' if one else 'no labels'}, and "
            f"objective={config.objective} {what}; add labels, e.g. by a folder for each class, or "
            "choose another objective."
        )


def check_evaluations(objective: Objective, evaluations: Mapping[str, Evaluation]) -> None:
    """Raises BadInput for an evaluation without the classes that the objective learns.

    Texts that are made of the names of classes are of those of the training data.
    """
    made = objective.texts is not None and objective.texts.templates
    for name, one in evaluations.items():
        if objective.LABELLED and not one.labelled:
            raise BadInput(
                f"evals.{name}: its images have no labels; give others, or leave it out."
            )
        if made and one.columns is not None:
            raise BadInput(
                f"evals.{name}: each class of its images stands for several of the training data, "
                "whose names texts are made of; leave it out, or measure it with vit_jax evaluate."
            )


def _listed(shapes: Mapping[str, tuple[int, ...]]) -> str:
    return ", ".join(f"{name} {list(shape)}" for name, shape in shapes.items())
