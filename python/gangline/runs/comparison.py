"""Defines `Comparison`: a table of runs that can be shown and saved."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeGuard, cast

import pyarrow as pa

from gangline._support import formatting, statistics
from gangline._support.safe import safe
from gangline.errors import PolicyError
from gangline.files.json_files import write_sealed
from gangline.files.places import check_free
from gangline.policies.choice import of_spec
from gangline.runs import arrival_window
from gangline.runs.estimates import given_to
from gangline.runs.offered_load import in_words, shown
from gangline.runs.plots import ComparisonPlots
from gangline.runs.premises import lacks, reminder
from gangline.runs.result_folder import check

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from os import PathLike

    from gangline._support.builtin_values import Json
    from gangline._support.statistics import Standing
    from gangline.cluster.description import Cluster
    from gangline.policies.choice import ChosenPolicy
    from gangline.runs.offered_load import OfferedLoad
    from gangline.runs.result import Result
    from gangline.runs.summary import MeanRow, PolicyEntry, RunRow, SummaryKey
    from gangline.trace.jobs.table import Trace

__all__ = [
    "KIND",
    "Comparison",
    "assumptions",
    "check_out",
    "counted",
    "headline",
    "leaders",
    "load_said",
    "means",
    "ranking",
    "run_name",
    "seeds_said",
    "waiting",
]

_JSON = "comparison.json"
KIND = "comparison"
"""The kind of file, as it is named in the seal of comparison.json."""
# Our own choice: policies hardly differ if waits are at most this fraction of the mean JCT, and
# mean JCTs are at most this fraction apart.
_HARDLY = 0.05
_LABEL_MAX = 120  # Our own choice: file systems limit names to 255 bytes.
# Our own choice: a policy is mentioned as calmer if it has at most this fraction of the preemptions
# and migrations.
_CALM = 0.5
_NEAR = 1.25  # Our own choice: the calmer policy's mean JCT is at most this many times as long.


class Comparison:
    """Summaries of several runs on one trace and one cluster.

    Attributes
    ----------
    cluster, trace : Cluster, Trace
        The cluster and the trace of all runs.
    rows : list of dict
        For each run, the policy, the seed, and every summary key.
    results : list of Result
        The results of the runs; empty if only the summaries were kept.

    Examples
    --------
    >>> import gangline as gl
    >>> lab = gl.Cluster.homogeneous(servers=2, gpus=4)
    >>> trace = gl.synth.pai(jobs=200, seed=1, max_gpus=8, load=1, cluster_gpus=8)
    >>> found = gl.compare(lab, trace, ["fifo", "srtf"])
    >>> [(row["policy"], round(row["jct_mean_s"])) for row in found.rows]
    [('fifo', 27292), ('srtf', 6240)]
    >>> print(found.sentences()[0])
    srtf cuts the mean time to finish by 77 % against fifo (1 h 44 min against 7 h 35 min), ...
    """

    def __init__(self, *, cluster: Cluster, trace: Trace) -> None:
        self.cluster = cluster
        self.trace = trace
        self.rows: list[RunRow] = []
        self.results: list[Result] = []
        self._log_hashes: list[str] = []
        self._loads: dict[int | None, OfferedLoad] = {}  # keyed by trace seed
        self._window: arrival_window.Window | None = None
        self._contenders: dict[str, ChosenPolicy] = {}
        self._policies: dict[str, PolicyEntry] = {}  # as described in the specs of the runs

    def add(self, result: Result, *, keep: bool = True, trace_seed: int | None = None) -> None:
        """Append a run; `trace_seed` is the seed of its trace if there are several draws."""
        drawn = {} if trace_seed is None else {"trace_seed": trace_seed}
        row = {"policy": result.policy, "seed": result.seed, **drawn, **result.summary}
        self.rows.append(cast("RunRow", row))
        self._log_hashes.append(result.log_hash)
        self._window = arrival_window.of_spec(result.spec)
        if result.offered_load is not None:
            self._loads[trace_seed] = result.offered_load
        self._contenders[result.policy] = of_spec(result.spec["policy"])
        self._policies[result.policy] = result.spec["policy"]
        if keep:
            self.results.append(result)

    @property
    def labels(self) -> list[str]:
        """The labels of the policies, in the order of their first run."""
        return list(dict.fromkeys(row["policy"] for row in self.rows))

    @property
    def offered_loads(self) -> list[OfferedLoad]:
        """The offered load for each draw of the trace."""
        return list(self._loads.values())

    @property
    def _counted(self) -> str:
        """A sentence on the jobs that the metrics cover; empty without `count_arrivals`."""
        return arrival_window.sentence(self._window, [row["jobs"] for row in self.rows])

    @property
    def plot(self) -> ComparisonPlots:
        """The figures of the runs, such as `comparison.plot.bars("jct_mean_s")`."""
        return ComparisonPlots(self)

    @property
    def table(self) -> pa.Table:
        """A table with one row for each run: policy, seed, and every summary key."""
        names = list(dict.fromkeys(key for row in self.rows for key in row))
        return pa.table({name: [row.get(name) for row in self.rows] for name in names})

    def means(self) -> list[MeanRow]:
        """Return one row for each policy, with each summary key averaged over the seeds."""
        return means(self.rows)

    def verdict(self) -> tuple[list[str], list[list[str]], list[list[bool]]]:
        """Return the titles, the cells as text, and whether each cell is the best in its column.

        `leaders` defines which values are marked in addition to the best one. A column in which all
        values tie has no mark.
        """
        means: Sequence[Row] = self.means()
        titles = ["policy", *(measure.short for measure in formatting.MEASURES)]
        cells = [[str(row["policy"])] for row in means]
        best = [[False] for _ in means]
        for measure in formatting.MEASURES:
            form = formatting.brief if measure.form is formatting.duration else measure.form
            values = [row.get(measure.key) for row in means]
            marks = leaders(self.rows, means, measure._replace(form=form))
            for line, marked, value, mark in zip(cells, best, values, marks, strict=True):
                line.append(form(value))
                marked.append(mark)
        return titles, cells, best

    def tied(self, key: SummaryKey = "jct_mean_s", direction: int = -1) -> list[str]:
        """Return the policy with the best mean, and those that do not differ significantly from it.

        A policy differs from the best one if the 95 % interval of their per-seed differences
        excludes 0. The result is empty with fewer than five seeds, or if a run has no value.

        Parameters
        ----------
        key : str
            Key of the summary.
        direction : int
            -1 if less is better, 1 if more is better.
        """
        return statistics.tied(self.rows, key, direction)

    def statistics(
        self, key: SummaryKey = "jct_mean_s", *, baseline: str | None = None
    ) -> list[Standing]:
        """Return the mean over seeds, the difference from a baseline, and the rank of each policy.

        Parameters
        ----------
        key : str
            Key of the summary.
        baseline : str, optional
            Label of a policy; by default, the first policy.

        Returns
        -------
        list of dict
            The keys are policy, mean, low, high, seeds, difference (with the keys mean, low, high,
            less_in, equal_in) and rank (the mean rank; 1 = least). A difference is a value minus
            the baseline's value with the same seed. low and high are the ends of the 95 % bootstrap
            interval, or None with fewer than five seeds. A policy is left out if at least one of
            its runs has no value.

        Raises
        ------
        PolicyError
            If the baseline is not among the policies.

        Examples
        --------
        >>> import gangline as gl
        >>> lab = gl.Cluster.homogeneous(servers=2, gpus=4)
        >>> jobs = "synth:pai?jobs=100&seed=0&max_gpus=8"
        >>> table = gl.compare(lab, jobs, ["fifo", "srtf"], trace_seeds=range(5))
        >>> [(row["policy"], row["seeds"], row["rank"]) for row in table.statistics()]
        [('fifo', 5, 2.0), ('srtf', 5, 1.0)]
        """
        if baseline is not None and baseline not in self.labels:
            known = ", ".join(self.labels)
            message = f"baseline: `{baseline}` is not among the policies: {known}"
            raise PolicyError(message, field="baseline", value=baseline)
        return statistics.table(self.rows, key, baseline)

    def sentences(self, *, baseline: str | None = None) -> list[str]:
        """Return sentences that recommend a policy and explain the comparison.

        For example, they name the assumptions of the best policy, or note that jobs hardly waited.

        Parameters
        ----------
        baseline : str, optional
            Label of a policy; by default, the first policy.
        """
        means, tied = self.means(), self.tied()
        first, later = load_said(self.offered_loads, means)
        said = (
            self._counted,
            first,
            headline(means, tied=tied, baseline=baseline),
            counted(means),
            assumptions(means, self._policies, tied=tied),
            later,
            reminder(lacks(self.cluster, self.trace, self._contenders.values())),
            self.seeds_said(),
        )
        return [line for line in said if line]

    def seeds_said(self) -> str:
        """Return a note if there are several seeds but they do not change any run."""
        return seeds_said(self.rows, self._log_hashes)

    def to_dict(self) -> dict[str, Json]:
        """Return, as plain values, everything except the tables of the runs."""
        data: dict[str, Any] = {
            "trace": {
                "path": self.trace.path,
                "jobs": len(self.trace),
                "sha256": self.trace.sha256,
            },
            "cluster": self.cluster.to_dict(),
            **({} if self._window is None else {"count_arrivals": list(self._window)}),
            "offered_load": [load.to_dict() for load in self.offered_loads],
            "policies": self.means(),
            "statistics": self.statistics(),
            "reading": self.sentences(),
            "runs": [
                {**row, "log_hash": log_hash}
                for row, log_hash in zip(self.rows, self._log_hashes, strict=True)
            ],
        }
        return data

    def save(self, folder: str | PathLike[str]) -> Path:
        """Write comparison.json and one result folder for each run that was kept.

        Raises
        ------
        FileExistsError
            If one of them would replace anything other than an earlier result of the same kind.
        OSError
            If something cannot be written.
        """
        folder = Path(folder)
        named: dict[str, Result] = {}
        kept: Sequence[Row] = self.rows
        if len(kept) != len(self.results):
            kept = [{} for _ in self.results]
        for result, row in zip(self.results, kept, strict=True):
            name = plain_name = run_name(result.policy, result.seed, row.get("trace_seed"))
            taken = {other.lower() for other in named}
            # labels may differ only in characters that folder names cannot contain
            while name.lower() in taken:
                name = f"{plain_name}-{len(taken) + 1}"
            named[name] = result
        check_out(folder, named)
        for name, result in named.items():
            result.save(folder / name)
        write_sealed(folder / _JSON, KIND, self.to_dict())
        return folder

    def __repr__(self) -> str:
        titles, cells, _ = self.verdict()
        lines = [titles, *([safe(cell) for cell in row] for row in cells)]
        widths = [max(len(line[i]) for line in lines) for i in range(len(titles))]
        return "\n".join(
            "  ".join(
                cell.ljust(width) if i == 0 else cell.rjust(width)
                for i, (cell, width) in enumerate(zip(line, widths, strict=True))
            )
            for line in lines
        )

    def _repr_html_(self) -> str:
        from gangline._support.html import table

        _, _, best = self.verdict()
        titles = ["Policy", *(measure.title for measure in formatting.MEASURES)]
        means: Sequence[Row] = self.means()
        rows = [
            [row["policy"], *(one.form(row.get(one.key)) for one in formatting.MEASURES)]
            for row in means
        ]
        caption = f"{self.trace!r} on {self.cluster.name}"
        caption += f". {self._counted}" if self._counted else ""
        return table(titles, rows, caption=caption, best=best)


def means(rows: Sequence[Mapping[str, Any]]) -> list[MeanRow]:
    """Return one row of means over the seeds for each policy, in the order of their first runs.

    Parameters
    ----------
    rows : sequence of dict
        For each run, the policy, the seed, and summary keys.
    """
    averaged = []
    for label in dict.fromkeys(row["policy"] for row in rows):
        runs = [row for row in rows if row["policy"] == label]
        mean: dict[str, Any] = {"policy": label, "seeds": len(runs)}
        for key in runs[0]:
            values = [run.get(key) for run in runs]
            known = [value for value in values if _is_number(value)]
            if key in ("policy", "seed", "trace_seed") or len(known) < len(values):
                continue
            mean[key] = known[0] if len(runs) == 1 else sum(known) / len(known)
        averaged.append(cast("MeanRow", mean))
    return averaged


def leaders(rows: Sequence[Row], means: Sequence[Row], measure: formatting.Measure) -> list[bool]:
    """Mark the best policies of a column.

    With five seeds or more, these are the best policy and all policies that do not differ
    significantly from it. With fewer seeds, these are the best policy and all policies whose values
    are within 1 % of the best value or are displayed identically. If all policies tie, none is
    marked.

    Parameters
    ----------
    rows : sequence of dict
        One row per run, with policy and seed.
    means : sequence of dict
        One row per policy, as `means` returns them.
    measure : Measure
        The column.
    """
    values = [row.get(measure.key) for row in means]
    marks = formatting.leaders(values, measure.direction, measure.form)
    tied = statistics.tied(rows, measure.key, measure.direction) if any(marks) else []
    if not tied:
        return marks
    marks = [row["policy"] in tied for row in means]
    return marks if not all(marks) else [False] * len(marks)


def seeds_said(rows: Sequence[Mapping[str, Any]], log_hashes: Sequence[str]) -> str:
    """Return a note if there are several seeds but they do not change any run.

    Parameters
    ----------
    rows : sequence of dict
        One row per run, with policy and seed.
    log_hashes : sequence of str
        Hashes of the results of these runs, in the same order.
    """
    logs: dict[str, set[str]] = {}
    for row, log in zip(rows, log_hashes, strict=True):
        logs.setdefault(row["policy"], set()).add(log)
    key = statistics.seed_key(rows)
    seeds = {row[key] for row in rows}
    if len(seeds) < 2 or any(len(of) > 1 for of in logs.values()):
        return ""
    hint = "; --trace-seeds 0..9 draws a synthetic trace anew" if key == "seed" else ""
    return f"The {len(seeds)} seeds change nothing: every run of a policy is the same{hint}."


Row = Mapping[str, Any]
Name = Callable[[str], str]


def ranking(means: Sequence[Row], tied: Sequence[str] = ()) -> tuple[list[Row], list[Row]]:
    """Return the policies that tie for the best mean JCT, and the others, best first.

    If all policies tie, the second list is empty. Policies under which no job finished are left
    out.
    """
    known = [row for row in means if _is_number(row.get("jct_mean_s"))]
    known.sort(key=lambda row: float(row["jct_mean_s"]))
    if not known:
        return [], []
    top = known[0]["jct_mean_s"]
    if tied:  # the seeds cannot distinguish these policies
        return (
            [row for row in known if row["policy"] in tied],
            [row for row in known if row["policy"] not in tied],
        )
    is_best = [formatting.is_tie(row["jct_mean_s"], top, formatting.duration) for row in known]
    best = [row for row, mark in zip(known, is_best, strict=True) if mark]
    return best, [row for row, mark in zip(known, is_best, strict=True) if not mark]


def headline(
    means: Sequence[Row],
    name: Name = str,
    *,
    tied: Sequence[str] = (),
    baseline: str | None = None,
) -> str:
    r"""Recommend a policy in one sentence that states its lead and its cost.

    The lead is given relative to the best other policy and to the baseline.

    Parameters
    ----------
    means : sequence of dict
        One row per policy, as `means` returns them.
    name : callable
        Function that formats the label of a policy.
    tied : sequence of str
        Labels of the policies that tie for the best; by default, those within 1 %.
    baseline : str, optional
        Label of a policy; by default, the first policy.

    Returns
    -------
    str
        The sentence; empty if fewer than two policies finished any job.

    Examples
    --------
    >>> rows = [
    ...     {"policy": "fifo", "jct_mean_s": 90.0, "preemptions": 0},
    ...     {"policy": "sjf", "jct_mean_s": 50.0, "preemptions": 0},
    ...     {"policy": "srtf", "jct_mean_s": 45.0, "preemptions": 3},
    ... ]
    >>> print(headline(rows).replace(", ", ",\n"))
    srtf cuts the mean time to finish by 10 % against sjf,
    the best of the others (45 s against 50 s),
    and by 50 % against fifo,
    the baseline (1 min 30 s),
    at 3 preemptions; sjf preempts and moves no job.
    """
    best, others = ranking(means, tied)
    if len(best) + len(others) < 2:
        return ""
    took = _took(best[0])
    is_alike = len({_took(row) for row in best}) == 1
    # With several seeds, policies that tie can have different means, so their leads differ.
    level = best if is_alike or not tied else best[:1]
    names = formatting.listed([name(row["policy"]) for row in (level if others else best)])
    if not others:
        if tied and not is_alike:
            return (
                f"{names} do not differ significantly across the seeds: their mean times to finish "
                f"are {took} to {_took(best[-1])}{_calmest(best, name)}."
            )
        within = "" if is_alike else ", within 1 %"
        return f"{names} have the same mean time to finish{within}: {took}{_calmest(best, name)}."
    next_best, _ = ranking(others)
    label = means[0]["policy"] if baseline is None else baseline
    base = next((row for row in others if row["policy"] == label), None)
    cuts = "cuts" if len(level) == 1 else "cut"
    said = f"{names} {cuts} the mean time to finish by {_less(best[0], next_best[0])} against "
    said += formatting.listed([name(row["policy"]) for row in next_best])
    if len(next_best) < len(others) or len(level) < len(best):
        others_said = "of the others" if level == best else "policy that differs significantly"
        said += f", the best {others_said}" + (" and the baseline" if base in next_best else "")
    said += f" ({took} against {_took(next_best[0])})"
    if base is not None and base not in next_best:
        said += f", and by {_less(best[0], base)} against {name(base['policy'])}, the baseline "
        said += f"({_took(base)})"
    if len(best) == 1:
        return f"{said}, {_at(best[0])}{_calmer(best[0], others, next_best, name)}."
    if len(level) < len(best):
        rest = [f"{name(row['policy'])} ({_took(row)})" for row in best[1:]]
        said += f"; it does not differ significantly from {formatting.listed(rest)}"
    return f"{said}{_calmest(best, name)}."


def counted(means: Sequence[Row], name: Name = str) -> str:
    """Return a note on the number of jobs behind each mean, if this number differs among policies.

    Examples
    --------
    >>> rows = [{"policy": "kueue", "finished": 9}, {"policy": "fifo", "finished": 10}]
    >>> counted(rows)
    'These means are over different jobs: 9 finished under kueue and 10 under fifo.'
    """
    counts = [(name(row["policy"]), row.get("finished", 0)) for row in means]
    if len({count for _, count in counts}) < 2:
        return ""
    (first, count), *rest = [(label, f"{count:,.10g}") for label, count in counts]
    said = [f"{count} finished under {first}", *(f"{count} under {label}" for label, count in rest)]
    return f"These means are over different jobs: {formatting.listed(said)}."


def assumptions(
    means: Sequence[Row],
    policies: Mapping[str, Mapping[str, Any]],
    name: Name = str,
    *,
    tied: Sequence[str] = (),
) -> str:
    r"""Return the assumptions of the best policies, and the best policy that needs no durations.

    Parameters
    ----------
    means : sequence of dict
        One row per policy, as `means` returns them.
    policies : mapping
        For each label, the description of the policy in the specs of its runs.
    name : callable
        Function that formats the label of a policy.
    tied : sequence of str
        Labels of the policies that tie for the best; by default, those within 1 %.

    Examples
    --------
    >>> rows = [
    ...     {"policy": "las", "jct_mean_s": 60.0, "preemptions": 3},
    ...     {"policy": "sjf", "jct_mean_s": 45.0},
    ... ]
    >>> policies = {"las": {"knowledge": "online"}, "sjf": {"knowledge": "remaining"}}
    >>> print(assumptions(rows, policies).replace(". ", ".\n"))
    sjf assumes exact durations, which a real scheduler rarely knows.
    The best policy that needs no durations is las (1 min).
    """
    best, others = ranking(means, tied)
    if not others:
        return ""
    holders: dict[str, list[str]] = {}
    for row in best:
        for taken in _granted(row, policies[row["policy"]]):
            holders.setdefault(taken, []).append(name(row["policy"]))
    granted: dict[tuple[str, ...], list[str]] = {}
    for taken, names in holders.items():
        granted.setdefault(tuple(names), []).append(taken)
    told = [
        f"{formatting.listed(names)} {'assumes' if len(names) == 1 else 'assume'} "
        f"{formatting.listed(taken)}"
        for names, taken in granted.items()
    ]
    said = f"{'; '.join(told)}." if told else ""
    if not _is_exact(policies[best[0]["policy"]]):
        return said
    blind = [row for row in means if policies[row["policy"]].get("knowledge") == "online"]
    rivals, _ = ranking(blind)
    alike = [name(row["policy"]) for row in best if row in blind]
    if alike:
        verb = "needs" if len(alike) == 1 else "need"
        return f"{said} Of these, {formatting.listed(alike)} {verb} no durations."
    if rivals:
        rival = f"{name(rivals[0]['policy'])} ({_took(rivals[0])})"
        said += f" The best policy that needs no durations is {rival}."
    return said


def _granted(row: Row, policy: Mapping[str, Any]) -> list[str]:
    """Return the assumptions that a policy made in a run."""
    taken = []
    if _stops(row) and not row.get("overhead_fraction"):
        taken.append("free preemption (--restart-s 30 charges 30 s for each restart)")
    if policy.get("copy_gpus"):
        taken.append("copies of a job whose speeds add up")
    if _is_exact(policy):
        taken.append("exact durations, which a real scheduler rarely knows")
    return taken


def _is_exact(policy: Mapping[str, Any]) -> bool:
    """Return whether a policy knows the durations of jobs exactly."""
    return policy.get("knowledge") == "remaining" and not given_to(policy)


def _calmest(rows: Sequence[Row], name: Name) -> str:
    """Return a phrase on the tied policies that never stop running jobs, if others do."""
    calm = [row for row in rows if not _stops(row)]
    return f"; of these, {_calm(calm, name)}" if 0 < len(calm) < len(rows) else ""


def _calm(rows: Sequence[Row], name: Name) -> str:
    """Return a clause that says that these policies never stop running jobs."""
    verbs = "preempts and moves" if len(rows) == 1 else "preempt and move"
    return f"{formatting.listed([name(row['policy']) for row in rows])} {verbs} no job"


def _calmer(best: Row, others: Sequence[Row], next_best: Sequence[Row], name: Name) -> str:
    """Return a clause on a nearly equal policy that stops fewer jobs, or else on the next best."""
    near = [
        row
        for row in others
        if _stops(row) <= _CALM * _stops(best) > 0.0
        and row["jct_mean_s"] <= _NEAR * best["jct_mean_s"]
    ]
    if not near:
        first = next_best[0]
        is_dearer = len(next_best) == 1 and _stops(first) > _stops(best)
        return f"; {name(first['policy'])} has {_done(first)}" if is_dearer else ""
    rival = near[0]
    said = f"; {name(rival['policy'])}"
    if rival not in next_best:
        longer = formatting.percent(rival["jct_mean_s"] / best["jct_mean_s"] - 1.0)
        said += f" takes {longer} longer ({_took(rival)}) and"
    return (
        f"{said} preempts and moves no job" if not _stops(rival) else f"{said} has {_done(rival)}"
    )


def _less(best: Row, other: Row) -> str:
    """Return in words how much shorter one time is than another."""
    return formatting.percent(1.0 - best["jct_mean_s"] / other["jct_mean_s"])


def _stops(row: Row) -> float:
    return float(row.get("preemptions") or 0) + float(row.get("migrations") or 0)


def _at(row: Row) -> str:
    """Return in a few words how a policy treated running jobs."""
    return f"at {_done(row)}" if _stops(row) else "without preempting or moving a job"


def _done(row: Row) -> str:
    """Return in words how often a policy stopped and moved running jobs."""
    done = [
        f"{formatting.count(float(row[key]))} {word}" + ("" if row[key] == 1.0 else "s")
        for key, word in (("preemptions", "preemption"), ("migrations", "move"))
        if row.get(key)
    ]
    return formatting.listed(done)


def _took(row: Row) -> str:
    return formatting.duration(row["jct_mean_s"])


def load_said(loads: Sequence[OfferedLoad], means: Sequence[Row]) -> tuple[str, str]:
    """Return the note on the load that precedes the recommendation, and the one that follows it.

    Parameters
    ----------
    loads : sequence of OfferedLoad
        One load per draw of the trace.
    means : sequence of dict
        One row per policy, as `means` returns them.
    """
    light = waiting(means, loads)
    if light:
        return "", light
    said = in_words(loads)
    return (said, "") if any(load.is_over for load in loads) else ("", said)


def waiting(means: Sequence[Row], loads: Sequence[OfferedLoad] = ()) -> str:
    """Return a note if jobs hardly waited under any policy, so that policies can hardly differ.

    Parameters
    ----------
    means : sequence of dict
        One row per policy, as `means` returns them.
    loads : sequence of OfferedLoad
        Offered loads, one per draw of the trace; the note explains a load above 1.
    """
    known = [row for row in means if row.get("jct_mean_s") and _is_number(row.get("wait_mean_s"))]
    if not known:
        return ""
    share = max(row["wait_mean_s"] / row["jct_mean_s"] for row in known)
    if share > _HARDLY:
        return ""
    if share == 0.0:
        said = "No job waited"
    else:
        part = formatting.percent(share)
        most = part if part.startswith("under") else f"at most {part}"
        said = f"All waiting came to {most} of the time from arrival to finish"
    times = [float(row["jct_mean_s"]) for row in known]
    # otherwise the policies differ in how fast jobs ran
    if max(times) <= (1.0 + _HARDLY) * min(times):
        said += f", so policies can hardly differ: {formatting.LIGHT_LOAD}"
    if any(load.exceeds and load.window is None for load in loads):
        said += (
            f". The offered load is {shown(loads)} nevertheless, because it compares all work with "
            "the time from the first to the last arrival, and jobs still run after that"
        )
    return f"{said}."


def run_name(policy: str, seed: int, trace_seed: int | None = None) -> str:
    """Return the name of a folder for a run.

    The name consists of the policy's label and the seeds, without characters that cause problems in
    file systems. A long label is truncated, and a hash keeps it unique.
    """
    label = re.sub(r"[^A-Za-z0-9._=-]+", "_", policy).strip("_.")
    if len(label) > _LABEL_MAX:
        digest = hashlib.sha256(policy.encode()).hexdigest()[:8]
        label = f"{label[:_LABEL_MAX].rstrip('_.')}-{digest}"
    drawn = "" if trace_seed is None else f"-t{trace_seed}"
    return f"{label or 'policy'}{drawn}-s{seed}"


def check_out(folder: Path, names: Iterable[str]) -> None:
    """Raise an OSError in advance if runs with these names could not be saved in a folder."""
    check_free(folder / _JSON, KIND)
    for name in names:
        check(folder / name)


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and value == value
