"""`gangline run`: simulates one policy on one trace, or repeats a run from its spec."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path  # noqa: TC003 - cyclopts reads the annotations
from typing import TYPE_CHECKING, Any, NamedTuple

from gangline._support import formatting
from gangline._support.formatting import count, duration, share, times
from gangline.cli import _console, _exit, _inputs, _page, _pandas
from gangline.cli._inputs import (
    Flag,
    Json,
    Kept,
    MaybeJobs,
    MaybeLab,
    MaybePolicy,
    MaybeSeconds,
    MaybeWhole,
    Overheads,
    Settings,
    TraceChoice,
)
from gangline.errors import OptionError
from gangline.runs import arrival_window

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gangline.policies.choice import PolicyLike
    from gangline.runs.result import Result
    from gangline.trace.jobs.table import Trace

_SHOWN = (
    ("jobs", "jobs", count),
    ("finished", "finished", count),
    ("dropped", "dropped", count),
    ("mean JCT, from arrival to finish", "jct_mean_s", duration),
    ("median JCT", "jct_p50_s", duration),
    ("99th percentile of the JCT", "jct_p99_s", duration),
    ("mean queueing delay, to the first start", "queue_mean_s", duration),
    ("mean waiting, all time without GPUs", "wait_mean_s", duration),
    ("makespan, since the first arrival", "makespan_s", duration),
    ("GPU utilization", "gpu_utilization", share),
    ("mean finish-time fairness (rho)", "ftf_mean", times),
    ("cost", "cost", times),
    ("jobs with a deadline", "deadlines", count),
    ("deadlines met", "deadlines_met", count),
    ("deadlines of dropped jobs", "deadlines_dropped", count),
    ("preemptions", "preemptions", count),
    ("migrations", "migrations", count),
    ("decisions", "decisions", count),
    ("events", "events", count),
    ("time of the solver", "solver_s", duration),
    ("wall-clock time of the run", "wall_s", duration),
)
"""The summary values that are shown: name, key, and format."""


_BESIDE_SPEC = ("html", "segments", "explain")  # options that may be given in addition to a spec


def run(
    spec: Path | None = None,
    /,
    *,
    trace: MaybeJobs = None,
    cluster: MaybeLab = None,
    policy: MaybePolicy = None,
    settings: Settings = None,
    seed: MaybeWhole = None,
    overheads: Overheads | None = None,
    count_arrivals: str | None = None,
    estimates: str | None = None,
    estimate_default_s: MaybeSeconds = None,
    out: Path | None = None,
    raw: Flag = False,
    json: Json = False,
    kept: Kept | None = None,
    choice: TraceChoice | None = None,
) -> int:
    """Simulate one policy, or repeat the run of a spec.

    Parameters
    ----------
    spec
        A spec.json, or the folder of a result; its run is repeated with all its options.
    trace
        A file, or a generator such as synth:philly?jobs=10000&seed=1; with a spec, the path to
        which its trace has moved.
    cluster
        A TOML file, a list of servers, a preset, or 8x8xA100 (8 servers of 8).
    policy
        Name of a policy (`gangline policies` lists them), or module:Class of a policy in Python.
    settings
        A parameter of the policy as KEY=VALUE, or a setting of the cluster as sharing.KEY=VALUE or
        runtime.KEY=VALUE; repeatable.
    seed
        Seed of every random draw; default 0.
    overheads
        Costs of starts and stops.
    count_arrivals
        FROM,TO such as 2d,9d: metrics cover only the jobs that arrive in this window, but all jobs
        are run.
    estimates
        Estimates that the policy gets in place of durations: exact (the default), noise:SIGMA,
        limit, table, user:mean, user:pN, user+model:last and others.
    estimate_default_s
        Estimate in seconds for jobs without an estimate; default 3600.
    out
        Folder for spec.json, summary.json and the tables.
    raw
        Print the values of the table in full, in the units that the keys name.
    json
        Print one JSON document instead of a table.
    kept
        Tables and jobs to keep.
    choice
        Options for reading the trace.
    """
    kept = kept or Kept()
    options = {
        "seed": seed,
        **(overheads or Overheads()).costs,
        "count_arrivals": count_arrivals,
        "estimates": estimates,
        "estimate_default_s": estimate_default_s,
    }
    if spec is not None:
        chosen = {"cluster": cluster, "policy": policy, "set": settings, **options}
        _refuse_beside(spec, {**chosen, **_given(choice), **_given(kept)})
    check_places(kept, out)
    if spec is None:
        given = {name: value for name, value in options.items() if value is not None}
        options = {"seed": 0, **given, **kept.options}
        done = _simulate(trace, cluster, policy, settings, choice, options)
    else:
        done = _repeat(spec, trace, keeps_segments=kept.options["segments"])
    show(done.result, done.jobs, [done.policy], kept, out, json=json, raw=raw)
    return done.code


def check_places(kept: Kept, out: Path | None) -> None:
    """Raise an error before the run if an output could not be written after it."""
    from gangline.runs.result_folder import check as check_folder

    if out is not None:
        check_folder(out)
    if kept.html is not None:
        _page.check(kept.html)


def show(
    result: Result,
    jobs: Trace,
    policies: Sequence[PolicyLike],
    kept: Kept,
    out: Path | None,
    *,
    json: bool,
    raw: bool = False,
) -> None:
    """Save a result, and print its summary and notes on the run."""
    from gangline.runs.inputs import as_cluster

    if out is not None:
        result.save(out, explain=kept.explain)
    if kept.html is not None:
        _page.write([result], kept.html)
    if json:
        _console.document({"summary": result.summary, "spec": result.spec})
    else:
        summary = dict[str, Any](result.summary)
        rows = [
            [said, repr(summary[key]) if raw else form(summary[key]), key]
            for said, key, form in _SHOWN
            if key in summary
        ]
        if result.offered_load is not None:
            rows.append(["offered load", result.offered_load.text(), "offered_load"])
        title = f"{result.policy}: {jobs!r}"
        _console.table(["", "value", "key"], rows, title=title, numbers=(1,))
        window = arrival_window.of_spec(result.spec)
        if window is not None:
            _console.prose(arrival_window.sentence(window, [result.summary["jobs"]]))
        lab = as_cluster(result.spec["cluster"])
        _inputs.say_lacks(jobs, lab, policies, drops=True)
        _inputs.say_absent(jobs, policies, [str(result.spec["options"].get("estimates", "exact"))])
        _console.say(*_inputs.dropped(result))
        load = result.offered_load
        if load is not None and (load.is_over or load.is_light or load.steady_window is not None):
            _console.say(f"note: {load.in_words()}")
        _inputs.say_about(jobs, lab, policies)
        if out is not None:
            _console.say(f"saved in {out}")
        if kept.html is not None:
            _console.say(f"saved {kept.html}")


class _Done(NamedTuple):
    result: Result
    jobs: Trace
    policy: PolicyLike
    code: int = _exit.DONE


def _simulate(
    trace: str | None,
    cluster: str | None,
    policy: str | None,
    settings: list[str] | None,
    choice: TraceChoice | None,
    options: dict[str, Any],
) -> _Done:
    from gangline.runs.simulate import simulate

    if trace is None or cluster is None or policy is None:
        gone = "--trace" if trace is None else "--cluster" if cluster is None else "--policy"
        message = f"{gone} is missing: a run needs --trace, --cluster and --policy, or a spec.json"
        raise OptionError(f"{message} (gangline run --help lists the options)", field=gone)
    params, tables = _inputs.split_settings(settings)
    config = _inputs.policy(policy, params)
    jobs = (choice or TraceChoice()).read(trace)
    result = simulate(cluster, jobs, config, progress=True, **tables, **options)
    return _Done(result, jobs, config)


def _repeat(path: Path, trace: str | None, *, keeps_segments: bool) -> _Done:
    """Repeat the run of a spec, and compare the hash of its events with that in the spec."""
    from gangline.runs.simulate import run as carry_out
    from gangline.runs.spec import RunSpec, read_spec
    from gangline.trace.read import read_again

    _pandas.leave_out()
    _inputs.find_modules_here()
    data, file = read_spec(path)
    spec = RunSpec.from_dict(data, path=str(file))
    changed = spec.versions_then_and_now()
    if changed:
        listed = [f"{name} {then} (now {now})" for name, (then, now) in changed.items()]
        _console.say(
            f"note: {file} was written with {formatting.listed(listed)}; numbers may differ"
        )
    jobs = read_again(spec.trace, trace)
    result = carry_out(spec.with_segments() if keeps_segments else spec, trace=jobs, progress=True)
    is_same = data.get("log_hash", result.log_hash) == result.log_hash
    if not is_same:
        why = "the versions above differ" if changed else "a policy in Python may have changed"
        _console.say(
            f"gangline: {file}: its log_hash is {data['log_hash']}, but this run has "
            f"{result.log_hash}, so these are not the same events; {why}"
        )
    elif "log_hash" in data:
        _console.say(f"the same events as in {file} (log_hash {result.log_hash})")
    return _Done(result, jobs, spec.policy.build(), _exit.DONE if is_same else _exit.REFUSED)


def _given(options: Kept | TraceChoice | None) -> dict[str, object]:
    """Return the options that differ from their defaults."""
    if options is None:
        return {}
    return {
        field.name: getattr(options, field.name)
        for field in fields(options)
        if getattr(options, field.name) != field.default
    }


def _refuse_beside(spec: Path, options: Mapping[str, object]) -> None:
    """Reject options that the spec already contains."""
    for name, value in options.items():
        if value is not None and name not in _BESIDE_SPEC:
            flag = f"--{name.replace('_', '-')}"
            message = f"{flag}: the spec {spec} already sets it; leave one of them out"
            raise OptionError(message, field=name, value=value)
