"""Measure models alone, with sub-batches and in pairs on a GPU, and run jobs there.

python -m examples.gpu_profile measure --out FILE [--device cuda|cpu] [--seconds S] [--repeats N]
python -m examples.gpu_profile starts --measured FILE --out FILE
python -m examples.gpu_profile jobs --measured FILE --out FILE [--count N] [--gap-s S] [--seed N]
python -m examples.gpu_profile report > examples/gpu_profile/RESULTS.md
"""

from __future__ import annotations

import argparse
import csv
import json
import platform
import sys
import time
from dataclasses import asdict, fields
from pathlib import Path
from statistics import fmean
from typing import Any

from . import jobs, measure, report
from .models import BATCHES, CPU_BATCHES

HERE = Path(__file__).parent


def _device_name(device: str) -> dict[str, str]:
    facts = {"python": platform.python_version(), "date": time.strftime("%Y-%m-%d", time.gmtime())}
    if device == "cuda":
        import torch

        facts |= {"gpu": torch.cuda.get_device_name(), "torch": torch.__version__}
    return facts


def _measure(asked: argparse.Namespace) -> None:
    known = BATCHES if asked.device == "cuda" else CPU_BATCHES
    names = asked.models.split(",") if asked.models else list(known)
    models = {name: known[name] for name in names}
    began = time.monotonic()
    found = measure.profile(models, asked.device, asked.seconds, asked.repeats, (1, 2, 4))
    document = {
        **_device_name(asked.device),
        "device": asked.device,
        "batches": models,
        "seconds": asked.seconds,
        "repeats": asked.repeats,
        "took_s": time.monotonic() - began,
        **found,
    }
    asked.out.write_text(_text(document), encoding="utf-8")


def _starts(asked: argparse.Namespace) -> None:
    measured = json.loads(asked.measured.read_text(encoding="utf-8"))
    with asked.out.open("w", newline="", encoding="utf-8") as file:
        file.write("model,start_s\n")
        for model, seconds in measure.start_times(measured["batches"], measured["device"]):
            file.write(f"{model},{seconds:.3f}\n")
            file.flush()


def _text(document: dict[str, Any]) -> str:
    """Return JSON with one measurement per line, seven digits each."""

    def short(value: Any) -> Any:
        if isinstance(value, float):
            return float(f"{value:.7g}")
        if isinstance(value, dict):
            return {key: short(one) for key, one in value.items()}
        return [short(one) for one in value] if isinstance(value, list) else value

    parts = []
    for key, value in document.items():
        if isinstance(value, list):
            lines = ",\n".join(json.dumps(short(one)) for one in value)
            parts.append(f'"{key}": [\n{lines}\n]')
        else:
            parts.append(f'"{key}": {json.dumps(short(value))}')
    return "{\n" + ",\n".join(parts) + "\n}\n"


def _jobs(asked: argparse.Namespace) -> None:
    measured = json.loads(asked.measured.read_text(encoding="utf-8"))
    drawn = jobs.draw(measured, asked.count, asked.gap_s, asked.seed)
    predicted = {policy: jobs.predict(measured, drawn, policy) for policy in jobs.POLICIES}
    twins = {
        model: [measure.Worker(model, batch, 1, measured["device"]) for _ in "ab"]
        for model, batch in measured["batches"].items()
    }
    found = []
    try:
        for pair in twins.values():
            for worker in pair:
                worker.answer()
        for policy in jobs.POLICIES:
            found += jobs.carry_out(policy, drawn, predicted[policy], twins)
    finally:
        for pair in twins.values():
            for worker in pair:
                worker.stop()
    with asked.out.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(
            file, [field.name for field in fields(jobs.Outcome)], lineterminator="\n"
        )
        writer.writeheader()
        for one in found:
            row = asdict(one)
            writer.writerow(
                {key: f"{x:.4f}" if isinstance(x, float) else x for key, x in row.items()}
            )
    for policy in jobs.POLICIES:
        rows = [one for one in found if one.policy == policy]
        told = fmean(one.finish_s - one.arrival_s for one in rows)
        real = fmean(one.real_finish_s - one.arrival_s for one in rows)
        print(f"{policy}: mean JCT {told:.2f} s predicted, {real:.2f} s real", file=sys.stderr)


def read_jobs(path: Path) -> list[jobs.Outcome]:
    """Read what `jobs` has written."""
    with path.open(newline="", encoding="utf-8") as file:
        rows: list[dict[str, Any]] = [
            {key: x if key in jobs.WORDS else float(x) for key, x in row.items()}
            for row in csv.DictReader(file)
        ]
    return [jobs.Outcome(**row) for row in rows]


def _report(asked: argparse.Namespace) -> None:
    measured = json.loads(asked.measured.read_text(encoding="utf-8"))
    print(report.write(measured, read_jobs(asked.jobs)), end="")


def main() -> None:
    """Measure a GPU, or run jobs on it."""
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(required=True)
    one = commands.add_parser("measure")
    one.set_defaults(call=_measure)
    one.add_argument("--out", type=Path, required=True)
    one.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    one.add_argument("--models", default="")
    one.add_argument("--seconds", type=float, default=1.0)
    one.add_argument("--repeats", type=int, default=3)
    two = commands.add_parser("jobs")
    two.set_defaults(call=_jobs)
    two.add_argument("--measured", type=Path, required=True)
    two.add_argument("--out", type=Path, required=True)
    two.add_argument("--count", type=int, default=30)
    two.add_argument("--gap-s", type=float, default=1.0)
    two.add_argument("--seed", type=int, default=1)
    three = commands.add_parser("starts")
    three.set_defaults(call=_starts)
    three.add_argument("--measured", type=Path, required=True)
    three.add_argument("--out", type=Path, required=True)
    four = commands.add_parser("report")
    four.set_defaults(call=_report)
    four.add_argument("--measured", type=Path, default=HERE / "h100.json")
    four.add_argument("--jobs", type=Path, default=HERE / "h100_jobs.csv")
    asked = parser.parse_args()
    asked.call(asked)


if __name__ == "__main__":
    main()
