"""Calls HiGHS through one function that accepts an LP as arrays and returns its optimum.

After every solve, the options, the status and the residuals are checked. Any result other than an
optimum raises a `SolverError` and is never used silently.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from gangline.errors import SolverError

if TYPE_CHECKING:
    from collections.abc import Sequence

    _Way: TypeAlias = tuple[str, dict[str, object]]  # a method, and its further options

__all__ = ["F64", "SIMPLEX_ROWS", "TOLERANCE", "Solution", "options", "solve", "version"]

F64: TypeAlias = npt.NDArray[np.float64]
I32: TypeAlias = npt.NDArray[np.int32]
I64: TypeAlias = npt.NDArray[np.int64]

SIMPLEX_ROWS = 300  # with more rows, interior point with crossover is faster (measured)
RESIDUAL = 1e-7  # the largest relative violation of a row that a solution may have
# HiGHS accepts rows whose absolute error is at most its tolerance. Our rows are scaled to about 1.
# With the default of 1e-7, the error would be visible in objectives that are compared to 1e-6.
TOLERANCE = 1e-9
# A multiplier up to this limit counts as 0. Costs are scaled to 1, and multipliers are exact to
# about 1e-14.
HELD = 1e-12
TIME_IS_UP = "Time limit reached"

# Further attempts after a method has failed because of rounding. Among 480 programs that span ten
# orders of magnitude, the method itself failed on 14, the next attempt on 1, and the last on none.
_RESCALED: _Way = ("simplex", {"simplex_scale_strategy": 4})
_OTHER_WAYS: dict[str, list[_Way]] = {
    "simplex": [_RESCALED, ("ipx", {})],
    "ipx": [_RESCALED],
    "mip": [],
}


class Solution(NamedTuple):
    """The optimum for one objective: column values, row multipliers, objective and iterations."""

    x: F64
    row_dual: F64
    objective: float
    iterations: int


@dataclass(frozen=True)
class _Program:
    """An LP in the form that HiGHS accepts, with the name of the policy that asked for it."""

    policy: str
    cost: F64
    lower: F64
    upper: F64
    row_lower: F64
    row_upper: F64
    start: I32
    index: I32
    value: F64
    maximise: bool
    is_integer: bool
    then: Sequence[tuple[F64, float | None]]
    time_limit_s: float
    seed: int

    @property
    def size(self) -> tuple[int, int]:
        """The number of rows, and the number of columns."""
        return len(self.row_lower), len(self.cost)

    @property
    def row_of(self) -> I64:
        """The row of each entry in the constraint matrix."""
        return np.repeat(np.arange(self.size[0]), np.diff(self.start))

    def failed(self, status: str, chosen: str) -> SolverError:
        """Build the error for a solve that did not end at an optimum."""
        other = "auction = greedy" if chosen == "mip" else "another `solver`"
        return SolverError(
            f"{self.policy}: {chosen} ended with status `{status}` on {self.size[0]} rows x "
            f"{self.size[1]} columns; try {other} or a longer `time_limit_s`",
            policy=self.policy,
            status=status,
            size=self.size,
            options=options(chosen, self.time_limit_s, self.seed),
        )


def solve(
    policy: str,
    *,
    cost: F64,
    lower: F64,
    upper: F64,
    row_lower: F64,
    row_upper: F64,
    start: I32,
    index: I32,
    value: F64,
    maximise: bool = True,
    is_integer: bool = False,
    then: Sequence[tuple[F64, float | None]] = (),
    solver: str = "auto",
    time_limit_s: float = 60.0,
    seed: int = 0,
) -> tuple[list[Solution], str, bool]:
    """Solve an LP for several objectives in turn; each solve starts from the last optimal vertex.

    Parameters
    ----------
    policy : str
        Name of the policy, which error messages contain.
    cost, lower, upper : float64 arrays, shape (columns,)
        Objective coefficient and bounds of each column.
    row_lower, row_upper : float64 arrays, shape (rows,)
        Bounds of the rows.
    start, index, value : arrays
        Constraint matrix by rows (CSR): row starts, column indices and coefficients.
    maximise : bool
        Whether to maximise the objective; otherwise it is minimised.
    is_integer : bool
        Whether every variable must be an integer.
    then : sequence of (float64 array, float or None)
        The coefficients of each further objective, and the part of the earlier objectives that it
        must preserve. A number is the part of the first objective to preserve; the last column
        holds that objective's value. None preserves the earlier objectives entirely: a variable or
        row with a nonzero multiplier is at its bound in every optimum, so it is fixed there.
        Preserving an objective by an additional row would be harder for the solver, because the
        feasible region would have no interior.
    solver : str
        `simplex` or `ipx` uses only that method. `auto` chooses by the number of rows, and tries
        other methods if the first one fails because of rounding.
    time_limit_s : float
        Time limit for each solve, in seconds of wall-clock time.
    seed : int
        Random seed of HiGHS.

    Returns
    -------
    solutions : list of Solution
        One solution for each objective.
    method : str
        simplex, ipx or mip.
    is_retry : bool
        Whether another method was tried first and failed.

    Raises
    ------
    SolverError
        If the status is not optimal, or if the residuals contradict an optimal status.
    """
    program = _Program(
        policy, cost, lower, upper, row_lower, row_upper, start, index, value, maximise,
        is_integer, then, time_limit_s, seed,
    )  # fmt: skip
    chosen = "mip" if is_integer else solver
    if chosen == "auto":
        chosen = "simplex" if len(row_lower) <= SIMPLEX_ROWS else "ipx"
    ways: list[_Way] = [(chosen, {})]
    if solver == "auto":
        ways += _OTHER_WAYS[chosen]
    _admit(program, solver)
    failed: SolverError | None = None
    for way in ways:
        try:
            return _solve_by(program, way), way[0], failed is not None
        except SolverError as error:
            failed = failed or error
            if error.status == TIME_IS_UP:
                break
    assert failed is not None, "the list of methods is never empty"
    raise failed


def options(chosen: str, time_limit_s: float = 60.0, seed: int = 0) -> dict[str, object]:
    """Return every HiGHS option that a solve sets."""
    chosen_options: dict[str, object] = {
        "output_flag": False,
        "threads": 1,
        "random_seed": seed,
        "time_limit": time_limit_s,
        "primal_feasibility_tolerance": TOLERANCE,
        "dual_feasibility_tolerance": TOLERANCE,
        "solver": "simplex" if chosen == "mip" else chosen,
    }
    if chosen == "mip":
        # exact whole numbers, and a true optimum instead of one within 0.01 %
        chosen_options["mip_feasibility_tolerance"] = TOLERANCE
        chosen_options["mip_rel_gap"] = chosen_options["mip_abs_gap"] = TOLERANCE
    elif chosen == "ipx":
        chosen_options["run_crossover"] = "on"
    else:
        chosen_options["simplex_strategy"] = 1
        # presolve finds nothing in these rows and takes a fifth of the time
        chosen_options["presolve"] = "off"
    return chosen_options


def version() -> str:
    """Return the version of HiGHS in use.

    Examples
    --------
    >>> import gangline as gl
    >>> gl.lp.version().split(".")[0]
    '1'
    """
    import highspy

    return str(highspy.Highs().version())  # type: ignore[no-untyped-call]


def _admit(program: _Program, solver: str) -> None:
    """Raise a SolverError if numbers overflowed, because HiGHS might then never end."""
    bounds = (program.lower, program.upper, program.row_lower, program.row_upper)
    costs = [program.cost, *(cost for cost, _ in program.then)]
    is_sound = all(np.isfinite(numbers).all() for numbers in (program.value, *costs))
    if not is_sound or any(np.isnan(bound).any() for bound in bounds):
        raise program.failed("Numbers out of range", solver)


def _solve_by(program: _Program, way: _Way) -> list[Solution]:
    chosen, more = way
    highs = _pass(program, options(chosen, program.time_limit_s, program.seed) | more)
    highs.run()
    lower = program.lower
    found = [_read(highs, program, lower, chosen)]
    for cost, part in program.then:
        if part is None:
            _hold(highs, program)
        else:
            lower = lower.copy()
            lower[-1] = found[0].objective * part
            highs.changeColBounds(len(lower) - 1, lower[-1], program.upper[-1])
        # the vertex is feasible, so the primal simplex continues from it
        highs.changeColsCost(len(cost), np.arange(len(cost), dtype=np.int32), cost)
        highs.setOptionValue("solver", "simplex")
        highs.setOptionValue("simplex_strategy", 4)
        highs.run()
        found.append(_read(highs, program, lower, chosen))
    return found


def _read(highs: Any, program: _Program, lower: F64, chosen: str) -> Solution:
    name = highs.modelStatusToString(highs.getModelStatus())
    info = highs.getInfo()
    if name != "Optimal":
        raise program.failed(name, chosen)
    values = highs.getSolution()
    x = np.array(values.col_value, dtype=np.float64)
    off = _residual(program, lower, x)
    if not off <= RESIDUAL:
        raise program.failed(f"Optimal, but rows are off by {off:.1e}", chosen)
    counts = (
        info.simplex_iteration_count,
        info.ipm_iteration_count,
        info.crossover_iteration_count,
    )
    return Solution(
        x=x,
        row_dual=np.array(values.row_dual, dtype=np.float64),
        objective=float(info.objective_function_value),
        iterations=sum(max(int(count), 0) for count in counts),
    )


def _residual(program: _Program, lower: F64, x: F64) -> float:
    """Return the largest violation of a bound of a column or row.

    A violation is divided by the absolute value of the bound if this value is larger than 1.
    """
    taken = program.value * x[program.index]
    activity = np.bincount(program.row_of, weights=taken, minlength=program.size[0])
    worst = 0.0
    for value, least, most in (
        (activity, program.row_lower, program.row_upper),
        (x, lower, program.upper),
    ):
        for gap, side in ((least - value, least), (value - most, most)):
            finite = np.isfinite(side)
            if finite.any():
                scale = np.maximum(1.0, np.abs(side[finite]))
                worst = max(worst, float(np.max(gap[finite] / scale)))
    return worst if np.isfinite(activity).all() else np.inf


def _hold(highs: Any, program: _Program) -> None:
    """Fix columns and rows with nonzero multipliers, which are at their bounds in every optimum."""
    found = highs.getSolution()
    largest = np.zeros(program.size[0])
    np.maximum.at(largest, program.row_of, np.abs(program.value))
    for column in np.flatnonzero(np.abs(np.array(found.col_dual)) > HELD).tolist():
        value = found.col_value[column]
        highs.changeColBounds(column, value, value)
    # the multiplier of a row with large entries is small
    for row in np.flatnonzero(np.abs(np.array(found.row_dual)) * largest > HELD).tolist():
        value = found.row_value[row]
        highs.changeRowBounds(row, value, value)


def _pass(program: _Program, chosen: dict[str, object]) -> Any:
    import highspy

    highs: Any = highspy.Highs()  # type: ignore[no-untyped-call]
    for key, value in chosen.items():
        if highs.setOptionValue(key, value) != highspy.HighsStatus.kOk:
            raise program.failed(f"option {key} = {value!r} refused", str(chosen["solver"]))
    count, columns = program.size
    sense = highspy.ObjSense.kMaximize if program.maximise else highspy.ObjSense.kMinimize
    status = highs.passModel(
        columns,
        count,
        len(program.value),
        int(highspy.MatrixFormat.kRowwise),
        int(sense),
        0.0,
        program.cost,
        program.lower,
        program.upper,
        program.row_lower,
        program.row_upper,
        program.start,
        program.index,
        program.value,
        np.full(columns, int(program.is_integer), dtype=np.int32),
    )
    if status == highspy.HighsStatus.kError:
        raise program.failed("Model refused", str(chosen["solver"]))
    return highs
