"""Checks published and hand-computed numbers of the network model, in engine and reference."""

from __future__ import annotations

import gzip
import json
from typing import TYPE_CHECKING, Any

import pytest

import gangline as gl
import worlds
from gangline import _core, network
from reference.network import Network as SlowNetwork
from reference.world import GpuType, Server

if TYPE_CHECKING:
    from pathlib import Path

SHAPES = {  # GPUs per server most, fewest; servers per rack most, fewest; racks
    "2s": (2, 2, 1, 1, 1),
    "2r": (1, 1, 2, 2, 1),
    "2n": (1, 1, 1, 1, 2),
    "8s": (8, 8, 1, 1, 1),
    "8r": (4, 4, 2, 2, 1),
    "8n": (4, 4, 1, 1, 2),
    "16r": (8, 8, 2, 2, 1),
    "7+1": (7, 1, 2, 2, 1),
}
DALLY = """
AlexNet .9989 .6506 .4066 .9913 .9891 .4725 .9656
MobileNetV3 .7284 .0926 .0051 .6286 .0983 .0051 .0993
ResNet18 .9930 .3204 .0344 .7999 .4829 .0350 .5278
ResNet50 .9999 .9991 .7144 .9999 .9990 .7221 .9990
VGG11 .9997 .9586 .7824 .9997 .9970 .9476 .9970
BERT-large .9917 .4483 .1133 .8052 .8884 .1211 .7995
"""
SYNTHETIC = {"compute_s": 0.1, "grad_bytes": 1.4e9, "buckets": 25, "last_bytes": 56e6}
# what the analytical backend of the published simulator gives for the same models
TREND = """
AlexNet .9903 .4577 .9987 .9891 .4504
MobileNetV3 .0983 .0051 .7373 .0973 .0051
ResNet18 .4921 .0348 .9586 .4866 .0347
ResNet50 .8896 .7196 .8902 .8895 .6689
VGG11 .9972 .9022 .9997 .9969 .8460
BERT-large .9264 .1185 .9213 .9161 .1184
"""


def world(servers_per_rack: int, **keys: Any) -> gl.Cluster:
    return worlds.cluster(f"16x8 g @fill:{servers_per_rack}", network=keys)


def raws(label: str, shapes: list[str], servers_per_rack: int, **keys: Any) -> list[float]:
    """Return the closed form by the engine, after checking that the reference has the same bits."""
    cluster = world(servers_per_rack, **keys)
    core = network.to_core(cluster, [label])
    assert core is not None
    slow_servers = [Server(0, 8, i // servers_per_rack) for i in range(16)]
    slow = SlowNetwork(keys, [], [GpuType("g", 1, 1.0)], slow_servers)
    found = []
    for name in shapes:
        value = core.raw(0, SHAPES[name])
        assert value is not None
        assert value == slow.raw(label, SHAPES[name])
        found.append(value)
    return found


@pytest.mark.parametrize("line", DALLY.strip().splitlines(), ids=lambda line: line.split()[0])
def test_models_of_the_published_simulator(line: str) -> None:
    label, *wanted = line.split()
    shapes = ["2s", "2r", "2n", "8s", "8r", "8n", "16r"]
    got = raws(label, shapes, 8, preset="dally-2024")
    assert [f"{value:.4f}"[1:] for value in got] == wanted


def test_a_wide_tier_is_held_down_to_a_narrow_one() -> None:
    core = network.to_core(world(8, preset="dally-2024"), ["BERT-large"])
    assert core is not None
    assert f"{core.at_shape(0, 0, 8, SHAPES['8r']):.4f}" == "0.8052"
    found = network.clamps(world(8, preset="dally-2024"), [8])
    assert ("BERT-large", "rack") in [(row["model"], row["tier"]) for row in found]
    assert all(row["locality"] < row["raw"] for row in found)


def test_a_slow_network_of_ethernet() -> None:
    keys = {"preset": "pcie-25g", "models": {"m": SYNTHETIC}}
    got = raws("m", ["2s", "2r", "2n", "8s", "8r", "8n", "16r", "7+1"], 8, **keys)
    wanted = [0.666001, 0.207433, 0.207111, 0.419199, 0.204457, 0.204144, 0.203960, 0.204032]
    assert [round(value, 6) for value in got] == wanted
    assert round(raws("m", ["8r"], 8, **keys, pipeline=False)[0], 6) == 0.152084


def test_a_fast_network() -> None:
    got = raws("m", ["8s", "8r", "7+1"], 4, preset="hgx-h100", models={"m": SYNTHETIC})
    assert [round(value, 6) for value in got] == [0.997686, 0.995400, 0.987436]


def test_trend_of_the_published_backend() -> None:
    """Models have the same order, and comparable values agree within 0.01."""
    backend = {row.split()[0]: list(map(float, row.split()[1:])) for row in TREND.split("\n")[1:-1]}
    ours = {label: raws(label, ["8r", "8n"], 8, preset="dally-2024") for label in backend}
    comparable = [label for label in backend if label != "ResNet50"]
    by_ours = sorted(comparable, key=lambda label: ours[label][0])
    by_theirs = sorted(comparable, key=lambda label: backend[label][3])
    assert by_ours == by_theirs
    every = sorted(backend, key=lambda label: ours[label][1])
    assert every == sorted(backend, key=lambda label: backend[label][4])
    for label in ("AlexNet", "MobileNetV3", "ResNet18", "VGG11"):
        assert abs(ours[label][0] - backend[label][3]) <= 0.01, label


MEASURED = [
    ("LM (batch size 5)", 8, 0.10464),
    ("LM (batch size 80)", 8, 0.20716),
    ("Transformer (batch size 64)", 8, 0.34260),
    ("ResNet-18 (batch size 64)", 4, 0.40079),
    ("ResNet-50 (batch size 64)", 8, 1.0),
]


def gavel_rows(path: Path) -> list[dict[str, Any]]:
    """Return rows of the public throughput file: consolidated and spread over servers."""
    rows = []
    for kind, jobs in json.loads(gzip.decompress(path.read_bytes())).items():
        name, _, spread = kind.partition("_")
        for job, others in jobs.items():
            label, gpus = job.strip("()").rsplit(", ", 1)
            row = {
                "gpu_type": name,
                "model": label.strip("'"),
                "gpus": int(gpus),
                "iters_per_s": others["null"],
                "placement": "spread" if spread else "server",
            }
            rows.append(row)
    return rows


@pytest.mark.shared
def test_ratios_of_the_public_table(shared: Path) -> None:
    rows = gavel_rows(shared / "traces/tables/gavel/simulation_throughputs.json.gz")
    kinds = sorted({row["gpu_type"] for row in rows})
    cluster = gl.Cluster.from_dict(
        {
            "gpu_types": [{"name": kind, "memory_gb": 16} for kind in kinds],
            "servers": [{"count": 4, "gpu": kind, "gpus": 8, "rack": "fill:2"} for kind in kinds],
            "throughput": {"rows": rows},
            "network": {"kind": "table"},
        }
    )
    core = network.to_core(cluster, [label for label, _, _ in MEASURED])
    assert core is not None
    v100 = kinds.index("v100")
    for code, (label, gpus, wanted) in enumerate(MEASURED):
        assert core.at_tier(v100, code, gpus, 0) == 1.0
        assert round(core.at_tier(v100, code, gpus, 1), 5) == wanted, label


def test_core_names_the_models_of_the_table() -> None:
    assert _core.Network.models() == [row.split()[0] for row in DALLY.strip().splitlines()]
