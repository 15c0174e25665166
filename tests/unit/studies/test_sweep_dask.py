"""Tests sweeps on a Dask cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING

import distributed
import pytest

from gangline.errors import OptionError
from gangline.studies.sweep import sweep
from refusals import refused
from unit.studies.test_sweep import GRID, settled

if TYPE_CHECKING:
    from pathlib import Path

    from snapshots import Snapshot


@pytest.mark.filterwarnings("ignore")
def test_dask_gives_the_same_bytes(tmp_path: Path) -> None:
    sweep({"grid": GRID}, out=tmp_path / "here", workers=1)
    done = sweep({"grid": GRID}, out=tmp_path / "dask", executor="dask", workers=2)
    assert done.counts == {"runs": 4, "new": 4, "finished": 4, "failed": 0}
    assert settled(tmp_path / "here") == settled(tmp_path / "dask")


@pytest.mark.filterwarnings("ignore")
def test_a_cluster_that_runs_already_is_used(tmp_path: Path) -> None:
    with distributed.LocalCluster(2, threads_per_worker=1, dashboard_address=None) as cluster:
        address = cluster.scheduler_address
        done = sweep({"grid": GRID}, out=tmp_path, executor="dask", address=address)
    assert done.counts["finished"] == 4


@pytest.mark.parametrize("address", ["nonsense", "", "tcp://HOST"])
def test_an_address_that_is_none_is_refused(
    tmp_path: Path, address: str, snapshot: Snapshot
) -> None:
    with refused(OptionError, snapshot):
        sweep({"grid": GRID}, out=tmp_path, executor="dask", address=address)


def test_an_address_without_dask_is_refused(tmp_path: Path) -> None:
    with refused(OptionError, field="address", value="tcp://127.0.0.1:8786"):
        sweep({"grid": GRID}, out=tmp_path, address="tcp://127.0.0.1:8786")
