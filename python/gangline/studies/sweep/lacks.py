"""Finds, before the first run, data that a sweep's policies need but its worlds lack."""

from __future__ import annotations

import re
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from gangline._support.formatting import listed
from gangline.cluster.node_lists.notes import lines
from gangline.errors import GanglineError
from gangline.runs.premises import lacks, merged, premises
from gangline.runs.slurm_names import unused

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gangline.runs.execution import Worlds
    from gangline.runs.premises import Lack
    from gangline.runs.spec import RunSpec
    from gangline.trace.jobs.table import Trace

__all__ = ["lacks_of", "names_of", "notes_of"]

_SEED = re.compile(r"(?<=[?&])seed=\d+")


def lacks_of(specs: Iterable[RunSpec], worlds: Worlds) -> list[Lack]:
    """Return the data that the runs lack, with one entry per mechanism.

    An entry names the clusters to which it applies, unless these are all clusters.
    Each policy is checked once on each cluster, with the first seed of each trace. A trace is read
    only if a policy declares what it needs.
    """
    found: dict[tuple[str, int, str], tuple[str, list[Lack]]] = {}
    clusters: dict[int, tuple[str, object]] = {}  # keeps the clusters, so that no `id` is reused
    for spec in specs:
        lab = str(spec.cluster["name"])
        clusters[id(spec.cluster)] = lab, spec.cluster
        key = (spec.policy.text, id(spec.cluster), _SEED.sub("", spec.trace.source))
        if key in found or spec.policy.python:
            continue
        chosen = spec.policy.resolve()
        found[key] = lab, []
        if premises(chosen):
            drops = spec.options.get("on_infeasible") == "drop"
            jobs: Trace | None = None
            with suppress(GanglineError):  # if a trace cannot be read, its runs report why
                jobs = worlds.trace(spec.trace)
            found[key] = lab, lacks(spec.build_cluster(), jobs, [chosen], drops=drops)
    everywhere = {lab for lab, _ in clusters.values()}
    where: dict[Lack, list[str]] = {}
    for lab, of in found.values():
        for lack in of:
            labs = where.setdefault(lack, [])
            labs += [lab] if lab not in labs else []
    return merged(
        lack if set(labs) == everywhere else lack._replace(what=f"{lack.what} (on {listed(labs)})")
        for lack, labs in where.items()
    )


def names_of(specs: Iterable[RunSpec], worlds: Worlds) -> list[str]:
    """Return sentences about names in the `slurm` tables that match no job in the trace.

    Each policy is checked once, with the first draw of each trace.
    """
    seen: set[tuple[str, str]] = set()
    found: dict[str, None] = {}
    for spec in specs:
        key = (spec.policy.text, _SEED.sub("", spec.trace.source))
        if key in seen or spec.policy.python:
            continue
        seen.add(key)
        chosen = spec.policy.resolve()
        if chosen.policy == "slurm":
            with suppress(GanglineError):  # if a trace cannot be read, its runs report why
                found.update(dict.fromkeys(unused(chosen, worlds.trace(spec.trace))))
    return list(found)


def notes_of(specs: Iterable[RunSpec]) -> list[str]:
    """Return the notes on the clusters; a note that not all clusters have names its clusters."""
    clusters = {id(spec.cluster): spec.cluster for spec in specs}
    where: dict[str, list[str]] = {}
    for cluster in clusters.values():
        notes: Any = cluster.get("notes", {})
        for line in lines(notes):
            where.setdefault(line, []).append(str(cluster["name"]))
    return [
        line if len(labs) == len(clusters) else f"{line} (on {listed(list(dict.fromkeys(labs)))})"
        for line, labs in where.items()
    ]
