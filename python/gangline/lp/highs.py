"""HiGHS behind one function: options, status and residuals are looked at after every solve.

Anything but an optimum is a `SolverError`; nothing is silently replaced.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from gangline.errors import PolicyError, SolverError

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from gangline.lp.arrays import F64, Model

    _Change = Callable[[Any, "Solution"], Model]  # makes the solved program the next one
    _Way = tuple[str, dict[str, object]]  # a method, and options beyond its own

__all__ = ["SIMPLEX_ROWS", "Solution", "Solver", "solver_name", "version"]

SIMPLEX_ROWS = 300  # above this an interior point with crossover is faster (measured)
RESIDUAL = 1e-7  # relative violation of a row that is still called a solution
# HiGHS accepts rows that are off by its tolerance, absolutely. Our rows are scaled to about 1, and
# its default of 1e-7 would be visible in objectives that are compared to 1e-6.
TOLERANCE = 1e-9
# Costs are scaled to 1 and multipliers exact to about 1e-14 of that: smaller ones are none.
HELD = 1e-12
TIME_IS_UP = "Time limit reached"

# What to try where rounding has got the better of a method: of 480 programs that span ten orders of
# magnitude the first attempt failed on 14, the next on 1, and the one after that on none.
_RESCALED: _Way = ("simplex", {"simplex_scale_strategy": 4})
_OTHER_WAYS: dict[str, list[_Way]] = {
    "simplex": [_RESCALED, ("ipx", {})],
    "ipx": [_RESCALED],
    "mip": [],
}


@dataclass(frozen=True)
class Solution:
    """What a solve found: variables, objective, row duals and how it was found."""

    x: F64
    objective: float
    row_dual: F64
    solver: str
    iterations: int
    wall_s: float


@dataclass
class Solver:
    """Settings of all solves of one allocation, and what they cost together.

    Parameters
    ----------
    policy : str
        For messages.
    solver : str
        auto, simplex or ipx; `auto` looks at the number of rows only.
    time_limit_s : float
        Of each solve.
    seed : int
        HiGHS's own random seed.
    """

    policy: str
    solver: str = "auto"
    time_limit_s: float = 60.0
    seed: int = 0
    iterations: int = 0
    solves: int = 0
    wall_s: float = 0.0
    used: str = "none"
    retried: int = 0

    def run(self, model: Model, *, solver: str | None = None) -> Solution:
        """Solve one program to an optimum.

        Parameters
        ----------
        model : Model
            The program.
        solver : str or None
            Overrules the setting for this solve: simplex or ipx.

        Raises
        ------
        SolverError
            If the status is not optimal or the residuals say otherwise.
        """
        return self.run_then(model, None, solver=solver)[0]

    def run_then(
        self,
        model: Model,
        then: Callable[[Solution], Model] | None,
        *,
        solver: str | None = None,
    ) -> tuple[Solution, Solution]:
        """Solve a program, and another that differs in costs and lower bounds only.

        The second starts at the vertex of the first, which is feasible for it: a few primal pivots
        instead of a solve. Without a second one, the first is returned twice.

        Raises
        ------
        SolverError
            As `run`.
        """

        def change(highs: Any, first: Solution) -> Model:
            assert then is not None, "called for a second program only"
            changed = then(first)
            self._admit(changed)
            _change(highs, model, changed)
            return changed

        found = self._solve(model, [] if then is None else [change], solver)
        return found[0], found[-1]

    def run_in_turn(self, model: Model, costs: list[F64]) -> list[Solution]:
        """Solve a program for one objective after the other, each over the optima of those before.

        Whatever the multipliers of an optimum prove to be at its bound in every optimum is held
        there, and the next objective starts at that vertex. A row that keeps the earlier objective
        would ask more of a solver: such a row has no room inside.

        Parameters
        ----------
        model : Model
            The program with its first objective.
        costs : list of arrays
            Objectives of the later ones, all maximised or minimised as the model says.

        Raises
        ------
        SolverError
            As `run`.
        """

        def change_to(cost: F64) -> _Change:
            def change(highs: Any, _last: Solution) -> Model:
                _hold(highs, model)
                _go_on(highs, cost)
                return model

            return change

        return self._solve(model, [change_to(cost) for cost in costs], None)

    def _solve(self, model: Model, changes: list[_Change], named: str | None) -> list[Solution]:
        """Solve a program and its changes; where that fails, unless by name, in another way."""
        chosen = "mip" if model.is_integer else solver_name(named or self.solver, model.size[0])
        ways: list[_Way] = [(chosen, {})]
        if named is None and self.solver in ("auto", "dual"):
            ways += _OTHER_WAYS[chosen]
        self._admit(model)
        failed: SolverError | None = None
        for way in ways:
            try:
                found = self._solve_by(model, changes, way)
            except SolverError as error:
                failed = failed or error
                if error.status == TIME_IS_UP:
                    break
            else:
                self.retried += failed is not None
                return found
        assert failed is not None, "there is a way at least"
        raise failed

    def _admit(self, model: Model) -> None:
        """Raise a SolverError for numbers that overflowed: HiGHS may run for ever on them."""
        bounds = (model.lower, model.upper, model.rows.lower, model.rows.upper)
        is_sound = np.isfinite(model.cost).all() and np.isfinite(model.rows.entries.value).all()
        if not is_sound or any(np.isnan(bound).any() for bound in bounds):
            raise self.failed("Numbers out of range", model.size, self.solver)

    def _solve_by(self, model: Model, changes: list[_Change], way: _Way) -> list[Solution]:
        chosen, options = way
        began = time.perf_counter()
        highs = _pass(model, self.options(chosen) | options, self)
        highs.run()
        found = [self._read(highs, model, chosen, time.perf_counter() - began)]
        for change in changes:
            began = time.perf_counter()
            changed = change(highs, found[-1])
            highs.run()
            found.append(self._read(highs, changed, chosen, time.perf_counter() - began))
        for solution in found:
            self._count(solution)
        return found

    def _count(self, solution: Solution) -> None:
        self.iterations += solution.iterations
        self.solves += 1
        self.wall_s += solution.wall_s
        self.used = solution.solver

    def options(self, chosen: str) -> dict[str, object]:
        """Return every option of HiGHS that a solve sets."""
        options: dict[str, object] = {
            "output_flag": False,
            "threads": 1,
            "random_seed": self.seed,
            "time_limit": self.time_limit_s,
            "primal_feasibility_tolerance": TOLERANCE,
            "dual_feasibility_tolerance": TOLERANCE,
            "solver": "simplex" if chosen == "mip" else chosen,
        }
        if chosen == "mip":
            # whole numbers to the last digit, an optimum and not one within 0.01 %
            options["mip_feasibility_tolerance"] = TOLERANCE
            options["mip_rel_gap"] = options["mip_abs_gap"] = TOLERANCE
        elif chosen == "ipx":
            options["run_crossover"] = "on"
        else:
            options["simplex_strategy"] = 1
            options["presolve"] = (
                "off"  # finds nothing in these rows, and takes a fifth of the time
            )
        return options

    def _read(self, highs: Any, model: Model, chosen: str, wall_s: float) -> Solution:
        status = highs.getModelStatus()
        name = highs.modelStatusToString(status)
        info = highs.getInfo()
        if name != "Optimal":
            raise self.failed(name, model.size, chosen)
        values = highs.getSolution()
        x = np.array(values.col_value, dtype=np.float64)
        off = residual(model, x)
        if not off <= RESIDUAL:
            raise self.failed(f"Optimal, but rows are off by {off:.1e}", model.size, chosen)
        counts = (
            info.simplex_iteration_count,
            info.ipm_iteration_count,
            info.crossover_iteration_count,
        )
        return Solution(
            x=x,
            objective=float(info.objective_function_value),
            row_dual=np.array(values.row_dual, dtype=np.float64),
            solver=chosen,
            iterations=sum(max(int(count), 0) for count in counts),
            wall_s=wall_s,
        )

    def failed(self, status: str, size: tuple[int, int], chosen: str) -> SolverError:
        """Build the error of a solve that did not end at an optimum."""
        other = "auction = greedy" if chosen == "mip" else "another `solver`"
        return SolverError(
            f"{self.policy}: {chosen} ended with status `{status}` on {size[0]} rows x {size[1]} "
            f"columns; try {other} or a longer `time_limit_s`",
            policy=self.policy,
            status=status,
            size=size,
            options=self.options(chosen),
        )


def solver_name(solver: str, rows: int) -> str:
    """Return simplex or ipx: by name, or by the number of rows.

    Examples
    --------
    >>> solver_name("auto", 300), solver_name("auto", 301), solver_name("ipx", 2)
    ('simplex', 'ipx', 'ipx')
    """
    if solver in ("auto", "dual"):  # the price method solves nothing but the max-min kernel
        return "simplex" if rows <= SIMPLEX_ROWS else "ipx"
    if solver in ("simplex", "ipx"):
        return solver
    raise PolicyError(
        f"unknown solver `{solver}`: expected auto, simplex, ipx or dual",
        field="solver",
        value=solver,
    )


def version() -> str:
    """Return the version of HiGHS that solves."""
    import highspy

    return str(highspy.Highs().version())  # type: ignore[no-untyped-call]


def residual(model: Model, x: F64) -> float:
    """Return the largest violation of a bound or row, relative to its side where that is large."""
    activity = model.rows.entries.dot(x, model.size[0])
    worst = 0.0
    for value, lower, upper in (
        (activity, model.rows.lower, model.rows.upper),
        (x, model.lower, model.upper),
    ):
        for gap, side in ((lower - value, lower), (value - upper, upper)):
            finite = np.isfinite(side)
            if finite.any():
                scale = np.maximum(1.0, np.abs(side[finite]))
                worst = max(worst, float(np.max(gap[finite] / scale)))
    return worst if np.isfinite(activity).all() else np.inf


def _change(highs: Any, model: Model, changed: Model) -> None:
    """Change costs and lower bounds, and go on from the present vertex by primal simplex."""
    for column in np.flatnonzero(model.lower != changed.lower):
        highs.changeColBounds(int(column), changed.lower[column], changed.upper[column])
    _go_on(highs, changed.cost)


def _go_on(highs: Any, cost: F64) -> None:
    """Take another objective; the vertex is feasible, so the primal simplex goes on from it."""
    highs.changeColsCost(len(cost), np.arange(len(cost), dtype=np.int32), cost)
    highs.setOptionValue("solver", "simplex")
    highs.setOptionValue("simplex_strategy", 4)


def _hold(highs: Any, model: Model) -> None:
    """Fix what is at its bound in all optima: columns and rows with a multiplier."""
    found = highs.getSolution()
    entries = model.rows.entries
    largest = np.zeros(model.size[0])
    np.maximum.at(largest, entries.row, np.abs(entries.value))
    for column in np.flatnonzero(np.abs(np.array(found.col_dual)) > HELD).tolist():
        value = found.col_value[column]
        highs.changeColBounds(column, value, value)
    # the multiplier of a row of large entries is small
    for row in np.flatnonzero(np.abs(np.array(found.row_dual)) * largest > HELD).tolist():
        value = found.row_value[row]
        highs.changeRowBounds(row, value, value)


def _pass(model: Model, options: dict[str, object], owner: Solver) -> Any:
    import highspy

    highs: Any = highspy.Highs()  # type: ignore[no-untyped-call]
    for key, value in options.items():
        if highs.setOptionValue(key, value) != highspy.HighsStatus.kOk:
            raise owner.failed(f"option {key} = {value!r} refused", model.size, str(value))
    start, index, value = model.compressed()
    rows, columns = model.size
    sense = highspy.ObjSense.kMaximize if model.maximise else highspy.ObjSense.kMinimize
    status = highs.passModel(
        columns,
        rows,
        len(value),
        int(highspy.MatrixFormat.kRowwise),
        int(sense),
        0.0,
        model.cost,
        model.lower,
        model.upper,
        model.rows.lower,
        model.rows.upper,
        start,
        index,
        value,
        np.full(columns, int(model.is_integer), dtype=np.int32),
    )
    if status == highspy.HighsStatus.kError:
        raise owner.failed("Model refused", model.size, str(options["solver"]))
    return highs
