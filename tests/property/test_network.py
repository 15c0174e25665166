"""Checks laws of the network model on drawn links and models."""

from __future__ import annotations

import itertools
from typing import Any

from hypothesis import assume, given
from hypothesis import strategies as st

import gangline as gl
import worlds
from gangline import _core, network

SERVERS, GPUS, PER_RACK = 32, 8, 4
ALGOS = ["ring", "halving", "direct", "auto"]
SIZES = [1, 2, 3, 4, 5, 7, 8, 9, 16, 24, 32, 33, 64, 100]


@st.composite
def tier_links(draw: st.DrawFn) -> dict[str, Any]:
    return {
        "algo": draw(st.sampled_from(ALGOS)),
        "alpha_s": draw(st.sampled_from([0.0, 1e-6, 3.7e-5, 1e-3])),
        "port_bw": draw(st.floats(1e8, 1e12)),
    }


@st.composite
def models(draw: st.DrawFn) -> dict[str, Any]:
    buckets = draw(st.integers(1, 60))
    volume = draw(st.floats(0.0, 1e10))
    model = {
        "compute_s": draw(st.floats(1e-5, 1.0)),
        "grad_bytes": volume,
        "buckets": buckets,
        "overlap": draw(st.floats(0.0, 1.0)),
    }
    if draw(st.booleans()):
        model["last_bytes"] = draw(st.floats(0.0, 1.0)) * volume / buckets
    return model


@st.composite
def networks(draw: st.DrawFn) -> dict[str, Any]:
    keys: dict[str, Any] = {tier: draw(tier_links()) for tier in network.TIERS}
    if draw(st.booleans()):
        keys["rack"]["server_bw"] = draw(st.floats(1e8, 1e12))
        keys["network"]["uplink_bw"] = draw(st.floats(1e8, 1e12))
    keys["detail"] = draw(st.sampled_from(["tier", "shape", "layers"]))
    keys["pipeline"] = draw(st.booleans())
    keys["models"] = {"m": draw(models())}
    return keys


def core_of(keys: dict[str, Any], *, servers: int = SERVERS) -> _core.Network:
    cluster = worlds.cluster(f"{servers}x{GPUS} g @fill:{PER_RACK}", network=keys)
    core = network.to_core(cluster, ["m"])
    assert core is not None
    return core


shapes = st.tuples(
    st.integers(1, 8), st.integers(1, 8), st.integers(1, 4), st.integers(1, 4), st.integers(1, 4)
).map(lambda s: (max(s[:2]), min(s[:2]), max(s[2:4]), min(s[2:4]), s[4]))


@given(keys=networks())
def test_wider_tiers_are_never_faster(keys: dict[str, Any]) -> None:
    core = core_of(keys)
    for gpus in SIZES:
        chain = [core.at_tier(0, 0, gpus, tier) for tier in range(3)]
        assert all(0.0 < kept <= 1.0 for kept in chain)
        if gpus <= GPUS:
            assert chain[0] >= chain[1] >= chain[2]
        elif gpus <= GPUS * PER_RACK:
            assert chain[1] >= chain[2]
    assert core.at_tier(0, 0, 1, 2) == 1.0


@given(keys=networks(), shape=shapes, gpus=st.integers(2, 32))
def test_no_placement_beats_a_narrower_canonical_one(
    keys: dict[str, Any], shape: tuple[int, int, int, int, int], gpus: int
) -> None:
    core = core_of(keys)
    tier = 2 if shape[4] > 1 else 1 if shape[2] > 1 else 0
    kept = core.at_shape(0, 0, gpus, shape)
    for narrower in range(tier):
        if gpus <= (GPUS, GPUS * PER_RACK)[narrower]:
            assert kept <= core.at_tier(0, 0, gpus, narrower)


@given(keys=networks(), shape=shapes, factor=st.floats(1.0, 100.0), data=st.data())
def test_better_links_and_smaller_models_never_lose(
    keys: dict[str, Any],
    shape: tuple[int, int, int, int, int],
    factor: float,
    data: st.DataObject,
) -> None:
    # with layers, a faster channel can let a newer bucket overtake at a worse time
    assume(keys["detail"] != "layers")
    before = core_of(keys).raw(0, shape)
    what = data.draw(st.sampled_from(["alpha_s", "port_bw", "grad_bytes", "overlap"]))
    model = keys["models"]["m"]
    if what == "grad_bytes":
        model["grad_bytes"] /= factor
        if "last_bytes" in model:
            model["last_bytes"] /= factor
    elif what == "overlap":
        model["overlap"] = min(1.0, model["overlap"] * factor)
    else:
        tier = data.draw(st.sampled_from(network.TIERS))
        keys[tier][what] *= 1.0 / factor if what == "alpha_s" else factor
    after = core_of(keys).raw(0, shape)
    assert before is not None
    assert after is not None
    assert after >= before * (1.0 - 1e-12)


@given(keys=networks(), shape=shapes, gpus=st.integers(2, 32))
def test_asking_again_gives_the_same_bits(
    keys: dict[str, Any], shape: tuple[int, int, int, int, int], gpus: int
) -> None:
    kept = core_of(keys)
    first = [kept.at_shape(0, 0, gpus, shape) for _ in range(2)]
    fresh = core_of(keys).at_shape(0, 0, gpus, shape)
    assert first == [fresh, fresh]


@given(keys=networks(), shape=shapes, order=st.sampled_from(["lifo", "fifo"]))
def test_equal_layers_agree_with_the_closed_form(
    keys: dict[str, Any], shape: tuple[int, int, int, int, int], order: str
) -> None:
    """They agree within the time of a bucket; the closed form has no tail for equal ones."""
    model = keys["models"]["m"]
    model.pop("last_bytes", None)
    form = core_of({**keys, "detail": "shape", "pipeline": True}).raw(0, shape)
    layered = core_of({**keys, "detail": "layers", "order": order}).raw(0, shape)
    one = {**model, "buckets": 1, "overlap": 0.0, "grad_bytes": model["grad_bytes"]}
    one["grad_bytes"] /= model["buckets"]
    alone = core_of({**keys, "detail": "shape", "models": {"m": one}}).raw(0, shape)
    assert form is not None
    assert layered is not None
    assert alone is not None
    compute = model["compute_s"]
    exposed = [compute * (1.0 / kept - 1.0) for kept in (form, layered, alone)]
    assert abs(exposed[0] - exposed[1]) <= exposed[2] + 1e-9 * (compute + exposed[0])


@given(keys=networks())
def test_servers_of_a_rack_are_alike(keys: dict[str, Any]) -> None:
    """A run on any pair of servers of a rack takes the same time."""
    keys["default_model"] = "m"
    block = {"count": 3, "gpu": "g", "gpus": 2, "rack": 0}
    rows = [{"job_id": f"s{i}", "arrival_s": 0.0, "gpus": 2, "duration_s": 10.0} for i in range(3)]
    cluster = {"gpu_types": [{"name": "g", "memory_gb": 16}], "servers": [block], "network": keys}
    ends = set()
    for pair in itertools.combinations(range(3), 2):
        one = [{"server": s, "down_s": 0.0} for s in range(3) if s not in pair]
        import pyarrow as pa

        trace = gl.Trace.from_arrow(pa.Table.from_pylist([{**rows[0], "gpus": 4}]))
        world = {**cluster, "failures": {"table": one}}
        result = gl.simulate(world, trace, "fifo")
        ends.add(result.summary["jct_mean_s"])
    assert len(ends) == 1
