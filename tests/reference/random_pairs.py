"""Implements random pairs that are kept while they are good, from the description."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import philox
from .rounds import Kind, Rounds, Row, equal_split

if TYPE_CHECKING:
    from .engine import Reference
    from .world import Job


class RandomPairs(Rounds):
    """Splits time equally over jobs alone and pairs of jobs."""

    names = ("gavel-gandiva",)

    def __init__(self, ref: Reference, name: str, params: dict[str, Any]) -> None:
        super().__init__(ref, name, params)
        self.packed = True
        self.max_share = 2
        self.partner: dict[int, int] = {}
        self.turn = 0

    def kind(self, job: Job) -> Kind:
        """Return the kind of a job, which has one partner, not any job of a kind."""
        return (job.index,)

    def gain(self, ask: dict[str, Any], a: int, b: int, t: int) -> float:
        """Return the sum of relative speeds of two rows; 0 if they cannot share."""
        table, rates = ask["pair_rates"], ask["rates"]
        one, other = table[a][b][t], table[b][a][t]
        return one / rates[a][t] + other / rates[b][t] if one > 0 and other > 0 else 0.0

    def whole(self, ask: dict[str, Any]) -> list[Row]:
        turn, self.turn = self.turn, self.turn + 1
        jobs, types = ask["jobs"], range(len(ask["capacity"]))
        row = {job: at for at, job in enumerate(jobs)}
        self.partner = {
            job: other
            for job, other in self.partner.items()
            if job in row
            and other in row
            and any(self.gain(ask, row[job], row[other], t) >= 1 for t in types)
        }
        if sum(ask["gangs"]) <= sum(ask["capacity"]):
            return equal_split(ask)
        draws = {
            job: philox.uniform_u64(self.ref.seed, philox.Purpose.POLICY, job, turn) for job in jobs
        }
        singles = sorted(
            (job for job in jobs if job not in self.partner), key=lambda j: (draws[j], j)
        )
        while singles:
            job = singles.pop(0)
            for other in singles:
                if any(self.gain(ask, row[job], row[other], t) > 0 for t in types):
                    self.partner |= {job: other, other: job}
                    singles.remove(other)
                    break
        return self.split(ask, row)

    def split(self, ask: dict[str, Any], row: dict[int, int]) -> list[Row]:
        """Give jobs alone and pairs equal parts of every type."""
        rows: list[Row] = []
        count = len(row) - len(self.partner) // 2
        for job, at in row.items():
            even = [gpus / count / ask["gangs"][at] for gpus in ask["capacity"]]
            total = 0.0
            for share in even:
                total += share
            even = [share / total for share in even] if total > 1 else even
            other = self.partner.get(job)
            rows.append([0.0] * len(even) if other is not None else even)
            for t, share in enumerate(even):
                if other is not None and self.gain(ask, at, row[other], t) > 0:
                    self.found[job, (other,), t] = share
        return rows
