"""Jobs whose rate changes with their progress, written from batch_modes.md part A."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from .world import NEVER, TraceError, nearest

if TYPE_CHECKING:
    from .parts import Part
    from .world import Job

NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?", re.ASCII)
PHASES_MAX = 1024
LEAST, MOST = 1e-6, 1e6  # rate or size

Row = tuple[float, float, float]  # progress, relative rate, relative size of a step


def read(text: str | None, job_id: object) -> list[Row]:
    """Return the phases as a trace has them; none for an empty text."""
    if text is None or not text.strip():
        return []
    rows = []
    for item in text.split(";"):
        numbers = [piece.strip() for piece in item.split(":")]
        if len(numbers) not in (2, 3) or not all(map(NUMBER.fullmatch, numbers)):
            raise TraceError(f"phases {text}", job=job_id, column="phases")
        progress, rate, size = map(float, (*numbers, "1")[:3])
        rows.append((progress, rate, size))
    starts = [row[0] for row in rows]
    good = (
        starts[0] == 0.0
        and all(a < b for a, b in pairwise(starts))
        and starts[-1] < 1.0
        and all(LEAST <= number <= MOST for row in rows for number in row[1:])
        and len(rows) <= PHASES_MAX
    )
    if not good:
        raise TraceError(f"phases {text}", job=job_id, column="phases")
    return rows


@dataclass
class Phases:
    """Where each phase of a job begins, as work left, its factor on the mean rate, its steps."""

    knots: list[float]  # of the phases after the first
    factors: list[float]
    sizes: list[float]  # of a step, relative to the first phase

    def left_at_knot(self, phase: int) -> float | None:
        """Work left where a phase begins; None where there is no such phase."""
        return self.knots[phase - 1] if phase < len(self.factors) else None

    def phase_at(self, left: float) -> int:
        """The phase with so much work left."""
        return sum(left <= knot for knot in self.knots)


def of(rows: list[Row], work: float) -> Phases | None:
    """Phases of a job; None where neither its rate nor its steps change."""
    kept: list[Row] = []
    for row in rows:
        if not kept or row[1:] != kept[-1][1:]:
            kept.append(row)
    if len(kept) < 2:
        return None
    starts, rates, sizes = zip(*kept, strict=True)
    whole = 0.0
    for begin, end, rate in zip(starts, (*starts[1:], 1.0), rates, strict=True):
        whole += (end - begin) / rate
    return Phases(
        knots=[work * (1.0 - start) for start in starts[1:]],
        factors=[rate * whole for rate in rates],
        sizes=[size / sizes[0] for size in sizes],
    )


def times(job: Job, rate: float, phase: int | None = None) -> float:
    """Return a mean rate times the factor of a phase, by default the present one."""
    if job.phases is None:
        return rate
    return rate * job.phases.factors[job.phase if phase is None else phase]


def planned(job: Job, rate: float) -> float:
    """Return steps of the present phase per second, for the mean rate given."""
    if job.phases is None:
        return rate
    return rate * (job.phases.factors[job.phase] / job.phases.sizes[job.phase])


def steps(job: Job, left: float) -> float:
    """Return work left in steps of the present phase."""
    return left if job.phases is None else left / job.phases.sizes[job.phase]


def segments(job: Job, left: float) -> list[tuple[float, int]]:
    """Split work left into that of each phase, from the present one on."""
    if job.phases is None:
        return [(left, job.phase)]
    found, phase = [], job.phase
    while (knot := job.phases.left_at_knot(phase + 1)) is not None:
        found.append((max(0.0, left - knot), phase))
        left, phase = knot, phase + 1
    return [*found, (left, phase)]


def seconds(job: Job, left: float, rate: float) -> float:
    """Seconds that work left takes at a mean rate."""
    if job.phases is None:
        return left / rate
    total = 0.0
    for work, phase in segments(job, left):
        total += work / times(job, rate, phase)
    return total


def span(job: Job, left: float, rate: float) -> int:
    """Return the same in ns, as a run would round it."""
    split = segments(job, left)
    return sum(max(1, nearest(work / times(job, rate, phase) * 1e9)) for work, phase in split)


def end_of(job: Job, part: Part, base: float, settled: int) -> int:
    """Instant at which a job of one part ends if nothing changes but its phase."""
    assert not part.paused
    at = max(settled, part.progress_from)
    for work, phase in segments(job, job.remaining):
        rate = times(job, base, phase) * part.kept / part.slow * part.works / part.pace
        at += max(1, nearest(work / rate * 1e9))
    assert at < NEVER
    return at
