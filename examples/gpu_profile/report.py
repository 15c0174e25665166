"""Makes the tables of RESULTS.md from the saved measurements."""

from __future__ import annotations

import csv
import json
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median
from typing import TYPE_CHECKING, Any

from gangline.studies.profile import Model, Pair, Profile, Rate

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

HERE = Path(__file__).parent
POLICIES = ("fifo", "sjf-ffs", "sjf-bsbf")
_WORDS = ("policy", "job", "model")  # the fields of an outcome that are not numbers
_FACTS = ("gpu", "torch", "date")


@dataclass(frozen=True)
class Outcome:
    """The predicted and the real start and finish of a job."""

    policy: str
    job: str
    model: str
    arrival_s: float
    duration_s: float
    start_s: float
    finish_s: float
    real_start_s: float
    real_finish_s: float


def profile_of(path: Path) -> Profile:
    """Read the measurements, which are older than the files of `gangline profile`."""
    kept = json.loads(path.read_text(encoding="utf-8"))
    memory = {(one["model"], 1): one["memory_bytes"] for one in kept["starts"]}
    memory |= {(one["model"], one["passes"]): one["memory_bytes"]
               for one in kept["alone"] if "memory_bytes" in one}  # fmt: skip
    again = [{**one, "passes": 1} for one in kept["alone_again"]]
    return Profile(
        facts={"gpu_type": "H100", **{key: kept[key] for key in _FACTS}},
        models=[Model(name, name, batch) for name, batch in kept["batches"].items()],
        starts=[],
        alone=[
            Rate(
                one["model"],
                kept["batches"][one["model"]],
                one["passes"],
                one["per_s"],
                memory[one["model"], one["passes"]],
            )
            for one in (*kept["alone"], *again)
        ],
        pairs=[
            Pair((one["models"][0], one["models"][1]), [(a, b) for a, b in one["per_s"]])
            for one in kept["pairs"]
        ],
    )


def read_jobs(path: Path) -> list[Outcome]:
    """Read the outcomes of the thirty jobs."""
    with path.open(newline="", encoding="utf-8") as file:
        rows: list[dict[str, Any]] = [
            {key: x if key in _WORDS else float(x) for key, x in row.items()}
            for row in csv.DictReader(file)
        ]
    return [Outcome(**row) for row in rows]


def write(measured: Profile, outcomes: Sequence[Outcome]) -> str:
    """Return RESULTS.md."""
    return "\n".join(_lines(measured, outcomes)) + "\n"


def _lines(measured: Profile, outcomes: Sequence[Outcome]) -> Iterator[str]:
    yield "# One GPU: rates alone and in pairs, and thirty jobs predicted and run"
    yield ""
    yield (
        f"{measured.facts['gpu']}, PyTorch {measured.facts['torch']}, {measured.facts['date']}. "
        "Written by `python -m examples.gpu_profile` from h100.json and h100_jobs.csv."
    )
    yield ""
    yield "## Iterations per second alone"
    yield ""
    yield from _table(
        ("model", "batch", "one pass", "2 passes", "4 passes", "memory at 1, 2, 4 passes, GB"),
        [(one.name, one.batch, *_by_passes(measured, one.name)) for one in measured.models],
    )
    yield "The batch is the same in all columns; with more passes, each pass has fewer samples."
    yield ""
    yield "## Slowdown factors of pairs"
    yield ""
    yield "A factor says how much the model of the row is slowed down by the model of the column."
    yield ""
    models = [one.name for one in measured.models]
    rows = [(one, *(f"{measured.slowdown(one, other):.2f}" for other in models)) for one in models]
    yield from _table(("", *models), rows)
    yield "## Thirty jobs"
    yield ""
    heads = ("policy", "mean JCT, s: predicted", "real", "error", "median error per job")
    rows = []
    for policy in POLICIES:
        mine = [one for one in outcomes if one.policy == policy]
        told = [one.finish_s - one.arrival_s for one in mine]
        real = [one.real_finish_s - one.arrival_s for one in mine]
        each = median(abs(a - b) / b for a, b in zip(told, real, strict=True))
        error = fmean(told) / fmean(real) - 1.0
        rows.append(
            (
                f"`{policy}`",
                f"{fmean(told):.2f}",
                f"{fmean(real):.2f}",
                f"{error:+.1%}",
                f"{each:.1%}",
            )
        )
    yield from _table(heads, rows)
    alone = [
        (one.real_finish_s - one.real_start_s) / one.duration_s
        for one in outcomes
        if one.policy == "fifo"
    ]
    yield (
        "Under `fifo`, each job has the GPU to itself. The real duration of a job was "
        f"{median(alone):.2f} times the predicted one in the median, at least {min(alone):.2f} "
        f"times and at most {max(alone):.2f} times."
    )


def _by_passes(measured: Profile, model: str) -> Iterator[str]:
    found = {one.passes: one for one in measured.alone if one.model == model}
    for passes in (1, 2, 4):
        yield f"{measured.rate(model, None, passes):.1f}"
    yield ", ".join(f"{found[passes].memory_bytes / 1e9:.1f}" for passes in (1, 2, 4))


def _table(heads: Sequence[str], rows: Sequence[Sequence[object]]) -> Iterator[str]:
    yield f"| {' | '.join(heads)} |"
    yield f"|{'---|' * len(heads)}"
    for row in rows:
        yield f"| {' | '.join(str(cell) for cell in row)} |"
    yield ""
