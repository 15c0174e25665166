"""The answer in words: which policy to take, by how much it is better, at what price, and why.

Each sentence states figures of the tables and holds for any runs; what does not apply is left out.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from gangline._support import formatting as words
from gangline._support import statistics
from gangline.analysis.report import findings, tables, unlike
from gangline.analysis.report.tables import text
from gangline.runs import comparison
from gangline.runs.offered_load import known
from gangline.runs.premises import merged, reminder

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gangline.analysis.report.digest import Digest
    from gangline.runs.offered_load import OfferedLoad

    Row = dict[str, Any]

__all__ = ["in_short", "is_repeated", "loads", "on_top", "recommendation"]

# Spaces inside a quantity, such as the three of 2 h 35 min.
_INSIDE = re.compile(
    r"(?<=\d) (?=(?:%|d|h|min|s)(?!\w))|(?:(?<=\d [dh])|(?<=\d min)) (?=\d+ (?:h|min|s)(?!\w))"
)
_OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]*(?: \d+)?")  # with its value
_ENOUGH = 5  # ours: jobs of a group that a sentence may speak of, and at least 1 % of all
_MOST = 0.9  # ours: from this part of a difference on it is said to be the difference
_PRICED = 3  # ours: policies that tie for the best and are spoken of one by one


def on_top(runs: Sequence[Digest]) -> list[str]:
    """Return what a reader must know before anything else, such as a load that is too light."""
    means = comparison.means(findings.rows(runs))
    load, _ = comparison.load_said(loads(runs), means)
    said = (load or comparison.waiting(means), _repeated(runs), *unlike.said(runs))
    return [_kept_together(line) for line in said if line]


def loads(runs: Sequence[Digest]) -> list[OfferedLoad]:
    """Return the load that each draw of the trace offers to the cluster."""
    found = {run.trace_seed: known(run.spec) for run in runs}
    return [load for load in found.values() if load is not None]


def is_repeated(runs: Sequence[Digest]) -> bool:
    """Tell whether there are several seeds, and they change no run."""
    return bool(_repeated(runs))


def _repeated(runs: Sequence[Digest]) -> str:
    logs = [str(run.spec.get("log_hash", run.label)) for run in runs]
    return comparison.seeds_said(findings.rows(runs), logs)


def recommendation(means: Sequence[Row], rows: Sequence[Row], runs: Sequence[Digest]) -> str:
    """Return which policy to take, its size and its price, as HTML.

    Parameters
    ----------
    means : sequence of dict
        One row per policy.
    rows : sequence of dict
        One row per run, as `findings.rows` returns them.
    runs : sequence of Digest
        All runs behind them.
    """
    if len(means) == 1:
        return _kept_together(_result(means[0]))
    off = text(reminder(merged(lack for run in runs for lack in run.lacks)))
    if _is_one_schedule(runs):
        same = "Every job started and finished at the same time under all policies."
        return _kept_together(_joined(same, off))
    tied = statistics.tied(rows)
    said = comparison.headline(means, tables.name, tied=tied)
    best, others = comparison.ranking(means, tied)
    if not others:
        return _kept_together(_joined(said, _seeds(best, [], rows), off))
    policies = {run.label: run.spec["policy"] for run in runs}
    assumed = comparison.assumptions(means, policies, tables.name, tied=tied)
    return _kept_together(_joined(said, assumed, _seeds(best, others, rows), off))


def in_short(means: Sequence[Row], rows: Sequence[Row], runs: Sequence[Digest]) -> str:
    """Return price and reasons in a few sentences, as a list in HTML."""
    lines = _single(means[0]) if len(means) == 1 else _several(means, rows, runs)
    items = "".join(f"<li>{lead}{_kept_together(line)}</li>" for lead, line in lines if line)
    return f'<ul class="findings" aria-label="In short">{items}</ul>' if items else ""


def _kept_together(line: str) -> str:
    """Return a sentence in which no line ends inside a quantity or an option."""
    return _OPTION.sub(r'<code class="short">\g<0></code>', _INSIDE.sub("\u00a0", line))


def _joined(*sentences: str) -> str:
    return " ".join(sentence for sentence in sentences if sentence)


def _lead(word: str) -> str:
    return f"<b>{word}.</b> "


def _result(row: Row) -> str:
    if not row.get("finished"):
        return "No job finished."
    done = words.plural(int(row["finished"]), "job")
    half, most = words.duration(row.get("jct_p50_s")), words.duration(row.get("jct_p99_s"))
    return (
        f"{done} finished; all was done after {words.duration(row.get('makespan_s'))}. Half of the "
        f"jobs took at most {half} from arrival to finish, 99 % at most {most}."
    )


def _single(row: Row) -> list[tuple[str, str]]:
    if not row.get("finished"):
        return []
    wait, used = words.duration(row.get("wait_mean_s")), words.share(row.get("gpu_utilization"))
    why = (
        f"All waiting of a job ({_ALL_WAITING}) came to {wait} on average; {text(used)} of the GPU "
    )
    why += "time was in use."
    return [
        (_lead("Price"), comparison.price(row, tables.name)),
        (_lead("Waiting"), why),
    ]


def _several(
    means: Sequence[Row], rows: Sequence[Row], runs: Sequence[Digest]
) -> list[tuple[str, str]]:
    best, others = comparison.ranking(means, statistics.tied(rows))
    if not others or _is_one_schedule(runs):
        return []
    charged = [comparison.price(row, tables.name) for row in best[:_PRICED]]
    charged.append(_losers(best, others, _groups(runs)))
    pair = [comparison.reference(means, others) or others[-1], best[0]]
    return [
        (_lead("Why"), _difference(*pair)),
        (_lead("Price"), _joined(*charged)),
    ]


def _is_one_schedule(runs: Sequence[Digest]) -> bool:
    """Tell whether all policies made the same run with every seed."""
    by_seed: dict[tuple[int, int | None], set[str]] = {}
    for run in runs:
        by_seed.setdefault((run.seed, run.trace_seed), set()).add(
            str(run.spec.get("log_hash", run.label))
        )
    return all(len(logs) == 1 for logs in by_seed.values())


def _seeds(best: Sequence[Row], others: Sequence[Row], rows: Sequence[Row]) -> str:
    """Say how sure the lead over the best of the others is, if there are several seeds."""
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


def _difference(worst: Row, best: Row) -> str:
    """Split the difference of two mean times to finish into waiting and running."""
    if any(row.get("wait_mean_s") is None for row in (worst, best)):
        return ""
    waits = [float(row["wait_mean_s"]) for row in (worst, best)]
    took = [float(row["jct_mean_s"]) for row in (worst, best)]
    runs = [jct - wait for jct, wait in zip(took, waits, strict=True)]
    gap, waited = took[0] - took[1], waits[0] - waits[1]
    names = [tables.name(row["policy"]) for row in (worst, best)]

    def both(pair: Sequence[float]) -> str:
        return (
            f"{words.duration(pair[0])} on average under {names[0]} and "
            f"{words.duration(pair[1])} under {names[1]}"
        )

    if _MOST * gap <= waited:
        return f"All waiting of a job ({_ALL_WAITING}) came to {both(waits)}."
    if waited <= (1.0 - _MOST) * gap:
        return (
            f"Jobs ran faster rather than waited less: they held GPUs for {both(runs)}, for "
            "reasons such as GPU types, distance, co-runners and restarts."
        )
    said = f"All waiting of a job ({_ALL_WAITING}) came to {both(waits)}"
    return f"{said}; jobs held GPUs for {both(runs)}."


_ALL_WAITING = "all time without GPUs"


Means = dict[str, tuple[int, float]]  # of a group's name: jobs, mean time to finish
Groups = dict[str, dict[str, Means]]  # of a kind, of a policy


def _groups(runs: Sequence[Digest]) -> Groups:
    """Return the groups of jobs that are large enough to speak of, of all seeds together."""
    found: Groups = {kind: {} for kind in _KINDS}
    for run in findings.pooled(runs):
        for kind in _KINDS:
            groups = getattr(run, kind)
            enough = max(_ENOUGH, 0.01 * sum(group.jobs for group in groups))
            found[kind][run.label] = {
                group.name: (group.jobs, group.jct_mean_s)
                for group in groups
                if group.jobs >= enough
            }
    return found


def _losers(best: Sequence[Row], others: Sequence[Row], groups: Groups) -> str:
    """Say which group was delayed most under the best policy, against the policy best for it."""
    if len(best) > 1:
        return ""
    worst = (1.0, "")
    label = best[0]["policy"]
    for kind, phrase in _KINDS.items():
        for name, (jobs, took) in groups[kind][label].items():
            rivals = {
                row["policy"]: groups[kind][row["policy"]][name][1]
                for row in others
                if name in groups[kind][row["policy"]]
            }
            if not rivals:
                continue
            rival = min(rivals, key=lambda one: rivals[one])
            ratio = took / rivals[rival]
            if ratio > worst[0] and not words.is_tie(took, rivals[rival], words.duration):
                worst = (
                    ratio,
                    (
                        f"It does not help every group: {phrase(name)} ({jobs:,}) took "
                        f"{words.duration(took)} on average, under {tables.name(rival)} "
                        f"{words.duration(rivals[rival])}."
                    ),
                )
    return worst[1]


def _of_gpus(name: str) -> str:
    return f"jobs of {name} GPU" + ("" if name == "1" else "s")


def _of_length(name: str) -> str:
    return f"jobs that run {name} when alone"


_KINDS = {"gangs": _of_gpus, "lengths": _of_length}
