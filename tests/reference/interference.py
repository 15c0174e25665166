"""Looks up how much a job slows down with a co-runner, in every kind of source."""

from __future__ import annotations

import ast
import math
from typing import TYPE_CHECKING, Any

from .world import ClusterError, PolicyError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .world import GpuType, Job, World

DEFAULTS: dict[str, Any] = {
    "interference": "constant",
    "missing": "error",
    "gang_fallback": "single",
    "symmetric": True,
    "kappa": 0.05,
}
SOURCES = {
    "constant": "xi",
    "table": "rows",
    "matrix": "matrix",
    "gavel": "throughputs",
    "analytic": "util",
}
ABSENT = math.nan
NEVER = math.inf  # the pair may not share
Label = str | None
Batches = tuple[int | None, int | None]
# slowed model, model beside it, its gang size, GPU type, batches of both; None = blank
Key = tuple[Label, Label, int | None, str | None, Batches]


def closeness(x: float, y: float) -> bool:
    """Return whether two cells of a matrix are the same measurement."""
    both = math.isnan(x) and math.isnan(y)
    return both or abs(x - y) <= 1e-9 * max(abs(x), abs(y))


class Interference:
    """Answers questions from the ``[sharing]`` table of a world."""

    def __init__(self, world: World, types: list[GpuType]) -> None:
        self.o = DEFAULTS | world.get("sharing", {})
        self.types = types
        self.clamped = 0
        self.table: dict[Key, float] = {}
        self.kind = self.o["interference"]
        if self.kind not in SOURCES:
            raise ClusterError("unknown kind", key="interference", value=self.kind)
        self.constant: float | None = None
        if "xi" in self.o:
            self.constant = float(self.o["xi"])
            if not 1 <= self.constant < math.inf:
                raise ClusterError("no slowdown factor", key="xi", value=self.constant)
        elif self.o["missing"] == "constant" and self.has_source():
            raise ClusterError("no slowdown factor for absent pairs", key="xi")
        if self.has_source():
            getattr(self, f"read_{self.kind}")()

    @property
    def asks_batches(self) -> bool:
        """Return whether some row is for jobs of one batch size."""
        return any(key[-1] != (None, None) for key in self.table)

    def has_source(self) -> bool:
        return SOURCES[self.kind] in self.o or (self.kind == "gavel" and "rows" in self.o)

    def add(self, key: Key, xi: float) -> None:
        if key in self.table:
            raise ClusterError("two rows with one key", key=key)
        if math.isinf(xi):
            raise ClusterError("infinite xi", key=key)
        self.clamped += 0 < xi < 1
        self.table[key] = xi

    def read_constant(self) -> None:
        pass

    def read_table(self) -> None:
        for row in self.o["rows"]:
            batches = (row.get("batch_size"), row.get("co_batch_size"))
            if batches.count(None) == 1:
                raise ClusterError("one batch without the other", key=row["model"])
            xi = row.get("xi")
            place = (row.get("gpus"), row.get("gpu_type"), batches)
            if row.get("mode") is not None:
                raise ClusterError("modes are for later", key=row["model"])
            self.add((row["model"], row["co_model"], *place), ABSENT if xi is None else xi)

    def read_matrix(self) -> None:
        models, rows = self.o["models"], self.o["matrix"]
        if len(set(models)) != len(models):
            raise ClusterError("a model twice", key="models")
        if len(rows) != len(models) or any(len(row) != len(models) for row in rows):
            raise ClusterError("not square", key="matrix")
        for i, a in enumerate(models):
            for j, b in enumerate(models):
                if self.o["symmetric"] and not closeness(rows[i][j], rows[j][i]):
                    raise ClusterError("not symmetric", key=(a, b))
                self.add((a, b, None, None, (None, None)), float(rows[i][j]))

    def read_analytic(self) -> None:
        util, kappa = self.o["util"], float(self.o["kappa"])
        if not 0 <= kappa < math.inf:
            raise ClusterError("kappa", key="kappa", value=kappa)
        for label, value in util.items():
            if not 0 < value <= 1:
                raise ClusterError("util outside (0, 1]", key=label, value=value)
        for a in util:
            for b in util:
                xi = max(1.0, util[a] + util[b]) * (1.0 + kappa)
                self.add((a, b, None, None, (None, None)), xi)

    def read_gavel(self) -> None:
        if "rows" in self.o:
            self.read_table()
            return
        for kind, entries in self.o["throughputs"].items():
            for key, cell in entries.items():
                model, gpus = ast.literal_eval(key)
                alone = cell["null"]
                for other, pair in cell.items():
                    if other == "null":
                        continue
                    beside, others_gpus = ast.literal_eval(other)
                    if gpus != others_gpus or kind.endswith("_unconsolidated"):
                        continue
                    runs = alone > 0 and pair[0] > 0 and pair[1] > 0
                    xi = alone / pair[0] if runs else 0.0
                    self.add((model, beside, gpus, kind, (None, None)), xi)

    def found(self, a: Job, b: Job, t: int, gang: int | None) -> float | None:
        """Return the unchanged entry for a gang size; None if there is none."""
        for kind in (self.types[t].name, None):
            for batches in ((a.batch, b.batch), (None, None)):
                key = (a.model, b.model, gang, kind, batches)
                if key in self.table:
                    return self.table[key]
        return None

    def looked_up(self, a: Job, b: Job, t: int) -> float:
        """Return the entry that counts for job ``a`` with ``b`` on a type, or ABSENT or NEVER."""
        single = self.o["gang_fallback"] == "single"
        for gang in [a.gpus, None, *([1] if single and a.gpus > 1 else [])]:
            xi = self.found(a, b, t, gang)
            if xi is not None and xi > 0:
                return xi
            if xi is not None and self.kind != "gavel":
                return ABSENT
            if xi is not None and gang == 1:
                return NEVER
        if self.kind in ("table", "gavel") and a.gpus > 1 and not single:
            return NEVER
        return ABSENT

    def one_way(self, a: Job, b: Job, t: int) -> float | None:
        """Return the slowdown factor of ``a`` by ``b``; None if they may not share."""
        xi = self.constant if self.kind == "constant" else self.looked_up(a, b, t)
        if xi is None:
            raise PolicyError("no slowdown factor given", field="sharing")
        if xi == NEVER:
            return None
        if math.isnan(xi):
            if self.o["missing"] == "infeasible":
                return None
            if self.o["missing"] == "error" or self.constant is None:
                raise ClusterError("absent pair", pairs=[(a.model, b.model)])
            xi = self.constant
        return max(1.0, xi)

    def can_pair(self, a: Job, b: Job, t: int) -> bool:
        """Return whether two jobs may share a GPU of a type, without regard to memory."""
        return None not in (self.one_way(a, b, t), self.one_way(b, a, t))

    def absent(self, jobs: list[Job]) -> Iterator[tuple[Job, Job, int]]:
        """Return ordered pairs of jobs that could meet on a type and have no slowdown factor."""
        if self.kind == "constant" or self.o["missing"] != "error":
            return
        for a in jobs:
            for b in jobs:
                if a is not b:
                    for t in sorted(set(a.base) & set(b.base)):
                        if math.isnan(self.looked_up(a, b, t)):
                            yield a, b, t

    def refuse(self, jobs: list[Job]) -> None:
        """Refuse a run that shares without a source, or whose pairs are not all known."""
        if not self.has_source():
            raise PolicyError("no slowdown factor given", field="sharing")
        pairs = {(a.model, b.model) for a, b, _ in self.absent(jobs)}
        if pairs:
            raise ClusterError("absent pairs", pairs=pairs)
