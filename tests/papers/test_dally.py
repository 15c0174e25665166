"""Checks Dally's main claim: on a slow network, waiting for a narrow place pays.

The tests compare means over ten seeds, each with its tolerance.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import gangline as gl

SEEDS = range(10)
MODES = ("auto", "manual", "no_wait", "fully_consolidated")
# The margin is a tenth: the ten means differ by a third and more, but not in every seed.
CLEARLY = 0.9


def cluster(network: str) -> gl.Cluster:
    data = gl.Cluster.preset("dally-2024-small").to_dict()
    return gl.Cluster.from_dict({**data, "name": network, "network": {"preset": network}})


def jobs(seed: int) -> pa.Table:
    """Return 150 jobs that need more than 128 GPUs; all of them lose much by distance."""
    table = gl.synth.dally_poisson(jobs=150, seed=seed, max_gpus=16, mean_gap_s=1500.0).table
    models = ["MobileNetV3" if i % 2 else "ResNet18" for i in range(len(table))]
    place = table.column_names.index("model")
    return table.set_column(place, "model", pa.array(models))


def means(network: str, column: str) -> dict[str, float]:
    """Return the mean of a column of the jobs table, by mode."""
    description = cluster(network)

    def one(mode: str, table: pa.Table) -> Any:
        result = gl.simulate(description, table, "dally", params={"mode": mode}, timeline="off")
        return np.mean(result.jobs[column].to_numpy())

    tables = [jobs(seed) for seed in SEEDS]
    return {mode: float(np.mean([one(mode, table) for table in tables])) for mode in MODES}


@pytest.mark.slow
def test_waiting_saves_communication_where_distance_is_dear() -> None:
    lost = means("dally-2024", "comm_s")
    assert lost["auto"] < CLEARLY * lost["no_wait"]
    assert lost["fully_consolidated"] < CLEARLY * lost["no_wait"]
    assert lost["fully_consolidated"] < lost["auto"]


@pytest.mark.slow
def test_waiting_is_a_loss_where_distance_is_free() -> None:
    waited = means("ideal", "wait_s")
    assert all(waited["no_wait"] < waited[mode] for mode in MODES if mode != "no_wait")
    assert set(means("ideal", "comm_s").values()) == {0.0}
