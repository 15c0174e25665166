"""Checks jobs that share GPUs: their memory, their co-runners, and the slowdown.

The cost is linear in the number of row pairs that overlap on a GPU, and quadratic in the number of
changes during one stretch.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gangline.analysis.audit.rows import SLOTS, held_seconds
from gangline.analysis.audit.sweep import Sweep, over
from gangline.trace.jobs.to_core import GIB, pairs_of

if TYPE_CHECKING:
    import numpy.typing as npt

    from gangline.analysis.audit.findings import Findings
    from gangline.analysis.audit.rows import Rows
    from gangline.analysis.audit.world import World

    Floats = npt.NDArray[np.float64]
    Ints = npt.NDArray[np.int64]
    Bools = npt.NDArray[np.bool_]

__all__ = ["CoRunners", "check"]

TABLE = "segments"
EXACT_S = 6e-10  # distinct instants in our tables are at least a nanosecond apart
SAME = 1e-9  # relative: slowdown factors are products and quotients of a few floats
DEFAULT_COST = 0.05  # the cost of a gradient accumulation step, as in `[sharing]`


class _Meetings(NamedTuple):
    """Intervals in which a stretch shares a GPU with another job, ordered by stretch."""

    stretch: Ints
    other: Ints
    gpu: Ints
    start: Floats
    end: Floats


class CoRunners:
    """The co-runners of each job, and the slowdown that they cause."""

    def __init__(self, world: World, rows: Rows) -> None:
        self._world, self._rows = world, rows

    @cached_property
    def met(self) -> _Meetings:
        """The intervals in which rows of different jobs overlap on a GPU."""
        rows = self._rows
        row, gpu = rows.gpu_rows
        order = np.lexsort((rows.start[row], gpu))
        row, gpu = row[order], gpu[order]
        # If any rows of a GPU overlap, some row overlaps with the next one. Other GPUs are skipped.
        overlaps = (gpu[1:] == gpu[:-1]) & (rows.end[row[:-1]] - EXACT_S > rows.start[row[1:]])
        is_shared = np.zeros(len(self._world.server_gpus) * SLOTS, dtype=np.bool_)
        is_shared[gpu[1:][overlaps]] = True
        row, gpu = row[is_shared[gpu]], gpu[is_shared[gpu]]
        start, end = rows.start[row], rows.end[row] - EXACT_S
        first = np.searchsorted(gpu, gpu)  # the first row of the same GPU
        latest = _running_latest(end, first)
        # Each row is compared with its predecessors, the nearest first, until no earlier one ends
        # late enough to overlap. Without sharing, no comparison is made.
        at, back = np.arange(len(row)), 1
        found: list[tuple[Ints, Ints]] = []
        while len(at):
            at = at[(at - back >= first[at]) & (latest[at - back] > start[at])]
            other = at - back
            meets = (end[other] > start[at]) & (end[at] > start[at])
            meets &= rows.job[row[at]] != rows.job[row[other]]
            found.append((at[meets], other[meets]))
            back += 1
        one, two = (np.concatenate([at, *(pair[i] for pair in found)]) for i in range(2))
        begin = start[one]  # the later start of the two
        until = np.minimum(rows.end[row[one]], rows.end[row[two]])
        mine, other = row[np.concatenate([one, two])], row[np.concatenate([two, one])]
        stretch = rows.stretches.of_row[mine]
        order = np.argsort(stretch, kind="stable")
        return _Meetings(
            stretch[order],
            rows.job[other][order],
            np.concatenate([gpu[one], gpu[one]])[order],
            np.concatenate([begin, begin])[order],
            np.concatenate([until, until])[order],
        )

    @cached_property
    def share_s(self) -> Floats:
        """Time for which each job had a co-runner, summed over its parts."""
        met, held = self.met, self._rows.stretches
        seconds = held_seconds(met.stretch, met.start, met.end, len(held.job))
        return np.bincount(held.job, weights=seconds, minlength=self._world.jobs).astype(np.float64)

    @cached_property
    def _xi(self) -> Floats:
        """Slowdown factor for each co-runner interval; NaN = unknown."""
        world, met = self._world, self.met
        pairs = None if world.trace is None else pairs_of(world.trace, world.cluster)
        sharing = world.cluster.sharing
        if sharing is not None and not sharing.overhead_interferes:
            pairs = None  # segments do not say which co-runners are in their overhead
        if pairs is None:
            return np.full(len(met.stretch), np.nan)
        job, kind = self._rows.stretches.job[met.stretch], world.server_type[met.gpu // SLOTS]
        if pairs.of_job is None:
            return np.asarray(pairs.xi[kind, 0, 0])
        return np.asarray(pairs.xi[kind, pairs.of_job[job], pairs.of_job[met.other]])

    def slowdown(self, stretch: Ints, time: Floats) -> Floats:
        """Return the slowdown factor of each stretch's gang at an instant; NaN = unknown."""
        met, xi = self.met, self._xi
        counts = np.bincount(met.stretch, minlength=len(self._rows.stretches.job))
        begin = np.cumsum(counts) - counts
        # pair each instant with every meeting of its stretch
        count = counts[stretch]
        asked = np.repeat(np.arange(len(stretch)), count)
        within = np.arange(len(asked)) - np.repeat(np.cumsum(count) - count, count)
        which = np.repeat(begin[stretch], count) + within
        now = (met.start[which] <= time[asked]) & (time[asked] < met.end[which])
        asked, which = asked[now], which[now]
        # take the largest factor on each GPU, then the largest or the mean of the gang
        order = np.lexsort((xi[which], met.gpu[which], asked))
        asked, which = asked[order], which[order]
        last = np.ones(len(asked), dtype=np.bool_)
        last[:-1] = (asked[1:] != asked[:-1]) | (met.gpu[which[1:]] != met.gpu[which[:-1]])
        asked, by_gpu = asked[last], xi[which[last]]  # NaN, an unknown factor, sorts last
        sharing = self._world.cluster.sharing
        if sharing is not None and sharing.gang_xi == "mean":
            shared = np.bincount(asked, minlength=len(stretch))
            alone = self._rows.stretches.gpus[stretch] - shared
            total = alone + np.bincount(asked, weights=by_gpu, minlength=len(stretch))
            return np.where(shared > 0, total / np.maximum(alone + shared, 1), 1.0)
        found = np.ones(len(stretch))
        np.maximum.at(found, asked, by_gpu)
        return found

    @cached_property
    def at_begin(self) -> Floats:
        """Slowdown factor of each stretch at its beginning; NaN = unknown."""
        found = np.ones(len(self._rows.stretches.job))
        shared = np.unique(self.met.stretch)
        found[shared] = self.slowdown(shared, self.soon[shared])
        return found

    @cached_property
    def soon(self) -> Floats:
        """An instant in each stretch, later than its start by the tolerance or half its length."""
        held = self._rows.stretches
        return held.start + np.minimum(self._world.tolerance_s, (held.end - held.start) / 2.0)

    def names(self, time: Floats) -> pa.Array:
        """Return the co-runners of each stretch at an instant, formatted as in the column."""
        world, met = self._world, self.met
        at = time[met.stretch]
        beside = np.flatnonzero((met.start <= at) & (at < met.end))
        pair = np.unique(met.stretch[beside] * world.jobs + met.other[beside])
        stretch, other = np.divmod(pair, max(world.jobs, 1))
        ends = np.cumsum(np.bincount(stretch, minlength=len(time)))
        offsets = pa.array(np.concatenate([[0], ends]), pa.int32())
        return pc.binary_join(pa.ListArray.from_arrays(offsets, world.ids_of(other)), "|")


def _running_latest(end: Floats, first: Ints) -> Floats:
    """For each row, return the latest end among the row and the earlier rows on the same GPU."""
    if not len(end):
        return end
    by_end = np.argsort(end, kind="stable")
    rank = np.empty(len(end), dtype=np.int64)
    rank[by_end] = np.arange(len(end))
    # the ranks of each GPU are raised above those of earlier GPUs, so that each GPU starts anew
    lift = (np.cumsum(np.diff(first, prepend=0) != 0)) * len(end)
    return np.asarray(end[by_end[np.maximum.accumulate(rank + lift) - lift]])


def check(world: World, rows: Rows, co_runners: CoRunners, findings: Findings) -> None:
    """Check every rule for which the table has the columns."""
    has_gpus = rows.mask is not None and rows.has_server
    if has_gpus:
        ones = np.ones(len(rows.table), dtype=np.int64)
        most = np.full(len(world.types), world.max_share)
        _on_gpus(world, rows, findings, "double-booking", ("jobs", 1), (ones, most))
        memory = _memory(world, rows)
        if memory is not None:
            _on_gpus(world, rows, findings, "memory", ("GiB", GIB), (memory, world.type_memory))
    if has_gpus and "co_runner" in rows.table.words and world.knows_jobs:
        _names(rows, co_runners)
        _retimed(world, rows, co_runners)
    _rates(world, rows, co_runners if has_gpus else None, findings)


def _on_gpus(
    world: World,
    rows: Rows,
    findings: Findings,
    rule: str,
    unit: tuple[str, int],
    amounts: tuple[Ints, Ints],
) -> None:
    """Check the sum of an amount on each GPU; the allowed sum depends on the GPU type."""
    assert rows.mask is not None, "asked for only with slots"
    kept = np.flatnonzero(rows.good & (rows.server >= 0))
    server, mask, job = rows.server[kept], rows.mask[kept], rows.job[kept]
    amount, most = amounts[0][kept], amounts[1].astype(np.float64)
    sweep = Sweep(rows.start[kept], rows.end[kept], world.tolerance_s, server)
    events = mask[sweep.row]
    name, size = unit
    used = int(np.bitwise_or.reduce(events)) if len(events) else 0
    for slot in (slot for slot in range(SLOTS) if used >> slot & 1):
        chosen = np.flatnonzero((events >> np.uint64(slot)) & np.uint64(1))
        row = sweep.row[chosen]
        where = server[row]
        held = np.cumsum(sweep.sign[chosen] * amount[row])
        excess = over(held, most[world.server_type[where]])
        findings.add_excess(
            rule,
            TABLE,
            excess,
            lambda i, excess=excess, slot=slot, where=where: (  # type: ignore[misc]
                f"GPU {slot} of server {where[excess.at[i]]} holds {excess.peak[i] / size:g} "
                f"{name} instead of at most {excess.allowed[i] / size:g}"
            ),
            job=job[row],
            time=sweep.time[chosen],
            server=where,
        )
    findings.looked_at(rule)


def _memory(world: World, rows: Rows) -> Ints | None:
    """Return the bytes per GPU that each row needs at its sub-batch; None if they are unknown."""
    if world.trace is None or "memory_gb" not in world.trace.columns:
        return None
    full = np.append(np.floor(np.nan_to_num(world.trace.numbers("memory_gb")) * GIB + 0.5), 0.0)
    batch, given = _batches(world, rows)
    part = given / batch
    sharing = world.cluster.sharing
    if sharing is not None and sharing.acc_cost == 0.0 and rows.table.has("sub_batch"):
        # a change of the sub-batch that costs nothing does not end a row
        part = np.zeros(len(part))
    fixed = 0.5 if sharing is None else sharing.memory_fixed_fraction
    return np.floor(full[rows.job] * (fixed + (1.0 - fixed) * part) + 0.5).astype(np.int64)


def _batches(world: World, rows: Rows) -> tuple[Floats, Floats]:
    """Return the batch and sub-batch of each row; both are 1 if the row uses the full batch."""
    ones = np.ones(len(rows.table))
    has_batch = world.trace is not None and "batch_size" in world.trace.columns
    if not has_batch or not rows.table.has("sub_batch"):
        return ones, ones
    assert world.trace is not None, "the caller checked that the column exists"
    batch = np.append(np.nan_to_num(world.trace.numbers("batch_size")), 0.0)[rows.job]
    given = rows.table["sub_batch"]
    is_part = (given > 0.0) & (given < batch)
    # a pass of an elastic job may be larger than the batch in the trace
    if world.elastic is not None:
        elastic = np.append(world.elastic.rows, np.False_)[rows.job]
        is_part |= (given > 0.0) & (batch > 0.0) & elastic
    return np.where(is_part, batch, 1.0), np.where(is_part, given, 1.0)


def _names(rows: Rows, co_runners: CoRunners) -> None:
    """Check that each stretch names the co-runners at its beginning."""
    held = rows.stretches
    concerned = rows.partner[held.row] >= 0
    concerned[co_runners.met.stretch] = True
    chosen = np.flatnonzero(concerned)
    given = rows.table.words["co_runner"].take(pa.array(held.row[chosen]))
    given = given.cast(pa.string()).fill_null("")
    wanted = co_runners.names(held.start).take(pa.array(chosen))
    bad = pc.not_equal(given, wanted).to_numpy(zero_copy_only=False)
    if bad.any():
        soon = co_runners.names(co_runners.soon).take(pa.array(chosen))
        bad &= pc.not_equal(given, soon).to_numpy(zero_copy_only=False)
    rows.add(
        "co-runners",
        bad,
        lambda at: (
            f"runs with {wanted[at].as_py() or 'no other job'}, "
            f"but its row names {given[at].as_py() or 'none'}"
        ),
        at=held.row[chosen],
    )


def _retimed(world: World, rows: Rows, co_runners: CoRunners) -> None:
    """Check that a row ends when co-runners come or go and make its job faster or slower."""
    met, held = co_runners.met, rows.stretches
    stretch = np.concatenate([met.stretch, met.stretch])
    time = np.concatenate([met.start, met.end])
    # a paused job stays paused
    inner = (co_runners.soon[stretch] < time) & (time < held.end[stretch] - world.tolerance_s)
    inner &= _given_rate(rows)[stretch] > 0.0
    stretch, time = stretch[inner], time[inner]
    before, after = co_runners.at_begin[stretch], co_runners.slowdown(stretch, time)
    rows.add(
        "co-runners",
        np.abs(after - before) > SAME * before,
        "keeps its rate, although its co-runners now slow it down by {found:.9g} instead of "
        "{allowed:.9g}",
        at=held.row[stretch],
        time=time,
        found=after,
        allowed=before,
    )


def _given_rate(rows: Rows) -> Floats:
    """Return the rate of each stretch according to its row; 1 without a column `rate`."""
    if not rows.table.has("rate"):
        return np.ones(len(rows.stretches.job))
    return rows.table["rate"][rows.stretches.row]


def _rates(world: World, rows: Rows, co_runners: CoRunners | None, findings: Findings) -> None:
    """Check that no gang is faster than its GPUs, its sub-batch and its co-runners allow.

    If distance costs nothing, no job in a complete run may be slower either, unless it is paused. A
    job whose rate changes with its progress may be in any phase.
    """
    if world.base is None or world.work is None or not rows.table.has("rate"):
        missing = "how fast jobs are: a trace" if world.base is None else "the column rate"
        findings.skip("rate", missing)
        return
    if world.has_noise:
        findings.skip("rate", "how fast jobs are: the cluster has run-time noise")
        return
    kept, held = rows.kept, rows.stretches
    stretch = held.of_row[kept]
    base = np.full(len(held.job), np.inf)
    np.minimum.at(base, stretch, rows.base)  # a gang on several types has a single rate
    base = base[stretch]
    if world.run is None:  # in other simulators, the rows of a gang may have different rates
        base = np.maximum(base, rows.base)
    batch, sub_batch = _batches(world, rows)
    sharing = world.cluster.sharing
    cost = DEFAULT_COST if sharing is None else sharing.acc_cost
    xi = np.ones(len(held.job)) if co_runners is None else co_runners.at_begin
    is_known = ~np.isnan(xi)[stretch]
    is_elastic = rows.pace[0][stretch]
    slower = (1.0 + cost * (np.ceil(batch / sub_batch) - 1.0))[kept]
    slower[is_elastic] = 1.0  # the model of an elastic job contains the cost of passes
    slower *= np.where(is_known, xi[stretch], 1.0)
    allowed = base / slower * (world.max_parts if rows.part is None else 1)
    slowest, fastest = (factor[rows.job[kept]] for factor in world.phase_factors)
    least, allowed = allowed * slowest, allowed * fastest
    rate = rows.table["rate"][kept]
    wrong = ~(rate <= allowed * (1.0 + SAME))
    if world.run is not None and world.cluster.network is None and world.cluster.runtime is None:
        is_slow = (rate < least * (1.0 - SAME)) & (rate > 0.0) & is_known & ~is_elastic
        wrong |= is_slow
        allowed = np.where(is_slow, least, allowed)
    rows.add(
        "rate",
        wrong & np.isfinite(world.work)[rows.job[kept]],
        "does {found:.9g} iterations/s; its GPUs, batch and co-runners allow {allowed:.9g}",
        at=kept,
        found=rate,
        allowed=allowed,
    )
