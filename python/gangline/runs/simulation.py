"""Drives a run step by step."""

from __future__ import annotations

import copy
import math
import time
from typing import TYPE_CHECKING, Any, Literal, Unpack

import msgspec

from gangline.errors import OptionError, PolicyError, ResultError
from gangline.policies.choice import PLANS
from gangline.policies.protocol import Changes, View, read_answer
from gangline.runs.execution import Worlds

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from gangline import _core
    from gangline.policies.choice import ChosenPolicy, PolicyLike
    from gangline.policies.protocol import Plan, Steady
    from gangline.runs.execution import Arguments, Run, World
    from gangline.runs.inputs import ClusterLike, TraceLike
    from gangline.runs.options import RunOptions
    from gangline.runs.result import Result

__all__ = ["Simulation"]

_TIME_MAX_S = 2.0**63 / 1e9  # the engine counts nanoseconds in 64 bits


class Simulation:
    """A run that stops at each decision, so that its state can be inspected, changed and forked.

    Without a policy, the caller passes a plan to `apply` at every decision. With a policy, `decide`
    asks the policy until `apply` is called. From then on, the run accepts only plans, because the
    policy has not seen the changes made by `apply`.

    Parameters
    ----------
    cluster, trace
        As for `gangline.simulate`.
    policy : policy, optional
        The policy that `decide` asks. If it is an object, it is copied with `copy.deepcopy`.
    params : mapping, optional
        Parameters of the policy, if it is given by name.
    round_s : float, optional
        For runs without a policy: a decision is due only at 0, round_s, 2 round_s, ... By default,
        a decision is due at every arrival, completion, failure and repair, and when a timer fires.
    mixes_types, forks : bool
        For runs without a policy: see the attributes of `gangline.Policy` with these names.
    **options
        As for `gangline.simulate`.

    Examples
    --------
    >>> import gangline as gl
    >>> lab = gl.Cluster.homogeneous(servers=2, gpus=4)
    >>> run = gl.Simulation(lab, "synth:philly?jobs=20&seed=1&max_gpus=8")
    >>> while run.advance() == "decision":
    ...     plan = gl.Plan(run.view)
    ...     for job in run.view.waiting.job:
    ...         placed = plan.place(job)
    ...     run.apply(plan)
    >>> run.result().summary["finished"]
    20
    """

    def __init__(
        self,
        cluster: ClusterLike,
        trace: TraceLike,
        policy: PolicyLike | None = None,
        *,
        params: Mapping[str, object] | None = None,
        round_s: float | None = None,
        mixes_types: bool = False,
        forks: bool = False,
        **options: Unpack[RunOptions],
    ) -> None:
        from gangline import _core
        from gangline.policies.choice import PolicyReference

        traits = {"round_s": round_s, "mixes_types": mixes_types, "forks": forks}
        if policy is not None and any(traits.values()):
            message = "round_s, mixes_types and forks are for runs without a policy"
            raise OptionError(message, field=next(key for key, value in traits.items() if value))
        self._begin = time.perf_counter()
        self._traits = {} if policy is not None else traits
        self._worlds = Worlds(1)
        run = self._worlds.take(cluster, trace, policy or "fifo", params=params, **options)
        if policy is None:
            planned = PolicyReference(name=PLANS)
            run = run._replace(spec=msgspec.structs.replace(run.spec, policy=planned))
        self._run: Run = copy.deepcopy(run)  # the caller's policy object may change later
        self._taken_over = policy is None
        world, chosen, core = self._parts(self._run)
        self._object = copy.deepcopy(chosen.own)
        decider = None if policy is None else self._object or chosen.policy
        names = None if self._object is None else world.trace.column("job_id")
        with world.naming_jobs():
            self._set(
                _core.Simulation(core[0], core[1], core[4], decider, core[3], names, **self._traits)
            )

    def _parts(self, run: Run) -> tuple[World, ChosenPolicy, Arguments]:
        from gangline.policies.choice import ChosenPolicy

        world = self._worlds.world(run.spec)
        if run.spec.policy.name == PLANS:
            chosen = ChosenPolicy(PLANS, PLANS, {})
        else:
            chosen = run.spec.policy.resolve(run.policy)
        return world, chosen, world.arguments(chosen, run.spec.build_options())

    def _set(self, core: _core.Simulation) -> None:
        self._core = core
        # looking up the world hashes parts of the spec, which is too slow for each step
        self._world = self._worlds.world(self._run.spec)
        self._view = View(core.view, self._world.trace.column("job_id"))

    def __repr__(self) -> str:
        what = "a decision is due" if self.is_due else "no decision is due"
        return f"<Simulation at {self.now_s:,.9g} s: {what}>"

    @property
    def now_s(self) -> float:
        """The simulated time in seconds."""
        return self._core.now_s

    @property
    def is_due(self) -> bool:
        """Return whether a decision is due."""
        return self._core.is_due

    @property
    def view(self) -> View:
        """The current state, as policies written in Python see it.

        The view always shows the current state; arrays that were read earlier do not change. When a
        decision is due, the view can also build plans. In a run with a policy, it shows only what
        the policy may know.
        """
        return self._view

    @property
    def changes(self) -> Changes:
        """The outcome of the last plan and the events since then, in the form that policies get."""
        return Changes(self._core.changes())

    def advance(self, *, until_s: float | None = None) -> Literal["decision", "time", "done"]:
        """Advance to the next decision, or to a given time if no decision is due before it.

        Parameters
        ----------
        until_s : float, optional
            Time at which to stop, in seconds; events at this time are processed first.

        Returns
        -------
        str
            "decision" if a decision is due; "time" if the run has reached `until_s`; "done" if the
            run is over.

        Raises
        ------
        StalledError
            If jobs wait and nothing will ever start them; it is not raised if `until_s` is given.
        """
        return self._core.advance(None if until_s is None else _ns(until_s, "until_s"))

    def decide(self) -> None:
        """Let the policy decide."""
        if self._taken_over:
            message = "this run accepts plans and has no policy that decides: use `apply`"
            raise PolicyError(message, policy=PLANS)
        with self._world.naming_jobs():
            self._core.decide()

    def apply(self, plan: Plan | tuple[Plan, Steady]) -> None:
        """Carry out a plan at the decision that is due.

        Parameters
        ----------
        plan : Plan or (Plan, STEADY)
            The type that `Policy.decide` may return.

        Raises
        ------
        PlanError
            If the plan violates a rule. Then nothing changes, and the decision is still due.
        """
        actions, is_steady = read_answer(plan)
        with self._world.naming_jobs():
            self._core.apply(actions, is_steady)
        self._taken_over = True

    def inject(
        self,
        jobs: TraceLike | None = None,
        *,
        failures: Iterable[Mapping[str, float]] = (),
        capacity: Iterable[Mapping[str, float]] = (),
    ) -> None:
        """Add arrivals of jobs, failures of servers and changes of capacity after the current time.

        The result then has the same bytes as if all these events had been known from the start. To
        achieve this, the run is repeated up to the current time, which costs as much as the run so
        far. Indices of jobs that have not arrived yet can change.

        Parameters
        ----------
        jobs : Trace, Arrow table, or str, optional
            Jobs whose `arrival_s` is after the current time.
        failures : iterable of mappings
            Mappings with the keys `server`, `down_s` and `up_s`, as in a cluster's
            `failures.table`.
        capacity : iterable of mappings
            Mappings with the keys `at_s` and `servers`, as in a cluster's `capacity`.

        Raises
        ------
        OptionError
            If a time is not after the current time.
        TraceError, ClusterError
            If the jobs, or the cluster with the new rows, are invalid.
        PolicyError
            If the policy, knowing these jobs, would have made a different decision before the
            current time.
        """
        from gangline.cluster.description import Cluster
        from gangline.runs.spec import keys_of

        failed, scaled = [dict(row) for row in failures], [dict(row) for row in capacity]
        self._require_future("failures", (row["down_s"] for row in failed if "down_s" in row))
        self._require_future("capacity", (row["at_s"] for row in scaled if "at_s" in row))
        spec, world = self._run.spec, self._world
        trace = world.trace if jobs is None else self._with(jobs)
        data: dict[str, Any] = {**world.cluster.to_dict()}
        if failed:
            known = data.get("failures", {})
            data["failures"] = {**known, "table": [*known.get("table", ()), *failed]}
        if scaled:
            data["capacity"] = [*data.get("capacity", ()), *scaled]
        cluster = Cluster.from_dict(data) if failed or scaled else world.cluster
        worlds = Worlds(1)
        spec = msgspec.structs.replace(spec, trace=worlds.hold(trace), cluster=keys_of(cluster))
        before = self._worlds, self._run, self._core
        try:
            self._worlds, self._run = worlds, self._run._replace(spec=spec)
            there, chosen, core = self._parts(self._run)
            own = copy.deepcopy(chosen.own)
            names = None if own is None else there.trace.column("job_id")
            with there.naming_jobs():
                made = before[2].again(core[0], core[1], core[4], own, names)
            if made.trail != before[2].trail:
                message = (
                    f"{chosen.label}: would have decided differently before now if it had known "
                    "the injected events; pass them to the run at the start"
                )
                raise PolicyError(message, policy=chosen.label)
        except BaseException:
            self._worlds, self._run = before[:2]
            raise
        self._object = own
        self._set(made)

    def _require_future(self, field: str, times_s: Iterable[float]) -> None:
        for time_s in times_s:
            if _ns(time_s, field) <= self._core.now_ns and self._core.trail[:2] != (0, 0):
                message = f"{field}: expected times after now, {self.now_s} s, got {time_s}"
                raise OptionError(message, field=field, value=time_s)

    def _with(self, jobs: TraceLike) -> Any:
        """Return the trace with additional jobs."""
        import pyarrow as pa

        from gangline.trace.jobs.table import Trace
        from gangline.trace.read import as_trace

        more = as_trace(jobs)
        self._require_future("arrival_s", more.numbers("arrival_s").tolist())
        tables = [self._world.trace.table, more.table]
        return Trace.from_arrow(pa.concat_tables(tables, promote_options="permissive"))

    def fork(self) -> Simulation:
        """Return an independent copy of this run in its current state.

        A policy object is copied with `copy.deepcopy`. With a registered policy, the run is
        repeated when the fork first calls `decide` or `result`.
        """
        other = copy.copy(self)
        other._object = copy.deepcopy(self._object)
        other._set(self._core.fork(other._object))
        return other

    def result(self) -> Result:
        """Return the result of the run up to the current time; the run can continue afterwards.

        If the run is over and its policy made all decisions, the result has the same bytes as the
        result of `gangline.simulate`.
        """
        world, chosen, _ = self._parts(self._run)
        run, again = self._run, _refuse
        if not self._taken_over:
            from functools import partial

            again = partial(world.again, self._run)
        elif run.spec.policy.name != PLANS:
            from gangline.policies.choice import ChosenPolicy, PolicyReference

            planned = PolicyReference(name=PLANS)
            run = run._replace(spec=msgspec.structs.replace(run.spec, policy=planned))
            chosen = ChosenPolicy(PLANS, PLANS, {})
        wall_s = time.perf_counter() - self._begin
        return world.result(run, chosen, self._core.output(goes_on=True), wall_s, again)


def _refuse(*_: object) -> Any:
    raise ResultError("the plans came from outside, so no policy can say why jobs waited")


def _ns(time_s: float, field: str) -> int:
    if not (math.isfinite(time_s) and 0.0 <= time_s < _TIME_MAX_S):
        raise OptionError(f"{field}: expected seconds >= 0, got {time_s}", field=field)
    return round(time_s * 1e9)
