"""Implements the genetic search of pollux from its description.

A candidate gives each active job, in the order of step 1, a number of GPUs on each server. The
first population is the present allocation and changed copies of it. In each generation as many
children as there are members are made from pairs of parents, and the best of both live on.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from . import philox
from .world import PolicyError

if TYPE_CHECKING:
    from .pollux import Claim, Gpus, Pollux

Row = tuple[int, ...]  # the GPUs of a job on each server
Rows = list[Row]

BACK = 0.1  # the probability that a job returns to its present allocation
DROP = 0.1  # the probability that a job may lose servers, and then that it loses each of them
CHANGE = 0.5  # the probability that a job gets another number of GPUs on a server


@dataclass
class Numbers:
    """The uniform numbers of one decision, in the order of the draws."""

    seed: int
    now: int
    asked: int = 0

    def uniform(self) -> float:
        found = philox.uniform(self.seed, philox.Purpose.POLICY, self.now, self.asked)
        self.asked += 1
        return found

    def below(self, n: int) -> int:
        return int(self.uniform() * n)


class Genetic:
    """A decision of the search."""

    def __init__(self, policy: Pollux, claims: list[Claim]) -> None:
        self.policy, self.claims, self.ref = policy, claims, policy.ref
        self.sizes = [server.gpus if server.up else 0 for server in self.ref.servers]
        cells = len(claims) * len(self.sizes)
        if cells > policy.p["ga_max_cells"]:
            raise PolicyError("too many jobs x servers", field="search", value="ga")
        self.numbers = Numbers(self.ref.seed, self.ref.now)
        self.present: Rows = [
            tuple(sum(gpu[0] == server for gpu in claim.job.gpu_set) for server in self.servers)
            for claim in claims
        ]

    @property
    def servers(self) -> range:
        return range(len(self.sizes))

    def value(self, rows: Rows) -> float:
        """Return the term of the objective; a waiting job counts without a discount."""
        total = 0.0
        for claim, row, now in zip(self.claims, rows, self.present, strict=True):
            speed = claim.speed_now
            if row != now:
                speed = self.speed(claim, sum(row), sum(n > 0 for n in row))
                speed *= claim.phi if claim.now else 1.0
            total += self.policy.value(speed)
        return total

    def speed(self, claim: Claim, count: int, nodes: int) -> float:
        if count == 0:
            return 0.0
        if claim.job.elastic is None:
            return count / claim.fair
        return self.policy.goodput(claim.job, count, nodes) / claim.fair

    def mutated(self, rows: Rows) -> Rows:
        draw, found = self.numbers, []
        for row, now in zip(rows, self.present, strict=True):
            cells = list(now if draw.uniform() < BACK else row)
            if draw.uniform() < DROP:
                for server in self.servers:
                    if cells[server] and draw.uniform() < DROP:
                        cells[server] = 0
            if draw.uniform() < CHANGE:
                server = draw.below(len(self.sizes))
                cells[server] = draw.below(self.sizes[server] + 1)
            found.append(tuple(cells))
        return found

    def repaired(self, rows: Rows) -> Rows:
        """Repair a candidate: each job takes what it may of what earlier jobs left."""
        left, spanned, found = list(self.sizes), set[int](), []
        for claim, row, now in zip(self.claims, rows, self.present, strict=True):
            if claim.is_bound:
                row = now
            cells = self.of_one_type(claim, row)
            if sum(n > 0 for n in cells) > 1 and self.policy.p["avoid_interference"]:
                cells = [0 if server in spanned else cells[server] for server in self.servers]
            cells = [min(n, free) for n, free in zip(cells, left, strict=True)]
            cells = self.trimmed(claim, cells)
            if 0 < sum(cells) < claim.job.sizes[0]:
                cells = self.completed(claim, cells, left, spanned)
            if not self.is_allowed(claim, cells, now):
                cells = [0] * len(cells)
            own = [server for server in self.servers if cells[server]]
            if len(own) > 1:
                spanned.update(own)
            for server in own:
                left[server] -= cells[server]
            found.append(tuple(cells))
        return found

    def of_one_type(self, claim: Claim, row: Row) -> list[int]:
        """Keep the servers of the type with most of its GPUs, or the job's first type on ties."""

        def count(t: int) -> int:
            return sum(row[i] for i in self.servers if self.ref.servers[i].type == t)

        best = max(claim.job.types, key=count, default=None)
        return [row[i] if self.ref.servers[i].type == best else 0 for i in self.servers]

    def trimmed(self, claim: Claim, cells: list[int]) -> list[int]:
        """Reduce a row to what the job may have; the last servers lose first."""
        excess = sum(cells) - self.most(claim)
        for server in reversed(self.servers):
            less = min(max(excess, 0), cells[server])
            cells[server] -= less
            excess -= less
        return cells

    def completed(
        self, claim: Claim, cells: list[int], left: list[int], spanned: set[int]
    ) -> list[int]:
        """Complete a row to the job's fewest GPUs, on its servers and then on the emptiest."""
        least = claim.job.sizes[0]
        kind = self.ref.servers[next(s for s in self.servers if cells[s])].type
        closed = spanned if self.policy.p["avoid_interference"] else set()
        alone = [s for s in self.servers if cells[s]]
        full = [left[s] if s in alone else 0 for s in self.servers]
        open_ = [s for s in self.servers if self.ref.servers[s].type == kind and s not in closed]
        if sum(full) < least:
            # on more servers than now, without those that are closed to it
            alone = [s for s in alone if s not in closed]
            full = [left[s] if s in open_ else 0 for s in self.servers]
        found = [cells[s] if s in alone else 0 for s in self.servers]
        others = sorted(open_, key=lambda s: (-left[s], s))
        for server in [*alone, *others]:
            found[server] += min(full[server] - found[server], least - sum(found))
        return found

    def most(self, claim: Claim) -> int:
        if claim.job.elastic is None:
            return claim.job.gpus
        return max(self.policy.limit(claim.job), claim.now, claim.ladder[0])

    def is_allowed(self, claim: Claim, cells: list[int], now: Row) -> bool:
        if tuple(cells) == now:
            return True
        if claim.job.elastic is None:
            return sum(cells) == claim.job.gpus
        nodes = sum(n > 0 for n in cells)
        return sum(cells) >= claim.job.sizes[0] and self.speed(claim, sum(cells), nodes) > 0

    def parent(self, members: list[tuple[float, Rows]]) -> Rows:
        """Return the better of two drawn members, which are sorted from best to worst."""
        one, two = self.numbers.below(len(members)), self.numbers.below(len(members))
        return members[min(one, two)][1]

    def child(self, members: list[tuple[float, Rows]]) -> Rows:
        """Return a child: jobs before a point from one parent, the others from another."""
        one, two = self.parent(members), self.parent(members)
        point = self.numbers.below(len(one))
        return self.repaired(self.mutated(one[:point] + two[point:]))

    def survivors(self, members: list[tuple[float, Rows]]) -> list[tuple[float, Rows]]:
        """Return the best distinct candidates; of equal ones, the earlier."""
        kept: list[tuple[float, Rows]] = []
        for value, rows in sorted(members, key=lambda member: -member[0]):
            if len(kept) < self.policy.p["ga_population"] and (value, rows) not in kept:
                kept.append((value, rows))
        return kept

    def search(self) -> Rows:
        first = self.repaired(self.present)
        members = [(self.value(first), first)]
        for _ in range(self.policy.p["ga_population"] - 1):
            rows = self.repaired(self.mutated(self.present))
            members.append((self.value(rows), rows))
        members = self.survivors(members)
        for _ in range(self.policy.p["ga_generations"]):
            children = [self.child(members) for _ in range(self.policy.p["ga_population"])]
            members += [(self.value(rows), rows) for rows in children]
            members = self.survivors(members)
        return members[0][1]

    def put(self) -> dict[int, Gpus]:
        """Return GPUs for every job that gets some: its own, or the lowest free ones."""
        rows = self.search()
        free, found = self.ref.every_gpu(), dict[int, "Gpus"]()
        changed = []
        for claim, row, now in zip(self.claims, rows, self.present, strict=True):
            claim.count = sum(row)
            if row != now:
                changed.append((claim.job.index, row))
            elif claim.count:
                found[claim.job.index] = claim.job.gpu_set
                free -= set(claim.job.gpu_set)
        for index, row in sorted(changed):
            gpus: list[tuple[int, int]] = []
            for server, count in enumerate(row):
                gpus += sorted(gpu for gpu in free if gpu[0] == server)[:count]
            free -= set(gpus)
            if gpus:
                found[index] = tuple(gpus)
        return found
