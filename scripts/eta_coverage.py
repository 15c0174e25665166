"""Hold the forecasts of `gangline eta` against what really happened, and write the tables.

    .venv/bin/python scripts/eta_coverage.py                # synthetic logs; some minutes
    .venv/bin/python scripts/eta_coverage.py --oar FILE     # the log of a real cluster as well

In synthetic logs, users state time limits, jobs take log-normal multiples of them, and one of our
policies decides. One waiting job per log, chosen by the seed, gets a forecast, so that forecasts
are independent. FILE is `tests/oar_out_jobs.csv` of the package evalys 4.0.7 on PyPI: what the
resource manager OAR did with 800 jobs on 32 processors. The tables are between markers in
`docs/guides/eta.md`.
"""

from __future__ import annotations

import argparse
import csv
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

import gangline as gl
from gangline._support.formatting import duration

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs/guides/eta.md"
LEVEL = 0.8
DRAWS = 39  # of 39 draws and the truth, four of forty orders lie below and four above: exactly 80 %
WORLDS = 100
SIGMA = 0.7
JOBS, SERVERS, GPUS = 300, 4, 8
LATER = 1_800  # jobs that come after them, so that no wait ends because the log does
OAR_SLACK_S = 3.0  # times in OAR's log are whole seconds, and it decides every second or so


class Outcome(NamedTuple):
    """One forecast, and what happened."""

    is_in: bool
    error_s: float
    wait_s: float


def log(seed: int, policy: str, told: str = "limit") -> pa.Table:
    """Return the log of a policy of ours, with limits that run times differ from."""
    random = np.random.Generator(np.random.Philox(seed))
    gpus = random.choice([1, 2, 4, 8], JOBS + LATER, p=[0.4, 0.2, 0.2, 0.2])
    limit = np.exp(random.normal(math.log(3600.0), 1.0, JOBS + LATER))
    run = limit * np.exp(SIGMA * random.normal(size=JOBS + LATER))
    # about as much work as the GPUs can do, so that queues form
    gap = float(np.mean((gpus * run)[:JOBS])) / (SERVERS * GPUS)
    arrival = np.cumsum(random.exponential(gap, JOBS + LATER))
    users = [f"u{one}" for one in random.integers(4, size=JOBS + LATER)]
    table = pa.table(
        {"arrival_s": arrival, "gpus": gpus, "duration_s": run, "time_limit_s": limit,
         "user": users}
    )  # fmt: skip
    start = gl.simulate(cluster(), table, policy, estimates=told).jobs["first_start_s"]
    return table.append_column("observed_start_s", start)


def cluster() -> gl.Cluster:
    """Return where the synthetic jobs run."""
    return gl.Cluster.homogeneous(servers=SERVERS, gpus=GPUS)


def synthetic(
    policy: str, source: str, worlds: int = WORLDS, *, arrivals: bool = False
) -> list[Outcome]:
    """Return a forecast per log in which at least one job waits at some of its arrivals."""
    found: list[Outcome] = []
    seed = 0
    while len(found) < worlds:
        seed += 1
        table = log(seed, policy)
        arrival, start = (table[name].to_numpy() for name in ("arrival_s", "observed_start_s"))
        at = float(arrival[JOBS // 2 + seed % (JOBS // 3)])
        waits = np.flatnonzero((arrival <= at) & (start > at))
        if not len(waits):
            continue
        error = SIGMA if source == "error" else None
        made = gl.eta(
            cluster(), table, policy, at=at, estimate_error=error, arrivals=arrivals,
            draws=DRAWS, level=LEVEL, seed=seed, workers=1,
        )  # fmt: skip
        job = made.forecasts[seed % len(waits)]
        found.append(_outcome(job, float(start[int(job.job_id)]) - at, 0.0))
    return found


def oar(path: Path, *, is_exact: bool = False, arrivals: bool = False) -> list[Outcome]:
    """Return a forecast per job that waited for 10 s or more, made a second after it came."""
    rows = list(csv.DictReader(path.read_text("utf-8").splitlines()))
    names = {
        "arrival_s": "submission_time", "gpus": "requested_number_of_processors",
        "duration_s": "execution_time", "observed_start_s": "starting_time",
        "time_limit_s": "execution_time" if is_exact else "requested_time",
    }  # fmt: skip
    columns: dict[str, Any] = {
        name: np.asarray([float(row[theirs]) for row in rows]) for name, theirs in names.items()
    }
    columns["job_id"] = [row["jobID"] for row in rows]
    trace = gl.Trace.from_arrow(pa.table(columns))
    arrival, start = trace.numbers("arrival_s"), trace.numbers("observed_start_s")
    lab = gl.Cluster.homogeneous(servers=32, gpus=1)
    found = []
    for row in np.flatnonzero((start - arrival >= 10.0) & (arrival >= 1000.0)).tolist():
        at = float(arrival[row]) + 1.0
        error = 0.0 if is_exact else None
        made = gl.eta(
            lab, trace, "easy", at=at, estimate_error=error, arrivals=arrivals,
            draws=DRAWS, level=LEVEL, workers=1,
        )  # fmt: skip
        job = made[trace.column("job_id")[row].as_py()]
        found.append(_outcome(job, float(start[row]) - at, OAR_SLACK_S))
    return found


def _outcome(job: Any, waited_s: float, slack_s: float) -> Outcome:
    is_in = job.from_in_s - slack_s <= waited_s <= job.to_in_s + slack_s
    return Outcome(is_in, job.start_in_s - waited_s, waited_s)


def bounds(count: int, share: float = LEVEL, alpha: float = 0.01) -> tuple[int, int]:
    """Return between which numbers of successes a binomial count lies with 99 % probability."""
    logs = [
        math.lgamma(count + 1) - math.lgamma(k + 1) - math.lgamma(count - k + 1)
        + k * math.log(share) + (count - k) * math.log1p(-share)
        for k in range(count + 1)
    ]  # fmt: skip
    below = np.cumsum(np.exp(logs))
    low = int(np.searchsorted(below, alpha / 2.0))
    return low, int(np.searchsorted(below, 1.0 - alpha / 2.0))


def line(
    policy: str, source: str, found: list[Outcome], *, arrivals: bool, are_independent: bool
) -> str:
    """Return a line of a table."""
    hits, count = sum(one.is_in for one in found), len(found)
    low, high = bounds(count)
    waits = np.asarray([one.wait_s for one in found])
    error = np.asarray([one.error_s for one in found])
    blind = np.abs(waits - np.median(waits)).mean()
    cells = [
        f"`{policy}`", source, "yes" if arrivals else "no", f"{count}",
        f"{100.0 * hits / count:.0f} %",
        f"{100.0 * low / count:.0f} to {100.0 * high / count:.0f} %" if are_independent else "–",
        duration(float(np.abs(error).mean())), duration(float(error.mean())),
        duration(float(waits.mean())), duration(float(blind)),
    ]  # fmt: skip
    return f"| {' | '.join(cells)} |"


HEAD = (
    "| policy | run times from | later jobs | forecasts | in the 80 % interval | chance allows "
    "| mean absolute error | mean error | mean wait left | error of the median wait |\n"
    "|---|---|---|---|---|---|---|---|---|---|"
)
CASES = (
    ("fifo", "error", False), ("fifo", "history", False), ("easy", "history", False),
    ("easy", "history", True), ("sjf", "history", False), ("sjf", "history", True),
    ("sjf", "error", True),
)  # fmt: skip
WORDS = {"error": "the true distribution", "history": "the log"}


def write(name: str, lines: Iterator[str]) -> None:
    """Write a table between its markers, and print it line by line."""
    print(HEAD, flush=True)
    table = [HEAD]
    for one in lines:
        print(one, flush=True)
        table.append(one)
    text = PAGE.read_text("utf-8")
    start, end = f"<!-- {name}: written by scripts/eta_coverage.py -->\n", f"<!-- end of {name} -->"
    before, _, rest = text.partition(start)
    _, found, after = rest.partition(end)
    assert found, f"{PAGE}: no markers of {name}"
    PAGE.write_text("\n".join([before + start.rstrip("\n"), *table, end + after]), "utf-8")


def main() -> None:
    """Make the forecasts and write the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--oar", type=Path)
    parser.add_argument("--worlds", type=int, default=WORLDS, help="synthetic logs; 0 for none")
    asked = parser.parse_args()
    if asked.worlds:
        _write_synthetic(asked.worlds)
    if asked.oar is not None:
        _write_oar(asked.oar)


def _write_synthetic(worlds: int) -> None:
    lines = (
        line(policy, WORDS[source], found, arrivals=arrivals, are_independent=True)
        for policy, source, arrivals in CASES
        for found in [synthetic(policy, source, worlds, arrivals=arrivals)]
    )
    write("synthetic", lines)


def _write_oar(path: Path) -> None:
    cases: list[tuple[str, dict[str, bool]]] = [
        ("the log so far", {}),
        ("the log so far", {"arrivals": True}),
        ("the real run times", {"is_exact": True}),
    ]
    lines = (
        line("easy", words, found, arrivals="arrivals" in how, are_independent=False)
        for words, how in cases
        for found in [oar(path, **how)]
    )
    write("oar", lines)


if __name__ == "__main__":
    main()
