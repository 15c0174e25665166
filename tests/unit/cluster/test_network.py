"""Tests the network of a cluster: keys, errors and tables of locality factors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import gangline as gl
import worlds
from gangline import network
from refusals import refused

if TYPE_CHECKING:
    from pathlib import Path

    from snapshots import Snapshot

NAN = float("nan")
MODEL = {"compute_s": 0.1, "grad_bytes": 1e9, "buckets": 10}
LINK = {"algo": "ring", "alpha_s": 1e-6, "port_bw": 1e9}


def lab(**keys: Any) -> dict[str, Any]:
    return worlds.lab("4x4 g @fill:2", "2x2 h @fill:1", **keys)


def trace(*rows: dict[str, Any]) -> gl.Trace:
    base = {"arrival_s": 0.0, "duration_s": 10.0, "gpu_types": ["g"]}
    full = [{**base, "job_id": f"j{i}", **row} for i, row in enumerate(rows)]
    return gl.Trace.from_arrow(pa.Table.from_pylist(full))


SHARED = {"preset": "pcie-25g", "contention": "maxmin"}
BAD = [
    ({"preset": "dgx"}, "network.preset", "one of dally-2024, hgx-h100, pcie-25g, ideal"),
    ({"server": LINK, "rack": LINK}, "network.network.algo", "this key, or a `preset`"),
    ({"preset": "dally-2024", "rack": {"port_bw": 0.0}}, "network.rack.port_bw", "got 0"),
    ({"preset": "dally-2024", "rack": {"alpha_s": -1.0}}, "network.rack.alpha_s", "got -1"),
    ({"preset": "dally-2024", "rack": {"algo": "tree"}}, "network.rack.algo", "ring, halving"),
    ({"preset": "dally-2024", "rack": {"algo": []}}, "network.rack.algo", "ring, halving"),
    ({"preset": "dally-2024", "server": {"server_bw": 1.0}}, "network.server.server_bw", "rack"),
    ({"preset": "dally-2024", "rack": {"uplink_bw": 1.0}}, "network.rack.uplink_bw", "network"),
    ({"preset": "dally-2024", "network": {"uplink_bw": NAN}}, "network.network.uplink_bw", "NaN"),
    ({"preset": "pcie-25g", "oversubscription": 0.5}, "network.oversubscription", ">= 1"),
    ({"preset": "dally-2024", "oversubscription": 2.0}, "network.oversubscription", "uplink"),
    (
        {"preset": "pcie-25g", "oversubscription": 2.0, "network": {"uplink_bw": 1e9}},
        "network.oversubscription",
        "uplink_bw",
    ),
    ({"preset": "ideal", "rack": LINK}, "network.preset", "because this preset has no links"),
    ({"kind": "levels", "preset": "dally-2024"}, "network.kind", "alphabeta"),
    ({"kind": "levels"}, "network.levels", "if and only if"),
    ({"kind": "none", "levels": {"*": [1, 1, 1]}}, "network.levels", "if and only if"),
    ({"levels": {"a": [1.0, 0.5, 0.6]}}, "network.levels.a[2]", "do not rise"),
    ({"levels": {"a": [1.0, 0.0, 0.0]}}, "network.levels.a[1]", "(0, 1]"),
    ({"levels": {"a": [1, 1, 1]}, "default_model": "b"}, "network.default_model", "a label"),
    ({"preset": "dally-2024", "default_model": "b"}, "network.default_model", "AlexNet"),
    ({"preset": "dally-2024", "contention": "maxmin"}, "network.contention", "uplink_bw"),
    ({"preset": "ideal", "contention": "maxmin"}, "network.contention", "no links to share"),
    ({"levels": {"*": [1, 1, 1]}, "contention": "peak"}, "network.contention", "kind = levels"),
    ({"kind": "table", "contention": "peak"}, "network.contention", "kind = table"),
    ({"contention": "maxmin"}, "network.contention", "kind = none"),
    ({"preset": "pcie-25g", "background": 0.5}, "network.background", "contention"),
    ({"preset": "pcie-25g", "background": 1.0}, "network.background", "contention"),
    ({**SHARED, "background": 0.0}, "network.background", "1e-6 to 1"),
    ({**SHARED, "background": 9e-7}, "network.background", "1e-6 to 1"),
    ({**SHARED, "background": 1.5}, "network.background", "got 1.5"),
    ({**SHARED, "background": NAN}, "network.background", "got NaN"),
    ({"kind": "table", "network_extra": 0.0}, "network.network_extra", "(0, 1]"),
    ({"kind": "table", "on_missing": "zero"}, "network.on_missing", "error, one, or a preset"),
    ({"kind": "table", "on_missing": "ideal"}, "network.on_missing", "error, one, or a preset"),
    ({"models": {"m": {**MODEL, "buckets": 0}}}, "network.models.m.buckets", "1 to 1e6"),
    ({"models": {"m": {**MODEL, "overlap": 1.5}}}, "network.models.m.overlap", "0 to 1"),
    ({"models": {"m": {**MODEL, "compute_s": 0.0}}}, "network.models.m.compute_s", "seconds"),
    ({"models": {"m": {**MODEL, "grad_bytes": -1.0}}}, "network.models.m.grad_bytes", "bytes"),
    ({"models": {"m": {**MODEL, "last_bytes": NAN}}}, "network.models.m.last_bytes", "bytes"),
    ({"models": {"m": {**MODEL, "skew": 2.0}}}, "network.models.m.skew", "0 to 1"),
    ({"models": {"m": {**MODEL, "layers": [[0.01, 1e6]]}}}, "network.models.m.layers", "add up"),
    ({"models": {"m": {**MODEL, "layers": [[0.2, 1e9]]}}}, "network.models.m.layers", "compute_s"),
]  # fmt: skip


@pytest.mark.parametrize(("keys", "key", "words"), BAD, ids=lambda value: str(value)[:40])
def test_bad_values_name_their_key(keys: dict[str, Any], key: str, words: str) -> None:
    with pytest.raises(gl.NetworkError) as caught:
        gl.Cluster.from_dict(lab(network=keys))
    assert caught.value.key == key
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("keys", "key"),
    [
        ({"speed": 1}, "network.speed"),
        ({"rack": {"alpha": 1.0}}, "network.rack.alpha"),
        ({"kind": "packets"}, "network.kind"),
        ({"preset": "pcie-25g", "contention": "fair"}, "network.contention"),
        ({"preset": "pcie-25g", "background": "half"}, "network.background"),
        ({"models": {"a": MODEL, "m": {"compute_s": 1.0}}}, "network.models.m.grad_bytes"),
        ({"models": {"a": MODEL, "m": {**MODEL, "bucket": 1}}}, "network.models.m.bucket"),
        ({"models": {"a": MODEL, "m": {**MODEL, "buckets": "x"}}}, "network.models.m.buckets"),
        ({"levels": {"a": [1.0, 1.0, 1.0], "m": [1.0, 1.0]}}, "network.levels.m"),
    ],
)
def test_unknown_keys_are_errors_with_their_path(keys: dict[str, Any], key: str) -> None:
    with pytest.raises(gl.ClusterError) as caught:
        gl.Cluster.from_dict(lab(network=keys))
    assert caught.value.key == key


def test_the_file_is_named(tmp_path: Path) -> None:
    file = tmp_path / "lab.toml"
    file.write_text(gl.Cluster.from_dict(lab()).to_toml() + '[network]\npreset = "dgx"\n')
    with pytest.raises(gl.NetworkError) as caught:
        gl.Cluster.from_toml(file)
    assert str(caught.value).startswith(f"{file}: network.preset")
    assert (caught.value.path, caught.value.key) == (str(file), "network.preset")


def test_a_network_survives_toml(tmp_path: Path) -> None:
    keys = {"preset": "pcie-25g", "rack": {"algo": ["ring", "halving"]}, "models": {"m": MODEL}}
    cluster = gl.Cluster.from_dict(lab(network=keys))
    file = tmp_path / "lab.toml"
    file.write_text(cluster.to_toml())
    assert gl.Cluster.from_toml(file) == cluster


def test_gangs_of_unknown_models_are_refused() -> None:
    rows = [{"gpus": 2, "model": "mystery"}, {"gpus": 1, "model": "mystery"}, {"gpus": 4}]
    cluster = lab(network={"preset": "dally-2024"})
    with pytest.raises(gl.UnknownModel) as caught:
        gl.simulate(cluster, trace(*rows), "fifo")
    assert caught.value.jobs == [0, 2]
    assert vars(caught.value)["job_ids"] == ["j0", "j2"]
    assert "`mystery`" in str(caught.value)
    assert "2 multi-GPU jobs" in str(caught.value)


def test_a_default_model_answers_for_unknown_ones() -> None:
    keys = {"levels": {"m": [0.5, 0.25, 0.125], "*": [1.0, 1.0, 1.0]}}
    assert finishes(keys, {"gpus": 4, "model": "m"}) == [20.0]
    assert finishes(keys, {"gpus": 4, "model": "x"}) == [10.0]
    del keys["levels"]["*"]
    assert finishes({**keys, "default_model": "m"}, {"gpus": 6}) == [40.0]


def finishes(keys: dict[str, Any], *rows: dict[str, Any], **more: Any) -> list[float]:
    result = gl.simulate(lab(network=keys, **more), trace(*rows), "fifo")
    return [float(value) for value in result.jobs["finish_s"].to_pylist()]


def test_a_model_without_an_unscaled_time_is_refused() -> None:
    keys = {"preset": "dally-2024", "compute": "unscaled"}
    gl.simulate(lab(network=keys), trace({"gpus": 4, "model": "VGG11"}), "fifo")
    with refused(gl.NetworkError, key="network.models.BERT-large.compute_s", value="unscaled"):
        gl.simulate(lab(network=keys), trace({"gpus": 4, "model": "BERT-large"}), "fifo")


def test_a_model_without_an_unscaled_time_is_in_no_table() -> None:
    cluster = gl.Cluster.from_dict(lab(network={"preset": "dally-2024", "compute": "unscaled"}))
    found = network.locality_factors(cluster)
    assert {row["model"] for row in found} == {*network.known_models(cluster)} - {"BERT-large"}
    assert all(0.0 < row["locality"] <= 1.0 for row in found)
    assert network.locality_factors(cluster, models=["BERT-large"]) == []


def rows(*given: tuple[str, int, float, float | None]) -> dict[str, Any]:
    found = []
    for model, gpus, server, spread in given:
        row = {"gpu_type": "g", "model": model, "gpus": gpus, "iters_per_s": server}
        found.append(row)
        if spread is not None:
            found.append({**row, "placement": "spread", "iters_per_s": spread})
    return {"rows": found}


def test_measured_pairs() -> None:
    pairs = rows(("m", 2, 4.0, 1.0), ("m", 4, 8.0, 9.0), ("m", 8, 8.0, 4.0))
    table = {"kind": "table", "network_extra": 0.5}

    def kept(**keys: Any) -> list[float]:
        cluster = gl.Cluster.from_dict(lab(network={**table, **keys}, throughput=pairs))
        core = network.to_core(cluster, ["m"])
        assert core is not None
        asked = [(2, 0), (2, 1), (2, 2), (3, 1), (4, 1), (7, 1), (8, 1), (16, 2)]
        return [core.at_tier(0, 0, gpus, tier) for gpus, tier in asked]

    assert kept() == [1.0, 0.25, 0.125, 0.25, 1.0, 1.0, 0.5, 0.25]
    assert kept(monotone_n=True) == [1.0, 0.25, 0.125, 0.25, 0.25, 0.25, 0.25, 0.125]


def test_missing_pairs() -> None:
    pairs = rows(("m", 2, 4.0, 1.0), ("m", 4, 8.0, None), ("n", 2, 0.0, None))
    job = {"gpus": 6, "model": "m"}
    with pytest.raises(gl.MissingThroughput) as caught:
        finishes({"kind": "table"}, job, throughput=pairs)
    error = caught.value
    assert (error.gpu_type, error.model, error.gpus, error.job_id) == ("g", "m", 6, "j0")
    assert finishes({"kind": "table", "on_missing": "one"}, job, throughput=pairs) == [10.0]
    keys = {"kind": "table", "on_missing": "pcie-25g", "models": {"m": MODEL}}
    slower = finishes(keys, job, throughput=pairs)
    own = {"preset": "pcie-25g", "models": {"m": MODEL}}
    assert slower == finishes(own, job)
    assert slower > [10.0]


def test_table_of_what_gangs_keep() -> None:
    cluster = gl.Cluster.from_dict(lab(network={"levels": {"m": [0.9, 0.5, 0.25], "*": [1, 1, 1]}}))
    assert network.known_models(cluster) == ["m", "*"]
    found = network.locality_factors(cluster)
    mine = {
        (row["gpu_type"], row["tier"], row["gpus"]): row["locality"]
        for row in found
        if row["model"] == "m"
    }
    # type h has two servers in separate racks, so it has no rack tier
    assert mine == {
        ("g", "server", 2): 0.9,
        ("g", "server", 4): 0.9,
        ("g", "rack", 2): 0.5,
        ("g", "rack", 4): 0.5,
        ("g", "rack", 8): 0.5,
        ("g", "network", 2): 0.25,
        ("g", "network", 4): 0.25,
        ("g", "network", 8): 0.25,
        ("g", "network", 16): 0.25,
        ("h", "server", 2): 0.9,
        ("h", "network", 2): 0.25,
        ("h", "network", 4): 0.25,
    }
    assert network.locality_factors(gl.Cluster.from_dict(lab())) == []
    assert network.locality_factors(gl.Cluster.from_dict(lab(network={"preset": "ideal"}))) == []


def test_asking_for_an_unknown_model_is_an_error(snapshot: Snapshot) -> None:
    cluster = gl.Cluster.from_dict(lab(network={"preset": "dally-2024"}))
    with refused(gl.NetworkError, snapshot):
        network.locality_factors(cluster, models=["alexnet"])


def test_skew_by_the_oracle_and_by_sizes() -> None:
    """The oracle waits if it cannot accept a loss; `sizes` uses the largest tensor."""
    keys = {
        "levels": {
            "any": [1.0, 1.0, 1.0],
            "rack": [1.0, 0.99, 0.5],
            "server": [1.0, 0.5, 0.5],
        },
        "models": {"any": {**MODEL, "skew": 0.9}, "server": {**MODEL, "skew": 0.1}},
    }
    blocks = [{"gpus": 3, "duration_s": 100.0, "arrival_s": 0.0, "model": "any"}] * 4

    def starts(model: str, **params: Any) -> float:
        job = {"gpus": 2, "arrival_s": 1.0, "model": model}
        result = gl.simulate(
            lab(network=keys), trace(*blocks, job), "las", params={"placement": "skew", **params}
        )
        return float(result.jobs["first_start_s"].to_pylist()[-1])

    # every server has one free GPU until 100 s
    assert starts("any", skew="oracle") == 1.0
    assert starts("rack", skew="oracle") == 1.0
    assert starts("server", skew="oracle") == 100.0
    assert starts("server", skew="oracle", skew_eps=0.5) == 1.0
    assert starts("any", skew="sizes") == 100.0
    assert starts("server", skew="sizes") == 1.0
    assert starts("rack", skew="sizes") == 100.0  # it has no size, so its name counts
    assert starts("any", skew="sizes", skew_threshold=0.95) == 1.0


def test_tensor_sizes_count_where_distance_costs_nothing() -> None:
    """A network without costs still gives the size of a model's largest tensor."""
    blocks = [{"gpus": 3, "duration_s": 100.0, "arrival_s": 0.0, "model": "resnet50"}] * 4
    job = {"gpus": 2, "arrival_s": 1.0, "model": "resnet50"}  # by its name it may go anywhere

    def starts(skew: float) -> float:
        model = {**MODEL, "skew": skew}
        network = {"preset": "ideal", "models": {"resnet50": model}}
        params = {"placement": "skew", "skew": "sizes"}
        result = gl.simulate(lab(network=network), trace(*blocks, job), "las", params=params)
        return float(result.jobs["first_start_s"].to_pylist()[-1])

    assert starts(0.9) == 100.0
    assert starts(0.1) == 1.0


def test_best_speed_leaves_an_uneven_place() -> None:
    """By first fit, the first rack with room gives 3 + 1, and earlier racks give 2 | 2."""
    link = {**LINK, "port_bw": 1e9}
    model = {"compute_s": 0.1, "grad_bytes": 1.4e9, "buckets": 25}
    sizes = [(2, 0), (2, 1), (3, 2), (1, 2)]
    cluster = {
        "gpu_types": [{"name": "g", "memory_gb": 16}],
        "servers": [{"count": 1, "gpu": "g", "gpus": n, "rack": rack} for n, rack in sizes],
        "network": {
            "server": {**link, "port_bw": 1e11},
            "rack": link,
            "network": link,
            "models": {"m": model},
        },
    }

    def servers(rule: str) -> list[int]:
        params = {"placement": rule, "fit": "first"}
        job = {"gpus": 4, "model": "m"}
        result = gl.simulate(cluster, trace(job), "fifo", params=params, segments=True)
        return sorted(result.segments["server"].to_pylist())

    assert servers("consolidate") == [2, 3]
    assert servers("best_speed") == [0, 1]


def racks(**keys: Any) -> dict[str, Any]:
    """Return four racks of one server with one GPU, so that every gang crosses racks."""
    link = {"algo": "ring", "alpha_s": 0.0, "port_bw": 1e9}
    model = {"compute_s": 1.0, "grad_bytes": 1e9, "buckets": 1, "overlap": 0.0, "last_bytes": 0.0}
    tiers = {"server": link, "rack": link, "network": {**link, "uplink_bw": 2e9}}
    return worlds.lab("4x1 g @fill:1", network={**tiers, "models": {"m": model}, **keys})


def test_demands_of_gangs_over_racks() -> None:
    """Alone an iteration takes 1 s + 1 s; the uplink is used for 1 s of them at most."""

    def load(racks_used: int, **keys: Any) -> tuple[float, float] | None:
        core = network.to_core(gl.Cluster.from_dict(racks(**keys)), ["m"])
        assert core is not None
        return core.load(0, 0, 3, (1, 1, 1, 1, racks_used))

    assert load(2) is None  # no uplink is shared
    assert load(2, contention="maxmin") == (1e9, 0.5e9)
    assert load(2, contention="peak") == (1e9, 1e9)
    assert load(4, contention="maxmin") == (1.5e9, 1.5e9 / 2.5)
    assert load(4, contention="peak") == (1.5e9, 1e9)
    assert load(1, contention="maxmin") is None
    # canonical for three GPUs on servers and racks of one: three racks
    third = load(4, contention="maxmin", detail="tier")
    assert third is not None
    assert third[0] == 2e9 * 2 / 3


def test_with_tiers_a_gang_sends_what_its_canonical_place_would() -> None:
    """Two racks of 3 GPUs would hold the gang of 4 that is on four racks."""
    world = racks(contention="maxmin", detail="tier")
    world["servers"] = [{"count": 12, "gpu": "g", "gpus": 1, "rack": "fill:3"}]
    core = network.to_core(gl.Cluster.from_dict(world), ["m"])
    assert core is not None
    load = core.load(0, 0, 4, (1, 1, 1, 1, 4))
    assert load is not None
    assert load[0] == 1e9


def test_peak_counts_every_bucket_as_one_of_equal_size() -> None:
    """Four buckets of 0.25e9 bytes are sent in 1 s, regardless of the last one."""
    world = racks(contention="peak", background=0.5)
    world["network"]["models"]["m"] |= {"buckets": 4, "last_bytes": 1e6}
    core = network.to_core(gl.Cluster.from_dict(world), ["m"])
    assert core is not None
    assert core.load(0, 0, 2, (1, 1, 1, 1, 2)) == (1e9, 1e9)


def layered(servers: list[tuple[int, int, int]], model: dict[str, Any]) -> float:
    """Return S of a gang that fills servers of (count, GPUs, rack), from its finish."""
    world = {
        "gpu_types": [{"name": "g", "memory_gb": 16}],
        "servers": [{"count": n, "gpu": "g", "gpus": g, "rack": k} for n, g, k in servers],
        "network": {
            "detail": "layers",
            "server": {"algo": "ring", "alpha_s": 0.0, "port_bw": 1.0},
            "rack": {"algo": "ring", "alpha_s": 0.0, "port_bw": 0.25},
            "network": {"algo": "ring", "alpha_s": 0.0, "port_bw": 0.25},
            "models": {"m": model},
        },
    }
    gang = sum(n * g for n, g, _ in servers)
    result = gl.simulate(world, trace({"gpus": gang, "model": "m"}), "fifo")
    return 10.0 / float(result.jobs["finish_s"][0].as_py())


def test_each_tier_serves_the_bucket_that_reached_it_last() -> None:
    """The example of docs/concepts/network.md. L1 takes 1-5, 5-13 and 13-17. L3 overtakes L2 inside
    the servers (5-6, 6-8), so L2 is the last to reach the racks: L2 13-17, L3 17-19. Over racks L2
    takes 17-19 and L3 19-20: 17 s after the last backward pass, and S = 5 / 22. If the racks served
    L3 first, L2 would come over racks at 19 and end at 21.
    """
    layers = [[1.0, 4.0], [1.0, 2.0], [1.0, 1.0]]
    model = {"compute_s": 5.0, "grad_bytes": 7.0, "buckets": 3, "layers": layers}
    assert layered([(2, 2, 0), (2, 2, 1)], model) == pytest.approx(5 / 22, rel=1e-9)


def test_default_layers_share_the_overlapped_part_of_the_compute_time() -> None:
    """Half of 8 s is 2 s per layer: buckets of 3 s take 2-5 and 5-8, 4 s after the last pass."""
    model = {"compute_s": 8.0, "grad_bytes": 6.0, "buckets": 2, "overlap": 0.5}
    assert layered([(1, 2, 0)], model) == pytest.approx(8 / 12, rel=1e-9)


def test_background_alone_slows_a_gang() -> None:
    """A tenth of 2e9 is left, so 1e9 bytes take 5 s, and S is 1/5 instead of 1/2."""
    jobs = trace({"gpus": 2, "model": "m"})

    def end(**keys: Any) -> float:
        result = gl.simulate(racks(**keys), jobs, "fifo")
        row = result.jobs.to_pylist()[0]
        assert row["comm_network_s"] == row["comm_s"] == row["finish_s"] - 10.0
        assert row["comm_server_s"] == row["comm_rack_s"] == 0.0
        return float(row["finish_s"])

    assert end() == 20.0
    assert end(contention="maxmin") == 20.0
    assert end(contention="maxmin", background=0.1) == 50.0
    assert end(contention="peak", background=0.1) == 50.0


class Across(gl.Policy):
    """Puts jobs 0 and 1 on a server of each rack on arrival, and others after them."""

    wake_on = ("arrival", "completion")

    def __init__(self) -> None:
        self.seen: list[list[float]] = []
        self.told: list[tuple[float, list[int]]] = []

    def decide(self, view: gl.View, changes: gl.Changes) -> gl.Plan:
        self.seen.append(view.running("locality").tolist())
        self.told.append((view.now_s, changes.retimed.tolist()))
        plan = gl.Plan()
        for job in view.waiting("job").tolist():
            if job < 2:
                plan.start(job, {job: 1, job + 2: 1})
            elif not len(view.running("job")):
                plan.start(job, {0: 1})
        return plan


def two_racks(**keys: Any) -> dict[str, Any]:
    """Return two racks of two servers with one GPU, model m, and a model that computes for 9 s."""
    world = racks(**keys)
    world["servers"] = [{"count": 4, "gpu": "g", "gpus": 1, "rack": "fill:2"}]
    models = world["network"]["models"]
    models["light"] = {**models["m"], "compute_s": 9.0}
    return world


def test_peak_counts_the_pauses_too() -> None:
    """Of 0.6e9, m asks for 0.5e9 and light for 0.1e9 on average, for 1e9 each while they send: then
    both get 0.3e9, m needs 1e9 / 0.3e9 s for an iteration, and light no more than its 10 s.
    """
    jobs = trace({"gpus": 2, "model": "m"}, {"gpus": 2, "model": "light", "duration_s": 9.0})

    def ends(kind: str) -> list[float]:
        result = gl.simulate(two_racks(contention=kind, background=0.3), jobs, Across())
        return [round(end, 6) for end in result.jobs["finish_s"].to_pylist()]

    assert ends("maxmin") == [20.0, 10.0]
    # 10 s at S = 0.3, then alone: 0.6e9 of 1e9 are enough for an iteration in its 2 s
    assert ends("peak") == [24.0, 10.0]


def test_a_policy_sees_the_shared_locality() -> None:
    policy = Across()
    late = {"gpus": 2, "model": "m", "arrival_s": 1.0}
    jobs = trace({"gpus": 2, "model": "m"}, late, {"gpus": 1, "arrival_s": 2.0})
    gl.simulate(two_racks(contention="maxmin", background=0.25), jobs, policy)
    assert policy.seen == [[], [0.5], [0.25, 0.25], [0.25], [], []]
    # both are halved at 1 s; job 0 ends at 1 + 9.5 / 0.25 = 39 s, and job 1 is whole again
    assert policy.told == [
        (0.0, []),
        (1.0, [0]),  # the start of the job itself
        (2.0, [0, 1]),
        (39.0, []),
        (40.0, [1]),
        (50.0, []),
    ]


def test_flows_that_cannot_be_are_refused(snapshot: Snapshot) -> None:
    for capacity, flows in [(0.0, []), (1.0, [(0.0, [0])]), (1.0, [(1.0, [2])])]:
        with refused(gl.ClusterError, key="flows"):
            network.fair_rates(capacity, 2, flows)
    with refused(gl.ClusterError, snapshot):
        network.fair_rates(1.0, 2, [(1.0, [0, 0])])
