"""Tests sweeps whose processes are killed at random: nothing is lost or repeated.

`make test` kills a few times; `make soak` kills each kind of process a hundred times.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, TypeVar

import psutil  # comes with distributed
import pytest

from gangline.studies.sweep import sweep
from gangline.studies.sweep.plan import read_plan
from unit.studies.test_sweep import SYNTH, settled, write_policies

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

KILLS = int(os.environ.get("GANGLINE_SWEEP_KILLS", "3"))
RUNS = 150  # the runs of one sweep, after which another one begins
PATIENCE_S = 180.0

T = TypeVar("T")


class Store:
    """The results of killed sweeps; each look must find all earlier results."""

    def __init__(self, folder: Path, policies: str, jobs: int = 300) -> None:
        self.out = folder / "out"
        self.spec = folder / "killed.toml"
        self.kills = 0
        self._known: dict[str, int] = {}
        self._policies, self._jobs = policies, jobs
        self._draw = random.Random(KILLS)
        self._begin(0)

    def _begin(self, sweep: int) -> None:
        """Describe new runs."""
        seeds = list(range(RUNS * sweep, RUNS * (sweep + 1)))
        self.sweep = sweep
        self.spec.write_text(
            f'[grid]\ntrace = ["{SYNTH.replace("jobs=20", f"jobs={self._jobs}")}"]\n'
            f'trace_seed = {seeds}\ncluster = ["pollux-64"]\npolicy = ["{self._policies}"]\n'
        )

    def look(self) -> int:
        """Return how many results there are; the inode tells a folder that was written anew."""
        there = {
            path.name: path.stat().st_ino for path in self.out.glob("runs/*") if path.name[0] != "."
        }
        assert self._known.items() <= there.items(), "a finished run was lost or repeated"
        self._known = there
        return len(there)

    def wait(self, process: subprocess.Popen[bytes]) -> bool:
        """Wait for another result and a moment; return whether the sweep still runs."""
        before, deadline = self.look(), time.monotonic() + PATIENCE_S
        while self.look() == before and process.poll() is None:
            assert time.monotonic() < deadline, "no run was finished"
            time.sleep(0.02)
        time.sleep(self._draw.uniform(0.0, 0.3))
        return process.poll() is None

    def pick(self, among: Sequence[T]) -> T:
        """Draw one of several items."""
        return self._draw.choice(among)

    def end(self, code: int) -> None:
        """Check a sweep that ended by itself, and describe the next one."""
        if code == 3:  # a run under which processes were killed twice is recorded, and tried again
            failed = json.loads((self.out / "failed.json").read_text())
            assert {run["error"] for run in failed} == {"ProcessDied"}
            return
        assert code == 0
        plan = read_plan(self.spec)
        self.look()
        assert {plan.spec(i).digest for i in range(len(plan))} <= self._known.keys()
        self._begin(self.sweep + 1)

    def check(self, folder: Path) -> None:
        """Finish the last sweep, and compare it with one that nothing disturbed."""
        assert self.look(), "nothing was done: the test looks at nothing"
        done = sweep(self.spec, out=self.out, workers=2)
        self.look()
        sweep(self.spec, out=folder / "whole", workers=2)
        for entry in done.runs:
            (folder / "some" / "runs").mkdir(parents=True, exist_ok=True)
            digest = entry["digest"]
            shutil.copytree(self.out / "runs" / digest, folder / "some" / "runs" / digest)
        assert settled(folder / "some") == settled(folder / "whole")


def start(module: str, *words: str, errors: Path | None = None) -> subprocess.Popen[bytes]:
    nowhere = subprocess.DEVNULL
    command = [sys.executable, "-m", module, *words]
    if errors is None:
        return subprocess.Popen(command, stdout=nowhere, stderr=nowhere)
    with errors.open("wb") as file:
        return subprocess.Popen(command, stdout=nowhere, stderr=file)


def sweeping(store: Store, *words: str, errors: Path | None = None) -> subprocess.Popen[bytes]:
    command = ("sweep", str(store.spec), "--out", str(store.out), "--workers", "2", *words)
    return start("gangline", *command, errors=errors)


def test_a_killed_sweep_goes_on_and_repeats_nothing(tmp_path: Path) -> None:
    store = Store(tmp_path, "las")
    while store.kills < KILLS:
        process = sweeping(store)
        if store.wait(process):
            process.kill()
            process.wait()
            store.kills += 1
        else:
            store.end(process.returncode)
    one, other = sweeping(store), sweeping(store)  # two at once do no harm
    assert (one.wait(), other.wait()) == (0, 0)
    store.check(tmp_path)


def workers_of(parent: int) -> list[psutil.Process]:
    """Return the worker processes of a sweep, without the helper process of Python."""
    found = []
    for process in psutil.Process(parent).children():
        with suppress(psutil.Error):  # it ended meanwhile
            if any("spawn_main" in word for word in process.cmdline()):
                found.append(process)
    return found


def test_a_killed_worker_costs_no_run_and_workers_follow_their_parent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_policies(tmp_path, monkeypatch, "sweepkilled")
    store = Store(tmp_path, "sweepkilled:Own", jobs=100)
    process = sweeping(store)
    while store.kills < KILLS:
        if not store.wait(process):
            store.end(process.returncode)
            process = sweeping(store)
            continue
        left = workers_of(process.pid)
        if left and store.kills % 10 == 1:
            process.kill()
            process.wait()
            _, outliving = psutil.wait_procs(left, PATIENCE_S)
            assert not outliving, "workers outlive their parent"
            process = sweeping(store)
        elif left:
            store.pick(left).kill()
        store.kills += bool(left)
    assert process.wait() in (0, 3)
    store.check(tmp_path)


@contextmanager
def dask_cluster(
    folder: Path, workers: int
) -> Iterator[tuple[str, subprocess.Popen[bytes], Callable[[], subprocess.Popen[bytes]]]]:
    """Yield the address of a Dask cluster, its scheduler, and what starts one more worker."""
    place = folder / "scheduler.json"
    place.unlink(missing_ok=True)
    words = ("--scheduler-file", str(place))
    started = [
        start("distributed.cli.dask_scheduler", "--port", "0", "--no-dashboard", *words),
    ]

    def more() -> subprocess.Popen[bytes]:
        words_of_one = ("--nthreads", "1", "--no-nanny", "--no-dashboard")
        started.append(start("distributed.cli.dask_worker", *words, *words_of_one))
        return started[-1]

    try:
        for _ in range(workers):
            more()
        deadline = time.monotonic() + PATIENCE_S
        while not (place.exists() and place.stat().st_size):
            assert time.monotonic() < deadline, "no scheduler"
            time.sleep(0.02)
        yield json.loads(place.read_text())["address"], started[0], more
    finally:
        for one in started:
            one.kill()
            one.wait()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_a_killed_dask_worker_costs_no_run(tmp_path: Path) -> None:
    from distributed import Client

    store = Store(tmp_path, "las")
    with dask_cluster(tmp_path, 0) as (address, _, more), Client(address) as client:
        workers = [more() for _ in range(4)]
        process = sweeping(store, "--executor", "dask", "--address", address)
        while store.kills < KILLS:
            client.wait_for_workers(3, PATIENCE_S)
            if store.wait(process) and store.kills % 10 == 1:
                process.kill()
                process.wait()
                process = sweeping(store, "--executor", "dask", "--address", address)
                store.kills += 1
            elif process.poll() is None:
                victim = store.pick(range(4))
                workers[victim].kill()
                workers[victim].wait()
                workers[victim] = more()
                store.kills += 1
            else:
                store.end(process.returncode)
                process = sweeping(store, "--executor", "dask", "--address", address)
        assert process.wait() in (0, 3)
    store.check(tmp_path)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_a_killed_dask_scheduler_ends_the_sweep_and_loses_no_run(tmp_path: Path) -> None:
    store = Store(tmp_path, "las")
    errors = tmp_path / "errors.txt"
    while store.kills < KILLS:
        with dask_cluster(tmp_path, 2) as (address, scheduler, _):
            process = sweeping(store, "--executor", "dask", "--address", address, errors=errors)
            if store.wait(process):
                scheduler.kill()
                if process.wait(PATIENCE_S) == 2:
                    *progress, said = errors.read_text().splitlines()
                    assert all(line.startswith("killed: ") for line in progress)
                    assert "the connection to the Dask scheduler tcp://" in said
                    store.kills += 1
                    continue
            store.end(process.returncode)
    store.check(tmp_path)
