"""Compares a run's table of slowdown factors with the slow simulator, which looks up each pair."""

from __future__ import annotations

import json
import math
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import gangline as gl
import reference
from gangline.trace.jobs.to_core import pairs_of
from parity.harness import trace_of
from reference.sharing import Rates
from reference.world import Job, read_jobs, read_servers, read_types

LABELS = ["a", "b", "c"]
TYPES = ["v", "k"]
VALUES = st.sampled_from([0.0, 0.9, 1.0, 1.5, 2.0, math.nan, -1.0])
GANGS = st.sampled_from([1, 1, 2, 4])
BATCHES = st.sampled_from([None, 8, 16])


@st.composite
def rows(draw: st.DrawFn) -> dict[str, Any]:
    """Draw a table with some blank keys."""
    found = {}
    for _ in range(draw(st.integers(1, 30))):
        row: dict[str, Any] = {
            "model": draw(st.sampled_from(LABELS)),
            "co_model": draw(st.sampled_from(LABELS)),
        }
        if draw(st.booleans()):
            row["gpu_type"] = draw(st.sampled_from(TYPES))
        if draw(st.booleans()):
            row["gpus"] = draw(GANGS)
        if draw(st.integers(0, 2)) == 0:
            row |= {"batch_size": draw(st.sampled_from([8, 16]))}
            row |= {"co_batch_size": draw(st.sampled_from([8, 16]))}
        found[tuple(sorted(row.items()))] = row | {"xi": draw(VALUES)}
    return {"interference": "table", "rows": list(found.values())}


@st.composite
def rates(draw: st.DrawFn) -> dict[str, Any]:
    """Draw measured rates of pairs, with zeros and gaps."""
    speeds = st.sampled_from([0.0, 2.0, 3.0, 4.0])
    keys = [(label, gpus) for label in LABELS for gpus in (1, 2)]
    table: dict[str, Any] = {}
    for kind in [*TYPES, "v_unconsolidated"]:
        for key in keys if kind == "v" or draw(st.booleans()) else keys[:2]:
            cell = {"null": draw(speeds)}
            for other in keys:
                if draw(st.integers(0, 3)):
                    cell[str(other)] = [draw(speeds), draw(speeds)]
            table.setdefault(kind, {})[str(key)] = cell
    return {"interference": "gavel", "throughputs": table}


@st.composite
def squares(draw: st.DrawFn) -> dict[str, Any]:
    cells = [[draw(VALUES) for _ in LABELS] for _ in LABELS]
    symmetric = draw(st.booleans())
    for i in range(len(LABELS) if symmetric else 0):
        for j in range(i):
            cells[i][j] = cells[j][i]
    return {
        "interference": "matrix",
        "models": LABELS,
        "matrix": cells,
        "symmetric": symmetric,
    }


@st.composite
def utils(draw: st.DrawFn) -> dict[str, Any]:
    values = st.floats(0.01, 1.0)
    util = {
        label: draw(values) for label in sorted(draw(st.sets(st.sampled_from(LABELS), min_size=1)))
    }
    return {"interference": "analytic", "util": util, "kappa": draw(st.sampled_from([0.05, 0.0]))}


@st.composite
def worlds(draw: st.DrawFn) -> dict[str, Any]:
    """Draw jobs with known, unknown and no labels, and any source except the constant one."""
    sharing = draw(st.one_of(rows(), rates(), squares(), utils()))
    sharing["missing"] = draw(st.sampled_from(["error", "constant", "infeasible"]))
    if sharing["missing"] == "constant":
        sharing["xi"] = 1.25
    if sharing["interference"] in ("table", "gavel"):
        sharing["gang_fallback"] = draw(st.sampled_from(["single", "infeasible"]))
    jobs = []
    for i in range(draw(st.integers(1, 8))):
        row: dict[str, Any] = {
            "job_id": f"j{i}",
            "arrival_s": 0.0,
            "duration_s": 1.0,
            "gpus": draw(GANGS),
            "model": draw(st.sampled_from([*LABELS, "x", "y", None])),
            "batch_size": draw(BATCHES),
        }
        if draw(st.integers(0, 3)) == 0:
            row["gpu_types"] = [draw(st.sampled_from(TYPES))]
        jobs.append(row)
    cluster = {
        "gpu_types": [{"name": name, "memory_gb": 16} for name in TYPES],
        "servers": [{"count": 1, "gpu": name, "gpus": 4} for name in TYPES],
    }
    return {"cluster": cluster, "jobs": jobs, "sharing": sharing}


def cluster_of(world: dict[str, Any]) -> gl.Cluster:
    """Return the cluster of a world; measured rates are read from a file."""
    sharing = dict(world["sharing"])
    given = sharing.pop("throughputs", None)
    if given is None:
        return gl.Cluster.from_dict({**world["cluster"], "sharing": sharing})
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rates.json"
        path.write_text(json.dumps(given))
        sharing["table"] = str(path)
        return gl.Cluster.from_dict({**world["cluster"], "sharing": sharing})


def jobs_of(world: dict[str, Any]) -> tuple[Rates, list[Job]]:
    types = read_types(world)
    servers = read_servers(world, types)
    return Rates(world, types, servers), read_jobs(world, types, servers)


@given(world=worlds())
def test_every_pair_has_the_factor_that_its_source_says(world: dict[str, Any]) -> None:
    try:
        cluster = cluster_of(world)
    except gl.ClusterError as error:  # the file has only pairs of unlike gangs, or no pairs
        assert "rows for any of" in str(error)
        return
    rates, jobs = jobs_of(world)
    pairs = pairs_of(trace_of(world), cluster)
    assert pairs is not None
    assert pairs.of_job is not None
    absent: set[tuple[str, str]] = set()
    for one in jobs:
        for other in jobs:
            for t in sorted(set(one.base) & set(other.base)) if one is not other else ():
                xi = pairs.xi[t, pairs.of_job[one.index], pairs.of_job[other.index]]
                try:
                    wanted = rates.one_way(one, other, t) if rates.can_pair(one, other, t) else None
                except reference.ClusterError:
                    assert math.isnan(xi)
                    continue
                assert math.isnan(xi) if wanted is None else xi == wanted
    for one, other, _ in rates.interference.absent(jobs):
        absent.add((one.model or "(no model)", other.model or "(no model)"))
    found = [(one, other.partition(" on ")[0]) for one, other in pairs.absent]
    assert set(found) <= absent
    assert len(set(found)) == len(found) == min(21, len(absent))
    assert pairs.clamped == rates.interference.clamped


@given(world=worlds())
def test_what_a_run_takes_is_refused_alike(world: dict[str, Any]) -> None:
    """The engine refuses what the slow simulator refuses, before the run."""
    try:
        cluster = cluster_of(world)
    except gl.ClusterError:
        return
    try:
        reference.Reference(world, "toy-share")
    except reference.ClusterError as error:
        with pytest.raises(gl.ClusterError) as caught:
            gl.simulate(cluster, trace_of(world), "toy-share")
        assert ("; and more" in str(caught.value)) == (len(error.facts["pairs"]) > 20)
        return
    assert gl.simulate(cluster, trace_of(world), "toy-share").summary["finished"] > 0
