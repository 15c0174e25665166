"""The rows of a segments table as the rules need them."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from gangline.audit.sweep import Sweep
from gangline.audit.words import reasons

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy.typing as npt

    from gangline.audit.findings import Findings
    from gangline.audit.inputs import Columns
    from gangline.audit.world import World

    Floats = npt.NDArray[np.float64]
    Ints = npt.NDArray[np.int64]
    Bools = npt.NDArray[np.bool_]

__all__ = ["SLOTS", "Rows", "Stretches", "held_seconds"]

TABLE = "segments"
SLOTS = 64


class Stretches(NamedTuple):
    """What each part of a job did between two changes: rows on several servers are one.

    In order of job, part, start. Rows without usable times or a known job are left out.
    """

    job: Ints
    part: Ints
    start: Floats
    end: Floats
    gpus: Ints
    row: Ints
    """A row of the segments table that stands for all of the stretch."""
    of_row: Ints
    """Stretch of each row; -1 = none."""


class Rows:
    """The rows of a segments table; `good` ones have usable times."""

    def __init__(self, world: World, table: Columns, findings: Findings) -> None:
        self.world, self.table, self._findings = world, table, findings
        self.job = world.codes(table)
        self.start, self.end = table["start_s"], table["end_s"]
        self.length = self.end - self.start
        self.has_server = table.has("server")
        number = table["server"] if self.has_server else np.full(len(table), np.nan)
        self.server_given = number
        is_known = (number >= 0) & (number < len(world.server_gpus)) & (np.floor(number) == number)
        self.server: Ints = np.where(is_known, number, -1.0).astype(np.int64)
        self.mask = table.mask
        self.good: Bools = np.isfinite(self.start) & np.isfinite(self.end)
        self.good &= self.end >= self.start

    def add(
        self,
        rule: str,
        bad: npt.NDArray[Any],
        what: Callable[[int], str],
        *,
        at: Ints | None = None,
        time: Floats | None = None,
        found: npt.NDArray[Any] | None = None,
        allowed: npt.NDArray[Any] | None = None,
    ) -> None:
        """Add findings by row, or by the rows `at`; their job, time and server are filled in."""
        job, server = (self.job, self.server) if at is None else (self.job[at], self.server[at])
        if time is None:
            time = self.start if at is None else self.start[at]
        self._findings.add(
            rule,
            TABLE,
            bad,
            what,
            job=job,
            time=time,
            server=server,
            found=found,
            allowed=allowed,
        )

    @cached_property
    def width(self) -> Ints | None:
        """GPUs of each row: of its slots, else as given, else those of a part of its job."""
        if self.mask is not None:
            return np.bitwise_count(self.mask).astype(np.int64)
        if self.table.has("gpus"):
            given = self.table["gpus"]
            return np.where(np.isfinite(given), given, 0.0).astype(np.int64)
        gang = np.maximum(self.world.part_gpus(self.job, self.server), 0)
        return gang if (gang > 0).any() else None

    @cached_property
    def part(self) -> Ints | None:
        """Part of each row, counted over all jobs; None if jobs have no parts."""
        if not self.table.has("part"):
            return self.server if self.world.forks and self.has_server else None
        given = np.nan_to_num(self.table["part"])
        if not given.any():
            return np.zeros(len(given), dtype=np.int64)
        return np.asarray(np.unique(given, return_inverse=True)[1], dtype=np.int64)

    @cached_property
    def forked(self) -> Bools:
        """Which jobs ever held another part than their first, or parts of another size."""
        found = np.full(self.world.jobs, self.world.forks)
        if self.part is not None:
            found[self.job[(self.part > 0) & (self.job >= 0)]] = True
        return found

    @cached_property
    def type(self) -> Ints:
        """GPU type of each row; -1 = unknown."""
        if self.has_server:
            return np.append(self.world.server_type, -1)[self.server]
        if "gpu_type" in self.table.words:
            return self.world.type_of_label(self.table)
        return np.full(len(self.table), -1, dtype=np.int64)

    @cached_property
    def kept(self) -> Ints:
        """Rows with usable times and a known job."""
        return np.flatnonzero(self.good & (self.job >= 0))

    @cached_property
    def stretches(self) -> Stretches:
        """The rows put together that are one stretch of one part of a job."""
        assert self.width is not None, "asked for only with GPUs"
        kept = self.kept
        part = np.zeros(len(kept), dtype=np.int64) if self.part is None else self.part[kept]
        job, start, end = self.job[kept], self.start[kept], self.end[kept]
        order = np.lexsort((end, start, part, job))
        job, part, start, end = job[order], part[order], start[order], end[order]
        begins = np.ones(len(order), dtype=np.bool_)
        begins[1:] = (job[1:] != job[:-1]) | (part[1:] != part[:-1])
        begins[1:] |= (start[1:] != start[:-1]) | (end[1:] != end[:-1])
        stretch, first = np.cumsum(begins) - 1, np.flatnonzero(begins)
        of_row = np.full(len(self.table), -1, dtype=np.int64)
        of_row[kept[order]] = stretch
        gpus = np.bincount(stretch, weights=self.width[kept][order], minlength=len(first))
        return Stretches(
            job[first],
            part[first],
            start[first],
            end[first],
            gpus.astype(np.int64),
            kept[order][first],
            of_row,
        )

    @cached_property
    def gpu_rows(self) -> tuple[Ints, Ints]:
        """Row and GPU (server * 64 + slot) of every GPU that a kept row holds."""
        assert self.mask is not None, "asked for only with slots"
        kept = self.kept[self.server[self.kept] >= 0]
        rows, slots = [], []
        mask = self.mask[kept]
        used = int(np.bitwise_or.reduce(mask)) if len(mask) else 0
        for slot in (slot for slot in range(SLOTS) if used >> slot & 1):
            mine = kept[(mask >> np.uint64(slot)) & np.uint64(1) != 0]
            rows.append(mine)
            slots.append(self.server[mine] * SLOTS + slot)
        none = np.zeros(0, dtype=np.int64)
        return np.concatenate([none, *rows]), np.concatenate([none, *slots])

    @cached_property
    def base(self) -> Floats:
        """Iterations per second of each kept row alone on its GPUs."""
        assert self.width is not None, "asked for only with GPUs"
        kept = self.kept
        return self.world.base_of_rows(self.job[kept], self.type[kept], self.width[kept])

    @cached_property
    def rate(self) -> Floats:
        """Iterations per second of each kept row, where it is not given as fast as can be."""
        if not self.table.has("rate"):
            return self.base
        given = self.table["rate"][self.kept]
        return np.where(np.isnan(given), self.base, given)

    @cached_property
    def rate_of_stretches(self) -> Floats:
        """Iterations per second of each stretch: of its rows, each by its part of the GPUs."""
        assert self.width is not None, "asked for only with GPUs"
        held, width = self.stretches, self.width[self.kept]
        # a copy lies in one row
        whole = held.gpus if self.world.forks else np.maximum(self.world.gang[held.job], 1)
        stretch = held.of_row[self.kept]
        alone = np.bincount(stretch, minlength=len(held.job)) == 1
        total = np.bincount(stretch, weights=self.rate * width, minlength=len(held.job))
        rate = total.astype(np.float64) / np.maximum(whole, 1)
        as_given = alone & (held.gpus == whole)
        rate[stretch[as_given[stretch]]] = self.rate[as_given[stretch]]  # to the last digit
        return rate

    @cached_property
    def reason(self) -> npt.NDArray[np.str_]:
        """Why each row ended, in our words; "" where nothing tells."""
        if "end_reason" not in self.table.words:
            return np.full(len(self.table), "")
        return reasons(self.table.words["end_reason"])

    @cached_property
    def partner(self) -> Ints:
        """Code of the co-runners that each row names: equal names, equal codes; -1 = none."""
        if "co_runner" not in self.table.words:
            return np.full(len(self.table), -1, dtype=np.int64)
        labels = self.table.words["co_runner"]
        codes = labels.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
        names = np.asarray([*labels.dictionary.to_pylist(), ""], dtype=object)
        return np.where((names == "")[codes], -1, codes)

    def per_job(self, values: Any) -> Floats:
        """Sum values of kept rows by job."""
        total = np.bincount(self.job[self.kept], weights=values, minlength=self.world.jobs)
        return total.astype(np.float64)  # without rows they are counted, not summed


def held_seconds(group: Ints, start: Floats, end: Floats, groups: int) -> Floats:
    """Return for how long at least one interval of each group lasts."""
    sweep = Sweep(start, end, 0.0, group)
    owner = group[sweep.row]
    busy = np.cumsum(sweep.sign)[:-1] > 0  # the count is 0 at the end of each group
    gap = np.where(busy & (owner[1:] == owner[:-1]), np.diff(sweep.time), 0.0)
    return np.bincount(owner[:-1], weights=gap, minlength=groups).astype(np.float64)
