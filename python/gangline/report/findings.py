"""What the numbers say, in words: the findings, the columns on fairness, where GPU time went."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gangline import _words as words
from gangline.comparison import means as mean_rows
from gangline.report.tables import text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gangline.report.digest import Digest


__all__ = ["fairness_columns", "gpu_time", "in_short", "means"]


def fairness_columns(whom: str) -> tuple[words.Measure, ...]:
    """Return the columns of the fairness table; `whom` evenness is taken between."""
    return (
        ("ftf_mean", "Mean", "1: as on an equal share", words.times, -1),
        ("ftf_p99", "99 % are below", "", words.times, -1),
        ("ftf_max", "Worst job", "", words.times, -1),
        ("worse", "Jobs worse off", "Share of jobs above 1", words.share, -1),
        ("jain", f"Evenness between {whom}", "Jain's index: 1 is even", words.times, 1),
    )


def means(runs: Sequence[Digest]) -> list[dict[str, Any]]:
    """Return one row per policy: its summary, averaged over the seeds."""
    return mean_rows([{"policy": run.label, "seed": run.seed, **run.summary} for run in runs])


def gpu_time(row: dict[str, Any]) -> dict[str, float]:
    """Split all GPU time until the last finish into parts that sum to one.

    Overhead and distance are fractions of the time held. With two jobs on a GPU the time held
    counts it twice, so the losses are scaled to what of the busy time was not useful.
    """
    busy = min(_known(row, "gpu_utilization"), 1.0)
    useful = min(_known(row, "useful_utilization"), busy)
    overhead = busy * _known(row, "overhead_fraction")
    distance = busy * _known(row, "comm_fraction")
    lost = busy - useful
    if overhead + distance > lost and overhead + distance > 0.0:
        scale = lost / (overhead + distance)
        overhead, distance = overhead * scale, distance * scale
    fragment = min(_known(row, "fragmentation"), 1.0 - busy)
    # Sums of floats leave crumbs that would read as a loss.
    neighbour = lost - overhead - distance
    return {
        "useful": useful,
        "overhead": overhead,
        "distance": distance,
        "neighbour": neighbour if neighbour > 1e-9 else 0.0,
        "fragment": fragment,
        "idle": 1.0 - busy - fragment,
    }


def _known(row: dict[str, Any], key: str) -> float:
    value = row.get(key)
    is_number = isinstance(value, (int, float)) and value == value
    return max(float(value), 0.0) if is_number else 0.0  # type: ignore[arg-type]


def in_short(means: Sequence[dict[str, Any]], drawn: Sequence[Digest]) -> str:
    """Return the findings as a list, with the names of policies safe for HTML."""
    lines = _single(means[0]) if len(means) == 1 else _several(means, drawn)
    items = "".join(f"<li>{line}</li>" for line in lines)
    return f'<ul class="findings" aria-label="In short">{items}</ul>' if items else ""


def _single(row: dict[str, Any]) -> list[str]:
    if not row.get("finished"):
        return ["No job finished."]
    done = words.plural(int(row["finished"]), "job")
    half, most = words.duration(row.get("jct_p50_s")), words.duration(row.get("jct_p99_s"))
    wait, used = words.duration(row.get("queue_mean_s")), words.share(row.get("gpu_utilization"))
    return [
        f"{done} finished; all was done after {words.duration(row.get('makespan_s'))}.",
        f"Half of the jobs were done within {half} of their arrival, 99 % within {most}.",
        f"A job waited {wait} for its first start on average; {used} of the GPU time was in use.",
    ]


def _several(means: Sequence[dict[str, Any]], drawn: Sequence[Digest]) -> list[str]:
    lines = []
    span = _ends(means, "jct_mean_s")
    if span is not None:
        best, worst = span
        a, b = best["jct_mean_s"], worst["jct_mean_s"]
        lines.append(
            f"{_names(means, 'jct_mean_s', a)} finished jobs soonest: {words.duration(a)} on "
            f"average, against {words.duration(b)} under {_names(means, 'jct_mean_s', b)}."
        )
        knows = {run.label: run.spec["policy"].get("knowledge") for run in drawn}
        if knows.get(best["policy"]) == "remaining" and "online" in knows.values():
            blind = [row for row in means if knows[row["policy"]] == "online"]
            rest = min(blind, key=lambda row: float(row.get("jct_mean_s") or 0.0))
            lines.append(
                "It is told how long jobs run, which a real cluster seldom knows. The soonest "
                f"without that: {_name(rest)}, {words.duration(rest['jct_mean_s'])}."
            )
    for key, said, form in (
        ("queue_mean_s", "Shortest wait for the first start", words.duration),
        ("jct_max_s", "Shortest worst case", words.duration),
        ("ftf_max", "Fairest to the job that fared worst, against an equal share", words.times),
    ):
        span = _ends(means, key)
        if span is not None:
            a, b = span[0][key], span[1][key]
            lines.append(
                f"{said}: {_names(means, key, a)} ({form(a)}); longest: {_names(means, key, b)} "
                f"({form(b)})."
                if key != "ftf_max"
                else f"{said}: {_names(means, key, a)} ({form(a)} times); least fair: "
                f"{_names(means, key, b)} ({form(b)} times)."
            )
    return lines or [_alike(means)]


def _alike(means: Sequence[dict[str, Any]]) -> str:
    if any(_known(row, "wait_mean_s") > 0.0 for row in means):
        return "The policies do not differ in what is measured here."
    used = words.share(means[0].get("gpu_utilization"))
    return f"No job waited ({used} of the GPU time was in use): {words.NO_WAIT}."


def _ends(
    means: Sequence[dict[str, Any]], key: str
) -> tuple[dict[str, Any], dict[str, Any]] | None:
    """Return the rows with the least and the greatest value, None if all are equal."""
    known = [row for row in means if isinstance(row.get(key), (int, float))]
    if len({row[key] for row in known}) < 2:
        return None
    return min(known, key=lambda row: float(row[key])), max(known, key=lambda row: float(row[key]))


def _names(means: Sequence[dict[str, Any]], key: str, value: float) -> str:
    found = [_name(row) for row in means if row.get(key) == value]
    return found[0] if len(found) == 1 else ", ".join(found[:-1]) + " and " + found[-1]


def _name(row: dict[str, Any]) -> str:
    return f"<bdi><strong>{text(row['policy'])}</strong></bdi>"
