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
MURI_DECISION_S, SHOCKWAVE_ROUND_S = 360.0, 120.0  # of the testbeds, as their authors ran them
AS_THERE: dict[str, dict[str, Any]] = {
    "srtf": {"period_s": MURI_DECISION_S},
    "tiresias": {"period_s": MURI_DECISION_S, "running_first": True},
}
"""Parameters that the code of Muri's testbed states (cluster_exp/run.py and run.sh)."""
START_S = 20.0
"""What a start costs in the simulation of Shockwave's authors (scheduler/scheduler.py)."""
SOLVE_S = 1000.0
"""Least time between two allocations there; its default for the testbed and the simulation."""
OTHERS = {"srtf": "tiresias", "tiresias": "srtf"}
SEEDS = range(10)
VARIED: dict[str, dict[str, Any]] = {
    "defaults": {},
    "`running_first`": {"running_first": True},
    "`period_s=360`": {"period_s": MURI_DECISION_S},
    "both": AS_THERE["tiresias"],
    "both, and a third limit, 18,000 GPU-s": {
        **AS_THERE["tiresias"],
        "limits": [3250.0, 7200.0, 18_000.0],
    },
    "both, and `promote_knob=8`": {**AS_THERE["tiresias"], "promote_knob": 8.0},
    "`las_time`: seconds in place of GPU-seconds": {"las_time": True},
    "`discretised=false`: no queues": {"discretised": False},
    "`placement=consolidate`": {"placement": "consolidate"},
}
"""What might explain Muri's Tiresias."""
LEASES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "defaults": ({}, {}),
    "20 s per start": ({}, {"first_start_s": START_S, "restart_s": START_S}),
    "`planned_rate=present`": ({"planned_rate": "present"}, {}),
    "both": ({"planned_rate": "present"}, {"first_start_s": START_S, "restart_s": START_S}),
    "`min_solve_interval_s=1000`": ({"min_solve_interval_s": SOLVE_S}, {}),
    "all three": (
        {"planned_rate": "present", "min_solve_interval_s": SOLVE_S},
        {"first_start_s": START_S, "restart_s": START_S},
    ),
    "20 s per start, `modes=ignore`": (
        {},
        {"first_start_s": START_S, "restart_s": START_S, "modes": "ignore"},
    ),
}
"""What the authors' simulation of Shockwave has in addition: parameters, and options of the run.

In the last one all jobs keep their first batch size."""


def muri(folder: Path, policies: Any, observed: Any, trace: Any = None, **more: Any) -> Any:
    """Return the validation of policies on Muri's testbed."""
    return gl.validate(
        gl.Cluster.homogeneous(servers=8, gpus=8, gpu="V100"),
        str(folder / "muri" / "trace.csv") if trace is None else trace,
        policies,
        observed,
        columns=MURI,
        tolerance_s=MURI_DECISION_S,
        **more,
    )


def shockwave(
    folder: Path,
    params: dict[str, Any],
    *,
    peer: bool = False,
    modes: str | None = None,
    **more: Any,
) -> Any:
    """Return the validation of two policies on Shockwave's testbed, maybe with its simulator."""
    where = folder / "shockwave"
    reading = {} if modes is None else {"modes": modes}
    tables = {"gavel-ftf": where / "ftf.csv", "gavel-max-sum": where / "max_sum.csv"}
    if peer:
        more |= {"peer": tables, "peer_columns": SIMULATED}
    return gl.validate(
        gl.Cluster.homogeneous(servers=8, gpus=4, gpu="V100"),
        gl.read_trace(str(where / "trace.trace"), **reading),
        list(tables),
        tables,
        columns=HARDWARE,
        params={name: {"round_s": SHOCKWAVE_ROUND_S, **params} for name in tables},
        tolerance_s=SHOCKWAVE_ROUND_S,
        **more,
    )


def measure(folder: Path) -> dict[tuple[str, str], gl.Validation]:
    """Return the validations of each testbed, by what differs from the defaults."""
    tables = {name: folder / "muri" / f"{name}.csv" for name in AS_THERE}
    params, costs = LEASES["both"]
    return {
        ("Muri", ""): muri(folder, list(tables), tables),
        ("Muri", "as in the testbed"): muri(folder, list(tables), tables, params=AS_THERE),
        ("Shockwave", ""): shockwave(folder, {}, peer=True),
        ("Shockwave", "as in the testbed"): shockwave(folder, params, **costs),
    }


def varied(folder: Path) -> list[dict[str, Any]]:
    """Return the errors of Muri's Tiresias, run times given, with one thing changed at a time."""
    found = []
    for words, params in VARIED.items():
        policy = gl.policies.Tiresias(**params)
        (one,) = muri(folder, policy, folder / "muri" / "tiresias.csv")
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


def leases(folder: Path) -> list[dict[str, Any]]:
    """Return the errors on Shockwave, trace alone, with what its simulation has in addition."""
    return [
        {
            "policy": one.policy.partition("(")[0],
            "changed": words,
            **errors(one.layers["prediction"]),
        }
        for words, (params, options) in LEASES.items()
        for one in shockwave(folder, params, **options)
    ]


def errors(layer: Any) -> dict[str, float]:
    """Return the errors of a layer."""
    found = {name: pair.error for name, pair in layer.measures.items()}
    return {**found, "abs_p50": layer.errors["abs_p50"]}


def transferred(folder: Path) -> list[dict[str, Any]]:
    """Return the errors with run times that the testbed measured under the other policy.

    The fit on one policy predicts the other, so no row is predicted from itself.
    """
    trace = gl.read_trace(str(folder / "muri" / "trace.csv"))
    place = trace.columns.index("duration_s")
    traced = trace.numbers("duration_s")
    models = np.array(trace.column("model").to_pylist())
    found = []
    for policy, other in OTHERS.items():
        source = folder / "muri" / f"{other}.csv"
        seen = read_outcomes(source, trace, MURI).run_s
        factor = np.ones(len(trace))
        for model in np.unique(models):
            mine = models == model
            factor[mine] = np.median(seen[mine] / traced[mine])
        fit = gl.fit_runtime(trace, source, columns=MURI)
        by_model = gl.fit_runtime(trace, source, columns=MURI, costs_by_model=True)
        table = by_model.runtime()
        quiet = {name: value for name, value in table.items() if name != "job_noise"}
        given: dict[str, tuple[Any, list[dict[str, Any]]]] = {
            "the trace": (traced, [{}]),
            "the trace x the median factor by model": (traced * factor, [{}]),
            "the fit of `gangline trace fit-runtime`": (durations(fit, trace), [fit.options()]),
            "the same, costs by model, in `[runtime]`": (
                durations(by_model, trace),
                [{"runtime": quiet}],
            ),
            "the same with noise, mean of 10 seeds": (
                durations(by_model, trace),
                [{"runtime": table, "seed": seed} for seed in SEEDS],
            ),
            "the same job under the other policy": (seen, [{}]),
        }
        for words, (times, options) in given.items():
            with_times = trace.table.set_column(place, "duration_s", pa.array(times))
            jobs = gl.Trace.from_arrow(with_times)
            chosen = {"params": {policy: AS_THERE[policy]}}
            table_of = folder / "muri" / f"{policy}.csv"
            each = [
                errors(one.layers["prediction"])
                for more in options
                for one in muri(folder, policy, table_of, jobs, **chosen, **more)
            ]
            mean = {name: float(np.mean([one[name] for one in each])) for name in each[0]}
            found.append({"policy": policy, "given": words, **mean})
    return found


def durations(fit: gl.RuntimeFit, trace: gl.Trace) -> Any:
    """Return the durations multiplied by the fitted factors."""
    return fit.apply(trace).numbers("duration_s")


def fitted(folder: Path) -> list[list[str]]:
    """Return what is fitted to Muri's Tiresias: the costs, and the extreme factors."""
    where = folder / "muri"
    fit = gl.fit_runtime(str(where / "trace.csv"), where / "tiresias.csv", columns=MURI)
    by_size = sorted(fit.factors, key=lambda name: fit.factors[name].value)
    ends = {f"factor: {name}" for name in (by_size[0], by_size[-2], by_size[-1])}
    return [row for row in fit.rows() if not row[0].startswith("factor") or row[0] in ends]


def rows(measured: dict[tuple[str, str], gl.Validation]) -> list[dict[str, Any]]:
    """Return a row per testbed, policy, what differs from the defaults, and layer."""
    return [
        {
            "testbed": testbed,
            "policy": one.policy.partition("(")[0],
            "how": how,
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
        for (testbed, how), validation in measured.items()
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
             "leases": leases(folder), "transferred": transferred(folder),
             "fit": fitted(folder)}  # fmt: skip
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
