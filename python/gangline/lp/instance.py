"""The arrays that describe what each job asks for, checked once; and what an allocation is."""

from __future__ import annotations

import dataclasses
import json
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from gangline.errors import PolicyError
from gangline.lp.classes import NOT_GROUPED, Classes, aggregate

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from gangline.lp.arrays import F64, I64

__all__ = ["Allocation", "Instance", "Settings", "check", "load_instance", "per_job", "read"]

_SEED_MAX = 2**31 - 1  # HiGHS's own

# Settings with one number per job.
PER_JOB = ("kind", "entity", "time_left_s", "running_type", "service_lost_s", "turn")


@dataclass(frozen=True)
class Allocation:
    """What a policy gives to each job.

    Parameters
    ----------
    shares : float64 array, shape (jobs, types)
        Time shares of running alone; each row sums to at most 1.
    objective : float
        In the policy's own terms: smallest ratio, seconds, rho, sum.
    status : str
        `optimal`, or `closed form` if nothing was solved.
    solver : str
        core, simplex, ipx, dual or none.
    iterations : int
        Of all solves together.
    wall_s : float
        Seconds in the solver.
    solves : int
        Programs that were solved.
    levels : float64 array, shape (jobs,), optional
        Water filling: normalised rate of each job.
    pairs : int64 array, shape (pairs, 2), optional
        Packing: classes that share GPUs.
    pair_shares : float64 array, shape (pairs, types), optional
        Packing: job-time of each pair of classes on each type.
    classes : int64 array, shape (jobs,), optional
        Packing: class of each job.
    notes : mapping
        Counts of what was left out and why: `stranded` (jobs whose types have no GPU now),
        `deadlines_passed`, `deadlines_missed`; `prices_failed` if programs had to do what prices
        could not; `solver_retried` if so many programs had to be solved in another way;
        `partition_loss` if jobs were dealt into parts.
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
    """Everything that changes a solve beside the jobs; see `solve`."""

    solver: str = "auto"
    tie_break: str = "max_sum"
    time_limit_s: float = 60.0
    seed: int = 0
    on_solver_error: str = "raise"
    write_failed_to: str | Path | None = None
    normalise: str = "none"
    agnostic_rate: str = "mean"
    reference_type: int = -1
    prices: Any = None
    time_left_s: Any = None
    drop_all_infeasible: bool = False
    packed: bool = False
    kind: Any = None
    pair_rates: Any = None
    entity: Any = None
    entity_weight: Any = None
    entity_policy: Any = "fairness"
    type_names: Any = None
    alpha: float = 1.0
    running_type: Any = None
    service_lost_s: Any = None
    turn: Any = None  # place in the queue of an entity; set by water filling itself


@dataclass(frozen=True)
class Instance:
    """The jobs and GPUs of one allocation, checked.

    Parameters
    ----------
    policy : str
        Name, for messages.
    rates : float64 array, shape (rows, types)
        Gang steps per second; 0 where a job cannot run. A row is a class of equal jobs.
    scale : float64 array, shape (rows,)
        Gang sizes.
    capacity : float64 array, shape (types,)
        Healthy GPUs.
    weight, remaining, age_s : float64 arrays, shape (rows,)
        Weights, steps left, seconds since arrival.
    settings : Settings
        Everything else; its arrays have an entry per row, too.
    classes : Classes
        Jobs of each row.
    total : int
        Jobs in the cluster, those that are left out included.
    """

    policy: str
    rates: F64
    scale: F64
    capacity: F64
    weight: F64
    remaining: F64
    age_s: F64
    settings: Settings
    classes: Classes
    total: int

    @property
    def rows(self) -> int:
        """Number of classes."""
        return len(self.scale)

    def prop(self) -> F64:
        """Return each job's rate averaged over all GPUs of the cluster."""
        total = np.zeros(self.rows)
        for kind in range(len(self.capacity)):
            total = total + self.rates[:, kind] * self.capacity[kind]
        gpus = 0.0
        for own in self.capacity.tolist():  # in this order, as the core adds
            gpus += own
        return total / gpus

    def rows_of(self, keep: I64, groups: Classes) -> Instance:
        """Return the instance of some rows only, which stand for these classes."""
        changed: dict[str, Any] = {
            name: getattr(self.settings, name)[keep]
            for name in PER_JOB
            if getattr(self.settings, name) is not None
        }
        return dataclasses.replace(
            self,
            rates=self.rates[keep],
            scale=self.scale[keep],
            weight=self.weight[keep],
            remaining=self.remaining[keep],
            age_s=self.age_s[keep],
            settings=dataclasses.replace(self.settings, **changed),
            classes=groups,
        )

    def grouped(self, names: tuple[str, ...]) -> Instance:
        """Return the instance with one row per kind of job, told apart by some arrays."""
        columns = [
            np.asarray(getattr(self.settings if name in PER_JOB else self, name)) for name in names
        ]
        # A number that all jobs share does not tell jobs apart.
        telling = [column for column in columns if column.ndim and column.strides != (0,)]
        groups = aggregate(telling)
        return self.rows_of(groups.first, groups)

    def write(self, path: str | Path) -> None:
        """Write everything as JSON, so that the solve can be repeated."""
        settings = {
            key: value.tolist() if isinstance(value, np.ndarray) else value
            for key, value in dataclasses.asdict(self.settings).items()
            if key not in ("turn", "write_failed_to")  # a repetition must not write itself
        }
        arrays = {
            "rates": self.rates,
            "scale": self.scale,
            "capacity": self.capacity,
            "weight": self.weight,
            "steps_remaining": self.remaining,
            "age_s": self.age_s,
        }
        document = {"policy": self.policy, **{k: v.tolist() for k, v in arrays.items()}}
        Path(path).write_text(json.dumps(document | settings), encoding="utf-8")


def load_instance(path: str | Path) -> tuple[str, dict[str, Any]]:
    """Read what `write_failed_to` wrote: the policy, and the arguments of `solve`."""
    document = json.loads(Path(path).read_text(encoding="utf-8"))
    return document.pop("policy"), document


def read(policy: str, arrays: Mapping[str, Any], settings: Settings) -> Instance:
    """Check the arrays of a solve.

    Raises
    ------
    PolicyError
        If a shape is wrong, or a value is: it names the argument, the job and the value.
    """
    rates = _array(policy, "rates", arrays["rates"], 2)
    jobs, types = rates.shape
    sized: dict[str, F64] = {"capacity": _array(policy, "capacity", arrays["capacity"], 1)}
    for name, default in (("scale", None), ("weight", 1.0), ("steps_remaining", 1.0), ("age_s", 0)):
        value = arrays.get(name)
        sized[name] = (
            np.broadcast_to(np.float64(default), jobs)  # one number for all
            if value is None and default is not None
            else _array(policy, name, value, 1)
        )
    for name, array in sized.items():
        wanted = types if name == "capacity" else jobs
        if len(array) != wanted:
            what = "column of `rates`, a GPU type" if name == "capacity" else _ROW
            raise _wrong_length(policy, name, len(array), wanted, what)
    per_job = {
        name: _array(policy, name, getattr(settings, name), 1)
        for name in PER_JOB
        if getattr(settings, name) is not None
    }
    for name, array in per_job.items():
        if len(array) != jobs:
            raise _wrong_length(policy, name, len(array), jobs, _ROW)
    _check_settings(policy, settings, types)
    for name, (expected, good) in _PER_JOB_NUMBERS.items():
        if name in per_job:
            for job in np.flatnonzero(~good(per_job[name]))[:1]:
                raise _wrong(policy, f"{name}[{job}]", float(per_job[name][job]), expected)
    own = per_job.get("running_type")
    if own is not None and len(own) and own.max() >= types:
        job = int(np.argmax(own))
        raise _wrong(policy, f"running_type[{job}]", float(own[job]), f"a type below {types}")
    return Instance(
        policy,
        rates,
        sized["scale"],
        sized["capacity"],
        sized["weight"],
        sized["steps_remaining"],
        sized["age_s"],
        dataclasses.replace(settings, **cast("dict[str, Any]", per_job)),
        NOT_GROUPED,
        jobs,
    )


def _whole(array: F64) -> Any:
    return np.isfinite(array) & (array == np.floor(array))


# What each number of a setting with one per job must be.
_PER_JOB_NUMBERS: dict[str, tuple[str, Callable[[F64], Any]]] = {
    "kind": ("a whole number >= 0", lambda x: _whole(x) & (x >= 0)),
    "entity": ("a whole number >= 0", lambda x: _whole(x) & (x >= 0)),
    "running_type": ("the index of a type, or -1", lambda x: _whole(x) & (x >= -1)),
    "time_left_s": ("seconds, inf for none", lambda x: ~np.isnan(x)),
    "service_lost_s": ("finite seconds >= 0", lambda x: np.isfinite(x) & (x >= 0)),
}


def _check_settings(policy: str, settings: Settings, types: int) -> None:
    """Check the settings that are one number or one name."""

    def is_number(value: object) -> bool:
        return isinstance(value, (int, float)) and not isinstance(value, bool)

    given: dict[str, Any] = vars(settings)  # whatever a caller wrote
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


def check(instance: Instance) -> None:
    """Check the numbers of an instance, each kind of job once.

    Raises
    ------
    PolicyError
        If one is wrong: it names the argument, the first such job and the value.
    """
    rates, job = instance.rates, instance.classes.first
    _each(instance, "rates", rates, "a finite rate >= 0", lambda x: x >= 0)
    _each(instance, "scale", instance.scale, "a gang size >= 1", lambda x: x >= 1)
    _each(instance, "weight", instance.weight, "a weight > 0", lambda x: x > 0)
    _each(instance, "steps_remaining", instance.remaining, "steps > 0", lambda x: x > 0)
    _each(instance, "age_s", instance.age_s, "seconds >= 0", lambda x: x >= 0)
    _each(instance, "capacity", instance.capacity, "GPUs >= 0", lambda x: x >= 0)
    with np.errstate(over="ignore"):
        adds_up = np.isfinite(instance.prop() if float(np.sum(instance.capacity)) else 0.0)
    for row in np.flatnonzero(~adds_up)[:1]:
        name = f"rates[{job[row]}]"
        expected = "rates whose sum over all GPUs is finite"
        raise _wrong(instance.policy, name, rates[row].tolist(), expected)
    for row in np.flatnonzero(~(rates > 0).any(axis=1))[:1]:
        name = f"rates[{job[row]}]"
        raise _wrong(instance.policy, name, rates[row].tolist(), "a rate > 0 on some type")


def per_job(instance: Instance, name: str, what: str) -> F64:
    """Return a setting that must have one number per job.

    Raises
    ------
    PolicyError
        If it is absent or has another shape.
    """
    value = getattr(instance.settings, name)
    if value is None:
        raise _wrong(instance.policy, name, None, what)
    array: F64 = value
    return array


def _array(policy: str, name: str, value: Any, dimensions: int) -> F64:
    try:
        array = np.ascontiguousarray(value, dtype=np.float64)
    except (TypeError, ValueError):
        raise _wrong(policy, name, value, "an array of numbers") from None
    if array.ndim != dimensions:
        raise _wrong(policy, name, array.ndim, f"{dimensions} dimensions")
    return array


def _each(
    instance: Instance, name: str, array: F64, expected: str, good: Callable[[F64], Any]
) -> None:
    fine = np.isfinite(array) & good(array)
    if fine.all():
        return
    place = [int(index) for index in np.argwhere(~fine)[0]]
    value = float(array[tuple(place)])
    if name != "capacity":
        place[0] = int(instance.classes.first[place[0]])
    where = "".join(f"[{index}]" for index in place)
    raise _wrong(instance.policy, name + where, value, expected)


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
