"""Shows the costs and gains of sharing GPUs: slowdown factors by pair of models, and tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gangline._support import formatting as words
from gangline.analysis.report import tables
from gangline.analysis.report._svg import short, square, still
from gangline.analysis.report.tables import Cell, Table, hours, of, text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gangline.analysis.report.digest import Digest
    from gangline.analysis.report.pair_times import PairTime

__all__ = ["content", "heat", "listed", "totals"]

_MODELS_SHOWN = 8  # our own choice: a picture with more rows is not readable
_PAIRS_SHOWN = 12
_LABEL_CHARS = 17
_SLANT = 92  # additional width, because the last column title is slanted


def content(drawn: Sequence[Digest], means: Sequence[Mapping[str, Any]]) -> str:
    """Return the section on shared GPUs as HTML; empty if no run shares any."""
    if not any(row.get("shares_started") for row in means):
        return ""
    parts = [
        (
            "<p class=about>Two jobs on one GPU slow each other down, but together they may still "
            "do more than one after the other.</p>"
        ),
        totals(drawn, means).html("Shared GPUs by policy"),
        (
            "<p class=soft>Packing gain: the time that the work would have taken on the same GPUs "
            "without co-runners, divided by the time for which they were in use. 1.2 means that a "
            "sixth of the GPU time was saved; below 1, sharing (or overhead) cost more than it "
            "gained.</p>"
        ),
    ]
    known = [run for run in drawn if run.pairs]
    if not known:
        parts.append(
            "<p class=soft>The models that shared GPUs are known only for runs with "
            "<code>--segments</code> of traces that name models.</p>"
        )
        return "".join(parts)
    factors = {_factor(xi) for run in known for one in run.pairs for xi in (one.xi, one.co_xi)}
    if len(factors) > 1:
        parts.append(_heats(known))
    parts.append(
        "<h3>What each pair saved</h3><p class=about>GPU-hours saved are those that the work of "
        "both would have taken alone, minus those that the two shared. They need not add up "
        "to the packing gain above, which is a ratio over all GPU time in use, shared or not, and "
        "counts three things against sharing that a single pair does not show: pauses for starts "
        "and restarts, smaller batches, and GPUs of a gang that wait for its shared ones.</p>"
    )
    parts.append(listed(drawn).html("Pairs of models that shared GPUs", what="pair"))
    return "".join(parts)


def _heats(known: Sequence[Digest]) -> str:
    """Return a heat map of each run, or nothing if all pairs have the same slowdown."""
    hidden_models = max(len(_models(run.pairs)) for run in known) - _MODELS_SHOWN
    most = (
        f" For each policy, the {_MODELS_SHOWN} models with the most shared GPU time are shown."
        if hidden_models > 0
        else ""
    )
    pictures = "".join(
        f'<figure><figcaption><bdi>{text(run.label)}</bdi></figcaption><div class="chart still">'
        f"{heat(run)}</div></figure>"
        for run in known
    )
    return (
        "<h3>Slowdown factors by pair of models</h3><p class=about>Time of the row's model with a "
        "co-runner of the column's model, divided by its time alone; a gang is as fast as its "
        "slowest GPU. A stronger colour means more shared GPU time."
        f"{most}</p>"
        f'<div class="charts">{pictures}</div>'
    )


def totals(drawn: Sequence[Digest], means: Sequence[Mapping[str, Any]]) -> Table:
    """Return a table of GPU sharing, one row per policy; a dash means that nothing is shared."""
    return tables.ranked([run.label for run in drawn], means, _TOTALS)


def listed(drawn: Sequence[Digest]) -> Table:
    """Return a table of the pairs in each run."""
    titles = [
        ("Policy", ""),
        ("Model", ""),
        ("Co-runner", ""),
        ("GPU-hours", "GPU-hours that jobs of the two shared"),
        ("Slowdown", "Slowdown factor of the model"),
        ("Of co-runner", "Slowdown factor of the co-runner"),
        (
            "GPU-hours saved",
            "GPU-hours that the work of both would have taken alone, minus the GPU-hours shared",
        ),
    ]
    rows: list[list[Cell]] = []
    hidden = 0
    for number, run in enumerate(drawn):
        rows += [_pair_row(number, run.label, pair) for pair in run.pairs[:_PAIRS_SHOWN]]
        hidden += max(len(run.pairs) - _PAIRS_SHOWN, 0)
    return Table(titles, rows, hidden)


def _pair_row(number: int, label: str, pair: PairTime) -> list[Cell]:
    return [
        tables.policy_cell(number, label),
        tables.label_cell(pair.model),
        tables.label_cell(pair.co_model),
        of(pair.gpu_h, hours),
        of(pair.xi, _factor),
        of(pair.co_xi, _factor),
        of(pair.gain_h, hours),
    ]


def heat(run: Digest) -> str:
    """Return the slowdown factors of row models with column models as an SVG element."""
    models = _models(run.pairs)[:_MODELS_SHOWN]
    of = {(pair.model, pair.co_model): (pair.xi, pair.gpu_h) for pair in run.pairs}
    of |= {(pair.co_model, pair.model): (pair.co_xi, pair.gpu_h) for pair in reversed(run.pairs)}
    for pair in run.pairs:
        if pair.model == pair.co_model:  # both directions belong to the same model
            of[pair.model, pair.model] = (
                2.0 * pair.gpu_h / (pair.done_h + pair.co_done_h),
                pair.gpu_h,
            )
    most = max(pair.gpu_h for pair in run.pairs)
    left, top, width, height = 132, 100, 52, 22
    wide, high = left + width * len(models) + _SLANT, top + height * len(models)
    parts = []
    for k, model in enumerate(models):
        x, y = left + (k + 0.5) * width, top + k * height + 15
        name = text(short(model, _LABEL_CHARS))
        parts.append(f'<text x="{left - 8}" y="{y}" text-anchor="end">{name}</text>')
        parts.append(
            f'<text x="{x:.1f}" y="{top - 8}" transform="rotate(-35 {x:.1f} {top - 8})">'
            f"{name}</text>"
        )
        for column, other in enumerate(models):
            if (model, other) in of:
                xi, gpu_h = of[model, other]
                at = left + column * width, top + k * height
                depth = 0.08 + 0.62 * gpu_h / most
                parts.append(square(*at, (width, height), _factor(xi), depth))
    return still("Slowdown factors by pair of models", wide, high + 2, parts)


def _models(pairs: Sequence[PairTime]) -> list[str]:
    """Return the models, ordered by decreasing shared GPU time."""
    total: dict[str, float] = {}
    for pair in pairs:
        for name in (pair.model, pair.co_model):
            total[name] = total.get(name, 0.0) + pair.gpu_h
    return sorted(total, key=lambda name: (-total[name], name))


def _factor(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"


_TOTALS = tuple(words.Measure(*one, 0) for one in (
    ("share_gpu_fraction", "Shared GPU time", "Share of used GPU time with two jobs",
     words.share),
    ("xi_mean", "Slowdown factor", "Mean over the time in which gangs have a co-runner", _factor),
    ("packing_gain", "Packing gain",
     "Time that the work would have taken without co-runners, divided by the time in use", _factor),
    ("shares_started", "Shared starts",
     "Starts and moves after which a gang has a co-runner", words.count),
    ("shares_refused", "Refused",
     "Jobs that had to wait on arrival although they could have shared GPUs", words.count),
    ("sub_batch_starts", "Smaller batches",
     "Starts and moves with less than the full batch per pass", words.count),
))  # fmt: skip
