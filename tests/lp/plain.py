"""Plain models of the policies: one dense row per sentence, no classes, no scaling, no tricks.

The oracle of the allocations. It shares nothing with them but the library that solves.
"""

from __future__ import annotations

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
    """Arguments of `gl.lp.solve`, as plain lists."""

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


def base(jobs: Jobs) -> Plain:
    """Shares of every job on every type: capacity, and at most all of the time."""
    model = Plain()
    many, types = jobs.rates.shape
    for m in range(many):
        for k in range(types):
            usable = jobs.rates[m, k] > 0 and jobs.capacity[k] > 0
            model.variable((m, k), np.inf if usable else 0.0)
    for k in range(types):
        model.row(
            {model.names[m, k]: jobs.scale[m] for m in range(many)}, -np.inf, jobs.capacity[k]
        )
    for m in range(many):
        model.row({model.names[m, k]: 1.0 for k in range(types)}, -np.inf, 1.0)
    return model


def rate_terms(model: Plain, jobs: Jobs, m: int, factor: float) -> dict[int, float]:
    return {
        model.names[m, k]: float(jobs.rates[m, k] * factor)
        for k in range(jobs.rates.shape[1])
        if jobs.rates[m, k] > 0
    }


def maxmin(jobs: Jobs, measure: np.ndarray) -> float:
    """Largest z with measure x rate >= z for all."""
    model = base(jobs)
    z = model.variable("z")
    for m in range(len(jobs.scale)):
        model.row({**rate_terms(model, jobs, m, measure[m]), z: -1.0}, 0.0)
    return model.solve({z: 1.0})[0]


def las(jobs: Jobs) -> float:
    return maxmin(jobs, jobs.scale / (jobs.weight * jobs.prop()))


def makespan(jobs: Jobs) -> float:
    return 1.0 / maxmin(jobs, 1.0 / jobs.remaining)


def total(jobs: Jobs, worth: np.ndarray) -> float:
    model = base(jobs)
    cost: dict[int, float] = {}
    for m in range(len(jobs.scale)):
        cost |= rate_terms(model, jobs, m, worth[m])
    return model.solve(cost)[0]


def rho(jobs: Jobs) -> float:
    """Finish-time fairness by halving an interval of rho."""
    iso = (jobs.rates * jobs.isolated()).sum(axis=1)
    fair = jobs.remaining / iso
    low = float(np.max(jobs.age_s / fair))
    high = float(np.max((jobs.age_s + fair) / fair))
    while high - low > 1e-9 * high:
        middle = 0.5 * (low + high)
        slack = middle * fair - jobs.age_s
        good = (slack > 0).all() and maxmin(jobs, slack / jobs.remaining) >= 1.0
        low, high = (low, middle) if good else (middle, high)
    return high


def levels(jobs: Jobs, norm: np.ndarray) -> np.ndarray:
    """Water filling: after each common rise, ask for each job alone whether it could go on."""
    many = len(jobs.scale)
    pace = jobs.weight / jobs.scale
    filled, done = np.zeros(many), np.zeros(many, dtype=bool)
    while not done.all():
        model = base(jobs)
        c = model.variable("c")
        for m in range(many):
            terms = rate_terms(model, jobs, m, 1.0 / norm[m])
            model.row(terms if done[m] else {**terms, c: -pace[m]}, filled[m] * (1 - 1e-10))
        rise, _ = model.solve({c: 1.0})
        filled = np.where(done, filled, filled + rise * pace)
        for j in np.flatnonzero(~done):
            model = base(jobs)
            for m in range(many):
                if m != j:
                    model.row(rate_terms(model, jobs, m, 1.0 / norm[m]), filled[m] * (1 - 1e-8))
            best, _ = model.solve(rate_terms(model, jobs, j, 1.0 / norm[j]))
            # The slack of the others moves this job by far less than the 1e-4 asked for.
            done[j] = best < filled[j] * (1 + 1e-4)
    return filled


def deadlines(jobs: Jobs, left_s: np.ndarray) -> tuple[Plain, dict[int, float]]:
    """Shares, and what part of each deadline is missed, with its weight."""
    model = base(jobs)
    late = {m: model.variable(("late", m), 1.0) for m in range(len(left_s)) if left_s[m] < np.inf}
    for m, column in late.items():
        least = jobs.remaining[m] / left_s[m]
        model.row({**rate_terms(model, jobs, m, 1.0 / least), column: 1.0}, 1.0)
    return model, {column: float(jobs.weight[m]) for m, column in late.items()}


def missed_weight(jobs: Jobs, left_s: np.ndarray) -> float:
    """Least weight of deadlines that must be missed."""
    model, weights = deadlines(jobs, left_s)
    return model.solve(weights, maximise=False)[0]


def cost_with_deadlines(jobs: Jobs, prices: np.ndarray, left_s: np.ndarray) -> tuple[float, float]:
    """Least missed weight, and the most rate per price at that."""
    model, weights = deadlines(jobs, left_s)
    missed, _ = model.solve(weights, maximise=False)
    model.row(weights, -np.inf, missed + 1e-9)
    money = {
        model.names[m, k]: float(jobs.rates[m, k] / prices[k])
        for m in range(len(jobs.scale))
        for k in range(len(prices))
        if jobs.rates[m, k] > 0
    }
    return missed, model.solve(money)[0]


def packed_las(jobs: Jobs, pair_rates: np.ndarray) -> float:
    """Max-min with one variable for every two jobs and type; pair_rates[a, b, k] is a's rate."""
    model = Plain()
    many, types = jobs.rates.shape
    time: list[dict[int, float]] = [{} for _ in range(many)]
    rate: list[dict[int, float]] = [{} for _ in range(many)]
    held: list[dict[int, float]] = [{} for _ in range(types)]
    for k in range(types):
        for a in range(many):
            if jobs.rates[a, k] > 0:
                alone = model.variable((a, k))
                time[a][alone], held[k][alone] = 1.0, jobs.scale[a]
                rate[a][alone] = jobs.rates[a, k]
            for b in range(a + 1, many):
                ours, theirs = pair_rates[a, b, k], pair_rates[b, a, k]
                if jobs.scale[a] == jobs.scale[b] and ours > 0 and theirs > 0:
                    both = model.variable((a, b, k))
                    time[a][both] = time[b][both] = 1.0
                    rate[a][both], rate[b][both] = ours, theirs
                    held[k][both] = jobs.scale[a]
    z = model.variable("z")
    measure = jobs.scale / (jobs.weight * jobs.prop())
    for k in range(types):
        model.row(held[k], -np.inf, jobs.capacity[k])
    for m in range(many):
        model.row(time[m], -np.inf, 1.0)
        model.row({**{c: v * measure[m] for c, v in rate[m].items()}, z: -1.0}, 0.0)
    return model.solve({z: 1.0})[0]
