"""Compares reading traces with pyarrow reading the same bytes; prints one JSON line per format.

    python benches/python/reading.py [--jobs 1000000] [--repeats 7] [--only swf,native]

Both sides are measured in turns in one process, and the least of each is taken. CPU time of all
threads is judged, because it repeats on a busy machine. Wall time is printed too. pyarrow reads the
unchanged file with all columns, guesses their types and uses as many threads as gangline. It cannot
read SWF, so it reads that text with single spaces. gangline also hashes, checks, sorts and converts
units.
"""

from __future__ import annotations

import argparse
import gc
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from gangline.trace import read_trace

if TYPE_CHECKING:
    from collections.abc import Callable

CSV_LIMIT = 3.0
PARQUET_LIMIT = 1.5


def columns(jobs: int) -> dict[str, pa.Array]:
    """Return invented jobs in order of arrival."""
    draw = np.random.default_rng(7)
    arrival = np.sort(draw.integers(0, 15_000_000, jobs))
    duration = np.ceil(draw.exponential(3000.0, jobs)).astype(np.int64)
    gpus = draw.choice([1, 2, 4, 8, 16], jobs, p=[0.7, 0.1, 0.1, 0.08, 0.02])
    start = arrival + draw.integers(0, 5000, jobs)
    epoch = np.datetime64("2020-04-01T00:00:00")
    words = {name: pa.array(draw.choice(list(names), jobs)) for name, names in _WORDS.items()}
    stamps = {
        name: pc.strftime(pa.array(epoch + values), "%Y-%m-%d %H:%M:%S")
        for name, values in {
            "submitted": arrival,
            "started": start,
            "ended": start + duration,
        }.items()
    }
    numbers = {
        "id": np.arange(jobs),
        "arrival": arrival,
        "interval": np.diff(arrival, prepend=arrival[0]),
        "duration": duration,
        "gpus": gpus,
        "gpu_time": gpus * duration,
        "queue": start - arrival,
        "start": start,
        "end": start + duration,
        "iterations": duration * 7,
        "one": np.ones(jobs, dtype=np.int64),
        "zero": np.zeros(jobs, dtype=np.int64),
        "unknown": np.full(jobs, -1),
        "thousand": np.full(jobs, 1000),
        "milliseconds": duration * 1000,
        "arrival_ms": arrival * 1000,
    }
    arrays = {name: pa.array(values) for name, values in numbers.items()}
    expected = [pa.array(times).cast(pa.string()) for times in (duration, duration * 2)]
    lists = {"expected": pc.binary_join_element_wise(*expected, "-")}
    return {**arrays, **words, **stamps, **lists}


_WORDS = {
    "user": [f"u{i}" for i in range(300)],
    "vc": [f"vc{i}" for i in range(15)],
    "model": ["vgg19", "resnet50", "bert", "gpt2"],
    "state": ["COMPLETED", "CANCELLED", "FAILED"],
    "status": ["Pass", "Killed", "Failed"],
    "phase": ["Running", "Succeeded", "Failed"],
    "label": ["LM (batch size 5)", "ResNet-18 (batch size 64)", "A3C"],
    "command": ["python3 main.py --data_dir=%s/x"],
    "kind": ["T4", "V100"],
    "empty": [""],
    "strict": ["strict", "best"],
}
# The (header name, column) pairs of each format in order; there is no header line if the name
# starts with a number.
_LAYOUTS: dict[str, str] = {
    "native-csv": "job_id=id arrival_s=arrival gpus=gpus duration_s=duration model=model user=user",
    "philly-csv": "timestamp=submitted duration=duration num_gpus=gpus gpu_time=gpu_time "
    "cluster=vc",
    "helios": "job_id=id user=user vc=vc gpu_num=gpus cpu_num=gpus node_num=one state=state "
    "submit_time=submitted start_time=started end_time=ended duration=duration queue=queue",
    "four-column": "job_id=id arrival_s=arrival service_sec=duration gpu_count=gpus",
    "windows": "u_id=id user=user gpu_num=gpus cpu_num=gpus node_num=one interval=interval "
    "run_time=duration wall_time=zero new_status=status",
    "pai": "0=id 1=model 2=one 3=status 4=start 5=end 6=thousand 7=gpus 8=thousand 9=kind",
    "openb": "name=id cpu_milli=thousand memory_mib=thousand num_gpu=one gpu_milli=thousand "
    "gpu_spec=kind qos=status pod_phase=phase creation_time=arrival deletion_time=end "
    "scheduled_time=start",
    "gavel": "0=label 1=command 2=model 3=user 4=one 5=iterations 6=gpus 7=one 8=unknown 9=arrival",
    "swf": "0=id 1=arrival 2=queue 3=duration 4=gpus 5=unknown 6=unknown 7=gpus 8=duration "
    "9=unknown 10=one 11=one 12=unknown 13=unknown 14=unknown 15=unknown 16=unknown 17=unknown",
    "tiresias": "job_id=id num_gpu=gpus submit_time=arrival iterations=iterations "
    "model_name=model duration=duration interval=interval",
    "muri": "job_id=id num_gpu=gpus submit_time=arrival_ms iterations=iterations "
    "model_name=model batch_size=gpus duration=milliseconds interval=interval "
    "iteration_time=one resource_time_0=one resource_time_1=gpus resource_time_2=one priority=zero",
    "chronus": "job_id=id user=user num_gpu=gpus submit_time=arrival iterations=iterations "
    "model_name=model duration=duration interval=interval expect_time_list=expected "
    "job_type=strict",
    "pollux": "name=id time=arrival application=model num_replicas=gpus batch_size=thousand",
}
_DELIMITERS = {"gavel": "\t", "swf": " "}
_NAMES = {"pai": "pai_task_table.csv"}
_OPTIONS = {"pollux": {"durations": {"vgg19": 1.0, "resnet50": 2.0, "bert": 3.0, "gpt2": 4.0}}}


def write(name: str, data: dict[str, pa.Array], folder: Path) -> Path:
    """Write the file in one format."""
    pairs = [part.split("=") for part in _LAYOUTS[name].split()]
    table = pa.table({head: data[column] for head, column in pairs})
    path = folder / _NAMES.get(name, f"{name}.csv")
    options = pa_csv.WriteOptions(
        include_header=not pairs[0][0].isdigit(),
        delimiter=_DELIMITERS.get(name, ","),
        quoting_style="none",
        quoting_header="none",
    )
    pa_csv.write_csv(table, path, options)
    return path


class Taken(NamedTuple):
    """The seconds of one call, or the least of several calls."""

    cpu: float
    wall: float


def turns(ours: Callable[[], object], theirs: Callable[[], object], repeats: int) -> list[Taken]:
    """Return the least seconds of each side; the first turn warms up."""
    taken: list[list[Taken]] = [[], []]
    for _ in range(repeats + 1):
        for side, call in enumerate((ours, theirs)):
            gc.collect()
            cpu, wall = time.process_time(), time.perf_counter()
            result = call()
            taken[side].append(Taken(time.process_time() - cpu, time.perf_counter() - wall))
            del result
    return [Taken(*(min(times) for times in zip(*side[1:], strict=True))) for side in taken]


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--jobs", type=int, default=1_000_000)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--only", default="", help="formats, separated by commas")
    arguments = parser.parse_args()
    wanted = arguments.only.split(",") if arguments.only else [*_LAYOUTS, "native"]
    data = columns(arguments.jobs)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for kind in wanted:
            if kind == "native":
                path = folder / "native.parquet"
                table = read_trace(write("native-csv", data, folder)).table
                pq.write_table(table, path)
                sides = _parquet_sides(path)
                limit = PARQUET_LIMIT
            else:
                path = write(kind, data, folder)
                sides = _sides(kind, path)
                limit = CSV_LIMIT
            ours, theirs = turns(*sides, arguments.repeats)
            result = {"format": kind, "ours_s": ours.cpu, "pyarrow_s": theirs.cpu}
            ratios = {"ratio": ours.cpu / theirs.cpu, "wall_ratio": ours.wall / theirs.wall}
            print(json.dumps({**result, **ratios, "limit": limit}), flush=True)
            path.unlink()
    return 0


def _parquet_sides(path: Path) -> tuple[Callable[[], object], Callable[[], object]]:
    return lambda: read_trace(path), lambda: pq.read_table(path)


def _sides(kind: str, path: Path) -> tuple[Callable[[], object], Callable[[], object]]:
    parse = pa_csv.ParseOptions(delimiter=_DELIMITERS.get(kind, ","))
    options = _OPTIONS.get(kind, {})
    return (
        lambda: read_trace(path, **options),
        lambda: pa_csv.read_csv(path, parse_options=parse),
    )


if __name__ == "__main__":
    sys.exit(main())
