"""Models the policies as plain dense LPs without classes or scaling, to check the allocations.

It shares only the solver library with the tested code.
"""

from __future__ import annotations

import dataclasses
import itertools
from dataclasses import dataclass, field

import highspy
import numpy as np


@dataclass
class Plain:
    """A dense linear program that grows row by row; variables are found by name."""

    names: dict[object, int] = field(default_factory=dict)
    rows: list[tuple[dict[int, float], float, float]] = field(default_factory=list)
    upper: list[float] = field(default_factory=list)

    def variable(self, name: object, upper: float = np.inf) -> int:
        self.names[name] = len(self.names)
        self.upper.append(upper)
        return self.names[name]

    def row(self, terms: dict[int, float], lower: float, upper: float = np.inf) -> None:
        self.rows.append((terms, lower, upper))

    def solve(self, cost: dict[int, float], *, maximise: bool = True) -> tuple[float, np.ndarray]:
        highs = highspy.Highs()
        highs.setOptionValue("output_flag", "false")
        highs.setOptionValue("threads", 1)
        highs.setOptionValue("primal_feasibility_tolerance", 1e-10)
        highs.setOptionValue("dual_feasibility_tolerance", 1e-10)
        for column in range(len(self.names)):
            highs.addVar(0.0, self.upper[column])
            highs.changeColCost(column, cost.get(column, 0.0))
        for terms, lower, upper in self.rows:
            index = np.array(list(terms), dtype=np.int32)
            highs.addRow(lower, upper, len(index), index, np.array(list(terms.values())))
        sense = highspy.ObjSense.kMaximize if maximise else highspy.ObjSense.kMinimize
        highs.changeObjectiveSense(sense)
        highs.run()
        assert highs.getModelStatus() == highspy.HighsModelStatus.kOptimal
        value = highs.getInfo().objective_function_value
        return value, np.array(highs.getSolution().col_value)


@dataclass(frozen=True)
class Jobs:
    """The arguments of `gl.lp.solve` as plain lists."""

    rates: np.ndarray
    scale: np.ndarray
    capacity: np.ndarray
    weight: np.ndarray
    remaining: np.ndarray
    age_s: np.ndarray

    def arguments(self) -> dict[str, np.ndarray]:
        return {
            "rates": self.rates,
            "scale": self.scale,
            "capacity": self.capacity,
            "weight": self.weight,
            "steps_remaining": self.remaining,
            "age_s": self.age_s,
        }

    def prop(self) -> np.ndarray:
        return self.rates @ self.capacity / self.capacity.sum()

    def isolated(self) -> np.ndarray:
        share = self.capacity[None, :] / len(self.scale) / self.scale[:, None]
        return share / np.maximum(1.0, share.sum(axis=1))[:, None]


class Shares(Plain):
    """Shares of every job on every type and, with `pair_rates`, of every two jobs side by side.

    `pair_rates[a, b, k]` is the rate of job a with co-runner b. `rate[m]` maps the variables that
    serve job m to their rates; `type_of` has the GPU type of each variable.
    """

    def __init__(self, jobs: Jobs, pair_rates: np.ndarray | None = None) -> None:
        super().__init__()
        many, types = jobs.rates.shape
        time: list[dict[int, float]] = [{} for _ in range(many)]
        held: list[dict[int, float]] = [{} for _ in range(types)]
        self.rate: list[dict[int, float]] = [{} for _ in range(many)]
        self.type_of: dict[int, int] = {}
        for k in np.flatnonzero(jobs.capacity).tolist():
            for a in np.flatnonzero(jobs.rates[:, k]).tolist():
                alone = self.variable((a, k))
                self.type_of[alone] = k
                time[a][alone], held[k][alone] = 1.0, jobs.scale[a]
                self.rate[a][alone] = float(jobs.rates[a, k])
            if pair_rates is None:
                continue
            for a, b in itertools.combinations(range(many), 2):
                ours, theirs = float(pair_rates[a, b, k]), float(pair_rates[b, a, k])
                if jobs.scale[a] == jobs.scale[b] and ours > 0 and theirs > 0:
                    both = self.variable((a, b, k))
                    self.type_of[both] = k
                    time[a][both] = time[b][both] = 1.0
                    held[k][both] = jobs.scale[a]
                    self.rate[a][both], self.rate[b][both] = ours, theirs
        for k in range(types):
            self.row(held[k], -np.inf, jobs.capacity[k])
        for m in range(many):
            self.row(time[m], -np.inf, 1.0)

    def times(self, m: int, factor: float) -> dict[int, float]:
        """Return the terms of factor x the rate of job m."""
        return {column: rate * factor for column, rate in self.rate[m].items()}

    def worth(self, value: np.ndarray) -> dict[int, float]:
        """Return the terms of the sum over jobs and types of value x rate; shape (jobs, types)."""
        cost: dict[int, float] = {}
        for m, terms in enumerate(self.rate):
            for column, rate in terms.items():
                own = rate * float(value[m, self.type_of[column]])
                cost[column] = cost.get(column, 0.0) + own
        return cost


def maxmin(jobs: Jobs, measure: np.ndarray, pairs: np.ndarray | None = None) -> float:
    """Return the largest z with measure x rate >= z for all jobs."""
    model = Shares(jobs, pairs)
    z = model.variable("z")
    for m in range(len(jobs.scale)):
        model.row({**model.times(m, measure[m]), z: -1.0}, 0.0)
    return model.solve({z: 1.0})[0]


def las(jobs: Jobs, pairs: np.ndarray | None = None) -> float:
    return maxmin(jobs, jobs.scale / (jobs.weight * jobs.prop()), pairs)


def blind(
    jobs: Jobs, rate: np.ndarray, pairs: np.ndarray | None = None
) -> tuple[Jobs, np.ndarray | None]:
    """Return what an agnostic variant sees: one rate of each job, and the factors of pairs."""
    usable = jobs.rates > 0
    same = dataclasses.replace(jobs, rates=usable * rate[:, None])
    if pairs is None:
        return same, None
    kept = pairs / np.where(usable, jobs.rates, np.inf)[:, None, :]
    return same, kept * rate[:, None, None]


def makespan(jobs: Jobs, pairs: np.ndarray | None = None) -> float:
    return 1.0 / maxmin(jobs, 1.0 / jobs.remaining, pairs)


def total(jobs: Jobs, value: np.ndarray, pairs: np.ndarray | None = None) -> float:
    """Return the maximum of the sum of value x rate."""
    model = Shares(jobs, pairs)
    return model.solve(model.worth(np.broadcast_to(value, jobs.rates.shape)))[0]


def rho(jobs: Jobs, pairs: np.ndarray | None = None) -> float:
    """Return the finish-time fairness by bisection of rho."""
    iso = (jobs.rates * jobs.isolated()).sum(axis=1)
    fair = jobs.remaining / iso
    low = float(np.max(jobs.age_s / fair))
    high = float(np.max((jobs.age_s + fair) / fair))
    while high - low > 1e-9 * high:
        middle = 0.5 * (low + high)
        slack = middle * fair - jobs.age_s
        good = (slack > 0).all() and maxmin(jobs, slack / jobs.remaining, pairs) >= 1.0
        low, high = (low, middle) if good else (middle, high)
    return high


@dataclass(frozen=True)
class Entities:
    """The entity of each job, its weight, and how it divides its share (water filling)."""

    of: np.ndarray
    weight: np.ndarray
    is_fifo: np.ndarray

    def split(self, own: np.ndarray, done: np.ndarray) -> np.ndarray:
        """Return the weight of each job while those of `done` cannot rise."""
        weight = np.zeros(len(own))
        for e in range(len(self.weight)):
            left = np.flatnonzero((self.of == e) & ~done)
            if self.is_fifo[e]:
                weight[left[:1]] = self.weight[e]
            else:
                weight[left] = self.weight[e] * own[left] / own[left].sum()
        return weight


def levels(
    jobs: Jobs,
    norm: np.ndarray,
    pairs: np.ndarray | None = None,
    entities: Entities | None = None,
) -> np.ndarray:
    """Return levels of water filling: after each common rise, test each job for a further rise."""
    many = len(jobs.scale)
    filled, done = np.zeros(many), np.zeros(many, dtype=bool)
    while not done.all():
        weight = jobs.weight if entities is None else entities.split(jobs.weight, done)
        pace = np.where(done, 0.0, weight / jobs.scale)
        model = Shares(jobs, pairs)
        c = model.variable("c")
        for m in range(many):
            model.row({**model.times(m, 1.0 / norm[m]), c: -pace[m]}, filled[m] * (1 - 1e-9))
        rise, _ = model.solve({c: 1.0})
        filled += pace * (rise if rise > 1e-7 else 0.0)  # what the slack of the rows lets by
        for j in np.flatnonzero(pace):
            model = Shares(jobs, pairs)
            for m in range(many):
                if m != j:
                    model.row(model.times(m, 1.0 / norm[m]), filled[m] * (1 - 1e-8))
            best, _ = model.solve(model.times(j, 1.0 / norm[j]))
            # The slack of the others moves this job by far less than what is asked for.
            done[j] = best < filled[j] * (1 + 1e-4) + 1e-5
    return filled


def deadlines(
    jobs: Jobs, left_s: np.ndarray, pairs: np.ndarray | None = None
) -> tuple[Shares, dict[int, float]]:
    """Add the shares, and the missed part of each deadline with its weight."""
    model = Shares(jobs, pairs)
    late = {m: model.variable(("late", m), 1.0) for m in range(len(left_s)) if left_s[m] < np.inf}
    for m, column in late.items():
        least = jobs.remaining[m] / left_s[m]
        model.row({**model.times(m, 1.0 / least), column: 1.0}, 1.0)
    return model, {column: float(jobs.weight[m]) for m, column in late.items()}


def missed_weight(jobs: Jobs, left_s: np.ndarray) -> float:
    """Return the least weight of deadlines that must be missed."""
    model, weights = deadlines(jobs, left_s)
    return model.solve(weights, maximise=False)[0]


def cost_with_deadlines(
    jobs: Jobs, prices: np.ndarray, left_s: np.ndarray, pairs: np.ndarray | None = None
) -> tuple[float, float]:
    """Return the least missed weight, and the maximum rate per price at it."""
    model, weights = deadlines(jobs, left_s, pairs)
    missed, _ = model.solve(weights, maximise=False)
    model.row(weights, -np.inf, missed + 1e-9)
    return missed, model.solve(model.worth(np.broadcast_to(1.0 / prices, jobs.rates.shape)))[0]
