"""Runs every benchmark for ``make bench``, and prints tables of ratios with their limits.

    python benches/run.py [--quick] [--skip peers,venus] [--write]

The ratios are those of one run on one machine. Absolute times are shown next to them. They have
limits only where a user waits for them, for example on a whole public trace. ``--write`` also
writes benches/RESULTS.md. The exit code is 1 if a limit is broken.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
sys.path[:0] = [str(HERE), str(HERE / "python"), str(HERE / "peers")]

import workload  # noqa: E402
from lines import AS_JSON, Line  # noqa: E402

from instructions import built  # noqa: E402

POLICIES = ("fifo", "sjf", "fifo-skip", "srtf", "srsf", "las", "tiresias", "easy")
# The limit of the time per job at a million jobs, as a multiple of the bare loop's time. A
# saturated policy with preemption starts each job several times, so its limit is per start.
SPEED_LIMIT = {"fifo": 4.0, "sjf": 4.0}
OTHER_SPEED_LIMIT = 15.0
START_LIMIT = {"srtf": 10.0, "srsf": 10.0, "las": 10.0, "tiresias": 32.0}
CONTENDED = ("fifo", "srtf")  # one policy that never preempts jobs, and one that does
PREEMPTIVE = tuple(START_LIMIT)
SIZES = (10_000, 100_000, 1_000_000)
SERVERS, GPUS_PER_SERVER = 2_000, 8
RESULTS = HERE / "RESULTS.md"
BEGIN, END = "<!-- make bench: begin -->", "<!-- make bench: end -->"


def build() -> Path:
    """Return the matrix binary, built in the profile of published builds."""
    return built("matrix", "dist")


def json_lines(command: list[str]) -> list[dict[str, Any]]:
    """Return what a benchmark process printed."""
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


def speed_lines(row: dict[str, Any]) -> list[Line]:
    """Yield the ratios to the bare FIFO (or SJF) loop, per job and per start."""
    policy, jobs, per_job_ns = row["policy"], row["jobs"], row["ns_per_job"]
    bare_ns = row["bare_sjf_ns_per_job" if policy == "sjf" else "bare_fifo_ns_per_job"]
    starts = 1.0 + row["preemptions"] / jobs
    judged = jobs == 1_000_000 and policy != "floor"
    name = f"{policy}, {row['load']}, {jobs:,} jobs"

    def line(what: str, value: float, limit: float | None, against_ns: float) -> Line:
        note = f"{per_job_ns:.0f} / {against_ns:.0f} ns per job, {starts:.2f} starts per job"
        return Line(f"{name}: {what}", value, limit if judged else None, note)

    ratio = per_job_ns / bare_ns
    is_per_start = row["load"] == "saturated" and policy in START_LIMIT
    per_job_limit = None if is_per_start else SPEED_LIMIT.get(policy, OTHER_SPEED_LIMIT)
    lines = [line("time relative to bare loop", ratio, per_job_limit, bare_ns)]
    if is_per_start:
        what = "time per start relative to bare loop"
        lines.append(line(what, ratio / starts, START_LIMIT[policy], bare_ns))
    return lines


def speed(
    matrix: Path, repeats: int, sizes: tuple[int, ...], policies: tuple[str, ...]
) -> list[Line]:
    """Measure the time per job against the bare loop, and its growth with the number of jobs."""
    names = ",".join(("floor", *policies))
    rows = {
        (row["policy"], row["load"], row["jobs"]): row
        for jobs in sizes
        for row in json_lines([str(matrix), "speed", str(jobs), str(repeats), names])
    }
    lines = [line for row in rows.values() for line in speed_lines(row)]
    for policy in policies if 1_000_000 in sizes else ():
        for load in workload.OFFERED:
            large = rows[policy, load, 1_000_000]["ns_per_job"]
            small = rows[policy, load, 100_000]["ns_per_job"]
            note = f"{large:.0f} / {small:.0f} ns per job"
            name = f"{policy}, {load}: 1M relative to 100k jobs"
            lines.append(Line(name, large / small, 1.5, note))
    return lines


def scaling(matrix: Path, repeats: int, policies: tuple[str, ...]) -> list[Line]:
    """Measure the cost per event for different numbers of waiting jobs and of servers."""
    lines = []
    names = ",".join(policies)
    for row in json_lines([str(matrix), "waiting", str(repeats), names]):
        few, many = row["ns_per_event_1000"], row["ns_per_event_100000"]
        name = f"{row['policy']}: event with 100,000 relative to 1,000 waiting"
        lines.append(Line(name, many / few, 2.0, f"{many:.0f} / {few:.0f} ns per event"))
    for row in json_lines([str(matrix), "servers", str(repeats), names]):
        few = row["ns_per_event_125"]
        same, grown = row["ns_per_event_12500_same_jobs"], row["ns_per_event_12500_same_load"]
        name = f"{row['policy']}: event on 12,500 relative to 125 servers"
        note = f"{same:.0f} / {few:.0f} ns per event"
        lines.append(Line(f"{name}, same jobs", same / few, 2.0, note))
        note = (
            f"{grown:.0f} / {few:.0f} ns; the bare loop grows {row['bare_growth_same_load']:.2f}x"
        )
        lines.append(
            Line(f"{name}, same load (100 times the running jobs)", grown / few, None, note)
        )
    return lines


def load(matrix: Path, jobs: int, repeats: int, policies: tuple[str, ...]) -> list[Line]:
    """Measure the time per job against the bare loop, from a light load to saturation."""
    names = ",".join(policy for policy in ("fifo", *PREEMPTIVE) if policy in policies)
    rows = json_lines([str(matrix), "load", str(jobs), str(repeats), names]) if names else []
    return [
        Line(
            f"{row['policy']}, offered load {row['offered']:g}: time relative to bare loop",
            row["ns_per_job"] / row["bare_fifo_ns_per_job"],
            None,
            f"{row['ns_per_job']:.0f} / {row['bare_fifo_ns_per_job']:.0f} ns per job, "
            f"{1.0 + row['preemptions'] / jobs:.2f} starts per job",
        )
        for row in sorted(rows, key=lambda row: names.index(row["policy"]))
    ]


def contention(matrix: Path, repeats: int, policies: tuple[str, ...]) -> list[Line]:
    """Measure the cost per event of uplinks that gangs share: never full, and mostly full."""
    lines = []
    names = ",".join(policy for policy in CONTENDED if policy in policies)
    for row in json_lines([str(matrix), "contention", str(repeats), names]) if names else []:
        alone, calm = row["ns_per_event_off"], row["ns_per_event_never_full"]
        full, policy = row["ns_per_event_full"], row["policy"]
        note = f"{calm:.0f} / {alone:.0f} ns per event"
        name = f"{policy}: event with shared uplinks, never full, relative to no contention"
        lines.append(Line(name, calm / alone, 2.0, note))
        retimed = row["retimed_per_event_full"]
        note = f"{full:.0f} / {alone:.0f} ns per event, {retimed:.1f} gangs re-timed per event"
        name = f"{policy}: event with shared uplinks, mostly full, relative to no contention"
        lines.append(Line(name, full / alone, None, note))
    return lines


def end_to_end(folder: Path, jobs: int, repeats: int) -> list[Line]:
    """Measure the cost outside the loop, and the memory, of one big run."""
    judged = jobs == 1_000_000  # fixed costs weigh more in a smaller run
    trace, cluster = folder / "jobs.parquet", folder / "cluster.toml"
    from run_peers import CLUSTER_TOML

    cluster.write_text(CLUSTER_TOML.format(servers=SERVERS, gpus=GPUS_PER_SERVER))
    lines = []
    for load, offered in workload.OFFERED.items():
        made = workload.philly_like(jobs, SERVERS * GPUS_PER_SERVER, offered)
        workload.write_parquet(made, trace)
        common = [str(trace), str(cluster), "fifo"]
        outside = [sys.executable, str(HERE / "python" / "outside.py"), *common]
        [row] = json_lines([*outside, str(folder / f"outside-{load}"), str(repeats)])
        note = (
            f"read {row['read_s']:.2f} s, around the loop {row['around_loop_s']:.2f} s, save "
            f"{row['save_s']:.2f} s; loop {row['loop_s']:.2f} s; "
            f"{row['outside_cpu_s']:.2f} / {row['loop_cpu_s']:.2f} CPU s"
        )
        name = f"fifo, {load}, {jobs:,} jobs: outside the loop relative to the loop"
        lines.append(
            Line(name, row["outside_cpu_s"] / row["loop_cpu_s"], 1.0 if judged else None, note)
        )
        memory = [sys.executable, str(HERE / "python" / "memory.py"), *common]
        [row] = json_lines([*memory, str(folder / f"memory-{load}")])
        note = (
            f"peak {row['peak_bytes'] / 2**20:.0f} MiB, imports {row['base_bytes'] / 2**20:.0f} MiB"
        )
        name = f"fifo, {load}, {jobs:,} jobs: peak memory, bytes per job"
        lines.append(Line(name, row["bytes_per_job"], 400.0 if judged else None, note))
    return lines


def shared() -> Path | None:
    """Return the folder of public traces, if it exists."""
    places = [os.environ.get("GANGLINE_SHARED"), ROOT.parent / "shared", ROOT / "shared"]
    return next((Path(place) for place in places if place and Path(place).is_dir()), None)


def venus(folder: Path, repeats: int, policies: tuple[str, ...]) -> list[Line]:
    """Measure the Venus trace by the command line, from process start to the result on disk."""
    root = shared()
    if root is None:
        print("venus skipped: the public traces (shared/) are not here", flush=True)
        return []
    from run_peers import timed_process

    trace = root / "traces" / "helios-venus-gpu" / "helios_trace.csv.gz"
    gangline = str(Path(sys.executable).with_name("gangline"))
    lines = []
    for policy in policies:
        walls, cpus = [], []
        for repeat in range(repeats):
            out = folder / f"venus-{policy}-{repeat}"
            command = [gangline, "run", "--trace", str(trace), "--cluster", "venus", "--json"]
            command += ["--policy", policy, "--on-infeasible", "drop", "--out", str(out)]
            _, cpu, wall = timed_process(command)
            walls.append(wall)
            cpus.append(cpu)
        note = f"median of {repeats}; {statistics.median(walls):.2f} s by the clock"
        name = f"{policy}, Venus (125,303 jobs): CPU seconds, from process start to saved result"
        lines.append(Line(name, statistics.median(cpus), 2.0, note))
    return lines


LOADED = {
    "Philly": "philly-sia/philly.csv.gz",
    "Venus": "helios-venus-gpu/helios_trace.csv.gz",
    "PAI": "pai2020-gpu-sub/alibaba_trace_sub.csv.gz",
}
LOADING_LIMIT_S = 1.0


def loading(repeats: int) -> list[Line]:
    """Measure the CPU seconds of reading a public trace after all imports."""
    root = shared()
    if root is None:
        print("loading skipped: the public traces (shared/) are not here", flush=True)
        return []
    import gangline

    lines = []
    for name, place in LOADED.items():
        taken = []
        for _ in range(repeats):
            began = time.process_time()
            trace = gangline.read_trace(root / "traces" / place)
            taken.append(time.process_time() - began)
        note = f"least of {repeats}, {len(trace):,} jobs"
        lines.append(Line(f"load {name}: CPU seconds", min(taken), LOADING_LIMIT_S, note))
    return lines


def script(name: str, *arguments: str) -> list[Line]:
    """Yield the lines of a benchmark in a separate process, which fails if it ends early."""
    command = [sys.executable, str(HERE / "python" / f"{name}.py"), *arguments]
    environment = {**os.environ, AS_JSON: "1"}
    lines = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        for text in process.stdout or ():
            lines.append(Line(**json.loads(text)))
            print(f"  {lines[-1].row()}", file=sys.stderr, flush=True)
    is_over = any(line.verdict == "FAIL" for line in lines)
    if process.returncode != (1 if is_over else 0):
        lines.append(Line(f"{name}: exit code", float(process.returncode), 0.0))
    return lines


def peers(max_jobs: int) -> list[Line]:
    """Run the same workload in AccaSim."""
    import run_peers

    lines = []
    for world in run_peers.AGREEMENT + run_peers.SPEED:
        if world.jobs > max_jobs:
            continue
        row = run_peers.compare(world)
        ours, peer = row["gangline"], row["accasim"]
        same = run_peers.agree(row)
        note = f"mean wait {ours['wait_mean_s']:.4f} / {peer['wait_mean_s']:.4f} s"
        name = f"AccaSim, {world.name}: whether averages differ"
        lines.append(Line(name, float(not same), 0.0, note))
        judged = world.jobs == 100_000
        for part, limit in (("process", 100.0), ("loop", 500.0)):
            mine, theirs = ours[f"{part}_cpu_s"], peer[f"{part}_cpu_s"]
            name = f"AccaSim, {world.name}: {part}, CPU relative to ours"
            note = f"{theirs:.2f} / {mine:.4f} CPU s"
            kept = limit if judged else None
            lines.append(Line(name, theirs / mine, kept, note, at_least=True))
    return lines


def decisions(repeats: int) -> list[Line]:
    """Measure single decisions of hadar, and one max-min allocation of distinct jobs."""
    import lp

    command = [str(built("decisions", "dist")), "hadar", str(repeats)]
    found = {}
    for size in ((2_048, 60), (16_384, 100_000)):
        done = subprocess.run(
            [*command, *map(str, size)], check=True, stdout=subprocess.PIPE, text=True
        )
        _, _, _, first_ms, starts, _ = done.stdout.splitlines()[-1].strip("| ").split(" | ")
        found[size] = float(first_ms), int(starts)
    (small_ms, starts), (large_ms, more_starts) = found.values()
    solve = lp.timed(lp.world(2_048, 2_048), solver="ipx", tie_break="none")
    solved_ms = 1e3 * min(solve() for _ in range(repeats))
    raw = f"{solved_ms:.1f} / {small_ms:.3f} ms"
    note = f"{starts} starts; {more_starts:,} starts in {large_ms:.1f} ms"
    per_job = large_ms / 16_384 / (small_ms / 2_048)
    return [
        Line("hadar, 2,048 jobs, 60 GPUs: CPU ms of the first decision", small_ms, 1.0, raw),
        Line("interior point relative to this", solved_ms / small_ms, 20.0, raw, at_least=True),
        Line("hadar, 16,384 jobs, 100,000 GPUs: CPU per job relative to this", per_job, 10.0, note),
    ]


def machine() -> str:
    """Return the processor, the number of cores and the load."""
    models = [
        line.split(":", 1)[1].strip()
        for line in Path("/proc/cpuinfo").read_text().splitlines()
        if line.startswith("model name")
    ]
    model = models[0] if models else platform.processor()
    return f"{model}, {os.cpu_count()} cores, load average {os.getloadavg()[0]:.2f} at the end"


def commit() -> str:
    """Return the measured commit, with a mark if the tree differs from it."""
    command = ["git", "-C", str(ROOT), "describe", "--always", "--dirty"]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    return done.stdout.strip() or "not a commit"


def document(parts: dict[str, list[Line]], command: str) -> str:
    """Return a table for each part with limits, and the machine that was measured."""
    today = dt.datetime.now(tz=dt.UTC).date().isoformat()
    head = [
        f"{today}, commit {commit()}, {machine()}, Python {platform.python_version()}.",
        f"Command: `{command}`. Lines explained: [docs/performance.md](../docs/performance.md).",
    ]
    judged = {part: [line for line in lines if line.verdict] for part, lines in parts.items()}
    rows = [row for part, lines in judged.items() for row in table(part, lines)]
    return "\n".join([*head, *rows, ""])


def table(part: str, lines: list[Line]) -> list[str]:
    """Return a part as a table."""
    if not lines:
        return []
    head = ["", f"| {part} | value | limit | left | | raw |", "|---|---|---|---|---|---|"]
    return head + [line.row() for line in lines]


def publish_between(begin: str, end: str, text: str) -> None:
    """Replace the text between two marks in RESULTS.md; the results of other commands stay."""
    before, rest = RESULTS.read_text(encoding="utf-8").split(begin)
    after = rest.split(end)[1]
    RESULTS.write_text(f"{before}{begin}\n{text}{end}{after}", encoding="utf-8")


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="no 1M-job runs, no 100k-job peers")
    parser.add_argument("--skip", default="", help="parts to leave out: " + ",".join(PARTS))
    parser.add_argument("--repeats", type=int, default=5, help="runs of each measurement")
    parser.add_argument(
        "--policies", type=lambda text: tuple(text.split(",")), default=POLICIES, help="only these"
    )
    parser.add_argument("--write", action="store_true", help="write benches/RESULTS.md")
    arguments = parser.parse_args()
    skipped = set(filter(None, arguments.skip.split(",")))
    if unknown := skipped - set(PARTS):
        parser.error(f"unknown parts: {', '.join(sorted(unknown))}")
    parts: dict[str, list[Line]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for part, measure in PARTS.items():
            if part not in skipped:
                print(f"measuring: {part}", file=sys.stderr, flush=True)
                parts[part] = measure(arguments, Path(folder))
                print("\n".join(table(part, parts[part])), flush=True)
    if arguments.write:
        publish_between(
            BEGIN, END, document(parts, "python " + " ".join(["benches/run.py", *sys.argv[1:]]))
        )
    verdicts = [line.verdict for lines in parts.values() for line in lines]
    passed, failed = verdicts.count("pass"), verdicts.count("FAIL")
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


def reading(jobs: int, repeats: int) -> list[Line]:
    """Compare reading a trace with pyarrow reading the same bytes."""
    command = [sys.executable, str(HERE / "python" / "reading.py")]
    measured = json_lines([*command, "--jobs", str(jobs), "--repeats", str(repeats)])
    return [
        Line(
            f"read {row['format']}, {jobs:,} jobs",
            row["ratio"],
            row["limit"] if jobs >= 1_000_000 else None,
            f"{row['ours_s']:.3f} s against {row['pyarrow_s']:.3f} s of pyarrow",
        )
        for row in measured
    ]


PARTS = {
    "speed": lambda arguments, _: speed(
        build(),
        arguments.repeats,
        SIZES[:2] if arguments.quick else SIZES,
        arguments.policies,
    ),
    "scaling": lambda arguments, _: scaling(build(), min(3, arguments.repeats), arguments.policies),
    "load": lambda arguments, _: load(
        build(),
        100_000 if arguments.quick else 300_000,
        min(3, arguments.repeats),
        arguments.policies,
    ),
    "contention": lambda arguments, _: contention(
        build(), min(3, arguments.repeats), arguments.policies
    ),
    "end-to-end": lambda arguments, folder: end_to_end(
        folder, 100_000 if arguments.quick else 1_000_000, arguments.repeats
    ),
    "reading": lambda arguments, _: reading(
        100_000 if arguments.quick else 1_000_000, arguments.repeats
    ),
    "venus": lambda arguments, folder: venus(folder, arguments.repeats, arguments.policies),
    "loading": lambda arguments, _: loading(arguments.repeats),
    "report": lambda arguments, _: script("report", str(min(3, arguments.repeats))),
    "sweeps": lambda arguments, _: script("sweeps", str(min(2, arguments.repeats))),
    "lp": lambda arguments, _: script("lp", str(max(5, arguments.repeats))),
    "decisions": lambda arguments, _: decisions(arguments.repeats),
    "elastic": lambda *_: script("pollux_rounds"),
    "rounds": lambda *_: script("rounds"),
    "python": lambda arguments, _: script("python_policies", str(max(5, arguments.repeats))),
    "venus-network": lambda arguments, _: script("venus_network", str(min(3, arguments.repeats))),
    "venus-rounds": lambda *_: script("venus_rounds"),
    "peers": lambda arguments, _: peers(10_000 if arguments.quick else 100_000),
}


if __name__ == "__main__":
    sys.exit(main())
