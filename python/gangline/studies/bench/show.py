"""Shows the standings as tables, in words, and as a page."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gangline._support.formatting import listed, plural, times
from gangline.studies.bench.entries import CLASSES

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from gangline.studies.bench.run import Bench

    Row = Mapping[str, Any]

__all__ = ["TITLES", "answers", "cells", "loads", "sentences", "standings", "tables", "write_page"]

TITLES = ("place", "policy", "mean rank", "speedup", "preempt. per job", "ms per run", "result")
_SHORT = (("rank", "{:.1f}"), ("speedup", "{:.2f}"))
_LONG_S = 0.1  # above this, a tenth of a millisecond does not matter


def tables(done: Bench) -> list[tuple[str, list[str], list[list[str | float | None]]]]:
    """Return titled tables, one per class of knowledge; tables of real traces come last."""
    return [(title, list(TITLES), [cells(row) for row in mine]) for title, mine in _groups(done)]


def standings(done: Bench) -> list[tuple[str, list[str], list[list[str | float | None]]]]:
    """Return narrower tables that fit lines of 80 characters, without the column `result`."""
    titles = list(TITLES[:-1])
    return [(title, titles, [_short(row) for row in mine]) for title, mine in _groups(done)]


def _short(row: Row) -> list[str | float | None]:
    place, policy, _, _, stops, run_ms, _ = cells(row)
    if row.get("failed"):
        run_ms = "failed"
    elif row.get("run_s") is not None and row["run_s"] >= _LONG_S:
        run_ms = f"{1000.0 * row['run_s']:,.0f}"
    between = (_between(row, key, form, "{} ({}, {})") for key, form in _SHORT)
    return [place, policy, *between, stops, run_ms]


def loads(done: Bench) -> list[tuple[str, list[str], list[list[str | float | None]]]]:
    """Return a table of the offered loads by workload and cluster; none if no run finished."""
    known = sorted({one["load"] for one in done.offered_loads})
    found: dict[tuple[str, str], dict[float, float]] = {}
    for one in done.offered_loads:
        of = found.setdefault((one["workload"], one["cluster"]), {})
        of[one["load"]] = one["offered_load"]
    titles = ["workload", "cluster", *(f"at {load:g}" for load in known)]
    rows: list[list[str | float | None]] = [
        [*names, *(times(of.get(load)) for load in known)] for names, of in found.items()
    ]
    return [("Offered load of the worlds, mean over the seeds", titles, rows)] if rows else []


def _groups(done: Bench) -> list[tuple[str, list[Row]]]:
    """Return the rows of each class of knowledge under a title; real traces come last."""
    found: list[tuple[str, list[Row]]] = []
    for rows, where in ((done.rows, ""), (done.real_rows, ", real traces")):
        for name, words in CLASSES.items():
            mine: list[Row] = [row for row in rows if row["knowledge"] == name]
            if mine:
                found.append((f"Knows {words}{where}", mine))
    return found


def cells(row: Row) -> list[str | float | None]:
    """Return the cells of a row; a policy whose runs failed has no rank."""
    run_ms = None if row.get("run_s") is None else round(1000.0 * row["run_s"], 1)
    result = "now" if row.get("run", True) else "published"
    if row.get("failed"):
        result = f"{plural(row['failed'], 'run')} of {row['runs']:,} failed"
    stops = row.get("preemptions_per_job")
    return [
        row["place"] or "–",
        row["policy"],
        _between(row, "rank", "{:.2f}"),
        _between(row, "speedup", "{:.2f}x"),
        "–" if stops is None else times(stops),
        "–" if run_ms is None else f"{run_ms:,.1f}",
        result,
    ]


def answers(done: Bench) -> list[str]:
    """Say which policies are best among those with the same knowledge, and which runs failed."""
    said = []
    for title, mine in _groups(done):
        best = [row["policy"] for row in mine if row["place"] == 1]
        if 0 < len(best) < len(mine):
            said.append(f"{title}: the best {'is' if len(best) == 1 else 'are'} {listed(best)}.")
    for run in {run["policy"]: run for run in reversed(done.failed)}.values():
        world = f"{run['workload']}, {run['cluster']}, load {run['load']:g}"
        said.append(f"Failed: {run['policy']} on {world}: {run['error']}: {run['message']}")
    return said


def sentences(done: Bench) -> list[str]:
    """Return sentences that describe the runs and explain the tables."""
    suite = done.suite
    part = "A small part of suite" if done.is_quick else "Suite"
    worlds, seeds = plural(len(done.worlds), "world"), plural(len(suite.seeds), "seed")
    if len(done.worlds) == 1:
        one = done.worlds[0]
        worlds += (
            f" ({one.workload}, {one.cluster}, load {one.load:g}, restarts of {one.restart_s:g} s)"
        )
    runs_each = plural(len(done.worlds) * len(suite.seeds), "run")
    what = (
        f"{part} {suite.version} (sha256 {suite.digest[:12]}): {worlds}, {seeds}, {runs_each} per"
    )
    how = (
        "Policies are ranked by mean JCT in each world and seed, among those with the same "
        f"knowledge; ranks are averaged. Speedup is the mean JCT of {suite.baseline} divided by "
        "that of the policy, as the geometric mean over the worlds. Intervals are 95 % intervals "
        "over the seeds. Policies that the seeds do not distinguish from the best of their class "
        "share its place. Policies without a time per run were not run: their rows are as "
        "published."
    )
    said = [f"{what} policy.", how]
    if done.real_worlds:
        names = listed(list(dict.fromkeys(world.workload for world in done.real_worlds)))
        more = plural(len(done.real_worlds), "world")
        said.append(f"Real traces: {names}, {more}; policies are ranked among those run now.")
    return said


def write_page(done: Bench, path: Path, command: str = "") -> None:
    """Write one self-contained HTML page.

    Raises
    ------
    ResultError
        If the path names a file that is not such a page.
    OSError
        If the file cannot be written.
    """
    from gangline.analysis import report

    about = f"Mean JCT of {done.suite.baseline} divided by the policy's; right of 1 is better."
    pictures = []
    for name, mine in _groups(done):
        bars = [report.Bar(row["policy"], (_mark(row),)) for row in mine if row.get("speedup")]
        if bars:
            pictures.append((name, about, report.intervals(name, bars, [done.suite.baseline])))
    title = f"gangline bench, suite {done.suite.version}"
    report.write_tables(
        title,
        [*answers(done), *sentences(done)],
        [*_by_name(done), *loads(done)],
        path,
        command=command,
        pictures=pictures,
    )


def _by_name(done: Bench) -> list[tuple[str, Sequence[str], Sequence[Sequence[Any]]]]:
    """Return the tables for the page; the first column is the policy, which labels the rows."""
    order = [1, 0, *range(2, len(TITLES))]
    return [
        (title, [heads[i] for i in order], [[row[i] for i in order] for row in rows])
        for title, heads, rows in tables(done)
    ]


def _mark(row: Row) -> Any:
    from gangline.analysis.report import Interval

    low = row["speedup_low"]
    return Interval(0, row["speedup"], None if low is None else (low, row["speedup_high"]))


def _between(row: Row, key: str, form: str, whole: str = "{} ({} to {})") -> str:
    """Return a mean and its interval as a string."""
    value, low, high = (row.get(name) for name in (key, f"{key}_low", f"{key}_high"))
    if value is None:
        return "–"
    shown = form.format(value)
    return shown if low is None else whole.format(shown, form.format(low), form.format(high))
