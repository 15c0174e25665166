"""Runs jobs of a trace on a real GPU, in the order and pairs that a policy would choose.

First, the simulator predicts the run. In the prediction, each job starts when it has arrived and
certain other jobs have finished. On the GPU, the job starts when these same jobs have actually
finished. Therefore, two jobs share the GPU only if they also shared it in the prediction, and all
times are measured on the GPU.
"""

from __future__ import annotations

import queue
import random
import time
from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

from gangline.errors import ClusterError, OptionError, PeerError, PolicyError, TraceError
from gangline.studies.profile.workers import Worker, Workers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path
    from typing import Unpack

    import pyarrow as pa

    from gangline.policies.choice import PolicyLike
    from gangline.runs.inputs import ClusterLike, TraceLike
    from gangline.runs.options import RunOptions
    from gangline.runs.result import Result
    from gangline.studies.profile.result import Profile
    from gangline.studies.profile.trainers import Model
    from gangline.trace.jobs.table import Trace

    Inbox = queue.SimpleQueue[tuple[Worker, dict[str, Any] | None]]

__all__ = ["Replay", "Start", "draw", "plan_of", "replay"]

_LATEST = 1e-6  # seconds by which rounding may delay a start after the event that causes it
_LEAD_S = 0.2  # our own choice: the time from the last preparation to time 0
_PATIENCE = 20.0  # our own choice: a job has hung after this multiple of the longest prediction


class Start(NamedTuple):
    """The start of a job in the prediction.

    Attributes
    ----------
    job : str
        Id of the job.
    model : Model
        The model that the job trains.
    batch, steps : int
        Samples per iteration, and number of iterations.
    arrival_s, start_s, finish_s : float
        Arrival time in the trace, and predicted start and finish times, in seconds.
    earliest_s : float
        The earliest instant at which the job may start.
    after : frozenset of str
        Ids of the jobs that must finish before this job starts.
    """

    job: str
    model: Model
    batch: int
    steps: int
    arrival_s: float
    start_s: float
    finish_s: float
    earliest_s: float
    after: frozenset[str]


class Replay(NamedTuple):
    """A policy's predicted run, and the measured run.

    Attributes
    ----------
    policy : str
        Label of the policy.
    predicted : Result
        The simulated run, with its segments.
    observed : pyarrow.Table
        The measured times, one row per job: job_id, model, arrival_s, first_start_s, finish_s and
        run_s, on the clock of the trace. `gangline validate` can read this table.

    Examples
    --------
    `gangline.profile.replay` returns objects of this class:

    >>> import gangline as gl
    >>> gl.profile.Replay._fields
    ('policy', 'predicted', 'observed')
    """

    policy: str
    predicted: Result
    observed: pa.Table

    def write(self, path: str | Path) -> None:
        """Write the measured times as CSV."""
        import pyarrow.csv

        pyarrow.csv.write_csv(self.observed, str(path))


def draw(
    profile: Profile,
    count: int = 30,
    *,
    gap_s: float = 1.0,
    shortest_s: float = 0.4,
    longest_s: float = 4.0,
    seed: int = 0,
) -> Trace:
    """Generate jobs that train the measured models in turn, with random lengths and gaps.

    Parameters
    ----------
    profile : Profile
        The measured rates.
    count : int
        Number of jobs.
    gap_s : float
        Mean gap between arrivals in seconds; the gaps are exponentially distributed.
    shortest_s, longest_s : float
        Shortest and longest run time of a job that runs alone, in seconds; run times are
        log-uniform between them.
    seed : int
        The same seed gives the same jobs.

    Returns
    -------
    Trace
        The jobs, with the columns model, batch_size and iterations; the cluster determines their
        rates.

    Examples
    --------
    >>> from gangline.studies.profile import Model, Profile, Rate, draw
    >>> one = Profile(facts={"gpu_type": "T4"}, models=[Model("a", "conv", 8)], starts=[],
    ...               alone=[Rate("a", 8, 1, [10.0])], pairs=[])
    >>> len(draw(one, 5)), draw(one, 5).column("model")[0].as_py()
    (5, 'a')
    """
    import pyarrow as pa

    from gangline.trace.read import as_trace

    if count < 1 or not 0.0 <= gap_s < float("inf") or not 0.0 < shortest_s <= longest_s:
        message = "expected at least one job, a gap of at least 0 s and 0 < shortest_s <= longest_s"
        raise OptionError(message, field="count", value=count)
    dice, now, rows = random.Random(seed), 0.0, []
    for place in range(count):
        model = profile.models[place % len(profile.models)]
        length_s = shortest_s * (longest_s / shortest_s) ** dice.random()
        steps = max(1, round(profile.rate(model.name) * length_s))
        rows.append({"job_id": f"job-{place:02}", "arrival_s": now, "gpus": 1,
                     "iterations": float(steps), "model": model.name,
                     "batch_size": model.batch})  # fmt: skip
        now = round(now + (dice.expovariate(1.0 / gap_s) if gap_s else 0.0), 3)
    return as_trace(pa.Table.from_pylist(rows))


def replay(
    profile: Profile,
    trace: TraceLike,
    policies: PolicyLike | Iterable[PolicyLike],
    *,
    cluster: ClusterLike | None = None,
    cold: bool = False,
    timeout_s: float = 300.0,
    progress: Callable[[str], None] | None = None,
    **options: Unpack[RunOptions],
) -> list[Replay]:
    """Predict the run of a trace's jobs on one GPU, and then run the jobs on the real GPU.

    Parameters
    ----------
    profile : Profile
        The measured models, and the device on which they train.
    trace : Trace, Arrow table, or str
        Single-GPU jobs that train models of the profile.
    policies : policy or iterable of policies
        The policies, each of which is run once, one after another.
    cluster : Cluster, path or preset, optional
        A cluster with one server and one GPU; by default, the profile's cluster.
    cold : bool
        Whether a job's process is started only when the job starts, as on a real cluster, so that
        the job waits for its process. By default, the processes are loaded in advance, so the
        cluster needs no start costs.
    timeout_s : float
        Maximum time to wait for a process, in seconds; a multiple of the predicted time is added.
    progress : callable, optional
        Called with a line of text for each policy.
    **options
        As for `gangline.simulate`.

    Returns
    -------
    list of Replay
        One replay per policy.

    Raises
    ------
    ClusterError, TraceError
        If the cluster does not have exactly one GPU, or if a job's model is not in the profile.
    PolicyError
        If the policy stops or moves a job, or reduces its batch size per pass.
    PeerError
        If a process ends or hangs.
    GanglineError
        As for `gangline.simulate`.

    Examples
    --------
    >>> from gangline.studies.profile import Model, Profile, Rate, replay
    >>> one = Profile(facts={"gpu_type": "CPU", "device": "cpu"}, starts=[], pairs=[],
    ...               models=[Model("a", "conv", 8)], alone=[Rate("a", 8, 1, [500.0])])
    >>> job = {"job_id": ["x"], "arrival_s": [0.0], "gpus": [1], "model": ["a"],
    ...        "iterations": [50.0]}
    >>> import pyarrow as pa
    >>> (done,) = replay(one, pa.table(job), "fifo")
    >>> done.observed.column("run_s")[0].as_py() > 0.0
    True
    """
    from collections.abc import Iterable as Several

    from gangline.policies.choice import resolve_policy
    from gangline.runs.inputs import as_cluster
    from gangline.runs.simulate import simulate
    from gangline.trace.read import as_trace

    lab = profile.cluster() if cluster is None else as_cluster(cluster)
    if lab.gpus_total != 1:
        message = f"cluster: expected one GPU to run the jobs on, got {lab.gpus_total}"
        raise ClusterError(message, key="servers", value=lab.gpus_total)
    jobs = as_trace(trace)
    several = isinstance(policies, Several) and not isinstance(policies, str)
    listed: Any = list(policies) if several else [policies]  # type: ignore[arg-type]
    options["segments"] = True
    plans = []
    for policy in listed:
        label = resolve_policy(policy).label
        predicted = simulate(lab, jobs, policy, **options)
        plans.append((label, predicted, plan_of(profile, jobs, predicted, label)))
    device, found = str(profile.facts["device"]), []
    with Workers(device, timeout_s) as workers:
        for label, predicted, plan in plans:
            if progress is not None:
                latest_s = max(one.finish_s for one in plan)
                progress(f"{label}: {len(plan)} jobs, about {latest_s:.0f} s")
            happened = _carry_out(plan, workers, None if cold else _needed(plan), device, timeout_s)
            found.append(Replay(label, predicted, _table(plan, happened)))
    return found


def plan_of(profile: Profile, trace: Trace, predicted: Result, label: str) -> list[Start]:
    """Return the starts in a predicted run, in order, each with the jobs that it waits for.

    Raises
    ------
    TraceError
        If a job's model was not measured.
    PolicyError
        If a job was interrupted between its start and its finish, or did not run with its full
        batch.
    """
    models = {one.name: one for one in profile.models}
    works = _works(trace)
    _refuse_stops(predicted, label, {job: work[2] for job, work in works.items()})
    done = [row for row in predicted.jobs.to_pylist() if row["finish_s"] is not None]
    ends = {row["job_id"]: row["finish_s"] for row in done}
    rows = []
    for row in done:
        job, name, start_s = row["job_id"], row["model"], row["first_start_s"]
        if name not in models:
            message = f"job {job}: its model `{name}` is not in the profile, which has "
            raise TraceError(message + ", ".join(models), column="model", value=name)
        model = models[name]
        iterations, duration_s, batch = works[job]
        known = batch if profile.samples(name, batch) else None
        steps = iterations or duration_s * profile.rate(name, known)
        before = {other for other, end_s in ends.items() if end_s <= start_s and other != job}
        free_s = max([row["arrival_s"], *(ends[other] for other in before)])
        rows.append(
            Start(
                job=job,
                model=model,
                batch=batch or model.batch,
                steps=max(1, round(steps)),
                arrival_s=row["arrival_s"],
                start_s=start_s,
                finish_s=row["finish_s"],
                earliest_s=row["arrival_s"] if start_s <= free_s + _LATEST else start_s,
                after=frozenset(before),
            )
        )
    if not rows:
        raise TraceError(f"{label}: no job of the trace can run", column="gpus", value=0)
    return sorted(rows, key=lambda one: one.start_s)


def _works(trace: Trace) -> dict[str, tuple[float | None, float, int | None]]:
    """Return each job's iterations, duration and batch size; None or 0 if a value is missing."""
    blank = [None] * len(trace)
    found = (
        trace.column(name).to_pylist() if name in trace.columns else blank
        for name in ("job_id", "iterations", "duration_s", "batch_size")
    )
    return {
        job: (iterations, duration or 0.0, batch)
        for job, iterations, duration, batch in zip(*found, strict=True)
    }


def _refuse_stops(predicted: Result, label: str, batches: Mapping[str, int | None]) -> None:
    """Raise an error if a job in the run stops, moves, or changes its batch size per pass."""
    for row in predicted.segments.to_pylist():
        if row["end_reason"] not in ("finished", "retimed"):
            message = (
                f"{label}: job {row['job_id']} was {row['end_reason']}; a replay accepts only "
            )
            raise PolicyError(message + "policies that let each job run to its end", policy=label)
        if (row["sub_batch"] or 0) < (batches[row["job_id"]] or 0):
            message = f"{label}: job {row['job_id']} runs with a smaller batch per pass, which a "
            message += "replay cannot do; set sub_batches=false"
            raise PolicyError(message, policy=label)


def _needed(plan: Sequence[Start]) -> Counter[Model]:
    """Return the peak number of concurrent processes of each model in the prediction."""
    most: Counter[Model] = Counter()
    for one in plan:
        at_once = sum(
            other.model == one.model and other.start_s <= one.start_s < other.finish_s
            for other in plan
        )
        most[one.model] = max(most[one.model], at_once)
    return most


def _carry_out(
    plan: Sequence[Start],
    workers: Workers,
    needed: Mapping[Model, int] | None,
    device: str,
    timeout_s: float,
) -> dict[str, tuple[float, float]]:
    """Run the jobs, and return the start and the finish of each.

    Without `needed`, each job gets a new process.
    """
    inbox: Inbox = queue.SimpleQueue()
    free: dict[Model, list[Worker]] = {}
    for model, count in (needed or {}).items():
        free[model] = workers.get(*((model, which) for which in range(count)))
    running: dict[Worker, tuple[Start, float]] = {}
    happened: dict[str, tuple[float, float]] = {}
    waiting = list(plan)
    patience_s = timeout_s + _PATIENCE * max(one.finish_s - one.start_s for one in plan)
    base = time.monotonic() + _LEAD_S - min(one.arrival_s for one in plan)
    try:
        while waiting or running:
            free_to = [one for one in waiting if one.after <= happened.keys()]
            now = time.monotonic() - base
            for start in [one for one in free_to if one.earliest_s <= now]:
                if needed is None:
                    worker = Worker(start.model, device, timeout_s)
                else:
                    worker = free[start.model].pop()
                running[worker] = (start, time.monotonic() - base)
                waiting.remove(start)
                worker.inbox = inbox
                worker.load(start.batch, 1, warm_up=needed is not None)
                worker.send(do="work", steps=start.steps)
            late = [one.earliest_s for one in free_to if one in waiting]
            wait_s = min([*(at_s - now for at_s in late), patience_s])
            try:
                worker, answer = inbox.get(timeout=max(0.0, wait_s))
            except queue.Empty:
                if not late:
                    job = next(iter(running.values()))[0].job
                    message = f"job {job}: no reply from its process for {patience_s:.0f} s"
                    raise PeerError(message, reason="silent") from None
                continue
            if answer is None:
                raise worker.left()
            if "end_s" not in answer:
                worker.built(answer)
                continue
            start, began_s = running.pop(worker)
            happened[start.job] = (began_s, answer["end_s"] - base)
            if needed is None:
                worker.stop()
            else:
                worker.inbox = queue.SimpleQueue()
                free[start.model].append(worker)
    finally:
        for worker in running:
            worker.stop()
    return happened


def _table(plan: Sequence[Start], happened: Mapping[str, tuple[float, float]]) -> pa.Table:
    import pyarrow as pa

    rows = [
        {
            "job_id": one.job,
            "model": one.model.name,
            "arrival_s": one.arrival_s,
            "first_start_s": happened[one.job][0],
            "finish_s": happened[one.job][1],
            "run_s": happened[one.job][1] - happened[one.job][0],
        }
        for one in plan
    ]
    return pa.Table.from_pylist(rows)
