"""Generates worlds with hypothesis, and makes a failing world as small as possible."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from typing import TYPE_CHECKING, Any

from gangline.testing import strategies  # this import says what to install if hypothesis is missing

# isort: split
import hypothesis
from hypothesis import HealthCheck, Phase, Verbosity
from hypothesis.errors import Flaky

from gangline.testing.safety import LawBroken

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from hypothesis.strategies import SearchStrategy

    from gangline.testing.worlds import World

__all__ = ["smallest"]


_SHRINKS_MAX = 150
"""Maximum number of attempts by hypothesis to shrink a world; in all, they take a few seconds. Our
own choice."""


class _Found(Exception):  # noqa: N818 - not an error: it signals to hypothesis that a world fails
    pass


def smallest(
    fails: Callable[[World], Exception | None],
    count: int,
    seed: int,
    drawn: SearchStrategy[World] | None = None,
) -> tuple[World, Exception] | None:
    """Return a failing world, as small as possible, and its failure; None if no world fails.

    Parameters
    ----------
    fails : callable
        Function that runs a check in a world. It returns the exception if the check fails, and
        otherwise None.
    count : int
        Number of worlds to generate.
    seed : int
        The same seed gives the same worlds only if the same modules are loaded, because hypothesis
        also uses constants that it finds in modules.
    drawn : strategy, optional
        The strategy that generates worlds; by default, `strategies.any_worlds()`.
    """
    last: list[tuple[World, Exception]] = []
    tries: list[bool] = []

    def like_the_first(world: World) -> Exception | None:
        error = fails(world)
        is_like = error is not None and (not last or _kind(error) == _kind(last[0][1]))
        return error if is_like else None

    @hypothesis.seed(seed)
    @hypothesis.settings(
        max_examples=count,
        database=None,
        deadline=None,
        derandomize=False,
        phases=[Phase.generate, Phase.shrink],
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
        verbosity=Verbosity.quiet,
    )
    @hypothesis.given(world=strategies.any_worlds() if drawn is None else drawn)
    def look(world: World) -> None:
        tries.append(bool(last))
        error = None if sum(tries) > _SHRINKS_MAX else like_the_first(world)
        if error is not None:
            last[:] = [(world, error)]
            raise _Found

    try:
        look()
    # Flaky means that the policy behaved differently in the same world, or that tries ran out
    except (_Found, Flaky):
        return _without_parts(*last[0], like_the_first)
    return None


def _kind(error: Exception) -> tuple[object, ...]:
    """Return a key that is equal for two failures with the same cause."""
    law = error.law if isinstance(error, LawBroken) else None
    return type(error), law, getattr(error, "rule", None)


def _without_parts(
    world: World, error: Exception, fails: Callable[[World], Exception | None]
) -> tuple[World, Exception]:
    """Remove, one by one, all parts of a failing world that the failure does not need.

    Such parts are tables, columns and servers, for example; Hypothesis itself makes the values
    small. The remaining jobs are renamed to a, b, c.
    """
    is_smaller = True
    while is_smaller:
        is_smaller = False
        for candidate in _smaller(world):
            found = fails(candidate)
            if found is not None:
                world, error, is_smaller = candidate, found, True
                break
    renamed = replace(
        world,
        jobs=[{**row, "job_id": strategies.IDS[i]} for i, row in enumerate(world.jobs)],
    )
    found = fails(renamed)
    return (world, error) if found is None else (renamed, found)


def _smaller(world: World) -> Iterator[World]:
    """Yield copies of the world, each without one of its parts or with a smaller value."""
    keys: dict[str, Any] = world.cluster_keys
    jobs: list[dict[str, Any]] = world.jobs
    options = world.options
    half = len(jobs) // 2
    if half > 1:
        yield replace(world, jobs=jobs[:half])
        yield replace(world, jobs=jobs[half:])
    for count in (2, 1):
        for kept in combinations(jobs, max(len(jobs) - count, 0)):
            if kept:
                yield replace(world, jobs=list(kept))
    for name in options:
        yield replace(world, options=_less(options, name))
    for name in [name for name in keys if name not in ("gpu_types", "servers")]:
        yield replace(world, cluster_keys=_less(keys, name))
    for name in dict.fromkeys(name for row in jobs for name in row):
        if name not in ("job_id", "arrival_s", "gpus", "duration_s"):
            yield replace(world, jobs=[_less(row, name) for row in jobs])
    for name, least in (("gpus", 1), ("duration_s", 1.0), ("arrival_s", 0.0)):
        for i, row in enumerate(jobs):
            if row[name] != least:
                yield replace(world, jobs=[*jobs[:i], {**row, name: least}, *jobs[i + 1 :]])
    narrower = [{**row, "gpus": max(row["gpus"] - 1, 1)} for row in jobs]
    for name in ("servers", "gpu_types"):
        for rows in _fewer(keys[name]):
            yield replace(world, cluster_keys={**keys, name: rows})
            if name == "servers" and narrower != jobs:
                yield replace(world, cluster_keys={**keys, name: rows}, jobs=narrower)


def _fewer(rows: list[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    """Yield copies of a cluster's rows: without a row, with a smaller number, or without a key.

    Two groups of identical servers are merged.
    """
    for i, row in enumerate(rows):
        before, after = rows[:i], rows[i + 1 :]
        if len(rows) > 1:
            yield before + after
        for j, other in enumerate(after):
            if "count" in row and _less(row, "count") == _less(other, "count"):
                whole = {**row, "count": row["count"] + other["count"]}
                yield [*before, whole, *after[:j], *after[j + 1 :]]
        for name in ("count", "gpus"):
            if row.get(name, 1) > 1:
                yield [*before, {**row, name: row[name] - 1}, *after]
        for name in ("speed", "price_per_hour"):
            if name in row:
                yield [*before, _less(row, name), *after]


def _less(row: dict[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in row.items() if key != name}
