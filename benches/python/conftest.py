"""Traces and clusters of the end-to-end benchmarks, made once per session."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

import workload  # noqa: E402

import gangline as gl  # noqa: E402

SERVERS, GPUS_PER_SERVER = 2_000, 8


@pytest.fixture(scope="session")
def trace_path(tmp_path_factory):
    """A function from (jobs, load) to a native Parquet trace."""
    folder = tmp_path_factory.mktemp("traces")

    def make(jobs: int, load: str) -> Path:
        path = folder / f"{load}-{jobs}.parquet"
        if not path.exists():
            gpus = SERVERS * GPUS_PER_SERVER
            workload.write_parquet(workload.philly_like(jobs, gpus, workload.OFFERED[load]), path)
        return path

    return make


@pytest.fixture(scope="session")
def lab() -> gl.Cluster:
    """The cluster of the synthetic workload."""
    return gl.Cluster.homogeneous(servers=SERVERS, gpus=GPUS_PER_SERVER, gpu="GPU")


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of public traces, or a skip."""
    root = HERE.parent.parent
    places = [os.environ.get("GANGLINE_SHARED"), root.parent / "shared", root / "shared"]
    for place in places:
        if place and Path(place).is_dir():
            return Path(place)
    pytest.skip("the public traces (shared/) are not here")
