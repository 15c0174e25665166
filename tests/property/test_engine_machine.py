"""Drives engine and slow simulator together, one decision at a time, by arbitrary plans."""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

import gangline as gl
import reference
from gangline import _core
from gangline.runs.inputs import make_options
from gangline.trace.jobs.to_core import codes, pairs_of
from parity.harness import Twin, cluster_of, trace_of

RULES = {  # the name of a rule in the slow simulator, and the possible names in the engine
    "unknown_job": {"unknown_job"},
    "not_arrived": {"not_arrived"},
    "finished_job": {"finished_job"},
    "already_running": {"already_running"},
    "not_running": {"not_running"},
    "gang_size": {"gang_size", "server_down", "type_not_allowed"},  # a plan may break several rules
    "capacity": {"server_down", "no_such_gpu"},
    "sharing": {"capacity", "sharing_limit"},
    "pair": {"infeasible_pair"},
    "memory": {"memory"},
    "type": {"type_not_allowed", "server_down"},
    "sub_batch": {"sub_batch"},
    "work_limit": {"work_limit"},
}
# the GPUs of each server; the first three are of type g, the others of type h
SIZES = [3, 3, 3, 2, 2]
BLOCKS = [
    {"count": 3, "gpu": "g", "gpus": 3, "rack": "fill:2"},
    {"count": 2, "gpu": "h", "gpus": 2, "rack": "fill:1"},
]
SERVERS = len(SIZES)
GANGS = [1, 1, 2, 3, 4]
BATCH = 4
TIMES = st.sampled_from([0.0, 0.0, 1.0, 2.0, 5.0, 9.0])
LENGTHS = st.sampled_from([1e-9, 1.0, 3.0, 7.5, 20.0, 20.0])
QUOTAS = st.sampled_from([None, None, None, 0.25, 3.0])
Gpus = tuple[tuple[int, int], ...]


def masks(gpus: Gpus) -> list[tuple[int, int]]:
    found: dict[int, int] = {}
    for server, slot in gpus:
        found[server] = found.get(server, 0) | 1 << slot
    return sorted(found.items())


def orders_of(action: reference.Action) -> list[tuple[object, ...]]:
    """Return an action of the slow simulator as orders for the engine."""
    if isinstance(action, reference.Preempt):
        return [("preempt", action.job)]
    overhead_s = None if action.overhead_ns is None else action.overhead_ns / 1e9
    terms = (action.sub_batch, overhead_s, action.quota)
    if isinstance(action, reference.Keep):
        return [("keep", action.job, *terms)]
    verb = "start" if isinstance(action, reference.Start) else "move"
    return [(verb, action.job, masks(action.gpus), True, *terms)]


class Sides(RuleBasedStateMachine):
    """Rules collect a plan; `advance` gives it to both sides and goes to the next decision."""

    @initialize(
        jobs=st.lists(
            st.tuples(
                TIMES,
                st.sampled_from(GANGS),
                LENGTHS,
                st.sampled_from(["x", "y", "x", None]),
                # in GiB; two jobs of 6 GiB fit a GPU, but 6 and 12 do not
                st.sampled_from([None, None, 6.0, 12.0]),
                st.sampled_from([None, None, ["g"], ["h"]]),
            ),
            min_size=1,
            max_size=8,
        ),
        max_share=st.sampled_from([2, 2, 1]),
        restart_s=st.sampled_from([0.0, 1.0]),
        checkpoint_interval_s=st.sampled_from([None, 1.5]),
        first_start_s=st.sampled_from([0.0, 0.5]),
        round_s=st.sampled_from([None, None, 2.0]),
    )
    def begin(self, jobs: list[Any], max_share: int, round_s: float | None, **run: Any) -> None:
        rows = [
            {
                "job_id": f"j{i}",
                "arrival_s": at,
                "gpus": gpus,
                "duration_s": length,
                "model": model,
                "memory_gb": memory,
                "gpu_types": kinds,
                "batch_size": BATCH,
            }
            for i, (at, gpus, length, model, memory, kinds) in enumerate(
                sorted(jobs, key=lambda job: job[0])
            )
        ]
        pairs = [(a, b) for a in "xy" for b in "xy"]
        world = {
            "cluster": {
                "name": "sides",
                "gpu_types": [
                    {"name": "g", "memory_gb": 16},
                    {"name": "h", "memory_gb": 12, "speed": 1.75},
                ],
                "servers": BLOCKS,
            },
            "jobs": rows,
            "locality": {"*": {"rack": 0.8, "network": 0.5}, "x": {"network": 0.25}},
            "sharing": {
                "max_share": max_share,
                "interference": "table",
                "missing": "infeasible",
                "rows": [
                    {"model": a, "co_model": b, "xi": 1.25 if a == "x" else 1.5} for a, b in pairs
                ],
            },
            "run": {name: value for name, value in run.items() if value is not None},
        }
        cluster, trace = cluster_of(world), trace_of(world)
        given = make_options({**world["run"], "check_invariants": True, "segments": True})
        options = given.to_core(cluster, codes(trace, "model")[1], pairs_of(trace, cluster))
        self.engine = _core.Simulation(
            cluster.to_core(), trace.to_core(cluster), options, round_s=round_s, mixes_types=True
        )
        wakes = {} if round_s is None else {"wake_on": ("round",)}
        self.slow = Twin(world, round_s=round_s, **wakes)
        self.in_rounds = round_s is not None
        self.gangs = [row["gpus"] for row in rows]
        self.plan: list[reference.Action] = []
        self.orders: list[tuple[object, ...]] = []
        self.over = False
        self.alarms = 0
        self.go_on()

    def go_on(self) -> None:
        """Advance both sides to the next decision, to the end or to a stall."""
        try:
            at = self.slow.advance()
        except reference.StalledError as error:
            self.over = True
            try:
                self.engine.advance()
            except gl.StalledError as ours:
                left = [*self.slow.waiting(), *self.slow.running()]
                assert vars(ours)["jobs"] == [j.index for j in left][:10]
                return
            raise AssertionError("the engine did not stall") from error
        assert self.engine.advance() == ("done" if at is None else "decision")
        self.over = at is None

    def add(self, action: reference.Action) -> None:
        self.plan.append(action)
        self.orders += orders_of(action)

    def some_gpus(self, data: st.DataObject, gang: int, *, wild: bool) -> Gpus:
        """Draw free GPUs if there are enough and the draw is tame; otherwise draw any GPUs."""
        taken = {
            gpu
            for action in self.plan
            if not isinstance(action, reference.Preempt)
            for gpu in getattr(action, "gpus", ())
        }
        free = sorted(self.slow.free() - taken)
        every = [(server, slot) for server, size in enumerate(SIZES) for slot in range(size)]
        pool = every if wild or len(free) < gang else free
        order = data.draw(st.permutations(pool))
        return tuple(sorted(order[:gang]))

    def a_job(self, data: st.DataObject, status: str) -> int:
        """Draw a job, mostly one that suits the action."""
        planned = {action.job for action in self.plan}
        fit = [j.index for j in self.slow.jobs if j.status == status and j.index not in planned]
        anyone = list(range(len(self.gangs) + 1))
        wild = not fit or data.draw(st.integers(0, 9)) == 7
        return data.draw(st.sampled_from(anyone if wild else fit))

    def place(self, data: st.DataObject, job: int) -> Gpus:
        gang = self.gangs[job] if job < len(self.gangs) else 1
        wild = data.draw(st.integers(0, 4)) >= (4 if self.slow.max_share == 1 else 2)
        off = data.draw(st.sampled_from([0] * 9 + [1])) if wild else 0
        return self.some_gpus(data, gang + off, wild=wild)

    @precondition(lambda self: not self.over and bool(self.slow.waiting()))
    @rule(data=st.data())
    def start(self, data: st.DataObject) -> None:
        job = self.a_job(data, "waiting")
        self.add(reference.Start(job, self.place(data, job), quota=data.draw(QUOTAS)))

    @precondition(lambda self: not self.over and bool(self.slow.running() and self.slow.waiting()))
    @rule(data=st.data())
    def join(self, data: st.DataObject) -> None:
        """Start a job on GPUs of running jobs, and on free GPUs for the rest."""
        job = self.a_job(data, "waiting")
        gang = self.gangs[job] if job < len(self.gangs) else 1
        held = sorted(self.slow.residents())
        gpus = tuple(sorted((held + sorted(self.slow.free()))[:gang]))
        self.add(reference.Start(job, gpus))

    @precondition(lambda self: not self.over and bool(self.slow.running()))
    @rule(data=st.data())
    def preempt(self, data: st.DataObject) -> None:
        job = self.a_job(data, "running")
        self.add(reference.Preempt(job))

    @precondition(lambda self: not self.over and bool(self.slow.running()))
    @rule(data=st.data())
    def move(self, data: st.DataObject) -> None:
        job = self.a_job(data, "running")
        self.add(reference.Move(job, self.place(data, job), quota=data.draw(QUOTAS)))

    @precondition(lambda self: not self.over and bool(self.slow.running()))
    @rule(data=st.data(), sub_batch=st.integers(0, BATCH + 1))
    def set_sub_batch(self, data: st.DataObject, sub_batch: int) -> None:
        self.add(reference.Keep(self.a_job(data, "running"), sub_batch=sub_batch))

    @precondition(lambda self: not self.over)
    @rule(data=st.data(), job=st.integers(0, 12), work=st.sampled_from([-1.0, 0.25, 1.0, 3.0, 1e9]))
    def limit(self, data: st.DataObject, job: int, work: float) -> None:
        """Limit mostly a running job, but also one that waits or is not in the trace."""
        if self.slow.running() and data.draw(st.booleans()):
            job = self.a_job(data, "running")
        if job not in {action.job for action in self.plan}:
            self.add(reference.Keep(job, quota=work))

    def capacity(self, server: int, after_ns: int, *, up: bool) -> None:
        at = self.slow.now + after_ns
        self.slow.inject_capacity(server, up, at)
        self.engine.inject_capacity(server, up, at)

    @precondition(lambda self: not self.over)
    @rule(server=st.integers(0, SERVERS - 1), after_s=st.sampled_from([1e-9, 1.0, 2.0, 4.0]))
    def fail(self, server: int, after_s: float) -> None:
        self.capacity(server, round(after_s * 1e9), up=False)

    @precondition(lambda self: not self.over)
    @rule(server=st.integers(0, SERVERS - 1), after_s=st.sampled_from([1e-9, 1.0, 3.0]))
    def repair(self, server: int, after_s: float) -> None:
        self.capacity(server, round(after_s * 1e9), up=True)

    @precondition(lambda self: not self.over)
    @rule(
        sleep_s=st.sampled_from([0.5, 1.0, 1.0, 2.0, 3.0, None]),
        steady=st.sampled_from([False, False, True]),
    )
    def advance(self, sleep_s: float | None, *, steady: bool) -> None:
        actions, orders = self.plan, self.orders
        self.plan, self.orders = [], []
        steady = steady and self.in_rounds
        plan = reference.Plan(actions, steady=steady)
        # without a timer, a run with waiting jobs often stalls; rounds need no timer
        if sleep_s is not None and not self.in_rounds:
            at = self.slow.now + round(sleep_s * 1e9)
            self.alarms += 1
            plan.wake[("alarm", self.alarms)] = at
            orders = [*orders, ("wake_at", at / 1e9, self.alarms)]
        before = self.engine.snapshot()
        try:
            self.slow.apply(plan)
        except reference.PlanError as theirs:
            try:
                self.engine.apply(orders, steady)
            except gl.PlanError as ours:
                if len(actions) == 1:
                    assert ours.rule in RULES[theirs.rule]
                assert self.engine.snapshot() == before
                return
            raise AssertionError(f"the engine took a bad plan: {theirs}") from theirs
        self.engine.apply(orders, steady)
        ours = self.engine.snapshot()["running"]
        for job in self.slow.running():
            assert ours[job.index][1:] == (job.only.rate, job.next_at)
        self.go_on()

    @precondition(lambda self: self.over)
    @rule()
    def rest(self) -> None:
        """Check that a finished run stays finished."""
        if self.slow.done():
            assert self.engine.advance() == "done"

    @invariant()
    def both_are_alike(self) -> None:
        if not hasattr(self, "engine"):
            return
        ours = self.engine.snapshot()
        free = [0] * SERVERS
        for server, slot in self.slow.free():
            free[server] |= 1 << slot
        if not self.over:
            assert ours["now_ns"] == self.slow.now
        assert ours["waiting"] == [job.index for job in self.slow.waiting()]
        held = {
            job: sorted(gpus for _, part, _, _ in parts for gpus in part)
            for job, (parts, _, _) in ours["running"].items()
        }
        assert held == {job.index: masks(job.gpu_set) for job in self.slow.running()}
        up = [server.up for server in self.slow.servers]
        assert [m for m, u in zip(ours["free_mask"], up, strict=True) if u] == [
            m for m, u in zip(free, up, strict=True) if u
        ]

    def teardown(self) -> None:
        """Check that times of the jobs and counters of the run agree at the end."""
        if not hasattr(self, "engine"):
            return
        output = self.engine.output()
        outcome = self.slow.outcome()
        for i, finish in enumerate(output.jobs()["finish_s"]):
            wanted = outcome.jobs[i]["finish_ns"]
            assert (None if finish != finish else round(float(finish) * 1e9)) == wanted
        for name in ("preemptions", "migrations"):
            assert output.summary()[name] == getattr(outcome, name), name


TestSides = Sides.TestCase
TestSides.settings = settings(
    stateful_step_count=40,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
