"""Measure how far gangline is from the public testbeds, and keep the numbers.

    .venv/bin/python scripts/validation.py FOLDER

FOLDER contains the results of the testbeds: muri/trace.csv, srtf.csv and tiresias.csv, and
shockwave/trace.trace, ftf.csv and max_sum.csv, in which a row has the JCT on hardware and in the
authors' own simulator. The numbers go to benches/studies/validation.json, from which
scripts/quoted.py writes the tables of docs/validation.md. Nothing is tuned to these tables.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import gangline as gl
from gangline.studies.validate.observed import read_outcomes

ROOT = Path(__file__).resolve().parent.parent
DATA = ROOT / "benches" / "studies" / "validation.json"
MURI = {
    "starts": "job_counter",
    "arrival_s": "submit_time",
    "first_start_s": "start_time",
    "finish_s": "end_time",
    "jct_s": "JCT",
    "run_s": "real_executed_time",
}
HARDWARE = {"job_id": "job", "jct_s": "jct_hardware_s"}
SIMULATED = {"job_id": "job", "jct_s": "jct_their_simulator_s"}
VARIED: dict[str, dict[str, Any]] = {
    "as it is": {},
    "`las_time`: seconds in place of GPU-seconds": {"las_time": True},
    "`discretised=false`: no queues": {"discretised": False},
    "a third limit, 18,000 GPU-s": {"limits": [3250.0, 7200.0, 18_000.0]},
    "`promote_knob=8`": {"promote_knob": 8.0},
    "`placement=consolidate`": {"placement": "consolidate"},
}
"""What might explain Muri's Tiresias, and does not."""
MURI_DECISION_S, SHOCKWAVE_ROUND_S = 360.0, 120.0  # of the testbeds, as their authors ran them


def measure(folder: Path) -> dict[str, gl.Validation]:
    """Return the validation of each testbed."""
    muri, shockwave = folder / "muri", folder / "shockwave"
    rounds = {"round_s": SHOCKWAVE_ROUND_S}
    tables = {"gavel-ftf": shockwave / "ftf.csv", "gavel-max-sum": shockwave / "max_sum.csv"}
    return {
        "Muri": gl.validate(
            gl.Cluster.homogeneous(servers=8, gpus=8, gpu="V100"),
            str(muri / "trace.csv"),
            ["srtf", "tiresias"],
            {name: muri / f"{name}.csv" for name in ("srtf", "tiresias")},
            columns=MURI,
            tolerance_s=MURI_DECISION_S,
        ),
        "Shockwave": gl.validate(
            gl.Cluster.homogeneous(servers=8, gpus=4, gpu="V100"),
            str(shockwave / "trace.trace"),
            list(tables),
            tables,
            columns=HARDWARE,
            peer=tables,
            peer_columns=SIMULATED,
            params=dict.fromkeys(tables, rounds),
            tolerance_s=SHOCKWAVE_ROUND_S,
        ),
    }


def varied(folder: Path) -> list[dict[str, Any]]:
    """Return the errors of Muri's Tiresias, run times given, with one thing changed at a time."""
    found = []
    for words, params in VARIED.items():
        policy = gl.policies.Tiresias(**params)
        (one,) = gl.validate(
            gl.Cluster.homogeneous(servers=8, gpus=8, gpu="V100"),
            str(folder / "muri" / "trace.csv"),
            policy,
            folder / "muri" / "tiresias.csv",
            columns=MURI,
        )
        layer = one.layers["scheduling"]
        sizes = {group.name: group.error for group in layer.groups["size"]}
        found.append(
            {
                "changed": words,
                "jct_mean_s": layer.measures["jct_mean_s"].error,
                "jct_p99_s": layer.measures["jct_p99_s"].error,
                "abs_p50": layer.errors["abs_p50"],
                "8": sizes["8"],
                "32": sizes["32"],
            }
        )
    return found


def transferred(folder: Path) -> list[dict[str, Any]]:
    """Return the errors of `srtf` with run times that the testbed measured under Tiresias.

    The fit on one policy predicts the other, so no row is predicted from itself.
    """
    muri = folder / "muri"
    trace = gl.read_trace(str(muri / "trace.csv"))
    seen = read_outcomes(muri / "tiresias.csv", trace, MURI).run_s
    traced = trace.numbers("duration_s")
    models = np.array(trace.column("model").to_pylist())
    factor = np.ones(len(trace))
    for model in np.unique(models):
        mine = models == model
        factor[mine] = np.median(seen[mine] / traced[mine])
    fit = gl.fit_runtime(trace, muri / "tiresias.csv", columns=MURI)
    fitted = fit.apply(trace).numbers("duration_s")
    given: dict[str, tuple[Any, dict[str, Any]]] = {
        "the trace": (traced, {}),
        "the trace x the median factor by model": (traced * factor, {}),
        "the fit of `gangline trace fit-runtime`": (fitted, fit.options()),
        "the same job under Tiresias": (seen, {}),
    }
    found = []
    for words, (durations, costs) in given.items():
        place = trace.columns.index("duration_s")
        table = trace.table.set_column(place, "duration_s", pa.array(durations))
        (one,) = gl.validate(
            gl.Cluster.homogeneous(servers=8, gpus=8, gpu="V100"),
            gl.Trace.from_arrow(table),
            "srtf",
            muri / "srtf.csv",
            columns=MURI,
            **costs,
        )
        layer = one.layers["prediction"]
        found.append(
            {
                "given": words,
                **{name: pair.error for name, pair in layer.measures.items()},
                "abs_p50": layer.errors["abs_p50"],
            }
        )
    return found


def fitted(folder: Path) -> list[list[str]]:
    """Return what is fitted to Muri's Tiresias: the costs, and the extreme factors."""
    muri = folder / "muri"
    fit = gl.fit_runtime(str(muri / "trace.csv"), muri / "tiresias.csv", columns=MURI)
    by_size = sorted(fit.factors, key=lambda name: fit.factors[name].value)
    ends = {f"factor: {name}" for name in (by_size[0], by_size[-2], by_size[-1])}
    return [row for row in fit.rows() if not row[0].startswith("factor") or row[0] in ends]


def rows(measured: dict[str, gl.Validation]) -> list[dict[str, Any]]:
    """Return a row per testbed, policy and layer."""
    return [
        {
            "testbed": testbed,
            "policy": one.policy.partition("(")[0],
            "layer": layer,
            "jobs": len(one.job_ids),
            **{key: pair.error for key, pair in found.measures.items()},
            **found.errors,
            "rank_correlation": found.rank_correlation,
            "departure": found.to_dict()["departure"],
            "groups": {
                kind: {group.name: [group.jobs, group.error] for group in groups}
                for kind, groups in found.groups.items()
            },
        }
        for testbed, validation in measured.items()
        for one in validation
        for layer, found in one.layers.items()
    ]


def short(value: Any) -> Any:
    """Return numbers with seven digits, which are enough for the docs; rounding is no error."""
    if isinstance(value, float):
        return float(f"{value:.7g}") if abs(value) > 1e-9 else 0.0
    if isinstance(value, dict):
        return {key: short(one) for key, one in value.items()}
    return [short(one) for one in value] if isinstance(value, list) else value


def json_of(folder: Path) -> str:
    """Return the content of the file, a row per line, so that a difference can be read."""
    parts: dict[str, list[Any]] = {"rows": rows(measure(folder)), "varied": varied(folder),
             "transferred": transferred(folder), "fit": fitted(folder)}  # fmt: skip
    lists = (
        f'"{name}": [\n' + ",\n".join(json.dumps(short(row)) for row in of) + "\n]"
        for name, of in parts.items()
    )
    return "{\n" + ",\n".join(lists) + "\n}\n"


def main() -> None:
    """Measure, and write the file."""
    parser = argparse.ArgumentParser(prog="validation.py")
    parser.add_argument("folder", type=Path, help="of muri/ and shockwave/")
    text = json_of(parser.parse_args().folder)
    DATA.parent.mkdir(exist_ok=True)
    DATA.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
