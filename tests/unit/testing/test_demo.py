"""Tests that the policies that `make demo` compares really differ."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path

import pytest

import gangline as gl

ROOT = Path(__file__).resolve().parents[3]
# The first comparison in the README and in the quick start.
QUICK_START = "synth:pai?jobs=1000&seed=1&max_gpus=16"


def variable(name: str) -> str:
    """Return the value of a variable of the Makefile."""
    found = re.search(rf"^{name} := (.*)$", (ROOT / "Makefile").read_text("utf-8"), re.M)
    assert found is not None
    return found[1]


def offered_load(trace: gl.Trace, cluster: gl.Cluster) -> float:
    """Return the requested GPU-seconds over the available ones until the last arrival."""
    columns = {name: trace.table[name].to_numpy() for name in ("arrival_s", "gpus", "duration_s")}
    asked = float((columns["gpus"] * columns["duration_s"]).sum())
    return asked / (float(columns["arrival_s"].max()) * cluster.gpus_total)


def mean_jct_s(trace: gl.Trace, cluster: gl.Cluster, policies: list[str]) -> dict[str, float]:
    """Return the mean completion time under each policy."""
    runs = {name: gl.simulate(cluster, trace, name) for name in policies}
    return {name: run.summary["jct_mean_s"] for name, run in runs.items()}


def test_the_policies_of_the_demo_differ() -> None:
    cluster = gl.Cluster.preset(variable("DEMO_CLUSTER"))
    trace = gl.read_trace(variable("DEMO_TRACE"))
    jct_s = mean_jct_s(trace, cluster, variable("DEMO_POLICIES").split(","))
    assert {"fifo", "sjf", "srtf", "las", "tiresias"} <= set(jct_s)
    for shorter, longer in pairwise(sorted(jct_s.values())):
        assert longer > 1.05 * shorter, jct_s
    assert jct_s["fifo"] > 4 * jct_s["srtf"]


def test_the_demo_states_its_load() -> None:
    cluster = gl.Cluster.preset(variable("DEMO_CLUSTER"))
    trace = gl.read_trace(variable("DEMO_TRACE"))
    stated = re.search(
        r"([\d,]+) synthetic jobs .* ([\d.]+) times the work that the (\d+) GPUs",
        (ROOT / "Makefile").read_text("utf-8"),
    )
    assert stated is not None
    assert len(trace) == int(stated[1].replace(",", ""))
    assert offered_load(trace, cluster) == pytest.approx(float(stated[2]), abs=0.005)
    assert cluster.gpus_total == int(stated[3])


def test_the_first_comparison_of_the_readme_is_under_load() -> None:
    text = (ROOT / "README.md").read_text("utf-8")
    command = re.search(
        r"gangline compare --trace \"(\S+)\" --cluster (\S+) --policies (\S+)", text
    )
    assert command is not None
    assert command[1] == QUICK_START
    cluster = gl.Cluster.preset(command[2])
    trace = gl.synth.pai(jobs=1000, seed=1, max_gpus=16)
    assert offered_load(trace, cluster) > 1.2
    jct_s = mean_jct_s(trace, cluster, command[3].split(","))
    assert jct_s["fifo"] > 2 * jct_s["tiresias"] > 2 * 1.1 * jct_s["srtf"]
