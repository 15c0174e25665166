"""The tables of RESULTS.md, from the kept measurements."""

from __future__ import annotations

from statistics import fmean, median
from typing import TYPE_CHECKING, Any

from .jobs import POLICIES, Outcome, rates_alone, slowdowns

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence


def write(measured: Mapping[str, Any], outcomes: Sequence[Outcome]) -> str:
    """Return RESULTS.md."""
    return "\n".join(_lines(measured, outcomes)) + "\n"


def _lines(measured: Mapping[str, Any], outcomes: Sequence[Outcome]) -> Iterator[str]:
    yield "# One GPU: rates alone and in pairs, and thirty jobs predicted and run"
    yield ""
    yield (
        f"{measured['gpu']}, PyTorch {measured['torch']}, {measured['date']}. Written by "
        "`python -m examples.gpu_profile report` from h100.json and h100_jobs.csv."
    )
    yield ""
    yield "## Iterations per second alone"
    yield ""
    rates = rates_alone(measured)
    yield from _table(
        ("model", "batch", "one pass", "2 passes", "4 passes", "memory at 1, 2, 4 passes, GB"),
        [
            (model, batch, f"{rates[model]:.1f}", *_sub_batches(measured, model))
            for model, batch in measured["batches"].items()
        ],
    )
    yield "The batch is the same in all columns; with more passes each has fewer samples."
    yield ""
    yield "## Slowdown factors of pairs"
    yield ""
    yield "The model of the row is slowed down by the model of the column."
    yield ""
    factors, models = slowdowns(measured), list(measured["batches"])
    rows = [(one, *(f"{factors[one, other]:.2f}" for other in models)) for one in models]
    yield from _table(("", *models), rows)
    yield "## Thirty jobs"
    yield ""
    heads = ("policy", "mean JCT, s: predicted", "real", "error", "median error per job")
    rows = []
    for policy in POLICIES:
        mine = [one for one in outcomes if one.policy == policy]
        told = [one.finish_s - one.arrival_s for one in mine]
        real = [one.real_finish_s - one.arrival_s for one in mine]
        each = median(abs(a - b) / b for a, b in zip(told, real, strict=True))
        error = fmean(told) / fmean(real) - 1.0
        rows.append(
            (
                f"`{policy}`",
                f"{fmean(told):.2f}",
                f"{fmean(real):.2f}",
                f"{error:+.1%}",
                f"{each:.1%}",
            )
        )
    yield from _table(heads, rows)
    alone = [
        (one.real_finish_s - one.real_start_s) / one.duration_s
        for one in outcomes
        if one.policy == "fifo"
    ]
    yield (
        "Under `fifo` each job has the GPU to itself. There a job took "
        f"{median(alone):.2f} times its predicted duration in the median, {min(alone):.2f} times "
        f"at least and {max(alone):.2f} times at most."
    )


def _sub_batches(measured: Mapping[str, Any], model: str) -> Iterator[str]:
    found = {one["passes"]: one for one in measured["alone"] if one["model"] == model}
    for passes in (2, 4):
        yield f"{median(found[passes]['per_s']):.1f}"
    whole = next(one["memory_bytes"] for one in measured["starts"] if one["model"] == model)
    used = (whole, *(found[passes]["memory_bytes"] for passes in (2, 4)))
    yield ", ".join(f"{size / 1e9:.1f}" for size in used)


def _table(heads: Sequence[str], rows: Sequence[Sequence[object]]) -> Iterator[str]:
    yield f"| {' | '.join(heads)} |"
    yield f"|{'---|' * len(heads)}"
    for row in rows:
        yield f"| {' | '.join(str(cell) for cell in row)} |"
    yield ""
