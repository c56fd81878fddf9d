# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""The compiled step and the state of a configuration, for a dataset of a known size.

Train, plan and bench share this module. It opens no data, and the devices may be mere descriptions.
Start from `make`.
"""

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp

from vit_jax import sharding, tree
from vit_jax.build import execution, objectives, optimization, placement
from vit_jax.config import images as images_lib
from vit_jax.config import load as config_lib
from vit_jax.config import sections, timeline, trainable
from vit_jax.models import variants
from vit_jax.optim import optimizers, schedules
from vit_jax.runtime import compile_ahead, recovery
from vit_jax.step import state, train_step
from vit_jax.step.objective import PARAMETERS, Batch, Network, Objective, ReadModel

if TYPE_CHECKING:
    from vit_jax.evaluators import custom, features
    from vit_jax.models import partial
    from vit_jax.step.packing import Packing
    from vit_jax.weights.fitting import Fitted


_BESIDE = 2**31 + 1  # number of the matrices of `trainable` in the key of initialisation
_OWN = 2**31  # number of the objective's parameters in the key of initialisation


@dataclasses.dataclass(frozen=True)
class Program:
    """The computation that a configuration describes, independent of the images."""

    config: sections.Config
    classes: int
    examples: int
    labels: int  # K, the largest number of labels of an image
    steps: timeline.Steps
    objective: Objective
    model: variants.Model
    execution: str  # how the devices compute the model, and why
    rules: sharding.Rules
    schedule: schedules.Schedule
    abstract: state.TrainState  # shapes with shardings
    create: Any  # jitted: key -> state
    init_params: Callable[[jax.Array], Any]  # key -> parameters
    begin: Callable[[Any], state.TrainState]  # parameters -> state
    selection: "partial.Selection | None"  # of what is trained; None: every parameter
    whole_params: Any  # parameters of the model, and beside them, as shapes with shardings
    step: Any  # jitted: (state, batch, key) -> (state, metrics)
    eval_step: Any  # jitted: (params, batch, kept=None) -> sums
    scores_step: Any  # jitted: like eval_step, with `scores`
    # `create` and `step`, if another thread compiles them.
    compiling: dict[str, Future[Any]] = dataclasses.field(default_factory=dict)

    @functools.cached_property
    def images(self) -> images_lib.Images:
        """The images that the model receives."""
        return images_lib.of(self.config.data)

    @functools.cached_property
    def step_key(self) -> jax.Array:
        """The key of dropout; every step folds its own number in."""
        return _keys(self.config.seed, self.rules)[1]

    @functools.cached_property
    def features_step(self) -> "features.Step":
        """The jitted function (params, batch) -> representations; compiled once for all sources."""
        from vit_jax.evaluators import features

        images = self.images
        return features.make_step(self.model.cfg, self.rules, mean=images.mean, std=images.std)

    def evaluator(self, name: str) -> "tuple[Any, custom.Evaluator | None]":
        """Returns the step of a named evaluation, and the user's own evaluator if it has one."""
        text, best = self.config.evals[name].evaluator, self.config.checkpoint.keep_best
        if not text:
            return self.eval_step, None
        from vit_jax.evaluators import custom

        return self.scores_step, custom.find(name, text, best)

    @property
    def batch_sharding(self) -> jax.sharding.NamedSharding:
        """The placement of the first axis of a batch on the devices."""
        return self.rules.sharding(("act_batch",), (self.config.batch_size,), "batch")

    def batch(self) -> dict[str, jax.ShapeDtypeStruct]:
        """Returns the shapes of a global batch."""
        own = objectives.host_fields(self.objective, self.config.data)
        labels = jax.ShapeDtypeStruct((self.labels,), jnp.int32)
        real = jax.ShapeDtypeStruct((), jnp.bool_)
        fields = own | {"labels": labels, "_mask": real}
        size, over = self.config.batch_size, self.batch_sharding
        return {
            name: jax.ShapeDtypeStruct((size, *field.shape), field.dtype, sharding=over)
            for name, field in fields.items()
        }

    @property
    def passes(self) -> int:
        """How often a step computes gradients: twice with SAM."""
        return 2 if self.config.optimizer.sam.rho else 1

    @property
    def step_flops(self) -> int:
        """The FLOPs of one example in a training step, without recomputation."""
        cfg, passes = self.model.cfg, self.passes
        pack = self.config.pack
        flops = passes * execution.step_flops(self.objective, cfg, self.images, pack)
        if self.selection is None:
            return flops
        own = passes * self.objective.own_flops(cfg, *self.images.size)
        share = self.selection.gradient_share(tree.depth(self.whole_params))
        return round((flops - own) * share) + own

    def lower_step(self) -> jax.stages.Lowered:
        """Lowers the train step, for compilation ahead of time."""
        return self.step.lower(self.abstract, self.batch(), _key_shape(self.rules.replicated))

    def start_compiling(
        self, name: str, submit: Callable[[Callable[[], Any]], Future[Any]]
    ) -> None:
        """Starts to compile `create` or `step` in another thread; `compiled` then waits for it.

        Tracing happens here, where jax has the settings of the caller.
        """
        self.compiling[name] = submit(functools.partial(_compiled, self._lower(name)))

    def compiled(self, name: str) -> jax.stages.Compiled:
        """Returns `create` or `step`, compiled."""
        recovery.passed("program")
        compiling = self.compiling.get(name)
        compiled = compiling.result() if compiling else _compiled(self._lower(name))
        recovery.passed("compile")
        return compiled

    def _lower(self, name: str) -> jax.stages.Lowered:
        if name == "step":
            return self.lower_step()
        return self.create.lower(_key_shape(self.rules.replicated))

    def init(self) -> state.TrainState:
        """Makes a state from scratch, in place on the devices."""
        created = self.compiled("create")(_keys(self.config.seed, self.rules)[0])
        return self._filled(created)

    def init_from(self, fitted: "Fitted") -> state.TrainState:
        """Makes a state from weights, in place on the devices; missing parameters start anew."""
        places, of_params = jax.tree.map(lambda x: x.sharding, (self.abstract, self.whole_params))
        key = _keys(self.config.seed, self.rules)[0]
        fresh = jax.jit(self.init_params, out_shardings=of_params)(key)
        taken = {path: leaf for path, leaf in tree.leaves_with_paths(fitted.params)}
        chosen = tree.map_with_path(
            lambda path, leaf: jax.device_put(taken.get(path, leaf), leaf.sharding), fresh
        )
        created = jax.jit(self.begin, out_shardings=places)(chosen)
        return self._filled(created)

    def _filled(self, created: state.TrainState) -> state.TrainState:
        """Returns a new state with the parameters of the models that the objective reads."""
        if not self.objective.reads:
            return created
        from vit_jax.build import read_models

        return read_models.filled(created, self.objective.reads)

    def with_base(self, restored: state.TrainState, fitted: "Fitted | None") -> state.TrainState:
        """Returns a restored state with the base from the weights that training began with."""
        if self.selection is None or fitted is None:
            return restored
        base = self.selection.base(fitted.params)
        placed = jax.tree.map(lambda x, leaf: jax.device_put(x, leaf.sharding), base,
                              self.abstract.base)  # fmt: skip
        return dataclasses.replace(restored, base=placed)

    def whole(self, params: Any, base: Any) -> Any:
        """Returns what the model is applied with: what is trained (or its average), and base."""
        return params if self.selection is None else self._joined(params, base)

    @functools.cached_property
    def _joined(self) -> Any:
        assert self.selection is not None
        return jax.jit(self.selection.whole)

    def changed(self, settings: Mapping[str, Any]) -> "Program":
        """Makes the same program with other values: config key -> value."""
        config = config_lib.changed(self.config, settings)
        devices = list(self.rules.mesh.devices.flat)
        classes, examples, labels = self.classes, self.examples, self.labels
        return make(config, classes=classes, examples=examples, labels=labels, devices=devices)


def _compiled(lowered: jax.stages.Lowered) -> jax.stages.Compiled:
    if jax.process_index() == 0:
        return compile_ahead.compiled(lowered)
    from vit_jax.runtime import kept_programs  # of the other processes

    return kept_programs.compiled(lowered)


def _key_shape(sharding: jax.sharding.Sharding | None = None) -> jax.ShapeDtypeStruct:
    key = jax.eval_shape(lambda: jax.random.key(0))
    return jax.ShapeDtypeStruct(key.shape, key.dtype, sharding=sharding)


def _keys(seed: int, rules: sharding.Rules) -> tuple[jax.Array, jax.Array]:
    """Makes the keys (for initialisation, for the steps), on every device."""
    # Made in place, because device_put reaches only the devices of this process.
    split = jax.jit(jax.random.split, out_shardings=rules.replicated)
    first, second = split(jax.random.key(seed))
    return first, second


def make(
    config: sections.Config,
    *,
    classes: int,
    examples: int,
    labels: int = 1,
    devices: Sequence[Any] | None = None,
    platform: str = "",
) -> Program:
    """Builds the program of a settled, checked configuration; compiles and allocates nothing.

    Args:
      config: the configuration.
      classes: classes of the dataset.
      examples: examples in the training split.
      labels: K, the largest number of labels of an image.
      devices: devices to run on (default: all), or descriptions of devices.
      platform: the platform that the devices stand in for, if it is another.

    Raises:
      BadInput: the mesh or a combination of values cannot be used.
    """
    rules = placement.make_rules(config, devices)
    platform = platform or rules.mesh.devices.flat[0].platform
    cfg, steps = variants.of(config.model, classes), timeline.steps_of(config, examples)
    objective = _objective(config, cfg, examples, steps, rules, platform)
    chosen, objective = execution.of_run(config, objective, cfg, rules, steps, platform)
    init_params = _initialiser(config, chosen.cfg, objective)
    params = jax.eval_shape(init_params, _key_shape())
    selection = placement.selection(config, objective, params)
    rates, tx = optimization.make(config, chosen.cfg, params, steps, rules, selection)
    begin = placement.beginning(config, objective, tx, selection)
    axes = placement.axes(params, objective.AXES | variants.axes(chosen.cfg), selection)
    abstract = placement.abstract_state(begin, params, axes, rules, objective.reads)
    places, everywhere = jax.tree.map(lambda x: x.sharding, abstract), rules.replicated
    model = variants.make(chosen.cfg, rules)
    step, *evaluation = _functions(config, objective, model, tx, params, platform, selection, steps)
    told = compile_ahead.options(platform, tuple(rules.mesh.devices.flat))
    jitted = functools.partial(jax.jit, compiler_options=told)
    eval_step, scores_step = (jitted(one, out_shardings=everywhere) for one in evaluation)
    facts: dict[str, Any] = {"classes": classes, "examples": examples, "labels": labels}
    return Program(
        config=config,
        **facts,
        steps=steps,
        objective=objective,
        model=model,
        execution=chosen.reason,
        rules=rules,
        schedule=rates,
        abstract=abstract,
        create=jax.jit(lambda key: begin(init_params(key)), out_shardings=places),
        init_params=init_params,
        begin=begin,
        selection=selection,
        whole_params=placement.params_of(params, axes, rules),
        step=jitted(step, donate_argnums=0, out_shardings=(places, everywhere)),
        eval_step=eval_step,
        scores_step=scores_step,
    )


def model_config(config: sections.Config, classes: int) -> variants.Config:
    """Returns the model that a configuration trains; its head is the objective's choice."""
    cfg = variants.of(config.model, classes)
    return objectives.make(config, cfg).model(cfg)


def _objective(
    config: sections.Config,
    cfg: variants.Config,
    examples: int,
    steps: timeline.Steps,
    rules: sharding.Rules,
    platform: str,
) -> Objective:
    """Returns the objective, which knows its run and the form of the models that it reads."""
    objective = objectives.make(config, cfg)
    in_steps = functools.partial(timeline.in_steps, config, examples, total=steps.total)
    objective = objective.in_run(objective.model(cfg), in_steps)
    if not objective.reads:
        return objective
    from vit_jax.build import read_models

    return read_models.in_form(objective, config, rules, steps, platform)


def _initialiser(
    config: sections.Config, cfg: variants.Config, objective: Objective
) -> Callable[[jax.Array], Any]:
    """Returns key -> parameters of the model, with those of the objective and of `trainable`."""
    bare, image = variants.make(cfg), jnp.zeros((1, *images_lib.of(config.data).shape))
    what, variant = trainable.parse(config.trainable), config.model.variant

    def init_params(key: jax.Array) -> Any:
        output, variables = bare.init_with_output(key, image)
        shapes = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), output)
        own = objective.parameters(jax.random.fold_in(key, _OWN), shapes)
        params = {**variables["params"], **({PARAMETERS: own} if own else {})}
        if what is None:
            return params
        from vit_jax.models import partial

        return partial.extended(what, params, jax.random.fold_in(key, _BESIDE), variant)

    return init_params


def network(
    model: variants.Model, images: images_lib.Images | ReadModel, reads: Any = None
) -> Network:
    """Returns a model as objectives call it, with the models that they read beside it.

    Args:
      model: the model.
      images: gives the mean and the standard deviation of its images.
      reads: see `Objective.reads`.
    """

    def apply(params: Any, images: jax.Array, **options: Any) -> Any:
        return jax.tree.map(jnp.asarray, model.apply({"params": params}, images, **options))

    called = Network(apply, images.mean, images.std, rules=getattr(model, "rules", None))
    if not reads:
        return called
    from vit_jax.build import read_models

    return dataclasses.replace(called, others=read_models.networks(reads, model.rules))


def _prepare(data: sections.Data) -> Callable[[Batch, jax.Array], Batch]:
    """Returns the function (global batch, key of the step) -> batch that a step begins with."""
    if not data.device_ops:
        return lambda batch, key: batch
    from vit_jax.build import device_ops

    return device_ops.in_step(data)


def _packing(config: sections.Config, model: variants.Model) -> "Packing | None":
    """Returns how the step packs images; None if every image has a row of its own."""
    if config.pack == 1:
        return None
    from vit_jax.build import naflex

    return naflex.packing(config, model.cfg, model.rules)


def _functions(
    config: sections.Config,
    objective: Objective,
    model: variants.Model,
    tx: optimizers.Transform,
    params: Any,
    platform: str,
    selection: "partial.Selection | None",
    steps: timeline.Steps,
) -> tuple[Callable[..., Any], Callable[..., Any], Callable[..., Any]]:
    """Returns (train step, evaluation step, evaluation step with scores).

    Only an objective that learns classes has scores.
    """
    called = network(model, images_lib.of(config.data), objective.reads)
    called = dataclasses.replace(called, packing=_packing(config, model))
    step = train_step.make_train_step(
        objective,
        called,
        tx,
        accumulation=config.accumulation,
        ema_decay=train_step.decays(config.ema.decay, config.ema.final, steps.total),
        ema_warmup=config.ema.warmup,
        platform=platform,
        climb=optimization.climb(config, params),
        whole=selection.whole if selection else lambda params, _: params,
        prepare=_prepare(config.data),
    )

    def evaluation(sums: Callable[..., Any]) -> Callable[..., Any]:
        return lambda params, batch, kept=None: sums(called, params, kept, batch)

    with_scores = getattr(objective, "scores", objective.eval_sums)
    return step, evaluation(objective.eval_sums), evaluation(with_scores)
