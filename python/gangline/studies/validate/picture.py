"""Draws static figures of simulated against observed JCTs: dots and cumulative curves."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from gangline._support.look import COLOURS, ticks_s
from gangline.analysis.report._svg import draw, still
from gangline.analysis.report.charts import Chart, Line, shares
from gangline.studies.validate.layers import LAYERS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gangline.studies.validate.observed import Floats

__all__ = ["pictures"]

_SIZE, _LEFT, _BOTTOM, _TOP = 360, 64, 44, 14
_LEAST_S = 1.0  # a logarithmic axis has no zero
_DOTS = 2000  # our own choice: if there are more jobs, only every n-th is drawn, in trace order
_STEPS = 600  # our own choice: maximum number of points in a curve


def pictures(
    policy: str, number: int, observed_s: Floats, layers: Mapping[str, Floats]
) -> list[tuple[str, str]]:
    """Return the figures for one policy, each as (how to read it, SVG element).

    Parameters
    ----------
    policy, number : str, int
        Label of the policy, and its index on the page.
    observed_s : float64 array
        Observed JCTs.
    layers : mapping of str to float64 array
        JCTs of the same jobs, keyed by layer.
    """
    step = math.ceil(len(observed_s) / _DOTS)
    fewer = f" One job in {step} is drawn." if step > 1 else ""
    drawn = []
    for layer, simulated_s in layers.items():
        name = f"{policy}, {LAYERS[layer]}"
        about = (
            f"{name}: a dot is a job. On the diagonal, the simulated JCT equals the observed one; "
            f"above it, the simulation is too slow.{fewer}"
        )
        drawn.append((about, _scatter(observed_s[::step], simulated_s[::step], name)))
    named = {"observed": observed_s, **{LAYERS[layer]: of for layer, of in layers.items()}}
    about = "The share of jobs that finish within a given time after arrival."
    return [*drawn, (about, draw(_curves(named, policy, f"jct-{number}")))]


def _curves(columns: Mapping[str, Floats], policy: str, key: str) -> Chart:
    lines = []
    for number, (name, values) in enumerate(columns.items()):
        points = np.sort(values)
        if len(points) > _STEPS:
            points = np.quantile(points, np.linspace(0.0, 1.0, _STEPS))
        lines.append(Line(number, name, *shares(points, _LEAST_S)))
    return Chart(
        key, f"{policy}: time to finish", "", "time since arrival", "share of jobs", lines,
        "seconds", "share", is_step=True,
    )  # fmt: skip


def _scatter(observed: Floats, simulated: Floats, name: str) -> str:
    """Return a scatter plot with a dot per job, on two logarithmic axes with the same scale."""
    both = np.maximum(np.concatenate([observed, simulated]), _LEAST_S)
    low, high = float(both.min()), float(both.max())
    high = max(high, 2.0 * low)
    room = _SIZE - _LEFT - _TOP
    base = _SIZE - _BOTTOM
    tall = base - _TOP

    def part(values: Floats) -> Floats:
        scaled: Floats = np.log(np.maximum(values, _LEAST_S) / low) / math.log(high / low)
        return scaled

    parts = [
        f'<path d="M{_LEFT} {_TOP}V{base}H{_LEFT + room}" fill="none" stroke="#888"/>',
        f'<path d="M{_LEFT} {base}L{_LEFT + room} {_TOP}" stroke="#888" stroke-dasharray="3 3"/>',
    ]
    end = -math.inf
    for value, label in ticks_s(low, high).items():
        at = float(part(np.array([value]))[0])
        x, y = _LEFT + room * at, base - tall * at
        if x - 20.0 < end:
            continue
        end = x + 20.0
        parts.append(f'<text x="{x:.1f}" y="{base + 16}" text-anchor="middle">{label}</text>')
        parts.append(f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{label}</text>')
    places = zip(part(observed).tolist(), part(simulated).tolist(), strict=True)
    parts += [
        f'<circle cx="{_LEFT + room * x:.1f}" cy="{base - tall * y:.1f}" r="2.5" '
        f'fill="{COLOURS[0]}" fill-opacity=".5"/>'
        for x, y in places
    ]
    middle = _LEFT + room / 2
    parts.append(
        f'<text x="{middle:.1f}" y="{_SIZE - 8}" text-anchor="middle">observed JCT</text>'
        f'<text x="12" y="{base / 2:.1f}" text-anchor="middle" '
        f'transform="rotate(-90 12 {base / 2:.1f})">simulated JCT</text>'
    )
    return still(f"{name}: simulated against observed JCT", _SIZE, _SIZE, parts)
