"""Shows the cost of distance: locality factors as a heat map, losses by model and tier as bars.

Both are static pictures whose numbers are in a table or in the cells.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gangline._support import formatting as words
from gangline._support.look import COLOURS
from gangline.analysis.report import tables
from gangline.analysis.report._svg import short, square, still
from gangline.analysis.report.tables import Table, hours, of, text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gangline.analysis.report.digest import Digest, Loss
    from gangline.cluster.network import LocalityRow

__all__ = ["Heat", "bars", "content", "heat", "heats", "losses"]

TIERS = ("server", "rack", "network")
_TITLES = ("in one server", "in one rack", "over racks")
_TIER_COLOURS = (COLOURS[2], COLOURS[4], COLOURS[1])
_MODELS_SHOWN = 8  # our own choice: a picture with more rows is not readable
_WIDTH = 540
_LABEL_CHARS = 20


@dataclass(frozen=True)
class Heat:
    """The matrix of one GPU type: locality factors by model, tier and gang size.

    Attributes
    ----------
    gpu_type : str
        Name of the type; empty if the cluster has only one type.
    sizes : tuple of int
        Gang sizes, one per column.
    rows : list of (str, str, tuple of float or None)
        Model, tier, and the locality factor for each size; None where no such gang fits.
    """

    gpu_type: str
    sizes: tuple[int, ...]
    rows: list[tuple[str, str, tuple[float | None, ...]]]


def content(drawn: Sequence[Digest]) -> str:
    """Return the section on the network as HTML; empty if distance costs nothing in the cluster."""
    found, why = heats(drawn[0])
    lossy = any(run.losses for run in drawn)
    if not found and not lossy:
        return f"<p class=soft>{text(why)}</p>" if why else ""
    parts = []
    if lossy:
        parts.append(_lost(drawn))
    if found:
        about = (
            "<p class=about>Share of its speed that a gang keeps in one server, in one rack or "
            "across racks, by its number of GPUs, if no other job disturbs it. A stronger colour "
            "means slower."
            "</p>"
        )
        pictures = "".join(
            f'<figure>{_named(one)}<div class="chart still">{heat(one)}</div></figure>'
            for one in found
        )
        parts.append(f'<h3>Share of speed kept</h3>{about}<div class="charts">{pictures}</div>')
    elif why:
        parts.append(f"<p class=soft>{text(why)}</p>")
    return "".join(parts)


def _named(one: Heat) -> str:
    return f"<figcaption>GPU type {text(one.gpu_type)}</figcaption>" if one.gpu_type else ""


def heats(run: Digest) -> tuple[list[Heat], str]:
    """Return one matrix per GPU type for the models of a run, or the reason for having none.

    GPU types with equal matrices share a heat map.
    """
    from gangline.cluster import network
    from gangline.errors import GanglineError
    from gangline.runs.spec import cluster_of

    if run.spec["cluster"].get("network") is None:
        return [], ""
    try:
        cluster = cluster_of(run.spec)
        known = network.known_models(cluster)
        asked = [loss.model for loss in run.losses if loss.gpus_max > 1]
        models = [name for name in asked if name in known] or known
        largest = max((loss.gpus_max for loss in run.losses), default=0)
        sizes = [2**k for k in range(1, 17) if 2**k < 2 * largest] or None
        rows = network.locality_factors(cluster, models=models[:_MODELS_SHOWN], gpus=sizes)
    except GanglineError as error:
        return [], f"The matrix of locality factors cannot be drawn from this result: {error}"
    by_type: dict[str, list[LocalityRow]] = {}
    for row in rows:
        by_type.setdefault(row["gpu_type"], []).append(row)
    alike: dict[str, tuple[list[str], Heat]] = {}
    for name, mine in by_type.items():
        one = _matrix(mine)
        alike.setdefault(repr(one), ([], one))[0].append(name)
    if len(alike) == 1:
        return [one for _, one in alike.values()], ""
    return [Heat(", ".join(names), one.sizes, one.rows) for names, one in alike.values()], ""


def _matrix(rows: Sequence[Mapping[str, Any]]) -> Heat:
    sizes = tuple(sorted({row["gpus"] for row in rows}))
    kept = {(row["model"], row["tier"], row["gpus"]): row["locality"] for row in rows}
    places = dict.fromkeys((row["model"], row["tier"]) for row in rows)
    return Heat(
        "", sizes, [(*place, tuple(kept.get((*place, size)) for size in sizes)) for place in places]
    )


def heat(one: Heat) -> str:
    """Return a matrix as an SVG element with the numbers in its cells."""
    left, top, height = 190, 34, 20
    width = min((_WIDTH - left) / len(one.sizes), 70.0)
    parts = [
        f'<text x="{left + len(one.sizes) * width / 2:.1f}" y="12" text-anchor="middle">GPUs</text>'
    ]
    for column, size in enumerate(one.sizes):
        x = left + (column + 0.5) * width
        parts.append(f'<text x="{x:.1f}" y="28" text-anchor="middle">{size}</text>')
    before = None
    for line, (model, tier, shares) in enumerate(one.rows):
        y = top + line * height
        if model != before:
            parts.append(f'<text x="0" y="{y + 14}">{_short(model)}</text>')
            parts.append(f'<path d="M0 {y}H{_WIDTH}" stroke="#888" stroke-opacity=".4"/>')
            before = model
        parts.append(f'<text x="{left - 8}" y="{y + 14}" text-anchor="end">{tier}</text>')
        for column, share in enumerate(shares):
            if share is not None:
                shown = "1" if share == 1.0 else f"{share:.3f}"
                at = left + column * width, y
                parts.append(square(*at, (width, height), shown, 0.8 * (1.0 - share)))
    bottom = top + len(one.rows) * height
    return still("Share of its speed that a gang keeps", _WIDTH, bottom + 2, parts)


def _lost(drawn: Sequence[Digest]) -> str:
    legend = "".join(
        f'<li><i style="background:{colour}"></i>{title}</li>'
        for colour, title in zip(_TIER_COLOURS, _TITLES, strict=True)
    )
    about = (
        "<p class=about>GPU-hours in which gangs held GPUs and waited for communication, by model "
        "and placement of the gang.</p>"
    )
    return (
        f'<h3>GPU time lost to communication</h3>{about}<ul class="legend">{legend}</ul>'
        f'<figure><div class="chart still">{bars(drawn)}</div></figure>'
        + tables.folded(
            "The same as a table",
            losses(drawn).html("GPU time lost by policy and model"),
        )
    )


def bars(drawn: Sequence[Digest]) -> str:
    """Return the losses as an SVG element: one bar per model and policy, divided by tier."""
    models = _models(drawn)
    most = max((sum(loss.lost_gpu_h) for run in drawn for loss in run.losses), default=0.0)
    left, right, height = 150, 70, 15
    scale = (_WIDTH - left - right) / (most or 1.0)
    parts, y = [], 0
    for model in models:
        parts.append(f'<text x="0" y="{y + 12}" font-weight="600">{_short(model)}</text>')
        y += 17 if len(drawn) > 1 else 0
        for number, run in enumerate(drawn):
            loss = next((one for one in run.losses if one.model == model), None)
            label = (
                f'<text x="{left - 8}" y="{y + 11}" text-anchor="end">{_short(run.label)}</text>'
            )
            name = label if len(drawn) > 1 else ""
            bar = _bar(loss, left, y, scale)
            parts.append(f'<g class="p{number}"><title>{text(run.label)}</title>{name}{bar}</g>')
            y += height
        y += 6
    title = "GPU-hours lost to communication, by model, policy and tier"
    return still(title, _WIDTH, max(y, 20), parts)


def _bar(loss: Loss | None, left: float, y: float, scale: float) -> str:
    x, parts = left, []
    for colour, lost in zip(_TIER_COLOURS, loss.lost_gpu_h if loss else (), strict=False):
        width = lost * scale
        if width > 0.0:
            parts.append(
                f'<rect x="{x:.1f}" y="{y + 2}" width="{width:.2f}" height="10" fill="{colour}"/>'
            )
        x += width
    total = sum(loss.lost_gpu_h) if loss else 0.0
    parts.append(f'<text x="{x + 5:.1f}" y="{y + 11}">{hours(total)}</text>')
    return "".join(parts)


def losses(drawn: Sequence[Digest]) -> Table:
    """Return a table of the losses, one row per model and policy."""
    titles = [
        ("Policy", ""),
        ("Model", ""),
        ("GPU-hours", "Time on GPUs multiplied by their number"),
        ("Lost", "GPU-hours in which progress waited for communication"),
        ("Of all", "Lost share of the GPU-hours of the model"),
    ]
    titles += [
        (f"{tier[:1].upper()}{tier[1:]}", f"GPU-hours lost by gangs {title}")
        for tier, title in zip(TIERS, _TITLES, strict=True)
    ]
    rows = []
    for model in _models(drawn):
        for number, run in enumerate(drawn):
            for loss in (one for one in run.losses if one.model == model):
                total = sum(loss.lost_gpu_h)
                part = total / loss.gpu_h if loss.gpu_h else None
                rows.append(
                    [
                        tables.policy_cell(number, run.label),
                        tables.label_cell(model),
                        of(loss.gpu_h, hours),
                        of(total, hours),
                        of(part, words.share),
                        *(of(lost, hours) for lost in loss.lost_gpu_h),
                    ]
                )
    return Table(titles, rows)


def _models(drawn: Sequence[Digest]) -> list[str]:
    """Return the models with the largest total losses over all runs, largest first."""
    total: dict[str, float] = {}
    for run in drawn:
        for loss in run.losses:
            total[loss.model] = total.get(loss.model, 0.0) + sum(loss.lost_gpu_h)
    return sorted(total, key=lambda model: (-total[model], model))[:_MODELS_SHOWN]


def _short(label: str) -> str:
    return text(short(label, _LABEL_CHARS))
