"""Implements policies of the registry in Python from building blocks, after their pages.

Each takes a placement rule and its parameters, like those of the registry.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import gangline as gl

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from gangline.policies.prices import Offer


class _Placing(gl.Policy):
    """The common part of these policies: the placement of gangs."""

    def __init__(self, placement: str = "consolidate", **params: Any) -> None:
        self.placement = placement
        self.rule_params = params

    def start(self, view: gl.View) -> Iterable[int]:
        return gl.Plan(view).unplaceable(self.placement, **self.rule_params)  # type: ignore[arg-type]

    def place(self, plan: gl.Plan, job: int, types: int | None = None) -> bool:
        return plan.place(job, self.placement, types=types, **self.rule_params)  # type: ignore[arg-type]


class Fifo(_Placing):
    """Starts jobs in order of arrival; the first job that does not fit blocks all later ones."""

    def decide(self, view: gl.View, changes: gl.Changes) -> gl.Plan:
        plan = gl.Plan(view)
        for job in gl.orders.fifo(view):
            if not self.place(plan, job):
                break
        return plan


class FifoSkip(_Placing):
    """Starts jobs in order of arrival, and skips jobs that do not fit."""

    def order(self, view: gl.View) -> gl.orders.Order:
        return gl.orders.fifo(view)

    def decide(self, view: gl.View, changes: gl.Changes) -> gl.Plan:
        plan, order = gl.Plan(view), self.order(view)
        for job in order:
            if not self.place(plan, job):
                order.skip_like(job)
        return plan


class Sjf(FifoSkip):
    """Starts the shortest jobs first, and skips jobs that do not fit."""

    knowledge = "remaining"

    def order(self, view: gl.View) -> gl.orders.Order:
        return gl.orders.sjf(view)


class Srtf(_Placing):
    """Runs jobs by shortest remaining time: those not admitted make way for admitted ones."""

    knowledge = "remaining"

    def order(self, view: gl.View) -> gl.orders.Order:
        return gl.orders.srtf(view)

    def decide(self, view: gl.View, changes: gl.Changes) -> gl.Plan:
        plan, order = gl.Plan(view), self.order(view)
        admitted = order.admit()
        ran = [job for job, _ in admitted if plan.release(job)]
        placed = {job for job, kind in admitted if kind is not None and self.place(plan, job, kind)}
        if all(kind is None or job in placed for job, kind in admitted):
            return plan
        ran = [job for job in ran if job not in placed]
        for job in order:  # jobs that come earlier in the order are first
            while ran and order.is_before(ran[0], job):
                plan.restore(ran.pop(0))
            if job not in placed and not self.place(plan, job):
                order.skip_like(job)
        for job in ran:
            plan.restore(job)
        return plan


class Las(Srtf):
    """Runs jobs by least attained service: queues by GPU-seconds, first starts inside."""

    knowledge = "online"
    wake_on = ("arrival", "completion", "capacity", "timer")

    def __init__(self, limits: Iterable[float] = (3250.0, 7200.0), **params: Any) -> None:
        super().__init__(**params)
        self.limits = tuple(limits)

    def order(self, view: gl.View) -> gl.orders.Order:
        return gl.orders.las(view, limits=self.limits)

    def decide(self, view: gl.View, changes: gl.Changes) -> gl.Plan:
        plan = super().decide(view, changes)
        self.order(view).wake(plan)
        return plan


class SjfBsbf(gl.Policy):
    """Starts the shortest jobs first; a job without free GPUs shares some if this pays for both."""

    knowledge = "remaining"
    max_share = 2

    def decide(self, view: gl.View, changes: gl.Changes) -> gl.Plan:
        plan, arrived = gl.Plan(view), set(changes.arrived.tolist())
        running = view.running
        jobs = zip(running.job, running.sub_batch, running.batch_size, strict=True)
        alone = {
            job: gpus
            for kind in set(view.servers.gpu_type.tolist())
            for job, gpus in plan.sole_residents(kind).items()
        }
        for job, sub_batch, batch in jobs:
            if 0 < sub_batch < batch and alone.get(int(job)) == view.gpus_of(job):
                plan.keep(job, sub_batch=batch)
        for job in gl.orders.sjf(view):
            if changes.has_room or job in arrived:
                self.try_job(view, plan, job)
        return plan

    def try_job(self, view: gl.View, plan: gl.Plan, job: int) -> bool:
        row = view.waiting.job.tolist().index(job)
        rates, gpus = view.waiting.rates[row], int(view.waiting.gpus[row])
        for kind in sorted(rates.nonzero()[0].tolist(), key=lambda kind: -rates[kind]):
            free = plan.free_mask.tolist()
            servers = [s for s, of in enumerate(view.servers.gpu_type) if of == kind and free[s]]
            if plan.place(job, types=kind, max_level="server"):
                return True
            if sum(free[s].bit_count() for s in servers) >= gpus:
                servers.sort(key=lambda s: -free[s].bit_count())
                plan.start(job, masks=take({}, gpus, ((s, free[s]) for s in servers)))
                return True
            own = take({}, gpus, ((s, free[s]) for s in servers))
            batch = int(view.waiting.batch_size[row])
            found = [
                (score, at, masks, sub_batch)
                for at, sub_batch in enumerate(halves(batch))
                for score, masks in share(plan, job, gpus, own, kind, sub_batch)
            ]
            if found:
                _, _, masks, sub_batch = min(found)
                plan.start(job, masks=masks, sub_batch=sub_batch or None)
                return True
        return False


class Hadar(gl.Policy):
    """Sets prices that rise with occupancy: jobs that pay come before those that just fit."""

    knowledge = "remaining"
    wake_on = ()

    def __init__(
        self,
        *,
        order: str = "density",
        backfill: bool = True,
        replan: str = "round",
        scan_limit: int | None = None,
        **market: Any,
    ) -> None:
        self.order, self.backfill, self.replan = order, backfill, replan
        self.scan_limit, self.market = scan_limit, market
        self.round_s = market["round_s"]
        self.mixes_types = market["mix_types"]

    def start(self, view: gl.View) -> None:
        self.is_held = False

    def decide(self, view: gl.View, changes: gl.Changes) -> gl.Plan | tuple[gl.Plan, Any]:
        plan = gl.Plan(view)
        events = (changes.arrived, changes.finished, changes.servers_up, changes.servers_down)
        if self.is_held and not any(map(len, events)):
            return plan, gl.STEADY
        jobs = sorted([*view.waiting.job.tolist(), *view.running.job.tolist()])
        chosen = self.choose(view, jobs) if jobs else {}
        assign(view, plan, chosen)
        all_stay = len(chosen) == len(jobs) and all(one.stays for one in chosen.values())
        self.is_held = self.replan == "event" or all_stay
        return (plan, gl.STEADY) if self.is_held else plan

    def choose(self, view: gl.View, jobs: list[int]) -> dict[int, Offer]:
        """Return the offers that are taken, in order of the queue."""
        prices, chosen, refused = gl.Prices(view, **self.market), {}, 0
        tables = (view.waiting, view.running)
        gpus = {job: gang for one in tables for job, gang in zip(one.job, one.gpus, strict=True)}
        if self.order == "density":
            jobs.sort(key=lambda job: (-prices.density(job), -gpus[job]))
        for job in jobs:
            offer = prices.offer(job)
            if offer is not None and offer.payoff > 0:
                prices.take(offer.gpus)
                chosen[job] = offer
            elif offer is not None and (refused := refused + 1) == self.scan_limit:
                break
        for job in jobs if self.backfill else ():
            offer = None if job in chosen else prices.offer(job, by="utility")
            if offer is not None:
                prices.take(offer.gpus)
                chosen[job] = offer
        return {job: chosen[job] for job in jobs if job in chosen}


def assign(view: gl.View, plan: gl.Plan, chosen: dict[int, Offer]) -> None:
    """Choose the slots of an allocation: the held ones if a count stays, or the lowest."""
    free, kept = view.servers.free_mask.tolist(), {}
    for job in view.running.job.tolist():
        counts = chosen[job].gpus if job in chosen else {}
        kept[job] = held = view.gpus_of(job)
        for server, mask in held.items():
            free[server] |= 0 if counts.get(server) == mask.bit_count() else mask
        if job not in chosen:
            plan.preempt(job)
    for job, offer in chosen.items():
        masks = {}
        for server, count in offer.gpus.items():
            own = kept.get(job, {}).get(server, 0)
            if own.bit_count() != count:
                own = take({}, count, [(server, free[server])])[server]
                free[server] &= ~own
            masks[server] = own
        if job not in kept:
            plan.start(job, masks=masks)
        elif masks != kept[job]:
            plan.move(job, masks=masks)


def take(masks: dict[int, int], gpus: int, slots: Iterable[tuple[int, int]]) -> dict[int, int]:
    """Add the lowest slots, server by server, until a gang is complete."""
    masks = dict(masks)
    missing = gpus - sum(mask.bit_count() for mask in masks.values())
    for server, mask in slots:
        while mask and missing:
            masks[server] = masks.get(server, 0) | (mask & -mask)
            mask, missing = mask & (mask - 1), missing - 1
    return masks


def share(
    plan: gl.Plan, job: int, gpus: int, masks: dict[int, int], kind: int, sub_batch: int
) -> Iterator[tuple[float, dict[int, int]]]:
    """Yield the gang on free GPUs and those of the best partners, and the mean of their times."""
    sole = plan.sole_residents(kind)
    tests = [(plan.pair(job, other, sub_batch), other) for other in sole]
    partners = sorted((test[0], other) for test, other in tests if test and test[2])
    total = shared = 0.0
    for mean_s, other in partners:
        before = sum(mask.bit_count() for mask in masks.values())
        theirs = sorted(sole[other].items(), key=lambda one: one[0] not in masks)
        masks = take(masks, gpus, theirs)
        count = sum(mask.bit_count() for mask in masks.values())
        total, shared = total + mean_s * (count - before), shared + count - before
        if count == gpus:
            yield total / shared, masks
            return


def halves(batch: int) -> list[int]:
    """Return the sub-batches: 0 for the full one, then 1/2, 1/4, ... rounded up."""
    found, divisor = [0], 2
    while batch > 1 and -(-batch // divisor) < (found[-1] or batch):
        found.append(-(-batch // divisor))
        divisor *= 2
    return found
