"""Converts worlds of `gangline.testing.strategies` into the format of tests/scenarios."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gangline.testing import strategies

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

    from gangline.testing import World

TIERS = ("server", "rack", "network")
TABLES = ("network", "sharing", "throughput", "iter_time", "elastic", "runtime")


def scenario(world: World) -> dict[str, Any]:
    """Return the world in the form of scenarios, with the tables next to the cluster.

    GPU types without a price cost 1: `gavel-cost` refuses them.
    """
    cluster = dict(world.cluster_keys)
    cluster["gpu_types"] = [{"price_per_hour": 1.0, **row} for row in cluster["gpu_types"]]
    tables = {name: cluster.pop(name) for name in TABLES if name in cluster}
    levels = tables.get("network", {}).get("levels")
    if levels is not None:
        del tables["network"]
        tables["locality"] = {
            label: dict(zip(TIERS, row, strict=True)) for label, row in levels.items()
        }
    return {"cluster": cluster, "jobs": world.jobs, "run": world.options, **tables}


def worlds(*, checkpoints: bool = True) -> SearchStrategy[dict[str, Any]]:
    """Draw whole worlds; `checkpoints=False` excludes what can make a preemptive run endless."""
    return strategies.worlds(checkpoints=checkpoints, random_failures=True).map(scenario)


def crowded() -> SearchStrategy[dict[str, Any]]:
    return strategies.contended_worlds().map(scenario)


def sharing_worlds() -> SearchStrategy[dict[str, Any]]:
    return strategies.sharing_worlds().map(scenario)


def iteration_worlds() -> SearchStrategy[dict[str, Any]]:
    return strategies.iteration_worlds().map(scenario)


def elastic_worlds() -> SearchStrategy[dict[str, Any]]:
    return strategies.elastic_worlds(checkpoints=True).map(scenario)
