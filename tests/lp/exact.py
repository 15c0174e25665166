"""Computes water filling from its description with 150 digits, by a full simplex tableau.

Levels rise together, in proportion to weights per GPU of the gang. A row with a multiplier is
tight in every plan that reaches the level: its job stays there, the others go on from the tableau
as it stands. This module shares no code with what it checks.
"""

from __future__ import annotations

import decimal
import itertools
from decimal import Decimal

import numpy as np

DIGITS, NOTHING = 150, Decimal("1e-80")
# after this many steps without progress, the first column that gains enters, which cannot cycle
PATIENCE = 30


class Tableau:
    """Maximises one column under rows `terms <= right`, where every right side is at least 0."""

    def __init__(self, terms: list[list[Decimal]], right: list[Decimal]) -> None:
        many = len(terms)
        one = [[Decimal(int(a == b)) for b in range(many)] for a in range(many)]
        rows = [[*terms[a], *one[a], right[a]] for a in range(many)]
        self.table = np.array(rows, dtype=object)
        self.columns = len(terms[0])
        self.basis = [self.columns + a for a in range(many)]
        self.gain = np.array([Decimal(0)] * self.table.shape[1], dtype=object)

    def pivot(self, row: int, column: int) -> None:
        own = self.table[row] / self.table[row, column]
        self.table[row] = own
        for other in range(len(self.basis)):
            times = self.table[other, column]
            if other != row and times != 0:
                self.table[other] = self.table[other] - times * own
        self.gain = self.gain - self.gain[column] * own
        self.basis[row] = column

    def maximise(self) -> None:
        still = 0
        while True:
            gains = [column for column in range(len(self.gain) - 1) if self.gain[column] > NOTHING]
            if not gains:
                return
            column = gains[0] if still > PATIENCE else max(gains, key=lambda at: self.gain[at])
            falls = [row for row in range(len(self.basis)) if self.table[row, column] > NOTHING]
            far, _, row = min(
                (self.table[row, -1] / self.table[row, column], self.basis[row], row)
                for row in falls
            )
            still = 0 if far > NOTHING else still + 1
            self.pivot(row, column)


def levels(
    rates: np.ndarray,
    scale: np.ndarray,
    capacity: np.ndarray,
    weight: np.ndarray,
    kind: np.ndarray | None = None,
    pair_rates: np.ndarray | None = None,
) -> np.ndarray:
    """Return normalised rates of all jobs; with `pair_rates`, equal gangs may share GPUs."""
    beside = None
    if kind is not None and pair_rates is not None:
        beside = pair_rates[np.ix_(kind.astype(int), kind.astype(int))]
    with decimal.localcontext(prec=DIGITS):
        pairs = _pairs(rates, scale, capacity, beside)
        world = [np.vectorize(Decimal)(own) for own in (rates, scale, capacity, weight)]
        return _levels(*world, pairs=pairs)


# Two jobs on a type, and the rates of both there.
Pair = tuple[int, int, int, Decimal, Decimal]


def _pairs(
    rates: np.ndarray, scale: np.ndarray, capacity: np.ndarray, beside: np.ndarray | None
) -> list[Pair]:
    """Return the pairs that gain: their relative speeds add up to more than 1."""
    if beside is None:
        return []
    jobs, types = rates.shape
    found = []
    for m, n, k in itertools.product(range(jobs), range(jobs), range(types)):
        one, other = beside[m, n, k], beside[n, m, k]
        if m < n and scale[m] == scale[n] and capacity[k] and one > 0.0 and other > 0.0:
            one, other, mine, its = map(Decimal, (one, other, rates[m, k], rates[n, k]))
            if mine and its and one / mine + other / its > 1:
                found.append((m, n, k, one, other))
    return found


def _levels(
    rates: np.ndarray,
    scale: np.ndarray,
    capacity: np.ndarray,
    weight: np.ndarray,
    *,
    pairs: list[Pair],
) -> np.ndarray:
    jobs, types = rates.shape
    speed, prop = weight / scale, rates @ capacity / capacity.sum()
    cells = [(m, k) for m in range(jobs) for k in range(types) if rates[m, k] and capacity[k]]
    rise = len(cells) + len(pairs)
    zero = [Decimal(0)] * (rise + 1)
    held, time, level = ([list(zero) for _ in range(many)] for many in (types, jobs, jobs))
    for at, (m, k) in enumerate(cells):
        held[k][at] = scale[m] / capacity[k]
        time[m][at] = Decimal(1)
        level[m][at] = -rates[m, k] / prop[m] / speed[m]
    for at, (m, n, k, *both) in enumerate(pairs, len(cells)):
        held[k][at] = scale[m] / capacity[k]
        for job, rate in zip((m, n), both, strict=True):
            time[job][at] = Decimal(1)
            level[job][at] = -rate / prop[job] / speed[job]
    for own in level:
        own[rise] = Decimal(1)
    right = [Decimal(1)] * (types + jobs) + [Decimal(0)] * jobs
    tableau = Tableau(held + time + level, right)
    surplus: list[int] = [rise + 1 + types + jobs + m for m in range(jobs)]
    reached, height = dict[int, Decimal](), Decimal(0)
    while len(reached) < jobs:
        tableau.gain[:] = Decimal(0)
        tableau.gain[rise] = Decimal(1)
        tableau.maximise()
        row = tableau.basis.index(rise)
        height += tableau.table[row, -1]
        tableau.table[row, -1] = Decimal(0)
        tight = [m for m in range(jobs) if tableau.gain[surplus[m]] < -NOTHING]
        stays = [m for m in tight if m not in reached]
        assert stays, "a level that nothing limits"
        for m in stays:
            reached[m] = height * speed[m]
            tableau.table[:, rise] = tableau.table[:, rise] - tableau.table[:, surplus[m]]
        last = max(stays, key=lambda m: abs(tableau.table[row, surplus[m]]))
        if len(reached) < jobs:
            tableau.pivot(row, surplus[last])
    return np.array([float(reached[m]) for m in range(jobs)])
