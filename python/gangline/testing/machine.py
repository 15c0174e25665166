"""A hypothesis state machine that drives any policy step by step while servers fail.

A rule either asks the policy for one decision, or makes a server fail and recover. The state of the
engine is checked after each step; at the end, all jobs must finish.

Examples
--------
>>> from hypothesis import settings
>>> from hypothesis.stateful import run_state_machine_as_test
>>> from gangline.testing.machine import machine
>>> few = settings(max_examples=5, stateful_step_count=10, database=None, derandomize=True)
>>> run_state_machine_as_test(machine("fifo"), settings=few)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gangline.testing import strategies  # this import says what to install if hypothesis is missing

# isort: split
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from gangline import _core
from gangline.policies.choice import resolve_policy
from gangline.runs.inputs import make_options
from gangline.testing.safety import LawBroken
from gangline.trace.jobs.to_core import codes, pairs_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hypothesis.strategies import SearchStrategy

    from gangline.policies.choice import PolicyLike
    from gangline.testing.worlds import World

__all__ = ["PolicyMachine", "machine"]

DECISIONS_MAX = 5_000
"""A run counts as endless if it still has jobs after this many additional decisions. Our own
choice: worlds have at most 14 jobs."""


class PolicyMachine(RuleBasedStateMachine):
    """A state machine that drives one policy; `machine` creates the class for your policy.

    Attributes
    ----------
    policy, params
        As for `gangline.simulate`.
    worlds : strategy of World
        The strategy that generates worlds; outages in their clusters are removed.
    """

    policy: PolicyLike = "fifo"
    params: Mapping[str, Any] | None = None
    worlds: SearchStrategy[World] = strategies.any_worlds(time_scales=(1.0,))

    def __init__(self) -> None:
        super().__init__()
        self.is_over = True
        self.outages: list[tuple[int, int, int, bool]] = []  # time, number, server, up
        self.now_ns = 0
        self.seen: set[int] = set()
        self.gone: set[int] = set()

    @initialize(data=st.data())
    def begin(self, data: st.DataObject) -> None:
        """Begin a run in a generated world."""
        world = data.draw(self.worlds, label="world")
        own = {"failures", "capacity"}
        keys = {name: value for name, value in world.cluster_keys.items() if name not in own}
        keys.setdefault("sharing", {"xi": 1.5})
        world = type(world)(keys, world.jobs, world.options)
        cluster, trace = world.cluster, world.trace
        options = make_options(
            {"on_infeasible": "drop", **world.options, "check_invariants": True, "segments": True}
        ).to_core(cluster, codes(trace, "model")[1], pairs_of(trace, cluster))
        chosen = resolve_policy(self.policy, self.params)
        params = chosen.params if chosen.own is None else {}
        self.engine = _core.Simulation(
            cluster.to_core(), trace.to_core(cluster), options, chosen.policy, params
        )
        self.servers = len(cluster.server_arrays()["gpus"])
        self.is_elastic = "elastic" in keys
        self.gangs = trace.numbers("gpus").astype(int).tolist()
        self.arrivals = [round(at_s * 1e9) for at_s in trace.numbers("arrival_s").tolist()]
        self.is_over = False

    def _step(self) -> None:
        self.is_over = True  # after an exception the run cannot continue
        if self.engine.advance() != "done":
            self.engine.decide()
            self.is_over = False

    @precondition(lambda self: not self.is_over)
    @rule()
    def step(self) -> None:
        """Advance to the next decision, and let the policy decide."""
        self._step()

    @precondition(lambda self: not self.is_over)
    @rule(
        server=st.integers(0, 63),
        after_s=st.sampled_from([1.0, 0.5, 3.0, 1e-9]),
        lasts_s=st.sampled_from([1.0, 4.0, 20.0]),
    )
    def fail(self, server: int, after_s: float, lasts_s: float) -> None:
        """Make a server fail after some time, and then recover."""
        server %= self.servers
        down_ns = self.engine.now_ns + round(after_s * 1e9)
        for at_ns, is_up in ((down_ns, False), (down_ns + round(lasts_s * 1e9), True)):
            self.engine.inject_capacity(server, is_up, at_ns)
            self.outages.append((at_ns, len(self.outages), server, is_up))

    @precondition(lambda self: self.is_over)
    @rule()
    def rest(self) -> None:
        """Do nothing; after the end of a run, hypothesis still needs a rule that it can apply."""

    @invariant()
    def state_is_sound(self) -> None:
        """Check the current state of the engine."""
        if self.is_over:
            return
        state = self.engine.snapshot()
        running, waiting = state["running"], set(state["waiting"])
        broken: list[tuple[str, str]] = []
        if state["now_ns"] < self.now_ns:
            broken.append(("times", f"time goes back to {state['now_ns']} ns"))
        self.now_ns = state["now_ns"]
        down = {}
        for at_ns, _, server, is_up in sorted(self.outages):
            if at_ns <= self.now_ns:
                down[server] = not is_up
        held: dict[tuple[int, int], list[int]] = {}
        for job, (parts, _, finish_ns) in running.items():
            for _, places, _, _ in parts:
                gpus = sum(mask.bit_count() for _, mask in places)
                if gpus != self.gangs[job] and not self.is_elastic:
                    broken.append(
                        ("gang", f"job {job} asks for {self.gangs[job]} GPUs but holds {gpus}")
                    )
                for server, mask in places:
                    if down.get(server):
                        broken.append(("down", f"job {job} runs on server {server}"))
                    if mask & state["free_mask"][server]:
                        broken.append(("capacity", f"GPUs of job {job} count as free"))
                    for slot in range(mask.bit_length()):
                        if mask >> slot & 1:
                            held.setdefault((server, slot), []).append(job)
            if finish_ns < self.now_ns:
                broken.append(("finish", f"job {job} should have finished"))
        broken += [
            ("double-booking", f"GPU {gpu} holds the jobs {jobs}")
            for gpu, jobs in held.items()
            if len(jobs) > 2
        ]
        active = waiting | set(running)
        broken += [
            ("before-arrival", f"job {job} exists before it arrives")
            for job in active
            if self.arrivals[job] > self.now_ns
        ]
        broken += [("finish", f"job {job} is both") for job in waiting & set(running)]
        broken += [("finish", f"job {job} comes back") for job in active & self.gone]
        self.seen |= active
        self.gone |= self.seen - active
        if broken:
            raise LawBroken(broken)

    def teardown(self) -> None:
        """Continue the run until its end, when all servers have recovered; all jobs must finish."""
        decisions = 0
        while not self.is_over:
            self._step()
            decisions += 1
            if decisions > DECISIONS_MAX:
                raise LawBroken(
                    [("ends", f"after {decisions} more decisions, jobs are not finished")]
                )


def machine(
    policy: PolicyLike,
    *,
    params: Mapping[str, Any] | None = None,
    worlds: SearchStrategy[World] | None = None,
) -> type[PolicyMachine]:
    """Return a state machine that drives a policy step by step while servers fail.

    Parameters
    ----------
    policy : policy
        A policy: a name, a configuration or a gangline.Policy object.
    params : mapping, optional
        Parameters of a policy that is given by name.
    worlds : strategy of World, optional
        The strategy that generates worlds; by default, `strategies.any_worlds` with jobs of
        seconds.

    Returns
    -------
    type
        A `hypothesis.stateful.RuleBasedStateMachine`. Pytest runs the class's attribute `TestCase`.
    """
    found: dict[str, Any] = {"policy": policy, "params": params}
    if worlds is not None:
        found["worlds"] = worlds
    return type("PolicyMachine", (PolicyMachine,), found)
