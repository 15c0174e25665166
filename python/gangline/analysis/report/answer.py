"""Writes the answer: which policy to choose, how much better it is, and at what price.

Each sentence states figures from the tables. Sentences that do not apply are left out.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from gangline._support import formatting as words
from gangline._support import statistics
from gangline.analysis.report import findings, tables, unlike
from gangline.runs import comparison
from gangline.runs.offered_load import known

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gangline.analysis.report.digest import Digest
    from gangline.runs.offered_load import OfferedLoad

    Row = Mapping[str, Any]

__all__ = ["is_repeated", "loads", "on_top", "recommendation"]

# Spaces inside a quantity, such as the three in 2 h 35 min.
_INSIDE = re.compile(
    r"(?<=\d) (?=(?:%|d|h|min|s)(?!\w))|(?:(?<=\d [dh])|(?<=\d min)) (?=\d+ (?:h|min|s)(?!\w))"
)
_OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]*(?: \d+)?")  # with its value


def on_top(runs: Sequence[Digest]) -> list[str]:
    """Return the caveats that are shown first, such as a load that is too light."""
    means = comparison.means(findings.rows(runs))
    offered = loads(runs)
    load, _ = comparison.load_said(offered, means)
    said = (load or comparison.waiting(means, offered), _repeated(runs), *unlike.said(runs))
    return [_kept_together(line) for line in said if line]


def loads(runs: Sequence[Digest]) -> list[OfferedLoad]:
    """Return the offered load of each draw of the trace."""
    found = {run.trace_seed: known(run.spec) for run in runs}
    return [load for load in found.values() if load is not None]


def is_repeated(runs: Sequence[Digest]) -> bool:
    """Return whether there are several seeds but all of them give the same run."""
    return bool(_repeated(runs))


def _repeated(runs: Sequence[Digest]) -> str:
    logs = [str(run.spec.get("log_hash", run.label)) for run in runs]
    return comparison.seeds_said(findings.rows(runs), logs)


def recommendation(means: Sequence[Row], rows: Sequence[Row], runs: Sequence[Digest]) -> str:
    """Return the recommended policy, the size of its lead and its price, as HTML.

    Parameters
    ----------
    means : sequence of dict
        One row per policy.
    rows : sequence of dict
        One row per run, as `findings.rows` returns them.
    runs : sequence of Digest
        All runs from which the rows were computed.
    """
    if len(means) == 1:
        return _kept_together(_result(means[0]))
    if _is_one_schedule(runs):
        return "Every job started and finished at the same time under all policies."
    tied = statistics.tied(rows)
    said = comparison.headline(means, tables.name, tied=tied)
    best, others = comparison.ranking(means, tied)
    if not others:
        return _kept_together(_joined(said, _seeds(best, [], rows)))
    policies = {run.label: run.spec["policy"] for run in runs}
    assumed = comparison.assumptions(means, policies, tables.name, tied=tied)
    unequal = comparison.counted(means, tables.name)
    return _kept_together(_joined(said, unequal, assumed, _seeds(best, others, rows)))


def _kept_together(line: str) -> str:
    """Return a sentence in which quantities and options cannot be split across lines."""
    return _OPTION.sub(r'<code class="short">\g<0></code>', _INSIDE.sub("\u00a0", line))


def _joined(*sentences: str) -> str:
    return " ".join(sentence for sentence in sentences if sentence)


def _result(row: Row) -> str:
    if not row.get("finished"):
        return "No job finished."
    done = words.plural(int(row["finished"]), "job")
    half, most = words.duration(row.get("jct_p50_s")), words.duration(row.get("jct_p99_s"))
    return (
        f"{done} finished; the last one finished after {words.duration(row.get('makespan_s'))}. "
        f"Half of the jobs took at most {half} from arrival to finish, and 99 % at most {most}."
    )


def _is_one_schedule(runs: Sequence[Digest]) -> bool:
    """Return whether, for every seed, all policies produced the same schedule."""
    by_seed: dict[tuple[int, int | None], set[str]] = {}
    for run in runs:
        by_seed.setdefault((run.seed, run.trace_seed), set()).add(
            str(run.spec.get("log_hash", run.label))
        )
    return all(len(logs) == 1 for logs in by_seed.values())


def _seeds(best: Sequence[Row], others: Sequence[Row], rows: Sequence[Row]) -> str:
    """If there are several seeds, say how certain the lead over the next best policy is."""
    first = best[0]["policy"]
    rival = others[0]["policy"] if others else first
    found = {row["policy"]: row for row in statistics.table(rows, baseline=rival)}
    if first not in found or found[first]["seeds"] < 2:
        return ""
    apart, seeds = found[first]["difference"], found[first]["seeds"]
    what = "draws of the trace" if statistics.seed_key(rows) == "trace_seed" else "seeds"
    if first == rival:
        return f"These are means over {seeds} {what}."
    said = f"These are means over {seeds} {what}; {tables.name(first)} was ahead of "
    said += f"{tables.name(rival)} in {apart['less_in']} of them"
    if apart["equal_in"]:
        said += f" and level with it in {apart['equal_in']}"
    if apart["low"] is None or apart["high"] is None:
        return f"{said}."
    ends = (apart["high"], apart["mean"], apart["low"])
    low, mean, high = (words.duration(-value) for value in ends)
    return f"{said}, by {mean} on average (95 % interval {low} to {high})."
