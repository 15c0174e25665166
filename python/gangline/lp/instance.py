"""Checks the arrays that describe the jobs' demands, and defines the result of a solve."""

from __future__ import annotations

import dataclasses
import json
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypedDict

import numpy as np

from gangline.errors import PolicyError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import numpy.typing as npt

    from gangline._support.builtin_values import Json
    from gangline.lp.highs import F64, I64

__all__ = ["PER_JOB", "Allocation", "Settings", "keep_failed", "load_instance", "read", "write"]

EntityPolicy = Literal["fairness", "fifo"]
_SEED_MAX = 2**31 - 1  # the limit of HiGHS

# The settings that have one number for each job.
PER_JOB = ("kind", "entity", "time_left_s", "running_type", "service_lost_s")


@dataclass(frozen=True)
class Allocation:
    """The share of each GPU type that a policy gives to each job.

    Parameters
    ----------
    shares : float64 array, shape (jobs, types)
        Fraction of time for which each job runs alone on each type; each row sums to at most 1.
    objective : float
        Value of the policy's objective: a smallest ratio, a time in seconds, a rho or a sum.
    status : str
        `optimal`, or `closed form` if no LP was solved.
    solver : str
        The solver: core, simplex, ipx, dual or none.
    iterations : int
        Total number of iterations in all solves.
    wall_s : float
        Time in seconds that the solver took.
    solves : int
        Number of LPs that were solved.
    levels : float64 array, shape (jobs,), optional
        Only for water filling: normalised rate of each job.
    pairs : int64 array, shape (pairs, 2), optional
        Only for packing: pairs of job classes that share GPUs.
    pair_shares : float64 array, shape (pairs, types), optional
        Only for packing: time for which each pair of classes shares GPUs of each type, summed over
        the jobs in the pair.
    classes : int64 array, shape (jobs,), optional
        Only for packing: class of each job.
    notes : mapping
        Counts of omissions and replacements: `stranded` (number of jobs whose types have no GPU
        now), `deadlines_passed`, `deadlines_missed`; `prices_failed` = 1 if the price method failed
        and LPs were solved instead; `solver_retried`, the number of LPs that had to be solved by
        another method; `partition_loss` if the jobs were divided into parts.

    Examples
    --------
    >>> import gangline as gl
    >>> rates = [[1.0, 4.0], [1.0, 2.0]]
    >>> found = gl.lp.solve("gavel-las", rates=rates, scale=[1, 1], capacity=[1, 1])
    >>> round(found.objective, 6), found.shares.shape
    (1.0, (2, 2))
    """

    shares: F64
    objective: float
    status: str = "closed form"
    solver: str = "none"
    iterations: int = 0
    wall_s: float = 0.0
    solves: int = 0
    levels: F64 | None = None
    pairs: I64 | None = None
    pair_shares: F64 | None = None
    classes: I64 | None = None
    notes: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Settings:
    """All settings of a solve except the arrays that describe the jobs; see `solve`."""

    solver: Literal["auto", "simplex", "ipx", "dual"] = "auto"
    tie_break: Literal["max_sum", "none"] = "max_sum"
    time_limit_s: float = 60.0
    seed: int = 0
    on_solver_error: Literal["raise", "isolated"] = "raise"
    write_failed_to: str | Path | None = None
    normalise: Literal["none", "proportional"] = "none"
    agnostic_rate: Literal["mean", "reference"] = "mean"
    reference_type: int = -1
    prices: npt.ArrayLike | None = None
    time_left_s: npt.ArrayLike | None = None
    drop_all_infeasible: bool = False
    packed: bool = False
    kind: npt.ArrayLike | None = None
    pair_rates: npt.ArrayLike | None = None
    entity: npt.ArrayLike | None = None
    entity_weight: npt.ArrayLike | None = None
    entity_policy: EntityPolicy | Sequence[EntityPolicy] = "fairness"
    type_names: Sequence[str] | None = None
    alpha: float = 1.0
    running_type: npt.ArrayLike | None = None
    service_lost_s: npt.ArrayLike | None = None


class SolveSettings(TypedDict, total=False):
    """The settings of `gangline.lp.solve`, which are passed as keyword arguments."""

    solver: Literal["auto", "simplex", "ipx", "dual"]
    tie_break: Literal["max_sum", "none"]
    time_limit_s: float
    seed: int
    on_solver_error: Literal["raise", "isolated"]
    write_failed_to: str | Path | None
    normalise: Literal["none", "proportional"]
    agnostic_rate: Literal["mean", "reference"]
    reference_type: int
    prices: npt.ArrayLike | None
    time_left_s: npt.ArrayLike | None
    drop_all_infeasible: bool
    packed: bool
    kind: npt.ArrayLike | None
    pair_rates: npt.ArrayLike | None
    entity: npt.ArrayLike | None
    entity_weight: npt.ArrayLike | None
    entity_policy: EntityPolicy | Sequence[EntityPolicy]
    type_names: Sequence[str] | None
    alpha: float
    running_type: npt.ArrayLike | None
    service_lost_s: npt.ArrayLike | None
    partitions: int


def write(path: str | Path, policy: str, columns: Mapping[str, Any], settings: Any) -> None:
    """Write the arguments of a solve as JSON, so that the solve can be repeated."""

    def plain(value: Any) -> Any:
        return value.tolist() if isinstance(value, np.ndarray) else value

    document = {"policy": policy, **settings, **columns}
    document.pop("write_failed_to", None)  # a repeated solve must not write the file again
    text = json.dumps({key: plain(value) for key, value in document.items()})
    Path(path).write_text(text, encoding="utf-8")


def keep_failed(
    policy: str, columns: Mapping[str, Any], given: Mapping[str, Any], error: Exception
) -> None:
    """Write the arguments of a failed solve if the user wants this, and add a note to the error.

    Parameters
    ----------
    policy : str
        Name of the policy that asked for the solve.
    columns : mapping
        The arrays of `solve`.
    given : mapping
        The settings of `solve`, or the parameters of a policy.
    error : Exception
        The reason why there is no allocation.
    """
    path = given.get("write_failed_to")
    if not path:
        return
    known = {field.name for field in dataclasses.fields(Settings)}
    settings = {name: value for name, value in given.items() if name in known}
    try:
        write(path, policy, columns, settings)
    except OSError as problem:
        error.add_note(f"the problem could not be written to {path}: {problem.strerror}")
    else:
        error.add_note(f"the problem was written to {path}")


def load_instance(path: str | Path) -> tuple[str, dict[str, Json]]:
    """Read a file written for `write_failed_to`: the policy, and the arguments of `solve`.

    Examples
    --------
    >>> import json
    >>> from pathlib import Path
    >>> import gangline as gl
    >>> kept = {"policy": "gavel-las", "rates": [[1.0]], "scale": [1], "capacity": [1]}
    >>> count = Path("failed.json").write_text(json.dumps(kept))
    >>> policy, arguments = gl.lp.load_instance("failed.json")
    >>> gl.lp.solve(policy, **arguments).shares.tolist()
    [[1.0]]
    """
    document = json.loads(Path(path).read_text(encoding="utf-8"))
    return document.pop("policy"), document


def read(policy: str, arrays: Mapping[str, Any], settings: Settings) -> dict[str, F64]:
    """Check the arrays of a solve, and return them in the form that the core accepts.

    Raises
    ------
    PolicyError
        If a shape or a value is invalid; the message names the argument, the job and the value.
    """
    rates = _array(policy, "rates", arrays["rates"], 2)
    jobs, types = rates.shape
    columns: dict[str, F64] = {"capacity": _array(policy, "capacity", arrays["capacity"], 1)}
    for name, default in (("scale", None), ("weight", 1.0), ("steps_remaining", 1.0), ("age_s", 0)):
        value = arrays.get(name)
        columns[name] = (
            np.full(jobs, float(default))
            if value is None and default is not None
            else _array(policy, name, value, 1)
        )
    for name, array in columns.items():
        wanted = types if name == "capacity" else jobs
        if len(array) != wanted:
            what = "column of `rates`, a GPU type" if name == "capacity" else _ROW
            raise _wrong_length(policy, name, len(array), wanted, what)
    _check_settings(policy, settings, types)
    columns |= _per_job(policy, settings, jobs, types)
    columns["rates"] = rates
    if jobs:
        for name, (expected, good) in _COLUMNS.items():
            _each(policy, name, columns[name], expected, good)
        _check_rates(policy, rates, columns["capacity"])
    if settings.packed:
        columns["pair_rates"] = _pair_rates(policy, settings, columns, types)
    else:
        columns.pop("kind", None)
    if "entity" in columns:
        columns["entity_weight"] = _entity_weights(policy, settings, columns["entity"])
    return columns


def _per_job(policy: str, settings: Settings, jobs: int, types: int) -> dict[str, F64]:
    """Check and return the settings that contain one number for each job."""
    columns = {
        name: _array(policy, name, getattr(settings, name), 1)
        for name in PER_JOB
        if getattr(settings, name) is not None
    }
    for name, array in columns.items():
        if len(array) != jobs:
            raise _wrong_length(policy, name, len(array), jobs, _ROW)
        expected, good = _PER_JOB_NUMBERS[name]
        for job in np.flatnonzero(~good(array))[:1]:
            raise _wrong(policy, f"{name}[{job}]", float(array[job]), expected)
    own = columns.get("running_type")
    if own is not None and len(own) and own.max() >= types:
        job = int(np.argmax(own))
        raise _wrong(policy, f"running_type[{job}]", float(own[job]), f"a type below {types}")
    return columns


def _whole(array: F64) -> Any:
    return np.isfinite(array) & (array == np.floor(array))


# For each setting with one number per job, the allowed numbers.
_PER_JOB_NUMBERS: dict[str, tuple[str, Callable[[F64], Any]]] = {
    "kind": ("a whole number >= 0", lambda x: _whole(x) & (x >= 0)),
    "entity": ("a whole number >= 0", lambda x: _whole(x) & (x >= 0)),
    "running_type": ("the index of a type, or -1", lambda x: _whole(x) & (x >= -1)),
    "time_left_s": ("seconds, inf for none", lambda x: ~np.isnan(x)),
    "service_lost_s": ("finite seconds >= 0", lambda x: np.isfinite(x) & (x >= 0)),
}
# For each array, the allowed values; all numbers must also be finite.
_COLUMNS: dict[str, tuple[str, Callable[[F64], Any]]] = {
    "rates": ("a finite rate >= 0", lambda x: x >= 0),
    "scale": ("a gang size >= 1", lambda x: x >= 1),
    "weight": ("a weight > 0", lambda x: x > 0),
    "steps_remaining": ("steps > 0", lambda x: x > 0),
    "age_s": ("seconds >= 0", lambda x: x >= 0),
    "capacity": ("GPUs >= 0", lambda x: x >= 0),
}


def _check_settings(policy: str, settings: Settings, types: int) -> None:
    """Check the settings that consist of a single number or name."""

    def is_number(value: object) -> bool:
        return isinstance(value, (int, float)) and not isinstance(value, bool)

    # the values may have any type, because a caller wrote them
    given: dict[str, Any] = vars(settings)
    limit, seed, alpha = given["time_limit_s"], given["seed"], given["alpha"]
    if not (is_number(limit) and limit > 0):
        raise _wrong(policy, "time_limit_s", limit, "seconds > 0")
    if not (isinstance(seed, int) and 0 <= seed <= _SEED_MAX):
        raise _wrong(policy, "seed", seed, f"a whole number from 0 to {_SEED_MAX}")
    if not (is_number(alpha) and 0 < alpha < math.inf):
        raise _wrong(policy, "alpha", alpha, "a finite number > 0")
    names, path = settings.type_names, settings.write_failed_to
    if names is not None and len(names) != types:
        raise _wrong(policy, "type_names", names, f"{types} names, one per type")
    if path is not None and not isinstance(path, (str, Path)):
        raise _wrong(policy, "write_failed_to", path, "the path of a file")


def _check_rates(policy: str, rates: F64, capacity: F64) -> None:
    with np.errstate(over="ignore", invalid="ignore"):
        adds_up = np.isfinite(rates @ capacity)
    for job in np.flatnonzero(~adds_up)[:1]:
        expected = "rates whose sum over all GPUs is finite"
        raise _wrong(policy, f"rates[{job}]", rates[job].tolist(), expected)
    for job in np.flatnonzero(~(rates > 0).any(axis=1))[:1]:
        raise _wrong(policy, f"rates[{job}]", rates[job].tolist(), "a rate > 0 on some type")


def _pair_rates(policy: str, settings: Settings, columns: Mapping[str, F64], types: int) -> F64:
    """Check and return the pair rates; `kind` contains each job's row in this table."""
    if "kind" not in columns:
        raise _wrong(policy, "kind", None, "for each job, its row in pair_rates")
    table: F64 = np.asarray(settings.pair_rates, dtype=np.float64)
    square = table.ndim == 3 and table.shape[0] == table.shape[1] and table.shape[2] == types
    if not square or columns["kind"].max(initial=-1) >= len(table):
        raise PolicyError(
            f"{policy}: pair_rates: expected shape (kinds, kinds, {types}) with a row "
            f"for every `kind`, got {table.shape}",
            policy=policy,
            field="pair_rates",
            value=table.shape,
        )
    if not (np.isfinite(table) & (table >= 0)).all():
        raise PolicyError(
            f"{policy}: pair_rates: expected finite rates >= 0", policy=policy, field="pair_rates"
        )
    return table


def _entity_weights(policy: str, settings: Settings, entity: F64) -> F64:
    groups = int(entity.max(initial=-1)) + 1
    given = settings.entity_weight
    weight = np.ones(groups) if given is None else np.asarray(given, dtype=np.float64)
    names = settings.entity_policy
    names = [names] * len(weight) if isinstance(names, str) else list(names)
    good = weight.ndim == 1 and len(weight) == len(names) and len(weight) >= groups
    if not good or not (weight > 0).all() or not set(names) <= {"fairness", "fifo"}:
        raise PolicyError(
            f"{policy}: entity: expected numbers >= 0, entity_weight > 0 and "
            "entity_policy fairness or fifo for each of them",
            policy=policy,
            field="entity",
            value=settings.entity,
        )
    return weight


def _array(policy: str, name: str, value: Any, dimensions: int) -> F64:
    try:
        array = np.ascontiguousarray(value, dtype=np.float64)
    except (TypeError, ValueError):
        raise _wrong(policy, name, value, "an array of numbers") from None
    if array.ndim != dimensions:
        raise _wrong(policy, name, array.ndim, f"{dimensions} dimensions")
    return array


def _each(policy: str, name: str, array: F64, expected: str, good: Callable[[F64], Any]) -> None:
    fine = np.isfinite(array) & good(array)
    if not fine.all():
        place = [int(index) for index in np.argwhere(~fine)[0]]
        where = "".join(f"[{index}]" for index in place)
        raise _wrong(policy, name + where, float(array[tuple(place)]), expected)


_ROW = "row of `rates`, a job"


def _wrong_length(policy: str, name: str, given: int, wanted: int, what: str) -> PolicyError:
    numbers = "number" if wanted == 1 else "numbers"
    return _wrong(policy, name, given, f"{wanted} {numbers}, one for each {what}")


def _wrong(policy: str, name: str, value: object, expected: str) -> PolicyError:
    text = repr(value)
    text = text if len(text) <= 60 else text[:57] + "..."
    return PolicyError(
        f"{policy}: {name}: expected {expected}, got {text}",
        policy=policy,
        field=name,
        value=value,
    )
