# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Defines the objective of a run: what it learns, from which batch, and how that is measured.

The trainer, the plan and the reports ask the objective and never which one it is. Everything about
one objective is in its own file: classification.py, masked_patches.py, contrastive.py, dino.py. A
user's own is named in the same way, see docs/extending_objective.md. Start from `Objective`.

Axes: B batch, H W C image, D representation.
"""

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Self

import jax
import jax.numpy as jnp

from vit_jax.errors import BadInput
from vit_jax.sharding import Axes, Rules
from vit_jax.step import metrics
from vit_jax.step.state import normalise, with_grids

if TYPE_CHECKING:
    from vit_jax.data.texts import Texts
    from vit_jax.step.packing import Packing

PyTree = Any
Batch = dict[str, Any]  # fields [B, ...]; `labels` int32 [B, K], `_mask` bool [B] are always there
Sums = dict[str, jax.Array]
PARAMETERS = "objective"  # name of an objective's own parameters, beside those of the model


@dataclasses.dataclass(frozen=True)
class Network:
    """The model of a run, as an objective calls it.

    Attributes:
      apply: (params, images float32 [B, H, W, C], train=, key=) -> float32 output of the model, or
        its feature maps. It ignores the objective's own parameters. `key` drives dropout.
      mean: mean of each channel, see `normalise`.
      std: standard deviation of each channel.
      others: the models that the objective reads, see `Objective.reads`.
      rules: mesh and placement; None without a mesh.
      packing: how a training step packs images, for an objective that `PACKS`; None: not.
    """

    apply: Callable[..., Any]
    mean: tuple[float, ...]
    std: tuple[float, ...]
    others: "Mapping[str, Network]" = dataclasses.field(default_factory=dict)
    rules: Rules | None = None
    packing: "Packing | None" = None

    def normalise(self, images_BHWC: jax.Array) -> jax.Array:
        """Maps uint8 pixels to the float32 input of the model."""
        return normalise(images_BHWC, self.mean, self.std)

    def input_of(self, batch: Batch) -> Any:
        """Returns the input of the model: images, or a `naflex.Canvas` for those with grids."""
        return with_grids(self.normalise(batch["image"]), batch)


@dataclasses.dataclass(frozen=True, eq=False)
class ReadModel:
    """A model that an objective reads and never trains, such as a teacher.

    Attributes:
      name: FILE_OR_RUN, for messages.
      cfg: its configuration.
      mean: mean of each channel, see `normalise`.
      std: standard deviation of each channel.
      shapes: its parameters as shapes.
      load: returns its parameters.
      classes: names of its classes by label; () if unknown.
    """

    name: str
    cfg: Any
    mean: tuple[float, ...]
    std: tuple[float, ...]
    shapes: PyTree
    load: Callable[[], PyTree]
    classes: tuple[str, ...] = ()


class Objective:
    """Base class of every objective, which is a frozen dataclass of its settings.

    A subclass must have `sums` and `eval_sums`. All arrays that they see belong to the global
    batch, whatever the mesh, so a loss may compare any two examples.

    Attributes:
      METRICS: names of the training metrics that `sums` returns, `loss` first. A run writes them as
        `train/NAME`.
      EVALUATED: names of the metrics of an evaluation, as in `eval_sums`, without `examples`. A
        metric is best when it is highest, unless its name ends in `loss` or `error`.
      LABELLED: whether it learns the classes of the data.
      SECTIONS: sections of the configuration that only some objectives use, and this one does.
      AXES: parameter path pattern -> logical axes, of the objective's own parameters.
      SHOWN: names of `METRICS` that the progress line shows beside the loss.
      ANY_SHAPE: whether it takes images of any aspect ratio, see `Network.input_of`.
      PACKS: whether its sums add up image by image, so that images of a batch may be learned in
        turns, see `packing`.
      AVERAGE: whether it learns from the average of the parameters, its teacher. Then `ema.decay`
        must be set, and in training `kept` has the average as `average`.
    """

    METRICS: ClassVar[tuple[str, ...]] = ("loss",)
    EVALUATED: ClassVar[tuple[str, ...]] = ("loss",)
    LABELLED: ClassVar[bool] = False
    SECTIONS: ClassVar[tuple[str, ...]] = ()
    AXES: ClassVar[Axes] = {}
    SHOWN: ClassVar[tuple[str, ...]] = ()
    ANY_SHAPE: ClassVar[bool] = False
    PACKS: ClassVar[bool] = False
    AVERAGE: ClassVar[bool] = False

    # ------------------------------------------------------------ before the run

    def for_classes(self, classes: int) -> Self:
        """Returns the objective for data with that many classes, e.g. of pixels or boxes.

        A field `classes` takes the number if its default is 0.

        Raises:
          BadInput: the field has another number.
        """
        if getattr(type(self), "classes", None) != 0:
            return self
        stated = vars(self)["classes"]
        if stated not in (0, classes):
            raise BadInput(
                f"{type(self).__name__.lower()}(classes={stated}): the data has {classes} classes; "
                "leave the argument out."
            )
        return dataclasses.replace(self, classes=classes)  # type: ignore[type-var]

    def model(self, cfg: Any) -> Any:
        """Returns the configuration of the model to train, made from that of `model`."""
        return cfg.for_images(0)

    def in_run(self, cfg: Any, in_steps: Callable[[str], int]) -> Self:
        """Returns the objective with what it must know of its run.

        Args:
          cfg: the configuration of the model, from `model`.
          in_steps: maps a duration such as "10 percent" to steps.
        """
        return self

    def computed(self, cfg: Any) -> Self:
        """Returns the objective with the model in the form that the devices compute."""
        return self

    def batch(self, height: int, width: int, channels: int) -> dict[str, jax.ShapeDtypeStruct]:
        """Returns shape and dtype of an example's fields, besides `labels` and `_mask`.

        `mask`, `boxes` and `box_classes` come from the source and move with the view `image`. The
        shape of boxes, [M, 4], says how many there are at most. `tokens` come from `texts`. Every
        other field is a view.
        """
        return {"image": jax.ShapeDtypeStruct((height, width, channels), jnp.uint8)}

    def step_flops(self, cfg: Any, height: int, width: int) -> int:
        """Returns the FLOPs of an example in a training step: 3 times a forward pass."""
        return 3 * cfg.training_flops(height, width)

    def own_flops(self, cfg: Any, height: int, width: int) -> int:
        """Returns which of these FLOPs belong to `parameters`, which are always trained."""
        return 0

    @property
    def texts(self) -> "Texts | None":
        """Returns how the text of an example becomes its field `tokens`; None without tokens."""
        return None

    def parameters(self, key: jax.Array, output: Any) -> PyTree:
        """Returns parameters to train beside those of the model, e.g. of a projection head.

        They are lost when the model is fine-tuned.

        Args:
          key: typed key.
          output: shape of the model's output, [1, D]; of feature maps, a tuple of shapes.

        Returns:
          A nested dict; empty without parameters. The step sees it as `params["objective"]`.
        """
        return {}

    @property
    def reads(self) -> dict[str, ReadModel]:
        """Returns the models that it reads, which are fields of the objective, by name."""
        fields = getattr(self, "__dataclass_fields__", {})
        values = {name: getattr(self, name) for name in fields}
        return {name: value for name, value in values.items() if isinstance(value, ReadModel)}

    def inherits(self, path: str) -> bool:
        """Returns True for a parameter of pre-training that the weights of `init` must have.

        Such are the objective's own, and those of the model that only pre-training needs.
        """
        return False

    def kept(self, params: PyTree) -> PyTree:
        """Returns what the train state keeps beside parameters, e.g. a teacher; None for nothing.

        The parameters of the models that it reads are there too, under their names. They are zeros
        here; a run puts them in place when it starts.

        An array under the path of a parameter is placed like the parameter, every other array is
        whole on every device. All are saved, and restored, with the run.
        """
        read = {
            name: jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), model.shapes)
            for name, model in self.reads.items()
        }
        return read or None

    def seen(self, kept: PyTree, average: Callable[[], PyTree]) -> PyTree:
        """Returns `kept` as a training step sees it: with the average of parameters, if wanted."""
        return {**(kept or {}), "average": average()} if self.AVERAGE else kept

    # ------------------------------------------------------------ a training step

    def draw(self, batch: Batch, key: jax.Array) -> tuple[Batch, PyTree]:
        """Returns the global batch with what is drawn for each example, and what is drawn for all.

        The draws depend on neither the mesh nor the accumulation.
        """
        return batch, None

    def relate(
        self,
        network: Network,
        params: PyTree,
        kept: PyTree,
        batch: Batch,
        keys: jax.Array,
    ) -> Batch:
        """Returns the batch with what its micro-batches must know of each other.

        A loss that compares examples of different micro-batches needs it. It is called only with
        accumulation.

        Args:
          network: the model.
          params: the parameters of the state.
          kept: what `kept` returned, after the updates so far.
          batch: the micro-batches, [A, B/A, ...]; this method returns the same form.
          keys: the keys with which `sums` will see each micro-batch, [A].
        """
        return batch

    def sums(
        self,
        network: Network,
        params: PyTree,
        kept: PyTree,
        batch: Batch,
        drawn: PyTree,
        key: jax.Array,
    ) -> Sums:
        """Returns sums over the real examples of a micro-batch.

        Args:
          network: the model.
          params: parameters; the gradient of `loss` by them makes the update.
          kept: what `kept` returned, after the updates so far.
          batch: the micro-batch, from `draw`.
          drawn: what `draw` drew for all examples.
          key: typed key of the micro-batch.

        Returns:
          float32 [] for every name of `METRICS`. Further float32 arrays of any shape are summed
          over micro-batches and passed to `measured` and `after_update`.
        """
        raise NotImplementedError

    def measured(self, sums: Sums, count: jax.Array) -> Sums:
        """Returns the metrics of a step, float32 []: the means of the sums in `METRICS`.

        A metric that is not a mean over examples is made here, from further sums.

        Args:
          sums: from `sums`, over the whole batch.
          count: float32 [], real examples of the batch.
        """
        return {name: sums[name] / count for name in self.METRICS}

    def after_update(self, kept: PyTree, params: PyTree, sums: Sums, step: jax.Array) -> PyTree:
        """Returns what the state keeps after an update, e.g. the moved average of a teacher.

        Args:
          kept: what the state kept before it; with `AVERAGE` also the average after it.
          params: the parameters after the update.
          sums: from `sums`, over the whole batch.
          step: int32 [], updates done before this one.
        """
        return kept

    # ------------------------------------------------------------ evaluation

    def eval_sums(self, network: Network, params: PyTree, kept: PyTree, batch: Batch) -> Sums:
        """Returns sums over the real examples of a batch: `EVALUATED`, and `examples`, int32 [].

        `params` may be the average of the parameters. With a `total` of its own, an objective may
        return any sums, such as a confusion matrix.
        """
        raise NotImplementedError

    def exported(self, network: Network, params: PyTree, images: jax.Array) -> dict[str, jax.Array]:
        """Returns what an exported model computes of images, where that is not the model's output.

        Args:
          network: the model.
          params: parameters of the model and the objective.
          images: uint8 [B, H, W, C]; B may be free.

        Returns:
          Arrays [B, ...] by name. Whole numbers, such as classes, follow from float outputs.

        Raises:
          BadInput: the objective has no such outputs.
        """
        raise BadInput(f"an export of what {type(self).__name__} predicts is not built.")

    def total(self, batches: Iterable[Mapping[str, Any]]) -> dict[str, float | int]:
        """Returns `EVALUATED`, and `examples`, of all batches together.

        Args:
          batches: the result of `eval_sums` for each batch, on the host.
        """
        return metrics.total(batches)

    def check_numbers(self, limits: Mapping[str, tuple[float, float]]) -> None:
        """Raises ValueError for an argument of another type than its default, or out of its range.

        Args:
          limits: name of an argument -> its lowest and highest value.
        """
        for name, (low, high) in limits.items():
            value, kind = getattr(self, name), type(getattr(type(self), name))
            if type(value) not in (int, kind) or not low <= value <= high:
                word = "a whole number" if kind is int else "a number"
                raise ValueError(f"{name}={value!r}; give {word} from {low} to {high}.")

    def check_choices(self, choices: Mapping[str, Iterable[str]]) -> None:
        """Raises ValueError for an argument that is not one of its options, by name."""
        for name, options in choices.items():
            if getattr(self, name) not in options:
                raise ValueError(f"{name}={getattr(self, name)!r}; give {' or '.join(options)}.")
