# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Trains a run from start to results. This is the first file to open.

    workdir  -> is there a run to continue, or a finished one?
    build    -> data, model, optimizer, compiled step
    start    -> resume, or branch off another run, or start from weights, or from scratch
    loop     -> steps; every so often a row of metrics, an evaluation, a checkpoint
    finish   -> final evaluation, report.html, results.json, what to do next

The order of the work after a step must not change. The metrics of the step are fetched and checked
first, because a loss that is not finite must never reach a checkpoint. The evaluations come next,
because their metrics decide whether the step is the best. The checkpoint is last. Start from
`train`.
"""

import contextlib
import functools
import logging
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import jax

from vit_jax.build import run as build
from vit_jax.checkpoints import restart_limit, step_folders
from vit_jax.checkpoints.checkpoints import Checkpoints
from vit_jax.checkpoints.step_folders import FOLDER
from vit_jax.config import frozen, plugins, sections, timeline, validation
from vit_jax.config import load as config_lib
from vit_jax.config.provenance import Recipe
from vit_jax.errors import BadInput, PeerLost, RunFailed, Stopped, stopping_when_full
from vit_jax.reports import summary
from vit_jax.runtime import coordinated_stop, coordination, goodput, watchdog, workdir_lock
from vit_jax.runtime.coordinated_stop import Backstop
from vit_jax.step.state import TrainState
from vit_jax.step.train_step import non_finite
from vit_jax.storage import cache
from vit_jax.training import first_state, metric_writer
from vit_jax.training.metric_window import Window
from vit_jax.training.metric_writer import PROFILE_FOLDER, Report, Throughput
from vit_jax.training.refused_start import unchanged_if_refused
from vit_jax.training.workdir import (
    check_classes,
    check_teachers,
    continue_or_check,
    has_checkpoint_for_all,
    parent_of_branch,
    prepare,
    resumption,
    write_results,
)

if TYPE_CHECKING:
    from vit_jax.checkpoints.local_tier import LocalTier
    from vit_jax.runtime.elastic import Group
    from vit_jax.runtime.process_identity import ProcessIdentity
    from vit_jax.weights.base import Base
    from vit_jax.weights.fitting import Fitted

log = logging.getLogger("vit_jax")


def train(
    config: sections.Config,
    workdir: Path,
    who: "ProcessIdentity | Literal['tpu'] | None" = None,
    recipe: Recipe | None = None,
    group: "Group | None" = None,
) -> dict[str, Any]:
    """Trains according to `config`, or continues the run in `workdir`, and returns the results.

    Args:
      config: the configuration, from `config.load`.
      workdir: the folder of the run; created if needed.
      who: this process, if several train together; from `process_identity.resolve`.
      recipe: the source of the configuration, for the report.
      group: the slices that train, if some may be missing; from `elastic.joined`.

    Returns:
      The content of results.json.

    Raises:
      BadInput: the input was refused, and nothing was written. An error of this kind later in the
        run keeps the last checkpoint.
      RunFailed: a metric was not finite; the last checkpoint is from before that step.
      PeerLost: not all processes arrived.
      Stopped: the run was asked to stop and has saved its state.
    """
    config_lib.check(config)
    plugins.give_own(value for _, value in config_lib.flatten(config))
    metric_writer.check_writers(config.report.writers)
    waits = frozen.arguments(config.processes)
    partial = group is not None and group.slices < group.whole
    if group:  # the others are there
        waits["connect_secs"] = min(waits["connect_secs"], config.elastic.secs)
    both = (
        coordinated_stop.watching(workdir, who),
        coordination.session(who, workdir, **waits),
    )
    first, second = reversed(both) if who == "tpu" else both  # on a TPU, jax finds process 0
    with first, second:
        coordination.on_loss(lambda: resumption(workdir, config.checkpoint.local.path))
        coordination.check_shared(workdir)
        config, finished = continue_or_check(config, workdir)
        coordination.agree("configuration", config_lib.common(config))
        if finished is not None:
            return finished
        with (
            workdir_lock.held(workdir, PeerLost if partial else BadInput) as seen,
            unchanged_if_refused(workdir, config.checkpoint.local.path),
            stopping_when_full(workdir),
            goodput.recording(
                workdir,
                since=coordinated_stop.began(),
                seen=seen,
                write=coordination.is_first(),
                alone=coordination.alone(),
            ),
            restart_limit.counted(workdir, config.checkpoint.local.path),
        ):
            return train_here(config, workdir, recipe, group)


def train_here(
    config: sections.Config, workdir: Path, recipe: Recipe | None, group: "Group | None" = None
) -> dict[str, Any]:
    """Trains a checked configuration; the processes are already connected."""
    devices = coordination.start(config.platform, deterministic=config.deterministic)
    cache.keep_compiled(config.compile_cache, devices[0].platform)
    goodput.passed("connecting")
    parent = parent_of_branch(config, workdir)
    previous = parent.workdir if parent else workdir
    goes_on = has_checkpoint_for_all(previous)
    create = [] if config.init or parent or goes_on else ["create"]
    shared = group.fitted(config, len(devices)) if group else config
    run = build.build(shared, compile_first=[*create, "step"])
    coordinated_stop.check()
    dataset = run.fingerprint()
    coordination.agree("dataset", dataset)
    check_classes(previous, run.learned_classes)
    if not goes_on:  # a checkpoint has the teacher itself
        check_teachers(run.program.objective, run.learned_classes)
    if parent is not None:
        from vit_jax.training import branch

        branch.check_length(run, parent)
    origin = first_state.base_of(config, previous)
    weights = first_state.weights_of(run, goes_on, origin)
    if coordination.is_first():
        made_with = summary.device_summary(devices)
        examples = dataset["training examples"]
        colours = run.source.colours()
        prepare(workdir, config, run.source.classes, recipe, made_with, examples, previous, colours)
        goodput.begin()
        if group:
            group.note(shared)
    coordination.barrier("workdir")
    metric_writer.describe(run, devices)
    if create and coordination.is_first():
        metric_writer.advise(config, recipe, run.program.steps.total)
    return run_in(workdir, run, weights, origin)


def run_in(
    workdir: Path, run: build.Run, weights: "Fitted | None", origin: "Base | None"
) -> dict[str, Any]:
    """Trains a run whose workdir is ready, from its start to its results, and returns these."""
    config = run.config
    with contextlib.ExitStack() as stack:
        checkpoints = stack.enter_context(
            Checkpoints(
                workdir,
                keep_last=config.checkpoint.keep_last,
                keep_every=run.program.steps.keep_every,
                keep_best=config.checkpoint.keep_best,
                beside={step_folders.BASE_FILE: origin.as_json()} if origin else {},
            )
        )
        try:
            goodput.passed("program")
            near = stack.enter_context(first_state.local(run, workdir))
            state, step = first_state.start(run, checkpoints, near, weights, workdir)
            goodput.passed("restore")
            goodput.event("initialised", step)
            report = Report(
                workdir,
                step=step,
                writers=config.report.writers,
                config=dict(config_lib.flatten(config)),
                write=coordination.is_first(),
            )
            stack.push(lambda error, *_: report.close(failed=error is not None))
            if config.data.stage and step < run.program.steps.total:
                from vit_jax.build import staged

                run = stack.enter_context(staged.run(run, step))
            if step < run.program.steps.total:
                log.info("compiling the step: %s", run.program.execution)
                state = loop(run, state, step, checkpoints, near, report, workdir)
            results = finish(run, state, checkpoints, report, workdir)
            if near:
                near.discard()
            return results
        except jax.errors.JaxRuntimeError as e:
            from vit_jax.build import less_memory
            from vit_jax.hardware import device_memory

            if not device_memory.is_out_of_memory(e):
                raise
            raise less_memory.out_of_memory(run.program) from e


# ---------------------------------------------------------------- loop


def loop(
    run: build.Run,
    state: TrainState,
    first: int,
    checkpoints: Checkpoints,
    near: "LocalTier | None",
    report: Report,
    workdir: Path,
) -> TrainState:
    """Trains steps `first + 1` to the last, with all work that is due after each step."""
    train_step, key, steps = run.program.compiled("step"), run.program.step_key, run.program.steps
    throughput, backstop = Throughput(), Backstop(run.config.checkpoint.every_minutes)
    window = Window(run, report, throughput, first, checkpoints.newest_known)
    traced, batches = timeline.profile_steps(run.config.profile), run.train_batches(first)
    done, due, save, save_near = first, unmeasured(run, report, first), False, False

    def finish_step() -> None:
        """Does the work due after step `done`: metrics, then evaluations, then a checkpoint."""
        window.flush()
        with throughput.pause(), watchdog.longer():
            measured = evaluate(run, state, due, done, report)
            if save or (due and coordination.share("best", checkpoints.is_best(measured))):
                report.sync()
                checkpoints.save(done, state, config_lib.to_yaml(run.config), measured)
                window.last_good = done
                backstop.saved()
            if near and save_near:
                report.sync()
                near.save(done, state)

    with contextlib.closing(metric_writer.Profile(traced, workdir / PROFILE_FOLDER)) as profile:
        try:
            if due:
                finish_step()
            for step in range(first + 1, steps.total + 1):
                profile.before(step)
                with guarded(step):
                    with throughput.wait(window.busy):
                        batch = next(batches)
                    state, metrics = train_step(state, batch, key)
                done = step
                dispatched(step, first, goodput.reached(), metrics)
                window.add(step, metrics)
                profile.after(step, metrics)
                checkpoints.check()

                due, save = steps.due(step), backstop.due() or steps.saves(step)
                save_near = near is not None and near.due(step)
                if due or save or save_near:
                    finish_step()
        except Stopped as stopped:  # raised by `next(batches)`: `state` is that of step `done`
            if stopped.save:
                if done > window.last_good:
                    due, save, save_near = [], True, False
                    finish_step()
                with watchdog.longer():
                    checkpoints.wait()
                log.info("stopped after step %d, which is saved", done)
            raise
    return state


@contextlib.contextmanager
def guarded(step: int) -> Iterator[None]:
    """Refuses implicit transfers in the block, and names the step in traces."""
    trace = jax.profiler.StepTraceAnnotation("train", step_num=step)
    with jax.transfer_guard("disallow"), trace:
        yield


def dispatched(step: int, first: int, reached: int, metrics: Any) -> None:
    """Marks that a step was dispatched; accepts the start after its first step.

    Waits for that step, and for the first after `reached`, which an earlier start had reported.
    """
    if step in (first + 1, max(first, reached) + 1):
        jax.block_until_ready(metrics)
        goodput.stepped(step, first=step == first + 1, new=step > reached)
        coordinated_stop.accepted()
    watchdog.step()


def unmeasured(run: build.Run, report: Report, step: int) -> list[str]:
    """Returns the evaluations due at `step` that have no metrics because the run ended first."""
    there = {key.rpartition("/")[0] for key in report.at(step)}
    missing = [name for name in run.program.steps.due(step) if name not in there]
    return coordination.share("evaluations to do", missing)


def evaluate(
    run: build.Run, state: TrainState, names: list[str], step: int, report: Report
) -> dict[str, float | int]:
    """Measures evaluations and writes a row; `<split>_raw` are the raw parameters beside an EMA."""
    versions = {"": state.params} if state.ema is None else {"": state.ema, "_raw": state.params}
    measured: dict[str, float | int] = {}
    began = time.perf_counter()
    for name in names:
        for suffix, trained in versions.items():
            if suffix and name in run.tasks and not run.program.objective.AVERAGE:
                continue  # others load the average; only a teacher is compared with its student
            report.progress(f"step {step}  evaluating {name}{suffix}", passing=True)
            params = run.program.whole(trained, state.base)
            values = measure(run, params, state.kept, name)
            measured |= {f"{name}{suffix}/{key}": value for key, value in values.items()}
    if measured:
        bad = non_finite(measured)
        if bad is not None:
            raise RunFailed(f"{bad} is {measured[bad]} at step {step}; stopped before saving.")
        report.row(step, measured | {"perf/eval_secs": time.perf_counter() - began})
        report.progress(f"step {step}  " + summary.evaluation_line(names, measured))
        report.end_line()
    return measured


def measure(run: build.Run, params: Any, kept: Any, name: str) -> dict[str, float | int]:
    """Returns the metrics of one evaluation: of a split, or of a few-shot task.

    `kept` is what the objective keeps beside the parameters.
    """
    if name not in run.tasks:
        from vit_jax.evaluators import classification

        step, evaluator = run.program.evaluator(name)
        step = functools.partial(step, kept=kept)
        batches, total = run.eval_batches(name), run.program.objective.total
        return classification.evaluate(step, params, batches, evaluator, total)
    if run.config.fewshot.method == "zero_shot":
        from vit_jax.evaluators import zero_shot

        features = run.features(params, run.tasks[name].test)
        program, task = run.program, run.tasks[name]
        return zero_shot.evaluate(program.objective, params, program.rules, features, task)
    from vit_jax.evaluators import fewshot

    task, top1 = run.tasks[name], dict[str, float]()
    features = run.features(params, task.train), run.features(params, task.test)
    for method, prefix in validation.few_shot_classifiers(run.config).items():
        classify = fewshot.classifier(method, run.config.fewshot.l2)
        results = fewshot.evaluate(*features, task, classify)
        top1 |= {f"{prefix}{shots}shot": result["top1"] for shots, result in results.items()}
    return {**top1, "examples": len(task.test)}


# ---------------------------------------------------------------- finish


def finish(
    run: build.Run, state: TrainState, checkpoints: Checkpoints, report: Report, workdir: Path
) -> dict[str, Any]:
    """Writes results.json from the metrics of the last step, once its checkpoint is committed."""
    total = run.program.steps.total
    with watchdog.longer():
        checkpoints.wait()
    written = coordination.share("metrics of the last step", report.at(total))
    written |= evaluate(run, state, unmeasured(run, report, total), total, report)
    results: dict[str, Any] = {"step": total, "checkpoint": str(Path(FOLDER) / str(total))}
    for key, value in written.items():
        split, _, metric = key.rpartition("/")
        if split.removesuffix("_raw") in run.program.steps.evals:
            results.setdefault(split, {})[metric] = value
    if validation.uses_test_data(run.config):
        results["looked_at_test"] = True
    if run.config.data.bad_images == "skip":
        results["skipped"] = run.skipped_images(workdir)
        log.info("data: %d training images were skipped", len(results["skipped"]))
    try:
        if run.config.report.page and coordination.is_first():
            from vit_jax.reports.run import make  # imports matplotlib: 0.8 s, and a cache folder

            make.at_end(run, report.sync, workdir)
    except Exception:  # a bug in the page must not undo a finished run
        write_results(workdir, results)
        raise
    write_results(workdir, results)
    return results
