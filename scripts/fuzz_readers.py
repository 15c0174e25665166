"""Damages small inputs of every kind and reads them: the result must be a value or typed error.

There is one target for each format of traces, node lists, cluster files and tables. A failing input
is kept in target/fuzz-readers with the command that repeats it.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
import traceback
import warnings
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "scripts")]

from fuzz_damage import damaged, packed  # noqa: E402
from gangline import Cluster, read_cluster  # noqa: E402
from gangline.cluster.tables import read_interference, read_pollux, read_throughput  # noqa: E402
from gangline.errors import ClusterError, TraceError  # noqa: E402
from gangline.trace import Trace, read_trace  # noqa: E402
from samples import tables  # noqa: E402
from samples.traces import OPTIONS, SAMPLES  # noqa: E402

FINDS = ROOT / "target" / "fuzz-readers"
MAX_BYTES = 1 << 20
SECONDS_MAX = 5.0  # Our own choice: a sample has less than 2 kB.


class Target(NamedTuple):
    """A valid file and its reader, which gets the path and the random draws of the input."""

    content: bytes
    read: Callable[[Path, random.Random], object]
    may_be_packed: bool = True


def check(trace: Trace) -> None:
    """Check what every trace promises."""
    arrival, gpus = trace.numbers("arrival_s"), trace.numbers("gpus")
    assert len(trace) >= 1, "a trace without jobs"
    assert (gpus >= 1).all(), "a job without GPUs"
    assert (gpus <= 2**15).all(), "a gang without bounds"
    assert (arrival >= 0).all(), "an arrival before 0"
    assert (arrival[1:] >= arrival[:-1]).all(), "arrivals out of order"
    assert len(set(trace.column("job_id").to_pylist())) == len(trace), "two jobs of one id"
    assert "duration_s" in trace.columns or "iterations" in trace.columns, "no work"
    trace.table.validate(full=True)
    trace.info()


def trace_of(kind: str, path: Path, random_: random.Random) -> None:
    """Read a trace, with its format given or detected."""
    policy = random_.choice(("error", "drop"))
    forced = kind if random_.random() < 0.5 else None
    options = OPTIONS.get(kind, {}) if forced else {}
    check(read_trace(path, format=forced, max_bytes=MAX_BYTES, on_bad_row=policy, **options))


def nodes_of(kind: str, path: Path, random_: random.Random) -> None:
    """Read a node list, with its format given or detected; the result must be a whole cluster."""
    check_cluster(read_cluster(path, format=kind if random_.random() < 0.5 else None))


def check_cluster(cluster: Cluster) -> None:
    """Check what every cluster promises."""
    assert cluster.gpus_total >= 1, "a cluster without GPUs"
    assert Cluster.from_dict(cluster.to_dict()) == cluster, "not the same after a round trip"


def cluster_file(path: Path, _: random.Random) -> None:
    """Read a cluster file."""
    check_cluster(Cluster.from_toml(path))


def throughput(path: Path, _: random.Random) -> None:
    """Read a throughput table, which must contain its own rows."""
    table = read_throughput(path)
    assert (table.rates["iters_per_s"].to_numpy() >= 0).all(), "a negative rate"
    for row in table.rates.slice(0, 5).to_pylist():
        sizes = table.gang_sizes(row["model"])
        alone = row["iters_per_s"] > 0 and row["placement"] == "server"
        assert not alone or row["gpus"] in sizes, "a row that is not found"


def profiles(name: str) -> Callable[[Path, random.Random], None]:
    """Return a reader of profiles with one damaged file."""
    files = {
        "placements.csv": tables.PLACEMENTS,
        "scalability.csv": tables.SCALABILITY,
        "validation-8.csv": tables.VALIDATION,
    }

    def read(path: Path, _: random.Random) -> None:
        folder = path.parent / "profiles" / "app"
        folder.mkdir(parents=True, exist_ok=True)
        for other, text in files.items():
            (folder / other).write_text(text, encoding="utf-8")
        (folder / name).write_bytes(path.read_bytes())
        found = read_pollux(folder.parent)
        for application in found:
            assert found[application].local_range[0] >= 1, "a batch of nothing"

    return read


def targets() -> dict[str, Target]:
    """Return all targets by the name of their valid file."""
    found = {
        name: Target(content, partial(trace_of, kind)) for name, (kind, content) in SAMPLES.items()
    }
    found |= {
        f"nodes-{kind}.csv": Target(text.encode(), partial(nodes_of, kind))
        for kind, text in {**tables.NODE_LISTS, **tables.EXPORTS}.items()
    }
    for name in ("placements.csv", "scalability.csv", "validation-8.csv"):
        text = {"p": tables.PLACEMENTS, "s": tables.SCALABILITY, "v": tables.VALIDATION}[name[0]]
        found[name] = Target(text.encode(), profiles(name), may_be_packed=False)
    found["cluster.toml"] = Target(tables.CLUSTER.encode(), cluster_file, may_be_packed=False)
    found["rates.json"] = Target(tables.gavel(), throughput)
    found["rates.csv"] = Target(tables.RATES.encode(), throughput)
    found["rates.parquet"] = Target(tables.parquet(tables.RATES), throughput)
    found["xi.csv"] = Target(tables.INTERFERENCE.encode(), lambda path, _: read_interference(path))
    xi = tables.parquet(tables.INTERFERENCE)
    found["xi.parquet"] = Target(xi, lambda path, _: read_interference(path))
    return found


TARGETS = targets()


def one(folder: Path, name: str, seed: int) -> str | None:
    """Read one damaged input; return the fault, if there is one."""
    random_ = random.Random(seed)
    target = TARGETS[name]
    stored, content = name, damaged(target.content, random_)
    if target.may_be_packed:
        stored, content = packed(name, content, random_)
    path = folder / stored
    path.write_bytes(content)
    begun = time.monotonic()
    try:
        target.read(path, random_)
    except (TraceError, ClusterError) as error:
        if not str(error) or "Traceback" in str(error):
            return f"an empty message: {error!r}"
    except Exception:  # noqa: BLE001 - this is what we look for
        return traceback.format_exc()
    finally:
        path.unlink()
    taken = time.monotonic() - begun
    return f"{taken:.1f} s" if taken > SECONDS_MAX else None


def run(name: str, seconds: float, seed: int) -> Iterator[str]:
    """Fuzz the format of one sample; yield the faults."""
    end = time.monotonic() + seconds
    number = 0
    with tempfile.TemporaryDirectory() as folder:
        while time.monotonic() < end:
            found = one(Path(folder), name, seed + number)
            if found is not None:
                FINDS.mkdir(parents=True, exist_ok=True)
                (FINDS / f"{name}-{seed + number}.txt").write_text(found, encoding="utf-8")
                yield f"{name} --seed {seed + number} --count 1\n{found}"
                return
            number += 1
    print(f"fuzz reader {name}: ok, {number} inputs", flush=True)


def main() -> int:
    """Fuzz all formats, or the named ones."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help=f"good files: {', '.join(TARGETS)}")
    parser.add_argument("--seconds", type=float, default=20, help="for each format")
    parser.add_argument("--total-seconds", type=float, help="for all of them together")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=0, help="so many inputs instead of seconds")
    options = parser.parse_args()
    names = options.names or list(TARGETS)
    warnings.simplefilter("error")  # a user would see them on stderr
    seconds = options.seconds
    if options.total_seconds is not None:
        seconds = options.total_seconds / len(names)
    failed = 0
    for name in names:
        if options.count:
            with tempfile.TemporaryDirectory() as folder:
                found = [one(Path(folder), name, options.seed + i) for i in range(options.count)]
            finds = [words for words in found if words is not None]
        else:
            finds = list(run(name, seconds, options.seed))
        failed += bool(finds)
        for words in finds:
            print(f"FAILED: python scripts/fuzz_readers.py {words}", flush=True)
    print(f"{len(names) - failed} formats ok, {failed} not")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
