"""Runs policies on a suite, and ranks them together with the published ones."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gangline.errors import OptionError
from gangline.studies.bench import published
from gangline.studies.bench.entries import default_policies, entries
from gangline.studies.bench.standings import standings
from gangline.studies.bench.suite import World, load_suite

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from os import PathLike

    import pyarrow as pa

    from gangline._support.builtin_values import Json
    from gangline.policies.choice import PolicyLike
    from gangline.runs.spec import RunSpec
    from gangline.studies.bench.entries import Entry
    from gangline.studies.bench.suite import Suite

    Scores = dict[str, dict[tuple[World, int], float]]

__all__ = ["KIND", "Bench", "bench"]

KIND = "bench"
"""The file kind recorded in the header of bench.json."""


class Bench:
    """The standings of policies on a suite.

    Attributes
    ----------
    suite : Suite
        The suite that was run.
    worlds, real_worlds : list of World
        The worlds of the suite that use shipped workloads, and those that use real traces.
    is_quick : bool
        Whether only a small part of the suite was run.
    rows : list of dict
        One row per policy on the shipped workloads, ordered by class of knowledge and by mean rank.
        The keys are those of `gangline.bench.standings`, and: `run` (True if the policy was run in
        this call, False if the row is published), `runs`, `preemptions_per_job`, `failed` and
        `run_s` (mean wall-clock time of a run in seconds, only for policies that were run in this
        call).
    real_rows : list of dict
        The same kind of rows for real traces, only for policies that were run in this call.
    failed : list of dict
        Runs that failed, with `error` and `message`; their policies have no rank.
    scores : dict
        For each label, the mean JCT in seconds, keyed by world and seed.
    log_hashes : dict
        For the label of each policy that was run in this call, the hash of its events, keyed by
        world and seed.
    offered_loads : list of dict
        For each workload, cluster and load of the suite: the offered load as defined by
        `gangline.offered_load`, averaged over the seeds.

    Examples
    --------
    >>> import gangline as gl
    >>> done = gl.bench.bench(["fifo"], quick=True, workers=1)
    >>> rows = [row for row in done.rows if row["run"]]
    >>> rows[0]["policy"], rows[0]["speedup"], done.failed
    ('fifo', 1.0, [])
    """

    def __init__(self, suite: Suite, worlds: Sequence[World], *, is_quick: bool) -> None:
        self.suite = suite
        self.worlds = list(worlds)
        self.real_worlds: list[World] = []
        self.is_quick = is_quick
        self.rows: list[dict[str, Any]] = []
        self.real_rows: list[dict[str, Any]] = []
        self.failed: list[dict[str, Any]] = []
        self.scores: Scores = {}
        self.offered_loads: list[dict[str, Any]] = []
        self.log_hashes: dict[str, dict[tuple[World, int], str]] = {}

    @property
    def table(self) -> pa.Table:
        """A table of all rows; its column `workloads` tells shipped workloads from real traces."""
        import pyarrow as pa

        given = [("synthetic", row) for row in self.rows]
        given += [("real", row) for row in self.real_rows]
        names = ["workloads", *dict.fromkeys(key for _, row in given for key in row)]
        rows = [{"workloads": which, **row} for which, row in given]
        return pa.table({name: [row.get(name) for row in rows] for name in names})

    def to_dict(self) -> dict[str, Json]:
        """Return plain values, including the mean JCT of every run."""
        from gangline import _core
        from gangline.runs.spec import versions

        return {
            "suite": self.suite.version,
            "suite_sha256": self.suite.digest,
            "is_quick": self.is_quick,
            "gangline": _core.__version__,
            "versions": versions(),
            "rows": self.rows,
            "real_rows": self.real_rows,
            "failed": self.failed,
            "offered_load": self.offered_loads,
            "jct_mean_s": {
                label: [
                    {**world._asdict(), "seed": seed, "s": s} for (world, seed), s in of.items()
                ]
                for label, of in self.scores.items()
            },
        }

    def __repr__(self) -> str:
        run = sum(row["run"] for row in self.rows)
        part = "a small part of " if self.is_quick else ""
        return f"Bench({part}suite {self.suite.version}: {run} of {len(self.rows)} policies run)"


def bench(
    policies: Iterable[PolicyLike] | None = None,
    *,
    suite: int | None = None,
    quick: bool = False,
    traces: str | PathLike[str] | None = None,
    out: str | PathLike[str] | None = None,
    workers: int | None = None,
    progress: bool = False,
) -> Bench:
    """Run policies on a frozen suite, and rank each among those with the same knowledge.

    Parameters
    ----------
    policies : iterable, optional
        Names, configurations or objects; by default, all policies that solve no LPs. If a policy is
        given by name and has the parameter `estimate_error`, it takes part twice: with exact
        durations and with estimates.
    suite : int, optional
        Version of the suite; by default, the newest.
    quick : bool
        Whether to run only a small part of the suite.
    traces : path, optional
        A folder that contains real traces of the suite, which are recognised by their SHA-256.
    out : path, optional
        A store, as for `gangline.sweep`, so that an interrupted bench continues where it stopped.
    workers : int, optional
        Maximum number of concurrent runs; by default, one per core.
    progress : bool
        Whether to show progress.

    Returns
    -------
    Bench
        The standings. Policies that are not run keep their published results if the suite has any.

    Raises
    ------
    PolicyError
        If a policy is unknown, or its parameters are invalid.
    OptionError
        If no suite has this version.
    TraceError
        If the folder contains none of the suite's real traces.

    Examples
    --------
    >>> import gangline as gl
    >>> done = gl.bench.bench(["srtf"], quick=True, workers=1)
    >>> [(row["policy"], row["speedup"] > 2.0) for row in done.rows if row["run"]]
    [('srtf(estimate_error=1.0)', True), ('srtf', True)]
    """
    chosen = load_suite(suite)
    given = default_policies() if policies is None else list(policies)
    if not given:
        raise OptionError("policies: expected at least one, got none", field="policies")
    taking_part = entries(given, chosen.estimate_error)
    _refuse_repeated(taking_part)
    files = chosen.find_traces(Path(traces)) if traces is not None else {}
    made = Bench(chosen, chosen.worlds(quick=quick), is_quick=quick)
    with tempfile.TemporaryDirectory(prefix="gangline-bench-") as aside:
        # a temporary store does not need the tables of jobs
        where = (Path(aside), "summary", workers) if out is None else (Path(out), "jobs", workers)
        runs = _carry_out(made, made.worlds, taking_part, {}, *where, progress=progress)
        made.rows = _rows(made, taking_part, runs)
        if files:
            worlds = made.real_worlds = chosen.real_worlds(iter(files))
            have = [*taking_part, *_baseline(chosen, taking_part)]
            runs = _carry_out(made, worlds, have, files, *where, progress=progress)
            knowledge = {entry.label: entry.knowledge for entry in have}
            measured = _measured(runs)
            made.real_rows = [
                {**row, **measured[row["policy"]]}
                for row in _ranked(chosen, worlds, _scores(made, runs), knowledge)
            ]
    return made


def _baseline(suite: Suite, have: Sequence[Entry]) -> list[Entry]:
    """Return the baseline policy unless it already takes part."""
    known = {entry.label for entry in have}
    return [entry for entry in entries([suite.baseline], 0.0) if entry.label not in known][:1]


def _refuse_repeated(given: Sequence[Entry]) -> None:
    labels = [entry.label for entry in given]
    for label in labels:
        if labels.count(label) > 1:
            message = f"policies: duplicate `{label}`; name each once"
            raise OptionError(message, field="policies", value=label)


def _carry_out(
    made: Bench,
    worlds: Sequence[World],
    given: Sequence[Entry],
    files: dict[str, Path],
    store: Path,
    save: str,
    workers: int | None,
    *,
    progress: bool,
) -> list[dict[str, Any]]:
    """Carry out the runs missing from the store; return keys, summary and status of each run."""
    from gangline.runs.store import Store
    from gangline.studies.sweep.plan import Listed
    from gangline.studies.sweep.run import carry_out_all

    pairs = _pairs(made.suite, worlds, given, files)
    runs = Listed(f"bench, suite {made.suite.version}", pairs, save)
    done = carry_out_all(runs, store, workers=workers, progress=progress)
    made.failed += [{k: v for k, v in run.items() if k != "status"} for run in done.failed]
    columns = [
        *runs.columns,
        "offered_load",
        "status",
        "jobs",
        "jct_mean_s",
        "preemptions",
        "wall_s",
    ]
    table, saved = done.table, Store(store, save)
    have = table.column_names
    for row in table.select([*runs.columns, "digest", "status"]).to_pylist():
        if row["status"] == "finished":
            known = made.log_hashes.setdefault(row["policy"], {})
            known[_world(row), row["seed"]] = saved.log_hash(row["digest"]) or ""
    found: list[dict[str, Any]] = table.select(
        [name for name in columns if name in have]
    ).to_pylist()
    made.offered_loads += _offered_loads(found)
    return found


def _offered_loads(runs: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the offered loads of the worlds; worlds that differ only in `restart_s` count once."""
    names = ("workload", "cluster", "load")
    by_world: dict[tuple[Any, ...], dict[int, float]] = {}
    for run in runs:
        of_seed = by_world.setdefault(tuple(run[name] for name in names), {})
        if run.get("offered_load") is not None:
            of_seed[run["seed"]] = run["offered_load"]
    return [
        {**dict(zip(names, world, strict=True)), "offered_load": sum(of.values()) / len(of)}
        for world, of in by_world.items()
        if of
    ]


def _pairs(
    suite: Suite, worlds: Sequence[World], given: Sequence[Entry], files: dict[str, Path]
) -> Iterable[tuple[dict[str, Any], RunSpec]]:
    """Yield the keys and the spec of each run, grouped by trace and cluster."""
    from gangline.runs.inputs import make_options
    from gangline.runs.spec import RunSpec, keys_of

    clusters = {one.name: keys_of(suite.cluster(one.name)) for one in suite.clusters}
    for workload in dict.fromkeys(world.workload for world in worlds):
        for seed in suite.seeds:
            traces = suite.traces_at_load(workload, seed, files)
            for world in (one for one in worlds if one.workload == workload):
                cell = {"seed": seed, "restart_s": world.restart_s, "timeline": "off"}
                options = make_options(cell)
                for entry in given:
                    keys = {"policy": entry.label, **world._asdict(), "seed": seed}
                    trace = traces[world.cluster, world.load]
                    spec = RunSpec.of(clusters[world.cluster], trace, entry.reference, options)
                    yield keys, spec


def _world(row: dict[str, Any]) -> World:
    return World(row["workload"], row["cluster"], row["load"], row["restart_s"])


def _scores(made: Bench, rows: Sequence[dict[str, Any]]) -> Scores:
    """Return the mean JCTs of finished runs, rounded to milliseconds like published ones."""
    found: Scores = {}
    for row in rows:
        if row["status"] == "finished":
            cell = _world(row), row["seed"]
            found.setdefault(row["policy"], {})[cell] = round(row["jct_mean_s"], 3)
    for label, of in found.items():
        made.scores.setdefault(label, {}).update(of)
    return found


def _rows(
    made: Bench, given: Sequence[Entry], runs: Sequence[dict[str, Any]]
) -> list[dict[str, Any]]:
    """Return new rows for the policies that were run, and published rows for the others."""
    knowledge = {entry.label: entry.knowledge for entry in given}
    rows_then = published.read_rows(made.suite.version)
    then = {
        label: of
        for label, of in published.read_jct(made.suite.version).items()
        if label not in knowledge
    }
    knowledge |= {label: rows_then[label]["knowledge"] for label in then}
    rows = _ranked(made.suite, made.worlds, {**then, **_scores(made, runs)}, knowledge)
    placed = {row["policy"] for row in rows}
    rows += [
        {"policy": entry.label, "knowledge": entry.knowledge, "place": None}
        for entry in given
        if entry.label not in placed
    ]
    measured = _measured(runs)
    for row in rows:
        label = row["policy"]
        row["run"] = label not in then
        row |= measured[label] if row["run"] else _as_published(rows_then[label])
        if made.is_quick and not row["run"]:  # the published results cover the whole suite
            row |= {"runs": len(made.worlds) * len(made.suite.seeds)}
            row["preemptions_per_job"] = None
    return rows


def _ranked(
    suite: Suite, worlds: Sequence[World], scores: Scores, knowledge: dict[str, str]
) -> list[dict[str, Any]]:
    return standings(scores, knowledge, worlds, suite.seeds, suite.baseline)


def _measured(runs: Sequence[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return additional numbers for each policy, computed from its runs."""
    by_policy: dict[str, list[dict[str, Any]]] = {}
    for row in runs:
        by_policy.setdefault(row["policy"], []).append(row)
    found = {}
    for label, rows in by_policy.items():
        known = [row for row in rows if row["status"] == "finished"]
        jobs = sum(row["jobs"] for row in known)
        found[label] = {
            "runs": len(rows),
            "failed": len(rows) - len(known),
            "preemptions_per_job": sum(row["preemptions"] for row in known) / jobs
            if jobs
            else None,
            "run_s": sum(row["wall_s"] for row in known) / len(known) if known else None,
        }
    return found


def _as_published(row: dict[str, str]) -> dict[str, Any]:
    stops = float(row["preemptions_per_job"])
    # run times that were measured on a different machine are not comparable
    return {"runs": int(row["runs"]), "failed": 0, "preemptions_per_job": stops, "run_s": None}
