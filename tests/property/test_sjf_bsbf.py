"""Laws of SJF-FFS and SJF-BSBF on drawn worlds, by the slow simulator."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, reject, settings
from hypothesis import strategies as st

import reference
from parity import harness
from parity.draws import sharing_settings
from parity.worlds import sharing_worlds
from reference import pair
from reference.sjf_bsbf import SjfBsbf, SjfFfs

QUIET = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]
NAMES = ("sjf-ffs", "sjf-bsbf")


class Twin(harness.Twin):
    """Gives a world up in which failures leave some job no time to end."""

    def decide(self) -> reference.Plan:
        if self.decisions > harness.DECISIONS_MAX:
            reject()
        return super().decide()


class Watched(Twin):
    """Looks at every plan before and after it is carried out."""

    def decide(self) -> reference.Plan:
        assert isinstance(self.policy, SjfFfs)
        ends = {job.index: (job.next_at, job.only.xi) for job in self.running()}
        free = {t: sum(self.servers[s].type == t for s, _ in self.free()) for t in self.kinds_of()}
        plan = super().decide()
        assert all(isinstance(a, reference.Start | reference.Keep) for a in plan.actions)
        starts = [a for a in plan.actions if isinstance(a, reference.Start)]
        for action in starts:
            self.look_at(action, free, ends)
        if self.policy.name.startswith("sjf-ffs") and not self.policy.p["block"]:
            for job in self.waiting():
                assert not any(self.has_place(job, t) for t in job.types)
        return plan

    def kinds_of(self) -> range:
        return range(len(self.types))

    def look_at(
        self, action: reference.Start, free: dict[int, int], ends: dict[int, tuple[int, float]]
    ) -> None:
        """A start took free GPUs where they sufficed, else partners that gain."""
        job, t = self.jobs[action.job], self.servers[action.gpus[0][0]].type
        residents = self.residents()
        older = [i for i in ends if i != job.index]
        beside = {o.index for g in action.gpus for o in residents[g]} & set(older)
        if free[t] >= job.gpus and not self.policy.p.get("compare_spread"):
            assert not beside
        free[t] -= sum(not any(o.index in older for o in residents[g]) for g in action.gpus)
        if not isinstance(self.policy, SjfBsbf):
            return
        exact = self.policy.p["estimate_error"] == 0
        for index in beside if exact else ():
            other = self.jobs[index]
            finish, xi = ends[index]
            b = (finish - self.now) / 1e9
            b /= xi if self.policy.p["partner_time"] == "exclusive" else 1.0
            mine = self.rates.one_way(job, other, t)
            theirs = self.rates.one_way(other, job, t)
            assert mine is not None
            assert theirs is not None
            if self.policy.p["partner_time"] == "shared":
                theirs = max(1.0, theirs / xi)
            g = self.rates.inflation_at(job, action.sub_batch, action.gpus)
            a = job.remaining / job.base[t]
            assert b > pair.threshold(mine, theirs, g) * a

    def has_place(self, job: Any, t: int) -> bool:
        """Whether there are enough GPUs with room as the plan left them."""
        residents = self.residents()
        batch = {j.index: j.only.sub_batch for j in self.running()}
        count = 0
        for gpu in self.every_gpu():
            here = residents.get(gpu, [])
            if self.servers[gpu[0]].type != t or len(here) >= self.max_share:
                continue
            used = sum(self.rates.memory(o, batch[o.index]) for o in here)
            fits = used + job.memory <= self.types[t].memory
            count += fits and all(self.rates.can_pair(job, o, t) for o in here)
        return count >= job.gpus


@pytest.mark.parametrize("policy", NAMES)
@settings(suppress_health_check=QUIET)
@given(data=st.data())
def test_every_start_keeps_the_rules(policy: str, data: st.DataObject) -> None:
    world = data.draw(sharing_worlds(), label="world")
    params = data.draw(sharing_settings(policy), label="params")
    outcome = reference.run(world, policy, params, simulator=Watched)
    assert outcome.preemptions == outcome.migrations == 0
    assert all(row["finish_ns"] is not None or row["status"] == "dropped" for row in outcome.jobs)


@pytest.mark.parametrize("policy", NAMES)
@settings(suppress_health_check=QUIET)
@given(data=st.data())
def test_to_ask_again_changes_nothing(policy: str, data: st.DataObject) -> None:
    """Who was refused stays refused until something is released."""
    world = data.draw(sharing_worlds(), label="world")
    params = data.draw(sharing_settings(policy), label="params")
    params["partner_time"] = "exclusive"
    if policy == "sjf-ffs":
        del params["partner_time"]
    on_release = reference.run(world, policy, params | {"retest": "on_release"}, simulator=Twin)
    always = reference.run(world, policy, params | {"retest": "always"}, simulator=Twin)
    assert on_release == always


@settings(suppress_health_check=QUIET)
@given(data=st.data())
def test_slowdown_factors_of_one_cost_nothing(data: st.DataObject) -> None:
    """Each job runs as long as alone, overhead aside, on GPUs without distances."""
    world = data.draw(sharing_worlds(), label="world")
    world.pop("locality", None)
    world["cluster"].pop("failures", None)
    world["sharing"] = {"xi": 1.0, "acc_cost": 0.0}
    policy = data.draw(st.sampled_from(NAMES))
    run = reference.run(world, policy, simulator=Twin)
    for row, job in zip(run.jobs, reference.Reference(world, policy).jobs, strict=True):
        if row["status"] == "finished":
            bases = {max(1, round(job.work / base * 1e9)) for base in job.base.values() if base > 0}
            assert any(abs(row["run_ns"] - row["overhead_ns"] - ns) <= 2 for ns in bases)


@settings(suppress_health_check=QUIET)
@given(data=st.data())
def test_without_sharing_it_is_sjf(data: st.DataObject) -> None:
    """The same instants as sjf that counts GPUs, where it does not matter which GPUs they are."""
    world = data.draw(sharing_worlds(), label="world")
    world.pop("locality", None)
    world["cluster"].pop("failures", None)
    world["sharing"] = {"max_share": 1}
    mine = reference.run(world, "sjf-ffs", simulator=Twin)
    theirs = reference.run(world, "sjf", {"placement": "count"}, simulator=Twin)
    for row, other in zip(mine.jobs, theirs.jobs, strict=True):
        assert (row["first_start_ns"], row["status"]) == (other["first_start_ns"], other["status"])
