# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Shows a plan to people, as text or as a page.

Start from `text`.
"""

from vit_jax.preflight.plan import plan as plan_lib
from vit_jax.preflight.plan.plan import Plan

_DIRECTIONS = ("forward", "backward", "update")
_GIB = 2**30


def text(planned: Plan, *, parts: bool = False) -> str:
    """Returns the verdict, then figures of one device, and with `parts` where the time goes."""
    lines = [verdict(planned), ""]
    for name, rows in facts(planned).items():
        lines += [f"{name if i == 0 else '':14}{row}" for i, row in enumerate(rows)]
    if not planned.fits:
        lines += ["", *_advice(planned)]
    elif parts:
        lines += ["", *_parts_as_text(planned)]
    return "\n".join(lines)


def page(planned: Plan, name: str) -> str:
    """Returns a whole HTML document about a plan that has an estimate.

    Args:
      planned: the plan.
      name: what is planned.
    """
    from vit_jax.reports import charts, pages  # only a page needs matplotlib and jinja2

    measured = planned.measured
    assert measured.estimated_secs is not None
    assert measured.parts is not None
    header, *rows = _table(planned)
    return pages.render(
        "plan.html",
        f"Plan of {name} for {plan_lib.described(planned.accelerator, planned.slices)}",
        verdict=[
            f"A step takes {1000 * measured.estimated_secs:.3g} ms as estimated by the TPU "
            f"compiler's clock (MFU {planned.estimated_mfu:.0%}), and "
            f"{1000 * measured.step_secs:.3g} ms at best by the roofline, limited by "
            f"{measured.limited_by}.",
            f"{verdict(planned)}. Nothing here was measured: the times are an estimate of the "
            "compiler and a lower bound, and neither knows of input, evaluations or checkpoints.",
        ],
        figures={label: "; ".join(rows) for label, rows in facts(planned).items()},
        bars=charts.bars(
            {
                part: [1000 * directions.get(name, 0.0) for name in _DIRECTIONS]
                for part, directions in measured.parts.items()
            },
            _DIRECTIONS,
            "estimated milliseconds in a step, on each device",
        ),
        header=header,
        rows=rows,
        notes=[
            "An instruction counts with the cycles that the compiler expects it to take. It "
            "belongs to the part whose name it carries; one without a name belongs to what it "
            "contains, reads or feeds. Collectives count as far as no other work hides them."
        ],
    )


def verdict(planned: Plan) -> str:
    """Returns one line: does it fit, and is that compiled or counted."""
    fits = "fits" if planned.fits else "does not fit"
    if planned.fits and planned.share > plan_lib.WARNS_ABOVE:
        fits = "fits, but barely"
    how = "compiled"
    if planned.measured.how != "compiled":
        how = "counted from shapes; a compiler may need more"
    return f"{plan_lib.described(planned.accelerator, planned.slices)}: {fits} ({how})"


def facts(planned: Plan) -> dict[str, list[str]]:
    """Returns label -> lines, the figures of one device."""
    hosts = planned.accelerator.hosts * planned.slices
    return {
        "devices": [
            f"{planned.accelerator.devices * planned.slices} on "
            f"{hosts} {'host' if hosts == 1 else 'hosts'}"
        ],
        "memory": _memory(planned),
        "sends": _sent(planned),
        "computes": [f"{planned.measured.flops / 1e12:.3g} TFLOPs a step on each device"],
        **_times(planned),
        **({"input": [planned.feeding.in_words()]} if planned.feeding else {}),
    }


def _memory(planned: Plan) -> list[str]:
    """Returns the peak as a sum of two, and the space for temporaries where that is another."""
    measured = planned.measured
    peak, args, temporaries = (
        n / _GIB for n in (measured.peak_bytes, measured.args_bytes, measured.temp_bytes)
    )
    rest = peak - args
    lines = [
        f"{peak:.3g} of {planned.limit_bytes / _GIB:.4g} GiB at the peak ({planned.share:.0%}): "
        f"arguments {args:.3g}, temporaries {rest:.3g}"
    ]
    if f"{rest:.2g}" != f"{temporaries:.2g}":
        why = "never all in use at once"
        if rest > temporaries:
            why = "the peak also counts fast memory on the chip"
        lines.append(f"{temporaries:.3g} GiB are laid out for temporaries, {why}")
    return lines


def _times(planned: Plan) -> dict[str, list[str]]:
    """Returns the lines on time: the compiler's estimate where there is one, and the roofline."""
    measured, hours, chip_hours = (
        planned.measured, planned.estimated_hours, planned.estimated_chip_hours,
    )  # fmt: skip
    step = f"{1000 * measured.step_secs:.3g} ms at best, limited by {measured.limited_by}"
    speed = f"{measured.batch_size / measured.step_secs:,.0f} images/s at best"
    run = f"{planned.hours:.3g} hours, {_short(planned.chip_hours)} chip-hours at best"
    if measured.estimated_secs is None or hours is None or chip_hours is None:
        unknown = measured.no_estimate or "this compiler gives none"
        unknown = f"no estimate: {unknown}" if planned.fits else "too large to estimate"
        return {
            "step": [f"{step}; {unknown}"],
            "speed": [f"{speed}"],
            "whole run": [f"{measured.steps:,} steps, {run}"],
        }
    secs = measured.estimated_secs
    return {
        "step": [f"{1000 * secs:.3g} ms estimated (MFU {planned.estimated_mfu:.0%}); {step}"],
        "speed": [f"{measured.batch_size / secs:,.0f} images/s estimated; {speed}"],
        "whole run": [
            f"{measured.steps:,} steps, {hours:.3g} hours, "
            f"{_short(chip_hours)} chip-hours estimated; {run}"
        ],
    }


def _table(planned: Plan) -> list[list[str]]:
    """Returns a header, and a row for each part of the estimated time, the longest first."""
    shares = planned.measured.parts or {}
    total = sum(secs for directions in shares.values() for secs in directions.values())
    digits = 2 if total >= 0.01 else 4  # a step of less than 10 ms needs more of them
    table = [["estimated ms", *_DIRECTIONS, "share"]]
    for part, directions in shares.items():
        columns = [f"{1000 * directions.get(name, 0):.{digits}f}" for name in _DIRECTIONS]
        table.append([part, *columns, f"{sum(directions.values()) / total:.1%}"])
    return table


def _parts_as_text(planned: Plan) -> list[str]:
    table = _table(planned)
    width = max(len(row[0]) for row in table)
    return [
        f"{part:{width}}" + "".join(f"{cell:>10}" for cell in columns) + f"{share:>7}"
        for part, *columns, share in table
    ]


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _sent(planned: Plan) -> list[str]:
    sent = planned.measured.collective_bytes
    if sent is None:
        hidden = planned.accelerator.generation.platform == "tpu" and planned.fits
        return [f"n/a: {'the compiler hides it in fusions' if hidden else 'nothing to read'}"]
    rows = [
        f"{size / 1e6:,.1f} MB {kind} over {axes}"
        for axes, kinds in sent.items()
        for kind, size in sorted(kinds.items(), key=lambda item: -item[1])
    ]
    if planned.measured.how == "compiled" and planned.measured.beyond_least is not None:
        rows.append(f"{planned.measured.beyond_least:.2f} times the least for this sharding")
    return rows or ["nothing"]


def _advice(planned: Plan) -> list[str]:
    rows = [
        "  " + " ".join(f"--config.{key}={value}" for key, value in settings.items())
        + f": {peak / 2**30:.3g} GiB"
        for settings, peak in planned.fitting
    ]  # fmt: skip
    if not rows:
        return ["No remat, micro-batch or fsdp size fits either; take more or larger devices."]
    return ["It fits, with the same results (up to the draws of dropout), with", *rows]
