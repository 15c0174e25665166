"""`gangline trace info` and `formats`: what is in a trace, and what can be read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gangline.cli import _console
from gangline.cli._inputs import Json, TraceChoice

if TYPE_CHECKING:
    from gangline.trace.table import Trace

_BAR = 32
_STEPS = (1, 10, 60, 600, 3600, 6 * 3600, 86400, 7 * 86400)
_NAMES = ("< 1 s", "< 10 s", "< 1 min", "< 10 min", "< 1 h", "< 6 h", "< 1 d", "< 7 d", "longer")


def info(trace: str, /, *, json: Json = False, choice: TraceChoice | None = None) -> int:
    """Show what is in a trace: counts, quantiles, histograms, provenance, notes.

    Parameters
    ----------
    trace
        A file or a generator.
    json
        Print one JSON document instead of tables.
    choice
        How the trace is read.
    """
    found = (choice or TraceChoice()).read(trace)
    facts = found.info()
    if json:
        _console.document(facts)
        return 0
    rows: list[list[object]] = [
        ["jobs", facts["jobs"]],
        ["span, days", facts["span_s"] / 86400.0],
        ["GPU-hours", facts["gpu_hours"]],
    ]
    for name in ("users", "vcs", "models"):
        if name in facts:
            rows += [[name, facts[name]]]
    for name in ("duration_s", "gpus"):
        if name in facts:
            rows += [[f"{name} {point}", value] for point, value in facts[name].items()]
    _console.table(["", "value"], rows, title=found.path)
    _histograms(found)
    for name, text in facts["metadata"].items():
        _console.write(f"{name}: {text}")
    for name, count in facts["notes"].items():
        _console.write(f"note: {name} {count:,}")
    if "clamp_s" in facts["metadata"]:
        clamp = float(facts["metadata"]["clamp_s"])
        _console.write(f"note: durations are cut at {clamp:,.0f} s; p99 and max mean little")
    return 0


def formats(*, json: Json = False) -> int:
    """List the trace formats that can be read.

    Parameters
    ----------
    json
        Print one JSON document instead of a table.
    """
    from gangline.trace.formats import FORMATS

    if json:
        _console.document([{"name": item.name, "summary": item.summary} for item in FORMATS])
        return 0
    _console.table(["format", "what it is"], [[item.name, item.summary] for item in FORMATS])
    return 0


def _histograms(trace: Trace) -> None:
    import numpy as np

    if "duration_s" in trace.columns:
        durations = trace.numbers("duration_s")
        durations = durations[~np.isnan(durations)]
        counts = np.bincount(np.searchsorted(_STEPS, durations, "right"), minlength=len(_NAMES))
        _bars("duration", list(zip(_NAMES, counts.tolist(), strict=True)))
    sizes, counts = np.unique(trace.numbers("gpus"), return_counts=True)
    order = np.argsort(-counts, kind="stable")[:10]
    chosen = sorted(zip(sizes[order].tolist(), counts[order].tolist(), strict=True))
    _bars("GPUs (commonest)", [(str(size), count) for size, count in chosen])
    hours = (trace.numbers("arrival_s") // 3600 % 24).astype(int)
    per_hour = np.bincount(hours, minlength=24)
    spark = "".join(" ▁▂▃▄▅▆▇█"[round(8 * count / per_hour.max())] for count in per_hour)
    _console.write(f"arrivals by hour since the first: {spark}\n")


def _bars(title: str, rows: list[tuple[str, int]]) -> None:
    most = max(count for _, count in rows)
    width = max(len(name) for name, _ in rows)
    _console.write(title)
    for name, count in rows:
        bar = "█" * round(_BAR * count / most) or ("▏" if count else "")
        _console.write(f"  {name:>{width}} {bar:<{_BAR}} {count:,}")
    _console.write("")
