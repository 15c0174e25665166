"""Checks every rule that a plan must keep, without changing the state."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from .actions import Action, Keep, Plan, Preempt, Start
from .world import Gpu, Job, PlanError

if TYPE_CHECKING:
    from .engine import Reference

OVERHEAD_MAX_NS = 4 * 10**18
Places = dict[tuple[int, int], tuple[Gpu, ...]]  # keyed by job and part
Batches = dict[tuple[int, int], int | None]


def check(ref: Reference, plan: Plan) -> None:
    """Raise the first broken rule."""
    places: Places = {}
    batches: Batches = {}
    for job in ref.running():
        for number, part in job.parts.items():
            places[job.index, number] = part.gpus
            batches[job.index, number] = part.pass_batch
    seen: set[tuple[int, int]] = set()
    for action in plan.actions:
        if not 0 <= action.job < len(ref.jobs):
            raise PlanError("unknown_job", action.job)
        key = (action.job, action.part)
        if key in seen:
            raise PlanError("two_actions", action.job)
        seen.add(key)
        check_action(ref, action)
        if isinstance(action, Preempt):
            del places[key], batches[key]
            continue
        if not isinstance(action, Keep):
            check_gpus(ref, ref.jobs[action.job], action.gpus)
            places[key] = action.gpus
        if isinstance(action, Start) or action.sub_batch is not None:
            batches[key] = action.sub_batch or ref.jobs[action.job].batch
        if action.config is not None:
            batches[key] = action.config.m
    check_servers(ref, places)
    check_state(ref, places, batches)
    for at in plan.wake.values():
        if at <= ref.now:
            raise PlanError("timer")


def check_action(ref: Reference, action: Action) -> None:
    """Check that the part exists, or does not exist yet, and check the optional fields."""
    job = ref.jobs[action.job]
    if job.status in ("finished", "dropped", "future"):
        rule = {"finished": "finished_job", "future": "not_arrived"}
        raise PlanError(rule.get(job.status, "dropped_job"), job.index)
    if action.part != 0 and not ref.forks:
        raise PlanError("not_forked", job.index)
    if isinstance(action, Start) and action.part in job.parts:
        raise PlanError("already_running", job.index)
    if not isinstance(action, Start) and action.part not in job.parts:
        raise PlanError("not_running", job.index)
    if isinstance(action, Preempt):
        return
    if action.overhead_ns is not None and not 0 <= action.overhead_ns <= OVERHEAD_MAX_NS:
        raise PlanError("overhead", job.index)
    if action.quota is not None and (math.isnan(action.quota) or action.quota <= 0):
        raise PlanError("work_limit", job.index)
    if action.config is not None and (
        job.elastic is None or action.config.m < 1 or action.config.a < 0
    ):
        raise PlanError("batch", job.index)
    if action.sub_batch is not None and (
        job.batch is None or not 1 <= action.sub_batch <= job.batch
    ):
        raise PlanError("sub_batch", job.index)


def check_gpus(ref: Reference, job: Job, gpus: tuple[Gpu, ...]) -> None:
    """Check that these GPUs exist and make a whole gang."""
    if not gpus or any(len(gpus) not in ref.gangs(job, server) for server, _ in gpus):
        raise PlanError("gang_size", job.index)
    if len(set(gpus)) != len(gpus):
        raise PlanError("gpu_twice", job.index)
    for server, slot in sorted(gpus):
        if not 0 <= server < len(ref.servers) or not ref.servers[server].up:
            raise PlanError("capacity", job.index, server)
        if not 0 <= slot < ref.servers[server].gpus:
            raise PlanError("capacity", job.index, server)
        is_whole = len(gpus) == job.gpus or job.elastic is not None
        rates = job.base if is_whole else job.copies[len(gpus)]
        if rates.get(ref.servers[server].type, 0.0) <= 0:
            raise PlanError("type", job.index, server)
    if ref.forks and len({server for server, _ in gpus}) > 1:
        raise PlanError("part_spans_servers", job.index)


def check_servers(ref: Reference, places: Places) -> None:
    """Check that the parts of a forked job would be on different servers."""
    for job in ref.jobs:
        servers = [gpus[0][0] for (index, _), gpus in places.items() if index == job.index]
        twice = [server for server in servers if servers.count(server) > 1]
        if twice:
            raise PlanError("parts_share_server", job.index, twice[0])


def check_state(ref: Reference, places: Places, batches: Batches) -> None:
    """Check the sharing limit, pairs and memory of the whole cluster after the plan."""
    on: dict[Gpu, list[tuple[int, int]]] = {}
    for key in sorted(places):
        for gpu in places[key]:
            on.setdefault(gpu, []).append(key)
    for gpu in sorted(on):
        here = [ref.jobs[index] for index, _ in on[gpu]]
        if len(here) > ref.max_share:
            raise PlanError("sharing", here[-1].index, gpu[0])
        t = ref.servers[gpu[0]].type
        if any(not ref.rates.can_pair(a, b, t) for a in here for b in here if a is not b):
            raise PlanError("pair", here[-1].index, gpu[0])
        used = sum(ref.rates.memory(ref.jobs[key[0]], batches[key]) for key in on[gpu])
        if used > ref.types[t].memory:
            raise PlanError("memory", here[-1].index, gpu[0])
