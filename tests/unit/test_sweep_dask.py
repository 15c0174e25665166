"""Sweeps on a Dask cluster."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import distributed
import pytest

from gangline.sweep import sweep
from unit.test_sweep import GRID, KILLS, SYNTH, settled

if TYPE_CHECKING:
    from pathlib import Path


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


def _start(module: str, *words: str) -> subprocess.Popen[bytes]:
    nowhere = subprocess.DEVNULL
    return subprocess.Popen([sys.executable, "-m", module, *words], stdout=nowhere, stderr=nowhere)


def _finished(out: Path) -> dict[Path, int]:
    return {path: path.stat().st_ino for path in out.glob("runs/*") if path.name[0] != "."}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_a_killed_worker_and_a_killed_scheduler_lose_no_run(tmp_path: Path) -> None:
    draw = random.Random(3)
    spec, out, place = tmp_path / "dask.toml", tmp_path / "out", tmp_path / "scheduler.json"
    spec.write_text(
        f'[grid]\ntrace = ["{SYNTH.replace("20", "300")}"]\n'
        f'trace_seed = {list(range(100 * KILLS))}\ncluster = ["pollux-64"]\npolicy = ["las"]\n'
    )
    known: dict[Path, int] = {}
    for kill in range(KILLS):
        scheduler = _start("distributed.cli.dask_scheduler", "--port", "0", "--no-dashboard",
                           "--scheduler-file", str(place))  # fmt: skip
        words = ("--scheduler-file", str(place), "--nthreads", "1", "--no-nanny")
        workers = [_start("distributed.cli.dask_worker", *words) for _ in range(4)]
        while not place.exists():
            time.sleep(0.02)
        address = json.loads(place.read_text())["address"]
        command = ("sweep", str(spec), "--out", str(out), "--executor", "dask")
        process = _start("gangline", *command, "--address", address)
        deadline = time.monotonic() + 120
        while not _finished(out).keys() - known.keys() and process.poll() is None:
            assert time.monotonic() < deadline, "no run was finished in two minutes"
            time.sleep(0.05)
        time.sleep(draw.uniform(0.0, 1.0))
        victim = [scheduler, workers[0], process][kill % 3]
        victim.kill()
        time.sleep(1.0)
        for one in (process, *workers, scheduler):
            one.kill()
            one.wait()
        place.unlink()
        there = _finished(out)
        assert known.items() <= there.items(), "a finished run was lost or repeated"
        known = there
    assert known, "nothing was done: the test looks at nothing"
    done = sweep(spec, out=out, workers=2)
    assert done.counts["finished"] == 100 * KILLS
