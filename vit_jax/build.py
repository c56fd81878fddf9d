# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""From a configuration to everything a run is made of: the one place that unpacks the sections.

Each section becomes the arguments of one function, so a key that nobody takes cannot exist.
`check` finds what is wrong without TensorFlow or a device; start from `build`.
"""

import dataclasses
import re
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp

from vit_jax import checks, duration, losses, memory, sharding, state, train_step, tree
from vit_jax import config as config_lib
from vit_jax.config import ConfigDict
from vit_jax.data import pipeline, preprocess, sources
from vit_jax.data.pipeline import Pipeline
from vit_jax.data.splits import Split
from vit_jax.errors import BadInput, unknown
from vit_jax.models import variants
from vit_jax.models.surgery import Fitted
from vit_jax.optim import optimizers, schedules


def check(config: ConfigDict) -> None:
    """Finds what is wrong with the values of a configuration, without TensorFlow or a device.

    Raises:
      BadInput: the first thing found.
    """
    checks.check_numbers(config)
    checks.check_tuples(config)
    if config.batch_size % config.accumulation:
        fits = [a for a in range(1, config.batch_size + 1) if config.batch_size % a == 0]
        raise BadInput(
            f"accumulation={config.accumulation} does not divide batch_size={config.batch_size}; "
            f"{_nearest(config.accumulation, fits)} would."
        )
    cfg = variants.config(**config.model, classes=2)
    variants.check_image_size(cfg, config.data.image_size, config.data.image_size)
    for key in ("train_ops", "eval_ops"):
        preprocess.parse(f"data.{key}", config.data[key], config.data.image_size)
    kind = config.data.source.partition(":")[0]
    if kind not in sources.KINDS:
        raise unknown(
            "data.source", config.data.source, [usage for usage, _ in sources.KINDS.values()]
        )
    if config.loss.name not in losses.LOSSES:
        raise unknown("loss", config.loss.name, losses.LOSSES)
    for key, value in config_lib.flatten(config):
        if key in _DURATIONS or re.fullmatch(r"evals\.\w+\.every", key):
            duration.parse(f"config.{key}", value)
    if duration.parse("config.length", config.length).unit == "percent":
        raise BadInput(f"length={config.length!r}: percent is of the length; give another unit.")
    profile_steps(config.profile)


_DURATIONS = (
    "length", "schedule.warmup", "schedule.cooldown",
    "checkpoint.every", "checkpoint.keep_every", "report.every",
)  # fmt: skip


def profile_steps(text: str) -> range:
    """`"100:105"` as range(100, 105); empty is an empty range."""
    match = re.fullmatch(r"(\d+):(\d+)", text)
    if text and (match is None or not 1 <= int(match[1]) < int(match[2])):
        raise BadInput(f"profile={text!r}; write FIRST:LAST steps, e.g. 100:105.")
    return range(int(match[1]), int(match[2])) if match else range(0)


def _nearest(value: int, fits: list[int]) -> str:
    near = sorted(sorted(fits, key=lambda f: abs(f - value))[:3])
    return " or ".join(map(str, near))


def make_rules(config: ConfigDict) -> sharding.Rules:
    """The mesh and the placement; checks that the batch and its micro-batches divide over devices.

    Raises:
      BadInput: a mesh that the devices do not fill, or a batch that the mesh does not divide.
    """
    shape = {key: value for key, value in config.mesh.items() if key != "rules"}
    rules = sharding.Rules(sharding.make_mesh(**shape), config.mesh.rules)
    unit = rules.batch_ways * config.accumulation
    batches = {"batch_size": (config.batch_size, unit)}
    for name, section in config.evals.items():
        size = section.batch_size or config.batch_size
        batches[f"evals.{name}.batch_size"] = (size, rules.batch_ways)
    for key, (size, ways) in batches.items():
        if size % ways or size < ways:
            low = size // ways * ways
            fits = f"{low} or {low + ways}" if low else str(ways)
            raise BadInput(
                f"{key}={size} is not divisible by {ways} (devices that share the batch: "
                f"{rules.batch_ways}, accumulation: {ways // rules.batch_ways}); use {fits}."
            )
    return rules


@dataclasses.dataclass(frozen=True)
class Steps:
    """Durations of the configuration in optimizer steps; 0 is never."""

    total: int
    epoch: float
    warmup: int
    cooldown: int
    checkpoint: int
    keep_every: int
    report: int
    evals: dict[str, int]


@dataclasses.dataclass(frozen=True)
class Run:
    """Everything a run is made of."""

    config: ConfigDict
    source: sources.Source
    steps: Steps
    model: variants.Model
    rules: sharding.Rules
    schedule: schedules.Schedule
    abstract: state.TrainState  # shapes with shardings
    init: Callable[[], state.TrainState]
    init_from: Callable[[Fitted], state.TrainState]
    compile_step: Callable[..., Any]  # settings -> compiled (state, batch, key) -> (state, metrics)
    eval_step: Any  # jitted: (params, batch) -> sums
    step_key: jax.Array
    train_pipeline: Pipeline
    eval_pipelines: dict[str, Pipeline]

    @property
    def batch_sharding(self) -> jax.sharding.NamedSharding:
        """How the first axis of a batch lies on the devices."""
        return self.rules.sharding(("act_batch",), (self.config.batch_size,), "batch")

    def train_batches(self, first_step: int) -> Iterator[dict[str, jax.Array]]:
        """Global batches from a step on."""
        size = self.config.batch_size
        rows = pipeline.local_rows(self.batch_sharding, size)
        batches = self.train_pipeline.train(first_step, self.steps.total, rows)
        return pipeline.to_devices(batches, self.batch_sharding, size, self.config.data.prefetch)

    def eval_batches(self, name: str) -> Iterator[dict[str, jax.Array]]:
        """Global batches of a named evaluation."""
        pipe = self.eval_pipelines[name]
        rows = pipeline.local_rows(self.batch_sharding, pipe.batch_size)
        batches = pipe.evaluation(rows)
        return pipeline.to_devices(batches, self.batch_sharding, pipe.batch_size, 0)


def build(config: ConfigDict) -> Run:
    """Builds everything that a settled, checked configuration describes; compiles nothing yet.

    Raises:
      BadInput: the data, the mesh, or a combination of values cannot be used.
    """
    rules = make_rules(config)
    source, train_pipeline, eval_pipelines = _data(config)
    steps = _steps(config, len(train_pipeline.split))
    cfg = variants.config(**config.model, classes=len(source.classes))
    use_ema = config.ema.decay > 0
    init_key, step_key = jax.device_put(
        tuple(jax.random.split(jax.random.key(config.seed))), rules.replicated
    )

    side = config.data.image_size
    bare = variants.make(cfg)

    def init_params(key: jax.Array) -> Any:
        return bare.init(key, jnp.zeros((1, side, side, 3)))["params"]

    params = jax.eval_shape(init_params, init_key)
    schedule, tx = _optimizer(config, params, steps)
    abstract = jax.eval_shape(lambda k: state.create(init_params, tx, k, ema=use_ema), init_key)
    places = sharding.place(abstract, sharding.param_axes(params, variants.AXES), rules)
    abstract = jax.tree.map(
        lambda x, s: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=s), abstract, places
    )

    def init() -> state.TrainState:
        create = jax.jit(
            lambda k: state.create(init_params, tx, k, ema=use_ema), out_shardings=places
        )
        return create(init_key)

    def init_from(fitted: Fitted) -> state.TrainState:
        fresh = jax.jit(init_params, out_shardings=places.params)(init_key)
        taken = {path: leaf for path, leaf in tree.leaves_with_paths(fitted.params)}
        chosen = tree.map_with_path(
            lambda path, leaf: jax.device_put(taken.get(path, leaf), leaf.sharding), fresh
        )
        start = jax.jit(lambda p: state.from_params(p, tx, ema=use_ema), out_shardings=places)
        return start(chosen)

    model = variants.make(cfg, rules)
    compile_step, eval_step = _step_functions(config, model, tx, abstract, step_key)
    return Run(
        config, source, steps, model, rules, schedule, abstract, init, init_from,
        compile_step, eval_step, step_key, train_pipeline, eval_pipelines,
    )  # fmt: skip


def _data(config: ConfigDict) -> tuple[sources.Source, Pipeline, dict[str, Pipeline]]:
    data = config.data
    source = sources.open_source(
        data.source,
        data_dir=data.data_dir,
        val_percent=data.val_percent,
        test_percent=data.test_percent,
    )

    def make(split: Split, key: str, batch_size: int) -> Pipeline:
        ops = preprocess.parse(f"data.{key}", data[key], data.image_size)
        return Pipeline(
            split, ops, batch_size, config.seed, data.image_size, data.workers, data.prefetch
        )

    evals = {
        name: make(source.split(section.split), "eval_ops", section.batch_size or config.batch_size)
        for name, section in config.evals.items()
    }
    train = make(source.split(data.split), "train_ops", config.batch_size)
    for pipe in (train, *evals.values()):
        pipe.probe()
    return source, train, evals


def _steps(config: ConfigDict, examples: int) -> Steps:
    def steps(key: str, text: str, total: int = 0) -> int:
        length = duration.parse(key, text)
        return length.steps(batch_size=config.batch_size, examples=examples, total_steps=total)

    total = steps("length", config.length)
    if total < 1:
        raise BadInput(f"length={config.length!r} is no training at all; give at least one step.")
    profile = profile_steps(config.profile)
    if profile and profile.stop > total:
        raise BadInput(f"profile={config.profile!r} goes beyond the {total} steps of the run.")
    return Steps(
        total=total,
        epoch=examples / config.batch_size,
        checkpoint=steps("checkpoint.every", config.checkpoint.every, total),
        keep_every=steps("checkpoint.keep_every", config.checkpoint.keep_every, total),
        report=steps("report.every", config.report.every, total) or total,
        evals={name: steps(name, section.every, total) for name, section in config.evals.items()},
        warmup=steps("schedule.warmup", config.schedule.warmup, total),
        cooldown=steps("schedule.cooldown", config.schedule.cooldown, total),
    )


def _chosen(section: ConfigDict, *without: str) -> dict[str, Any]:
    """The arguments in a section with a choice: its own, and those of the chosen sub-section."""
    own = {k: v for k, v in section.items() if not isinstance(v, ConfigDict) and k not in without}
    return own | section[section.name].to_dict()


def _optimizer(
    config: ConfigDict, params: Any, steps: Steps
) -> tuple[schedules.Schedule, optimizers.Transform]:
    schedule = schedules.make_schedule(
        warmup=steps.warmup,
        cooldown=steps.cooldown,
        total_steps=steps.total,
        **_chosen(config.schedule, "warmup", "cooldown"),
    )
    return schedule, optimizers.make_optimizer(params, schedule, **_chosen(config.optimizer))


def _step_functions(
    config: ConfigDict,
    model: variants.Model,
    tx: optimizers.Transform,
    abstract: state.TrainState,
    key: jax.Array,
) -> tuple[Callable[..., Any], Any]:
    """(compiler of the train step, jitted evaluation step)."""

    def applied(model: variants.Model) -> train_step.Apply:
        def apply(
            params: Any, images: jax.Array, *, train: bool, key: jax.Array | None
        ) -> jax.Array:
            return jnp.asarray(model.apply({"params": params}, images, train=train, key=key))

        return apply

    shared = {
        "classes": model.cfg.classes,
        "mean": config.data.mean,
        "std": config.data.std,
        "loss": config.loss.name,
    }
    rules = model.rules
    assert rules is not None
    places = jax.tree.map(lambda x: x.sharding, abstract)
    side = config.data.image_size

    def compile_step(
        *,
        batch_size: int = config.batch_size,
        accumulation: int = config.accumulation,
        model__remat: str = config.model.remat,
    ) -> Any:
        """(state, batch, key) -> (state, metrics), compiled ahead of time, with these settings."""
        step = train_step.make_train_step(
            applied(variants.make(dataclasses.replace(model.cfg, remat=model__remat), rules)),
            tx,
            label_smoothing=config.loss.label_smoothing,
            accumulation=accumulation,
            ema_decay=config.ema.decay,
            **shared,
        )
        over = rules.sharding(("act_batch",), (batch_size,), "batch")
        batch = {
            "image": jax.ShapeDtypeStruct((batch_size, side, side, 3), jnp.uint8, sharding=over),
            "labels": jax.ShapeDtypeStruct((batch_size, 1), jnp.int32, sharding=over),
            "mask": jax.ShapeDtypeStruct((batch_size,), jnp.bool_, sharding=over),
        }
        jitted = jax.jit(step, donate_argnums=0, out_shardings=(places, rules.replicated))
        return jitted.lower(abstract, batch, key).compile()

    eval_step = train_step.make_eval_step(applied(model), **shared)
    return compile_step, jax.jit(eval_step, out_shardings=rules.replicated)


def out_of_memory(run: Run) -> BadInput:
    """What a run that ran out of memory needs, and which settings would need less."""
    size, parts, ways = run.config.batch_size, run.config.accumulation, run.rules.batch_ways
    more = [parts * f for f in (2, 4, 8, 16) if size % (parts * f * ways) == 0]
    settings: list[dict[str, Any]] = [{"accumulation": a} for a in more]
    if run.config.model.remat != "full":
        settings.append({"model__remat": "full"})
        settings += [{"accumulation": a, "model__remat": "full"} for a in more[-1:]]
    if size % (2 * parts * ways) == 0:
        settings.append({"batch_size": size // 2})
    limit = memory.limit_bytes(run.rules.mesh.devices.flat[0])
    return memory.advice(run.compile_step, settings, limit)
