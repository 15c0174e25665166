"""Shows a failing world: as a program that repeats the failure, and as a Gantt chart."""

from __future__ import annotations

import math
import sys
from typing import TYPE_CHECKING, Any

from gangline.errors import GanglineError, StalledError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from gangline.policies.choice import PolicyLike
    from gangline.runs.result import Result
    from gangline.testing.laws import Law
    from gangline.testing.worlds import World

__all__ = ["gantt", "headline", "last_run", "program"]

_COLUMNS = 40
_ROWS_OF_JOBS = 3  # the maximum number of lines in a program that list the jobs
_LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
_SERVERS_MAX = 16


def program(world: World, policy: PolicyLike, laws: Iterable[Law] = (), **options: Any) -> str:
    """Return a program of at most ten lines that repeats the check of a policy in a world."""
    imported, made = _in_words(policy)
    claims = [_law_in_words(law) for law in laws]
    more = [f"laws=[{', '.join(claims)}]"] if claims else []
    more += [f"{name}={value!r}" for name, value in options.items() if value is not None]
    each = math.ceil(len(world.jobs) / _ROWS_OF_JOBS)
    rows = [", ".join(map(repr, world.jobs[i : i + each])) for i in range(0, len(world.jobs), each)]
    arguments = ["cluster", "jobs", *([repr(world.options)] if world.options else [])]
    return "\n".join(
        [
            "import gangline as gl",
            *imported,
            f"cluster = {world.cluster_keys!r}",
            "jobs = [",
            *(f"    {row}," for row in rows),
            "]",
            f"world = gl.testing.World({', '.join(arguments)})",
            f"gl.testing.check_policy({', '.join([made, '[world]', *more])})",
        ]
    )


def _in_words(policy: PolicyLike) -> tuple[list[str], str]:
    """Return the import lines that a policy needs, and the expression that creates it."""
    from gangline.policies.protocol import Policy

    if isinstance(policy, str):
        return [], repr(policy)
    kind = type(policy)
    is_own = isinstance(policy, Policy)
    given = policy.params() if isinstance(policy, Policy) else policy.changed()
    arguments = ", ".join(f"{name}={value!r}" for name, value in given.items())
    if not is_own:
        return [], f"gl.policies.{kind.__name__}({arguments})"
    module = sys.modules.get(kind.__module__)
    is_there = getattr(module, kind.__name__, None) is kind and kind.__module__ != "__main__"
    imports = [] if not is_there else [f"from {kind.__module__} import {kind.__name__}"]
    return imports, f"{kind.__name__}({arguments})"


def _law_in_words(law: Law) -> str:
    from gangline.testing.laws import LAWS

    known = LAWS.get(law.name)
    if known is None or known == law:
        return repr(law.name)
    return f"gl.testing.LAWS[{law.name!r}].within({law.bound:g})"


def last_run(
    world: World, policy: PolicyLike, error: BaseException, params: Mapping[str, Any] | None
) -> Result | None:
    """Return the run up to its failure; None if it failed before the run began."""
    options: dict[str, Any] = {"segments": True, "params": params}
    at_s = getattr(error, "time_s", None)
    if isinstance(error, GanglineError):
        if at_s is None or at_s <= 0.0:
            return None
        options["until_s"] = at_s - 1e-9
    elif not isinstance(error, AssertionError):
        return None
    else:
        options.setdefault("max_events", 1000)
    try:
        return world.simulate(policy, **options)
    except Exception:  # noqa: BLE001 - a picture is only a help; the failure is reported anyway
        return None


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def headline(world: World, error: BaseException) -> str:
    """Return a sentence with the size of the world and what failed there."""
    gpus = _sizes(world)
    size = ", ".join(
        [_count(len(world.jobs), "job"), _count(len(gpus), "server"), _count(sum(gpus), "GPU")]
    )
    broken = getattr(error, "broken", None)
    if isinstance(error, StalledError) and vars(error).get("waiting"):
        names = list(vars(error).get("job_ids", []))
        many = "jobs" if len(names) > 1 else "job"
        return f"{size}: {many} {', '.join(names)} {'wait' if len(names) > 1 else 'waits'} for ever"
    if broken:
        return f"{size}: {broken[0][1]}"
    return f"{size}: {str(error) or type(error).__name__}"


def gantt(world: World, result: Result | None, *, for_ever: Sequence[str] = ()) -> str:
    """Draw, as plain text, which job held each GPU and which jobs waited.

    Parameters
    ----------
    world : World
        The cluster and the trace of the run.
    result : Result or None
        The run, with its segments; None if the run never began.
    for_ever : sequence of str
        Jobs that are waiting when the run ends, and would wait forever.
    """
    segments = [] if result is None else result.segments.to_pylist()
    jobs: list[dict[str, Any]] = world.jobs
    arrivals = {row["job_id"]: float(row["arrival_s"]) for row in jobs}
    ends = [row["end_s"] for row in segments] + list(arrivals.values())
    step = _step(max(ends))
    width = max(1, math.ceil(max(ends) / step - 1e-9)) + (1 if for_ever else 0)
    letters = _letters(list(arrivals))
    lines = [("", _axis(step, width))]
    for server, slots in enumerate(_sizes(world)[:_SERVERS_MAX]):
        for slot in range(slots):
            held = [
                (row["start_s"], row["end_s"], letters[row["job_id"]])
                for row in segments
                if row["server"] == server and row["gpu_mask"] >> slot & 1
            ]
            lines.append((f"server {server} GPU {slot}", _cells(held, step, width, ".")))
    for name, arrival in arrivals.items():
        waits = _waits(name, arrival, segments, width * step if name in for_ever else None)
        if any(end - start > 1e-9 for start, end in waits):
            spans = [(start, end, "-") for start, end in waits]
            lines.append((f"job {name} waits", _cells(spans, step, width, " ")))
    if any(letters[name] != name for name in letters):
        lines.append(("", ", ".join(f"{letter} = {name}" for name, letter in letters.items())))
    margin = max(len(label) for label, _ in lines)
    return "\n".join(f"{label:<{margin}}  {cells}".rstrip() for label, cells in lines)


def _letters(names: Sequence[str]) -> dict[str, str]:
    """Return a letter for each job; if all job names are single letters, these are kept."""
    if all(len(name) == 1 for name in names):
        return {name: name for name in names}
    return {name: _LETTERS[i % len(_LETTERS)] for i, name in enumerate(names)}


def _sizes(world: World) -> list[int]:
    """Return the number of GPUs of each server."""
    blocks: Any = world.cluster_keys["servers"]
    return [block["gpus"] for block in blocks for _ in range(block["count"])]


def _step(span_s: float) -> float:
    """Return the number of seconds per column: 1, 2 or 5 times a power of ten."""
    if span_s <= 0.0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(span_s / _COLUMNS))
    return next(m * power for m in (1.0, 2.0, 5.0, 10.0) if span_s / (m * power) <= _COLUMNS)


def _axis(step: float, width: int) -> str:
    """Return the time labels, one for every ten columns."""
    marks = [f"{i * step:g}" for i in range(0, width, 10)]
    marks[0] += " s"
    return "".join(f"{mark:<10}" for mark in marks).rstrip()


def _cells(spans: Sequence[tuple[float, float, str]], step: float, width: int, idle: str) -> str:
    """For each column, return the letter of the longest span, or `2` if spans overlap in time."""
    cells = ""
    for column in range(width):
        start, end = column * step, (column + 1) * step
        covers = {
            letter: min(stop, end) - max(begin, start)
            for begin, stop, letter in spans
            if min(stop, end) > max(begin, start) + 1e-9 * step
        }
        together = sum(covers.values()) > step * (1.0 + 1e-9)
        cells += "2" if together else max(covers, key=lambda key: covers[key], default=idle)
    return cells


def _waits(
    name: str, arrival: float, segments: Sequence[dict[str, Any]], end_s: float | None
) -> list[tuple[float, float]]:
    """Return the intervals in which a job waits, including a last one until `end_s` if given."""
    held = sorted((row["start_s"], row["end_s"]) for row in segments if row["job_id"] == name)
    waits, free = [], arrival
    for start, end in held:
        waits.append((free, start))
        free = max(free, end)
    return waits if end_s is None else [*waits, (free, end_s)]
