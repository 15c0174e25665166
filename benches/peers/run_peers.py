"""Runs the same workload in gangline and its peers, and compares averages and times.

    python benches/peers/run_peers.py [--max-jobs 10000] [--published FOLDER] [--write]

Runs every available peer, and says which are not available and why. Prints one line per comparison;
the exit code is 1 if a result is not the expected one. `--write` keeps the numbers for
docs/comparison.md. See README.md next to this file.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import venv
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
ENVIRONMENT = ROOT / "target" / "peers"
KEPT = ROOT / "benches" / "studies" / "peers.json"
NO_BYTECODE = "PYTHONDONTWRITEBYTECODE"
sys.path.insert(0, str(HERE.parent))

import workload  # noqa: E402

CLUSTER_TOML = """\
name = "peer"
[[gpu_types]]
name = "GPU"
memory_gb = 16
[[servers]]
count = {servers}
gpu = "GPU"
gpus = {gpus}
rack = 0
"""


@dataclass(frozen=True)
class World:
    """One comparison: a workload, a cluster and a policy."""

    jobs: int
    servers: int
    load: str
    policy: str
    gpus_per_server: int = 8

    @property
    def name(self) -> str:
        """The label of the row."""
        return f"{self.policy} {self.jobs} jobs {self.servers} servers {self.load}"


# Contended worlds show that both do the same. The light ones on the published cluster are quick
# enough to run AccaSim with 100,000 jobs; when saturated, its cost per event grows with the queue.
AGREEMENT = tuple(
    World(10_000, 125, "saturated", policy) for policy in ("fifo", "fifo-skip", "sjf", "sjf-strict")
)
SPEED = (
    World(10_000, 2_000, "saturated", "fifo"),
    World(10_000, 2_000, "light", "fifo"),
    World(100_000, 2_000, "light", "fifo"),
)


def environment() -> Path:
    """Return the interpreter of the peers' own environment, which is made on first use."""
    wanted = (HERE / "requirements.txt").read_text()
    stamp = ENVIRONMENT / "requirements.txt"
    python = ENVIRONMENT / "bin" / "python"
    if not stamp.exists() or stamp.read_text() != wanted:
        venv.create(ENVIRONMENT, with_pip=True)
        # Dependencies are off, because the file names all of them and pybatsim asks for a pyzmq
        # without a wheel for this machine.
        install = [str(python), "-m", "pip", "install", "--quiet", "--no-deps", "--requirement"]
        subprocess.run([*install, str(HERE / "requirements.txt")], check=True)
        stamp.write_text(wanted)
    return python


def timed_process(command: list[str]) -> tuple[str, float, float]:
    """Return the standard output, CPU seconds and wall seconds of one process with its children."""
    # a user's second run finds compiled modules, even if this shell forbids writing them
    kept = {name: value for name, value in os.environ.items() if name != NO_BYTECODE}
    with tempfile.TemporaryFile() as out:
        start = time.perf_counter()
        process = subprocess.Popen(command, stdout=out, env=kept)
        _, status, usage = os.wait4(process.pid, 0)
        wall = time.perf_counter() - start
        process.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        text = out.read().decode()
    if process.returncode != 0:
        raise RuntimeError(f"exit code {process.returncode}: {' '.join(command)}")
    return text, usage.ru_utime + usage.ru_stime, wall


def run_ours(world: World, folder: Path, repeats: int = 3) -> dict[str, Any]:
    """Time `gangline run` from process start to the result on disk; return the median of a few."""
    gangline = Path(sys.executable).with_name("gangline")
    runs = []
    for repeat in range(repeats):
        command = [str(gangline), "run", "--trace", str(folder / "jobs.parquet"), "--json"]
        command += ["--cluster", str(folder / "cluster.toml"), "--policy", world.policy]
        command += ["--set", "placement=count", "--out", str(folder / f"ours-{repeat}")]
        _, cpu, _ = timed_process(command)
        summary = json.loads((folder / f"ours-{repeat}" / "summary.json").read_text())
        runs.append((cpu, summary))
    runs.sort(key=lambda run: run[0])
    summary = runs[repeats // 2][1]
    return {
        "wait_mean_s": summary["wait_mean_s"],
        "last_finish_s": summary["makespan_s"] + 1.0,
        "slowdown_mean": mean_rounded_slowdown(folder / "ours-0" / "jobs.parquet"),
        "process_cpu_s": runs[repeats // 2][0],
        "loop_cpu_s": sorted(run[1]["wall_s"] for run in runs)[repeats // 2],
    }


def mean_rounded_slowdown(path: Path) -> float:
    """Return the mean of the slowdowns, each rounded to two digits as AccaSim does."""
    import pyarrow.parquet as pq

    column = pq.read_table(path, columns=["slowdown"]).column("slowdown").to_pylist()
    return sum(float(f"{slowdown:.2f}") for slowdown in column) / len(column)


def run_accasim(world: World, folder: Path) -> dict[str, Any]:
    """Run AccaSim without its result files, which is its fastest mode."""
    script = str(HERE / "accasim" / "peer.py")
    shape = [str(world.servers), str(world.gpus_per_server)]
    command = [str(environment()), script, str(folder / "jobs.swf"), *shape, world.policy]
    text, cpu, _ = timed_process(command)
    return {**json.loads(text), "process_cpu_s": cpu}


def compare(world: World, *, only_ours: bool = False) -> dict[str, Any]:
    """Run both in one world."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        gpus = world.servers * world.gpus_per_server
        jobs = workload.philly_like(world.jobs, gpus, workload.OFFERED[world.load]).whole_seconds()
        workload.write_parquet(jobs, folder / "jobs.parquet")
        workload.write_swf(jobs, folder / "jobs.swf")
        toml = CLUSTER_TOML.format(servers=world.servers, gpus=world.gpus_per_server)
        (folder / "cluster.toml").write_text(toml)
        ours = run_ours(world, folder)
        peer = None if only_ours else run_accasim(world, folder)
    return {"world": world.name, "gangline": ours, "accasim": peer}


def agree(row: dict[str, Any]) -> bool:
    """Return whether averages are equal, up to the last digits of sums in another order."""
    keys = ("wait_mean_s", "last_finish_s", "slowdown_mean")
    ours, peer = row["gangline"], row["accasim"]
    return all(abs(ours[key] - peer[key]) <= 1e-9 * max(1.0, abs(peer[key])) for key in keys)


NAMES = {
    "fifo": "FirstInFirstOut",
    "fifo-skip": "FirstInFirstOut, skipping",
    "sjf": "ShortestJobFirst, skipping",
    "sjf-strict": "ShortestJobFirst",
}
NOT_RUN = {
    "Blox": "no index has it as a package, and no results of it are at hand",
    "Sia": "no index has it as a package, and no results of it are at hand",
    "ArtISt-sim": "no index has it as a package, and it calls ASTRA-sim, built from source",
    "CQSim": "no index has it as a package, and no results of it are at hand",
    "OpenDC": "it is a JVM program of virtual machines and tasks, not of gangs",
    "Batsim": "it is built from source with SimGrid; only its decision side, pybatsim, is run",
}
"""Why a peer of docs/comparison.md is left out."""


def accasim(max_jobs: int) -> Iterator[dict[str, Any]]:
    """Yield the rows of AccaSim."""
    for world in AGREEMENT + SPEED:
        if world.jobs > max_jobs:
            continue
        row = compare(world)
        ours, peer = row["gangline"], row["accasim"]
        gpus = world.servers * world.gpus_per_server
        same = agree(row)
        yield {
            "peer": "AccaSim 1.1.3",
            "theirs": NAMES[world.policy],
            "ours": world.policy,
            "world": f"{world.jobs:,} jobs, {gpus:,} GPUs, {world.load}",
            "measure": "mean wait",
            "values": [peer["wait_mean_s"], ours["wait_mean_s"]],
            "same": "all three averages" if same else "averages differ",
            "times_cpu": peer["process_cpu_s"] / ours["process_cpu_s"],
            "as_expected": same,
        }


def pybatsim() -> Iterator[dict[str, Any]]:
    """Yield the rows of schedulers for Batsim."""
    from batsim import peer

    for world in peer.WORLDS:
        yield peer.compare(world, environment())


def published(folder: Path | None) -> Iterator[dict[str, Any]]:
    """Yield the rows of the simulators whose published results are read."""
    import published as public

    if folder is None or not (folder / "peers").is_dir():
        raise FileNotFoundError("--published FOLDER has no `peers`")
    yield from public.gavel(folder)
    yield from public.tiresias(folder)


def show(row: dict[str, Any]) -> None:
    """Print one comparison."""
    theirs, ours = row["values"]
    cpu = "" if row["times_cpu"] is None else f", {row['times_cpu']:.0f} times our CPU time"
    verdict = "" if row["as_expected"] else ": NOT WHAT IT SHOULD BE"
    print(
        f"{row['peer']:17} {row['theirs']} / {row['ours']}, {row['world']}: {row['measure']} "
        f"{theirs:,.4f} / {ours:,.4f} s, {row['same']}{cpu}{verdict}",
        flush=True,
    )


def keep(rows: list[dict[str, Any]]) -> None:
    """Keep the numbers of the peers that ran; those of other peers do not change."""
    ran = {row["peer"] for row in rows}
    old = json.loads(KEPT.read_text("utf-8"))["rows"] if KEPT.exists() else []
    fresh = [{key: row[key] for key in row if key != "as_expected"} for row in rows]
    every = [row for row in old if row["peer"] not in ran] + fresh
    for row in every:
        row["values"] = [round(value, 4) for value in row["values"]]
        row["times_cpu"] = row["times_cpu"] and round(row["times_cpu"])
    every.sort(key=lambda row: str(row["peer"]))
    lines = ",\n".join(json.dumps(row) for row in every)
    KEPT.write_text('{"rows": [\n' + lines + "\n]}\n", "utf-8")


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--max-jobs", type=int, default=100_000, help="leave out larger worlds")
    parser.add_argument("--published", type=Path, help="folder with results of Gavel and Tiresias")
    parser.add_argument("--write", action="store_true", help="keep the numbers for the docs")
    arguments = parser.parse_args()
    peers = {
        "AccaSim": lambda: accasim(arguments.max_jobs),
        "pybatsim": pybatsim,
        "Gavel, Tiresias": lambda: published(arguments.published),
    }
    rows = []
    left_out = dict(NOT_RUN)
    for name, run in peers.items():
        try:
            for row in run():
                rows.append(row)
                show(row)
        except (OSError, ImportError, subprocess.CalledProcessError) as error:
            left_out[name] = str(error)
    for name, reason in left_out.items():
        print(f"{name} was not run: {reason}")
    if arguments.write:
        keep(rows)
        print(f"{KEPT.relative_to(ROOT)} written; now: python scripts/quoted.py")
    return 0 if rows and all(row["as_expected"] for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
