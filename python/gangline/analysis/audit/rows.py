"""Prepares the rows of a segments table for the rules."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from gangline.analysis.audit import elastic
from gangline.analysis.audit.findings import plain
from gangline.analysis.audit.sweep import Sweep, over
from gangline.analysis.audit.words import reasons

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from gangline.analysis.audit.findings import Findings, Words
    from gangline.analysis.audit.inputs import Columns
    from gangline.analysis.audit.world import World

    Floats = npt.NDArray[np.float64]
    Ints = npt.NDArray[np.int64]
    Bools = npt.NDArray[np.bool_]

__all__ = ["SLOTS", "Rows", "Stretches", "TableRows", "held_seconds"]

TABLE = "segments"
SLOTS = 64


class Stretches(NamedTuple):
    """The stretches of each part of a job between two changes; rows of several servers are merged.

    The stretches are ordered by job, part and start. Rows without usable times or a known job are
    left out.
    """

    job: Ints
    part: Ints
    start: Floats
    end: Floats
    gpus: Ints
    row: Ints
    """A row of the segments table that represents the stretch."""
    of_row: Ints
    """Index of the stretch to which each row belongs; -1 = none."""


class TableRows:
    """The rows of one table, and the checks common to segments and jobs."""

    def __init__(self, name: str, world: World, table: Columns, findings: Findings) -> None:
        self.name, self.world, self.table, self.findings = name, world, table, findings
        self.job = world.codes(table)
        self._where: dict[str, npt.NDArray[Any] | None] = {"job": self.job}

    def add(
        self,
        rule: str,
        bad: npt.NDArray[Any],
        what: Words,
        *,
        at: Ints | None = None,
        **given: npt.NDArray[Any] | float,
    ) -> None:
        """Add a finding with job, time and server for each bad row, or bad row among `at`."""
        where = self._where
        if at is not None:
            where = {key: None if each is None else each[at] for key, each in where.items()}
        self.findings.add(rule, self.name, bad, what, **(where | given))  # type: ignore[arg-type]

    def add_jobs(self, rule: str, bad: npt.NDArray[Any], what: Words, **given: Any) -> None:
        """Add findings by job."""
        where = {"job": np.arange(self.world.jobs), "time": self.world.arrival}
        self.findings.add(rule, self.name, bad, what, **(where | given))

    def skip(self, missing: str, *rules: str) -> None:
        """Record that rules cannot be checked."""
        for rule in rules:
            self.findings.skip(rule, missing)

    def check_times(self, needed: Bools | None, names: Sequence[str], **given: Any) -> None:
        """Check that times are valid; if `needed` is given, only these rows must have all times."""
        for name in (name for name in names if self.table.has(name)):
            values = self.table[name]
            bad = ~(np.isfinite(values) & (values >= -self.world.tolerance_s))
            if needed is not None:
                bad &= needed | ~np.isnan(values)
            self.add("times", bad, name + " is {found:g}", found=values, **given)

    def check_jobs(self, expected: Bools, row: str) -> None:
        """Check that rows belong to known jobs, and that expected jobs have a row."""

        def unknown(at: int) -> str:
            return f"job {self.world.name_of_row(self.table, at)} is not known"

        no_job = np.full(len(self.job), -1)
        self.add("unknown-job", self.job < 0, unknown, job=no_job)
        there = np.zeros(self.world.jobs, dtype=np.bool_)
        there[self.job[self.job >= 0]] = True
        self.add_jobs("missing-job", expected & ~there, f"the job has no {row}")

    def check_capacity(
        self, at: Ints, start: Floats, end: Floats, kind: Ints, gpus: Ints, more: str = ""
    ) -> None:
        """Check the number of GPUs that the rows hold, in total and for each type that is named."""
        world = self.world
        sweep = Sweep(start, end, world.tolerance_s)
        job = np.append(self.job, -1)[at][sweep.row]
        for one in (-1, *np.unique(kind[kind >= 0]).tolist()):
            chosen = np.flatnonzero((one < 0) | (kind[sweep.row] == one))
            name = "the cluster" if one < 0 else world.types[one]
            held = np.cumsum(sweep.sign[chosen] * gpus[sweep.row[chosen]])
            there = world.gpus_up(one, sweep.time[chosen]) * world.max_share
            self.findings.add_excess(
                "capacity",
                self.name,
                over(held, there),
                f"{plain(name)}: {{found:g}} GPUs are held instead of at most {{allowed:g}}{more}",
                job=job[chosen],
                time=sweep.time[chosen],
            )


class Rows(TableRows):
    """The rows of a segments table; `good` marks those with usable times."""

    def __init__(self, world: World, table: Columns, findings: Findings) -> None:
        super().__init__(TABLE, world, table, findings)
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
        self._where |= {"time": self.start, "server": self.server}

    @cached_property
    def width(self) -> Ints | None:
        """GPUs of each row: from its slots, the column `gpus`, or the size of a part of its job."""
        if self.mask is not None:
            return np.bitwise_count(self.mask).astype(np.int64)
        if self.table.has("gpus"):
            given = self.table["gpus"]
            return np.where(np.isfinite(given), given, 0.0).astype(np.int64)
        gang = np.maximum(self.world.part_gpus(self.job, self.server), 0)
        return gang if (gang > 0).any() else None

    @cached_property
    def part(self) -> Ints | None:
        """Index of each row's part: the rank of its number, or its server; None if unknown."""
        if not self.table.has("part"):
            return self.server if self.world.forks and self.has_server else None
        given = np.nan_to_num(self.table["part"])
        if not given.any():
            return np.zeros(len(given), dtype=np.int64)
        return np.asarray(np.unique(given, return_inverse=True)[1], dtype=np.int64)

    @cached_property
    def forked(self) -> Bools:
        """Return whether each job held several parts, or parts whose size differs from its gang."""
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
        """The stretches of the parts of jobs, each merged from its rows."""
        assert self.width is not None, "called only if GPUs are known"
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
        """Row and GPU (server * 64 + slot) for every GPU that a kept row holds."""
        assert self.mask is not None, "called only if slots are known"
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
        """Iterations per second of each kept row if its job has no co-runners."""
        assert self.width is not None, "called only if GPUs are known"
        kept = self.kept
        base = self.world.base_of_rows(self.job[kept], self.type[kept], self.width[kept])
        is_elastic, most = self.pace
        stretch = self.stretches.of_row[kept]
        return np.where(is_elastic[stretch], most[stretch], base)

    @cached_property
    def pace(self) -> tuple[Bools, Floats]:
        """Return which stretches belong to elastic jobs, and the maximum rate of each.

        The maximum assumes the best number of passes, the most favourable phase of the gradient
        noise, and the speed of the slowest GPU.
        """
        held, jobs = self.stretches, self.world.elastic
        if jobs is None:
            return np.zeros(len(held.job), dtype=np.bool_), np.full(len(held.job), np.inf)
        kept = self.kept
        stretch = held.of_row[kept]
        speeds = np.asarray([gpu.speed for gpu in self.world.cluster.gpu_types])
        speed = np.full(len(held.job), np.inf)
        of_row = np.where(self.type >= 0, speeds[np.maximum(self.type, 0)], speeds.max())
        np.minimum.at(speed, stretch, of_row[kept])
        apart = np.zeros(len(held.job), dtype=np.bool_)
        np.logical_or.at(apart, stretch, self.server[kept] != self.server[held.row][stretch])
        samples = np.full(len(held.job), np.nan)
        if self.table.has("sub_batch"):
            samples = self.table["sub_batch"][held.row]
        kind, most = jobs.kind[held.job], np.full(len(held.job), np.inf)
        for at, each in enumerate(jobs.classes):
            own = kind == at
            most[own] = elastic.bound(each, held.gpus[own], apart[own], samples[own])
        return kind >= 0, most * speed

    @cached_property
    def rate(self) -> Floats:
        """Iterations per second of each kept row; where no rate is given, that of `base`."""
        if not self.table.has("rate"):
            return self.base
        given = self.table["rate"][self.kept]
        return np.where(np.isnan(given), self.base, given)

    @cached_property
    def rate_of_stretches(self) -> Floats:
        """Iterations per second of each stretch: the mean over its rows, weighted by GPUs."""
        assert self.width is not None, "called only if GPUs are known"
        held, width = self.stretches, self.width[self.kept]
        # a part of a forked job has a single row; an elastic job is whole at any size
        whole = held.gpus if self.world.forks else np.maximum(self.world.gang[held.job], 1)
        is_elastic = self.pace[0]
        whole = np.where(is_elastic, held.gpus, whole)
        stretch = held.of_row[self.kept]
        alone = np.bincount(stretch, minlength=len(held.job)) == 1
        total = np.bincount(stretch, weights=self.rate * width, minlength=len(held.job))
        rate = total.astype(np.float64) / np.maximum(whole, 1)
        as_given = alone & (held.gpus == whole)
        rate[stretch[as_given[stretch]]] = self.rate[as_given[stretch]]  # this keeps every digit
        return rate

    @cached_property
    def reason(self) -> npt.NDArray[np.str_]:
        """The end reason of each row, in gangline's terms; "" if it is unknown."""
        if "end_reason" not in self.table.words:
            return np.full(len(self.table), "")
        return reasons(self.table.words["end_reason"])

    @cached_property
    def partner(self) -> Ints:
        """Code of the co-runners that each row names (equal names have equal codes); -1 = none."""
        if "co_runner" not in self.table.words:
            return np.full(len(self.table), -1, dtype=np.int64)
        labels = self.table.words["co_runner"]
        codes = labels.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
        names = np.asarray([*labels.dictionary.to_pylist(), ""], dtype=object)
        return np.where((names == "")[codes], -1, codes)

    def per_job(self, values: Any) -> Floats:
        """Sum the values of kept rows for each job."""
        total = np.bincount(self.job[self.kept], weights=values, minlength=self.world.jobs)
        return total.astype(np.float64)  # without any rows, `bincount` returns integers


def held_seconds(group: Ints, start: Floats, end: Floats, groups: int) -> Floats:
    """For each group, return the seconds during which at least one of its intervals was open."""
    sweep = Sweep(start, end, 0.0, group)
    owner = group[sweep.row]
    busy = np.cumsum(sweep.sign)[:-1] > 0  # the count is 0 at the end of each group
    gap = np.where(busy & (owner[1:] == owner[:-1]), np.diff(sweep.time), 0.0)
    return np.bincount(owner[:-1], weights=gap, minlength=groups).astype(np.float64)
