"""Tests `gl.Prices`: bounds, prices and offers by hand, from the formulas of `hadar`."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import pytest

import gangline as gl
import worlds
from refusals import refused

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from snapshots import Snapshot

LAB = worlds.cluster("1x2 slow*1", "1x4 fast*2", name="lab")
# W = 1, N = 200 and W = 2, N = 400 (seconds on `slow`); `fast` is twice as fast
TWO = [(0, 1, 200.0), (0, 2, 400.0)]


class Asking(gl.Policy):
    """Calls a function at each decision, and starts the jobs that it returns."""

    knowledge = "remaining"
    mixes_types = True

    def __init__(self, ask: Callable[[gl.View, int], dict[int, dict[int, int]] | None]) -> None:
        self.ask = ask
        self.decisions = 0

    def decide(self, view: gl.View, changes: gl.Changes) -> gl.Plan:
        plan = gl.Plan(view)
        starts = self.ask(view, self.decisions)
        for job, gpus in (starts or {}).items():
            plan.start(job, gpus)
        self.decisions += 1
        return plan


def run(
    ask: Callable[[gl.View, int], dict[int, dict[int, int]] | None],
    jobs: Sequence[tuple[float, int, float]] = TWO,
    cluster: gl.Cluster = LAB,
    **options: Any,
) -> gl.Result:
    return gl.simulate(cluster, worlds.jobs(*jobs), Asking(ask), **options)


def exactly(value: Any) -> Any:
    return pytest.approx(value, rel=1e-12, abs=0.0)


def start_all(view: gl.View) -> dict[int, dict[int, int]]:
    prices, starts = gl.Prices(view), {}
    for job in view.waiting.job.tolist():
        offer = prices.offer(job)
        if offer is not None:
            prices.take(offer.gpus)
            starts[job] = offer.gpus
    return starts


def test_bounds_prices_and_offers_by_hand() -> None:
    """Rounds of 100 s, A = N / g: 100 and 200.

    On the slow type the jobs need t = 200 / 100 = 2 and 400 / 100 = 4 rounds, together 6: the epoch
    has P = 8 rounds and ends at 800 s. There are C = 6 GPUs.

    U_min = 1/4 x min(2 x 1, 4 x 2) / (8 x 6) x min(100 / 800 / 2, 200 / 800 / 8)
          = 1/4 x 2 / 48 x 1/32 = 1/3072.
    U_max = A g / (N W), the larger of the two: 100 x 1 / 200 = 1/2 on slow, 100 x 2 / 200 = 1 on
    fast; of the other job they are 1/4 and 1/2.
    """
    least = 1 / 3072

    def ask(view: gl.View, decision: int) -> dict[int, dict[int, int]]:
        if decision:
            return {}
        prices = gl.Prices(view, round_s=100.0)
        assert prices.lowest == exactly(least)
        assert prices.highest.tolist() == exactly([0.5, 1.0])
        assert prices.per_server.tolist() == exactly([least, least])
        # utility per GPU at the best rate: 100 / 100 / 1 and 200 / 200 / 2
        assert [prices.density(job) for job in (0, 1)] == exactly([1.0, 0.5])

        # the payoff of two GPUs of `fast` is 200 / (400 / 2) less 2 x U_min
        offer = prices.offer(1)
        assert offer is not None
        assert (offer.gpus, offer.rate, offer.stays) == ({1: 2}, 2.0, False)
        assert offer.utility == exactly(1.0)
        assert offer.cost == exactly(2 * least)
        assert offer.payoff == exactly(1535 / 1536)
        assert prices.free.tolist() == [2, 4]

        # half of `fast` is given out: U_min (U_max / U_min)^(2/4)
        prices.take(offer.gpus)
        half = math.sqrt(1 / 3072)
        assert prices.free.tolist() == [2, 2]
        assert prices.per_server.tolist() == exactly([least, half])
        other = prices.offer(0)
        assert other is not None
        assert (other.gpus, other.utility) == ({1: 1}, exactly(1.0))
        assert other.payoff == exactly(1.0 - half)

        # one of two GPUs of `slow`, all of `fast`
        prices.take({0: 1, 1: 2})
        assert prices.per_server.tolist() == exactly([math.sqrt(0.5 / 3072), 1.0])
        last = prices.offer(0)
        assert last is not None
        assert (last.gpus, last.utility) == ({0: 1}, exactly(0.5))
        assert last.payoff == exactly(0.5 - math.sqrt(0.5 / 3072))
        assert prices.offer(1) is None
        prices.give({0: 1, 1: 2})
        assert prices.per_server.tolist() == exactly([least, half])
        return {0: other.gpus, 1: offer.gpus}

    assert run(ask).summary["makespan_s"] == 200.0


def test_a_gang_on_two_servers_pays_a_surcharge_and_by_the_round() -> None:
    """A gang of 5 is the only job: N = 1000, A = 500. Mixed, it runs at the slow rate.

    t = 10 rounds, P = 16: U_min = 1/4 x 50 / (16 x 6) x (500 / 1600) / 50 = 5/6144. The cost is
    that of 5 GPUs, for each of the 10 rounds that are left, and a tenth more. Of equally dear
    servers that with fewer free GPUs comes first.
    """

    def ask(view: gl.View, _: int) -> dict[int, dict[int, int]]:
        if not len(view.waiting):
            return {}
        offer = gl.Prices(view, round_s=100.0, cost_horizon="remaining").offer(0)
        assert offer is not None
        assert (offer.gpus, offer.rate) == ({0: 2, 1: 3}, 1.0)
        assert offer.cost == exactly(5 * 5 / 6144 * 10 * 1.1)
        assert offer.utility == exactly(500 / 1000)
        assert gl.Prices(view, mix_types=False).offer(0) is None
        return {0: offer.gpus}

    run(ask, [(0, 5, 1000.0)])


def test_the_cheapest_offer_need_not_be_the_best() -> None:
    """As in the first test: with half of `fast` given out `slow` is cheaper, and half as fast."""

    def ask(view: gl.View, decision: int) -> dict[int, dict[int, int]]:
        if decision:
            return {}
        found = {}
        for objective in ("max_payoff", "min_cost"):
            prices = gl.Prices(view, round_s=100.0, objective=objective)
            prices.take({1: 2})
            offer, fast = prices.offer(0), prices.offer(0, by="utility")
            assert offer is not None
            assert fast is not None
            assert fast.gpus == {1: 1}
            found[objective] = offer.gpus
        assert found == {"max_payoff": {1: 1}, "min_cost": {0: 1}}
        return {0: {0: 1}, 1: {1: 2}}

    run(ask)


@pytest.mark.parametrize(("asks_first", "least"), [(True, 1 / 768), (False, 1 / 256)])
def test_an_epoch_lasts_from_one_decision_to_the_next(*, asks_first: bool, least: float) -> None:
    """At 0 s P = 8 as above, to 800 s. At 200 s only a third job is active, with N = 300, A = 150.

    W = 1, t = 3.
    The old epoch is kept: 2 + 3 rounds are within 8, and 4 x 3 is more than 8. So
    U_min = 1/4 x 3 / (8 x 6) x 150 / 600 / 3 = 1/768. A new one has P = 4 and ends at 600 s:
    1/4 x 3 / (4 x 6) x 150 / 400 / 3 = 1/256.
    """
    seen = []

    def ask(view: gl.View, decision: int) -> dict[int, dict[int, int]]:
        if decision == 0 and asks_first:
            gl.Prices(view, round_s=100.0)
        if view.now_s == 200.0:
            seen.append(gl.Prices(view, round_s=100.0).lowest)
            gl.Prices(view, round_s=100.0)  # repeated requests do not change the epoch
            seen.append(gl.Prices(view, round_s=100.0).lowest)
        return start_all(view)

    run(ask, [*TWO, (200, 1, 300.0)])
    assert seen == exactly([least, least])


@pytest.mark.parametrize(
    ("reads", "forks", "least"),
    [(True, False, 1 / 768), (False, False, 1 / 256), (True, True, 1 / 256)],
)
def test_a_run_step_by_step_keeps_the_epoch(*, reads: bool, forks: bool, least: float) -> None:
    """The epoch at 200 s is the same whether prices are read earlier or not, also in a fork."""
    step = gl.Simulation(LAB, worlds.jobs(*TWO, (200, 1, 300.0)), mixes_types=True)
    assert step.advance() == "decision"
    assert gl.Prices(step.view, round_s=100.0).lowest == exactly(1 / 3072)
    plan = gl.Plan(step.view)
    plan.start(0, {1: 1})
    plan.start(1, {1: 2})
    step.apply(plan)
    assert step.advance() == "decision"
    assert not reads or step.view.now_s == 100.0
    step.apply(gl.Plan())
    assert step.advance() == "decision"
    step = step.fork() if forks else step
    assert gl.Prices(step.view, round_s=100.0).lowest == exactly(least)
    assert step.view.now_s == 200.0


def test_no_job_no_price() -> None:
    def ask(view: gl.View, _: int) -> dict[int, dict[int, int]]:
        if not len(view.waiting) and not len(view.running):
            prices = gl.Prices(view)
            assert (prices.lowest, prices.highest.tolist()) == (0.0, [0.0, 0.0])
            assert prices.per_server.tolist() == [0.0, 0.0]
            asked.append(view.now_s)
        return start_all(view)

    asked: list[float] = []
    run(ask)
    assert asked == [200.0]


def test_a_server_that_is_down_has_no_free_gpu_and_counts_for_no_price() -> None:
    """With `slow` down C = 4: U_min = 1/4 x 2 / (8 x 4) x 1/32 = 1/2048."""
    table = [{"server": 0, "down_s": 0.0, "up_s": 1000.0}]
    lab = worlds.cluster("1x2 slow*1", "1x4 fast*2", failures={"table": table})
    seen = []

    def ask(view: gl.View, decision: int) -> dict[int, dict[int, int]]:
        prices = gl.Prices(view, round_s=100.0)
        if decision == 0:
            seen.append((prices.free.tolist(), prices.lowest))
            with refused(gl.PolicyError, field="gpus"):
                prices.give({0: 1})
        return start_all(view)

    run(ask, cluster=lab)
    assert seen == [([0, 4], exactly(1 / 2048))]


def test_a_running_job_stays_where_nothing_is_faster() -> None:
    """At 50 s job 0 runs on `fast`. Job 1 has 350 s to go on `slow`, 175 s on `fast`; A is 200."""
    asked = []

    def ask(view: gl.View, decision: int) -> dict[int, dict[int, int]]:
        if decision == 0:
            return {1: {0: 2}, 0: {1: 1}}
        if view.now_s == 50.0:
            fast, slow = (gl.Prices(view).offer(job) for job in (0, 1))
            assert fast is not None
            assert slow is not None
            assert (fast.gpus, fast.stays) == ({1: 1}, True)
            assert (slow.gpus, slow.stays, slow.rate) == ({1: 2}, False, 2.0)
            assert slow.utility == exactly(200 / (50 + 175))
            stay = gl.Prices(view, stay=False).offer(0)
            assert stay is not None
            assert (stay.gpus, stay.stays) == ({1: 1}, False)
            asked.append(view.now_s)
            return {2: {1: 1}}
        return {}

    run(ask, [*TWO, (50, 1, 100.0)])
    assert asked == [50.0]


def test_a_job_in_parts_has_no_offer() -> None:
    asked = []

    class InParts(gl.Policy):
        knowledge = "remaining"
        forks = True

        def decide(self, view: gl.View, changes: gl.Changes) -> gl.Plan:
            plan = gl.Plan()
            if view.now_s == 0.0:
                for part, server in enumerate((1, 0)):
                    plan.start(0, {server: 1}, part=part)
            elif view.now_s == 5.0:
                with refused(gl.PolicyError, field="job", value="0"):
                    gl.Prices(view).offer(0)
                asked.append(view.now_s)
                plan.start(1, {1: 2})
            return plan

    gl.simulate(LAB, worlds.jobs((0, 1, 200.0), (5, 2, 10.0)), InParts())
    assert asked == [5.0]


def test_mistakes_are_named(snapshot: Snapshot) -> None:
    told: list[str] = []

    def ask(view: gl.View, decision: int) -> dict[int, dict[int, int]]:
        if decision:
            return start_all(view)
        acts: list[tuple[str, Callable[[], object]]] = [
            ("utility", lambda: gl.Prices(view, utility="ftf")),  # type: ignore[arg-type]
            ("umin_factor", lambda: gl.Prices(view, umin_factor=0.0)),
            ("gpus", lambda: gl.Prices(view).take({7: 1})),
            ("gpus", lambda: gl.Prices(view).take({0: 3})),
            ("gpus", lambda: gl.Prices(view).give({0: 1})),
            ("job", lambda: gl.Prices(view).offer(2)),
            ("job", lambda: gl.Prices(view).density(9)),
            ("by", lambda: gl.Prices(view).offer(0, by="cost")),  # type: ignore[arg-type]
        ]
        for field, act in acts:
            with refused(gl.PolicyError, field=field) as caught:
                act()
            told.append(str(caught.value))
        return start_all(view)

    run(ask, [*TWO, (500, 1, 10.0)])
    snapshot(*told)


def test_offers_end_with_the_decision_and_prices_do_not() -> None:
    kept: list[gl.Prices] = []

    def ask(view: gl.View, _: int) -> dict[int, dict[int, int]]:
        if kept:
            assert kept[0].lowest > 0.0
            with refused(gl.PolicyError, field="prices"):
                kept[0].offer(0)
        kept.append(gl.Prices(view))
        return start_all(view)

    run(ask)
    assert len(kept) > 1


def test_prices_are_for_policies_that_know_the_work_and_for_decisions() -> None:
    class Online(Asking):
        knowledge = "online"

    with refused(gl.PolicyError, field="knowledge"):
        gl.simulate(LAB, worlds.jobs(*TWO), Online(lambda view, _: start_all(view)))

    asked = []

    class Telling(Asking):
        def why(self, view: gl.View, job: int) -> str:
            with refused(gl.PolicyError, field="prices"):
                gl.Prices(view)
            asked.append(job)
            return "no price was paid"

    wide = worlds.jobs("A 0 6 100", "B 0 6 100")
    result = gl.simulate(LAB, wide, Telling(lambda view, _: start_all(view)))
    assert "no price was paid" in str(result.explain("B"))
    assert asked == [1]


def test_the_defaults_are_those_of_the_policy() -> None:
    defaults = gl.Prices.__init__.__kwdefaults__ or {}
    assert len(defaults) == 11
    hadar = gl.policies.Hadar().params()
    assert defaults == {name: hadar[name] for name in defaults}
