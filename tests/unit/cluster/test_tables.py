"""Tests throughput tables: the native form, Gavel's JSON, and their use in a run."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gangline as gl
import worlds
from gangline.cluster.tables import ThroughputTable, read_throughput
from gangline.cluster.tables.keys import batch_size_of, parse_key
from refusals import refused
from samples.tables import GAVEL, INTERFERENCE

if TYPE_CHECKING:
    from pathlib import Path

    from snapshots import Snapshot

TOML = """
name = "lab"
[[gpu_types]]
name = "V100"
memory_gb = 16
[[gpu_types]]
name = "T4"
memory_gb = 16
[[servers]]
count = 2
gpu = "V100"
gpus = 2
[[servers]]
count = 1
gpu = "T4"
gpus = 4
[throughput]
table = "rates.json"
format = "gavel"
"""


def jobs(**columns: Any) -> pa.Table:
    count = len(columns["gpus"])
    base = {"job_id": [f"j{i}" for i in range(count)], "arrival_s": [0.0] * count}
    return pa.table({**base, **columns})


def write(path: Path, data: object) -> Path:
    path.write_text(json.dumps(data, indent=1), encoding="utf-8")
    return path


@pytest.fixture
def lab(tmp_path: Path) -> Path:
    write(tmp_path / "rates.json", GAVEL)
    path = tmp_path / "lab.toml"
    path.write_text(TOML)
    return path


def test_keys_are_python_text_and_nothing_else() -> None:
    assert parse_key("('a', 1)") == ("a", 1)
    assert parse_key(' ( "it\'s" , 12 , ) ') == ("it's", 12)
    assert parse_key(r"('it\'s \x41é\\', 2)") == ("it's Aé\\", 2)
    for bad in ("a", "('a')", "('a', 0)", "('a', -1)", "('a', 1) + 1", "('a', b)", "(a, 1)", "()"):
        assert parse_key(bad) is None, bad
    assert parse_key(r"('\q', 1)") is None
    assert batch_size_of("LM (batch size 0)") is None


@given(st.text(min_size=1), st.integers(1, 10**6))
def test_any_label_survives_its_python_spelling(label: str, gpus: int) -> None:
    assert parse_key(repr((label, gpus))) == (label, gpus)


@given(st.text())
def test_any_text_is_a_key_or_none(text: str) -> None:
    found = parse_key(text)
    assert found is None or (isinstance(found[0], str) and found[1] >= 1)


def test_gavel_types_labels_and_pairs(tmp_path: Path) -> None:
    table = read_throughput(write(tmp_path / "rates.json", GAVEL))
    assert table.gpu_types == ["v100", "k80"]
    assert table.models == ["net (batch size 8)", "it's"]
    assert table.rates.to_pylist()[0]["batch_size"] == 8
    assert table.rate("v100", "net (batch size 8)", 2) == 6.0
    assert table.rate("v100", "net (batch size 8)", 2, "spread") == 1.5
    assert table.gang_sizes("net (batch size 8)") == [1, 2]
    # one GPU cannot be spread; 1.5 of 6 for two
    assert table.ratio("v100", "net (batch size 8)", 1) == 1.0
    assert table.ratio("v100", "net (batch size 8)", 2) == 0.25
    assert table.ratio("k80", "net (batch size 8)", 2) is None
    assert table.pair("v100", "net (batch size 8)", "it's") == (2.0, 1.0)
    assert table.pair("v100", "it's", "net (batch size 8)") == (1.0, 2.0)
    assert table.pair("v100", "it's", "it's") is None
    # a spread rate above that on one server: 4.5 against 4
    assert table.notes == {"zero_rate": 1, "spread_above_server": 1}
    assert table.provenance["format"] == "gavel"


def test_ratios_above_one_are_clipped() -> None:
    rows = {
        "gpu_type": ["V"] * 2,
        "model": ["m"] * 2,
        "gpus": [4, 4],
        "placement": ["server", "spread"],
        "iters_per_s": [2.0, 2.5],
    }
    table = ThroughputTable.from_arrow(pa.table(rows))
    assert table.ratio("V", "m", 4) == 1.0
    assert table.rate("V", "m", 4, "spread") == 2.5


def test_a_batch_size_comes_before_a_blank_and_the_nearest_size_is_in_ratio() -> None:
    rows = {
        "gpu_type": ["V"] * 4,
        "model": ["m"] * 4,
        "batch_size": [None, 64, None, None],
        "gpus": [1, 1, 2, 8],
        "iters_per_s": [10.0, 3.0, 16.0, 40.0],
    }
    table = ThroughputTable.from_arrow(pa.table(rows))
    assert table.rate("V", "m", 1, batch_size=64) == 3.0
    assert table.rate("V", "m", 1, batch_size=32) == 10.0
    # 4 is as far from 2 as from 8: the smaller, 16 / 2 x 4
    found = table.lookup(["V"], ["m", "m", "m"], [4, 5, 3], missing="nearest")
    assert found[:, 0].tolist() == [32.0, 25.0, 24.0]
    assert table.find("V", "m", 4) is None
    with refused(gl.ClusterError, key="throughput", value=("V", "m", 4, "server")):
        table.lookup(["V"], ["m"], [4])


def test_native_files_round_trip(tmp_path: Path) -> None:
    rows = {
        "gpu_type": ["V", "V"],
        "model": ["m", "n"],
        "batch_size": pa.array([None, 4], pa.int32()),
        "gpus": [1, 2],
        "placement": ["server", "spread"],
        "iters_per_s": [1.5, 0.0],
    }
    table = pa.table(rows)
    pq.write_table(table, tmp_path / "t.parquet")
    (tmp_path / "t.csv").write_text(
        "gpu_type,model,batch_size,gpus,placement,iters_per_s\nV,m,,1,,1.5\nV,n,4,2,spread,0\n"
    )
    ours = [read_throughput(tmp_path / name) for name in ("t.parquet", "t.csv")]
    assert ours[0].rates.to_pylist() == ours[1].rates.to_pylist() == [
        {"gpu_type": "V", "model": "m", "batch_size": None, "gpus": 1, "placement": "server",
         "iters_per_s": 1.5},
        {"gpu_type": "V", "model": "n", "batch_size": 4, "gpus": 2, "placement": "spread",
         "iters_per_s": 0.0},
    ]  # fmt: skip
    assert ThroughputTable.from_rows(ours[0].to_rows()).rates.equals(ours[0].rates)


@pytest.mark.parametrize(
    ("change", "facts"),
    [
        ({"v100": 3}, {"key": "['v100']", "line": 2, "value": 3}),
        ({"v100": {"net": {"null": 1}}}, {"key": "['v100']['net']", "line": 3, "value": "net"}),
        ({"v100": {"('a', 1)": {}}}, {"key": "['v100'][\"('a', 1)\"]", "line": 3, "value": {}}),
        (
            {"v100": {"('a', 1)": {"null": -1}}},
            {"key": "['v100'][\"('a', 1)\"]['null']", "line": 4, "value": -1},
        ),
        (
            {"v100": {"('a', 1)": {"null": True}}},
            {"key": "['v100'][\"('a', 1)\"]['null']", "line": 4, "value": True},
        ),
        (
            {"v100": {"('a', 1)": {"null": "x"}}},
            {"key": "['v100'][\"('a', 1)\"]['null']", "line": 4, "value": "x"},
        ),
        (
            {"v100": {"('a', 1)": {"null": 1, "('b', 1)": [1]}}},
            {"key": "['v100'][\"('a', 1)\"][\"('b', 1)\"]", "line": 5, "value": [1]},
        ),
        (
            {"v100": {"('a', 1)": {"null": 1}, '("a", 1)': {"null": 1}}},
            {"key": "['v100']['(\"a\", 1)']", "line": 6, "value": '("a", 1)'},
        ),
        ({}, {"key": "(top)", "value": "dict"}),
    ],
)
def test_bad_gavel_tables_name_their_place(
    tmp_path: Path, change: Any, facts: dict[str, Any]
) -> None:
    with refused(gl.ClusterError, **facts):
        read_throughput(write(tmp_path / "rates.json", change), format="gavel")


def test_the_line_of_a_bad_rate_is_named(tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    path.write_text('{\n "v100": {\n  "(\'a\', 1)": {\n   "null": -1\n  }\n }\n}')
    with pytest.raises(gl.ClusterError) as caught:
        read_throughput(path)
    assert caught.value.line == 4


@pytest.mark.parametrize(
    "content",
    [
        b'{"a": \xff}',
        b'{"a": NaN}',
        b"gpu_type,model\nV,m\n",
        b"gpu_type,model,gpus,iters_per_s\nV,m,x,1\n",
        b"gpu_type,model,gpus,iters_per_s\nV,m,1,-1\n",
        b"gpu_type,model,gpus,iters_per_s\nV,m,0,1\n",
        b"gpu_type,model,gpus,iters_per_s\n,m,1,1\n",
        b"gpu_type,model,gpus,iters_per_s\nV,m,1,1\nV,m,1,2\n",
        b"gpu_type,model,gpus,placement,iters_per_s\nV,m,1,far,1\n",
        b"",
    ],
)
def test_damaged_tables_are_refused(tmp_path: Path, content: bytes, snapshot: Snapshot) -> None:
    path = tmp_path / "r.json"
    path.write_bytes(content)
    with refused(gl.ClusterError, snapshot):
        read_throughput(path)


def test_tables_that_a_library_cannot_read_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    path.write_bytes(b"{")
    with refused(gl.ClusterError, path=str(path), line=1) as caught:
        read_throughput(path)
    assert str(caught.value.expected).startswith("JSON")
    path.write_bytes(b"PAR1 and no more")
    with refused(gl.ClusterError, path=str(path), expected="a Parquet file"):
        read_throughput(path)


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(content: bytes) -> None:
    import tempfile
    from pathlib import Path

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "t"
        path.write_bytes(content)
        for kind in ("native", "gavel"):
            with pytest.raises(gl.ClusterError):
                read_throughput(path, format=kind)  # type: ignore[arg-type]


def test_a_run_uses_the_gavel_table(lab: Path) -> None:
    table = jobs(gpus=[2, 1], iterations=[60.0, 10.0], model=["net (batch size 8)", "it's"])
    result = gl.simulate(gl.Cluster.from_toml(lab), table, "fifo")
    # 60 iterations at 6 per second; 10 at 5
    assert result.jobs.column("finish_s").to_pylist() == [10.0, 2.0]
    # durations are known through the table, so a policy may ask for them
    assert gl.simulate(gl.Cluster.from_toml(lab), table, "sjf").summary["finished"] == 2


def test_a_label_with_its_batch_size_serves_every_job_of_that_label(lab: Path) -> None:
    label = "net (batch size 8)"
    table = jobs(gpus=[1, 1], iterations=[8.0, 8.0], model=[label] * 2, batch_size=[8, None])
    result = gl.simulate(gl.Cluster.from_toml(lab), table, "fifo")
    assert result.jobs.column("run_s").to_pylist() == [2.0, 2.0]


def test_a_combination_without_a_rate_names_the_job(lab: Path) -> None:
    table = jobs(gpus=[1, 4], iterations=[1.0, 1.0], model=["net (batch size 8)"] * 2)
    with pytest.raises(gl.ClusterError) as caught:
        gl.simulate(gl.Cluster.from_toml(lab), table, "fifo")
    words = str(caught.value)
    assert "job j1: net (batch size 8) on 4 GPUs" in words
    assert "V100, T4" in words
    assert "j0" not in words


def test_what_even_the_nearest_size_does_not_know_needs_rows(lab: Path, snapshot: Snapshot) -> None:
    lab.write_text(TOML + 'missing = "nearest"\n')
    table = jobs(gpus=[1], iterations=[5.0], model=["net of nobody"])
    with refused(gl.ClusterError, snapshot):
        gl.simulate(gl.Cluster.from_toml(lab), table, "fifo")


def test_nearest_takes_the_rate_per_gpu_and_is_recorded(lab: Path) -> None:
    lab.write_text(TOML + 'missing = "nearest"\n')
    table = jobs(gpus=[4, 1], iterations=[24.0, 8.0], model=["net (batch size 8)"] * 2)
    result = gl.simulate(gl.Cluster.from_toml(lab), table, "fifo")
    # two GPUs make 6 per second, so four are taken to make 12; one has its own row
    assert result.jobs.column("run_s").to_pylist() == [2.0, 2.0]
    assert result.spec["notes"]["rates_from_another_gang_size"] == 1
    assert result.spec["cluster"]["throughput"]["missing"] == "nearest"


def test_iterations_of_a_model_need_a_table(snapshot: Snapshot) -> None:
    lab = gl.Cluster.homogeneous(servers=1, gpus=2)
    table = jobs(gpus=[1], iterations=[5.0], model=["net"])
    with refused(gl.ClusterError, snapshot):
        gl.simulate(lab, table, "fifo")


def test_a_table_of_other_types_is_refused(tmp_path: Path) -> None:
    write(tmp_path / "rates.json", {"a100": {"('m', 1)": {"null": 1}}})
    path = tmp_path / "lab.toml"
    path.write_text(TOML)
    with refused(gl.ClusterError, key="throughput.table", value="a100"):
        gl.Cluster.from_toml(path)


@pytest.fixture(scope="module")
def table(shared: Path) -> ThroughputTable:
    """Return the published table."""
    return read_throughput(shared / "traces/tables/gavel/simulation_throughputs.json.gz")


@pytest.mark.shared
class TestPublicTable:
    """The expected numbers are those of the authors of the published table."""

    def test_counts(self, table: ThroughputTable) -> None:
        assert table.gpu_types == ["k80", "p100", "v100"]
        counted: dict[tuple[str, str], int] = {}
        sizes: dict[tuple[str, int], int] = {}
        for row in table.rates.to_pylist():
            key = (row["gpu_type"], row["placement"])
            counted[key] = counted.get(key, 0) + 1
            if row["placement"] == "server":
                size = (row["gpu_type"], row["gpus"])
                sizes[size] = sizes.get(size, 0) + 1
        assert all(counted[kind, "server"] == 83 for kind in table.gpu_types)
        assert (counted["k80", "spread"], counted["v100", "spread"]) == (77, 83)
        assert [sizes["v100", gpus] for gpus in (1, 2, 4, 8)] == [26, 19, 19, 19]

    def test_zero_rates_are_those_of_one_model(self, table: ThroughputTable) -> None:
        zeros = [row for row in table.rates.to_pylist() if row["iters_per_s"] == 0.0]
        assert {(row["gpu_type"], row["model"], row["gpus"]) for row in zeros} == {
            ("k80", "ResNet-50 (batch size 128)", gpus) for gpus in (2, 4, 8)
        }

    def test_pairs(self, table: ThroughputTable) -> None:
        for kind, usable in (("v100", 636), ("p100", 656), ("k80", 589)):
            rows = [
                row
                for row in table.pairs.to_pylist()
                if row["gpu_type"] == kind and row["placement"] == "server"
            ]
            assert len(rows) == 1759
            single = [row for row in rows if row["gpus"] == 1]
            both = [row for row in single if row["iters_per_s"] and row["co_iters_per_s"]]
            assert (len(single), len(both)) == (676, usable)
            assert not any(row["iters_per_s"] for row in rows if row["gpus"] > 1)

    def test_spread_ratios(self, table: ThroughputTable) -> None:
        golden = {
            ("LM (batch size 5)", 8): 0.10464,
            ("LM (batch size 80)", 8): 0.20716,
            ("Transformer (batch size 64)", 8): 0.34260,
            ("ResNet-18 (batch size 64)", 4): 0.40079,
            ("ResNet-50 (batch size 64)", 8): 1.0,
        }
        for (model, gpus), ratio in golden.items():
            assert table.ratio("v100", model, gpus) == pytest.approx(ratio, abs=5e-6)
        assert table.notes["spread_above_server"] == 44

    def test_newer_is_not_always_faster(self, table: ThroughputTable) -> None:
        model = "Recommendation (batch size 512)"
        assert table.rate("v100", model, 1) < table.rate("p100", model, 1)

    def test_the_physical_table_reads_too(self, shared: Path) -> None:
        path = shared / "traces/tables/gavel/physical_cluster_throughputs.json.gz"
        assert len(read_throughput(path)) == 492


def test_interference_tables_are_read(tmp_path: Path) -> None:
    (tmp_path / "xi.csv").write_text(INTERFERENCE)
    table = gl.tables.read_interference(tmp_path / "xi.csv")
    assert table.column("xi").to_pylist() == [1.5, 0.9, None, None]
    pq.write_table(table, tmp_path / "xi.parquet")
    assert gl.tables.read_interference(tmp_path / "xi.parquet").equals(table)


def test_a_cluster_takes_an_interference_table(tmp_path: Path) -> None:
    (tmp_path / "xi.csv").write_text(INTERFERENCE)
    lab = TOML.partition("[throughput]")[0]
    sharing = '[sharing]\ninterference = "table"\ntable = "xi.csv"\n'
    (tmp_path / "lab.toml").write_text(lab + sharing)
    cluster = gl.Cluster.from_toml(tmp_path / "lab.toml")
    assert cluster.sharing is not None
    rows = [(row.model, row.co_model, row.xi) for row in cluster.sharing.rows or ()]
    assert rows == [("a", "b", 1.5), ("b", "a", 0.9), ("a", "a", 0.0), ("b", "b", 0.0)]
    assert gl.Cluster.from_dict(cluster.to_dict()) == cluster
    (tmp_path / "xi.csv").write_text(
        "model,co_model,xi,gpu_type,gpus,batch_size,co_batch_size\n"
        "a,b,1.5,v100,2,8,16\na,b,2,elsewhere,,,\na,b,1.2,,,,\n"
    )
    (one, other) = gl.Cluster.from_toml(tmp_path / "lab.toml").sharing.rows or ()
    assert (one.gpu_type, one.gpus, one.batch_size, one.co_batch_size) == ("V100", 2, 8, 16)
    assert (other.gpu_type, other.gpus, other.batch_size, other.xi) == (None, None, None, 1.2)
    for text, facts in (
        (
            "model,co_model,xi,mode\na,b,1.5,mps\n",
            {"value": "mps", "expected": "no mode (modes are not available yet)"},
        ),
        (
            "model,co_model,xi,gpu_type\na,b,1.5,K80\n",
            {"value": "none", "expected": "rows for any of V100, T4"},
        ),
        ("model,co_model,xi,batch_size\na,b,1.5,8\n", {"key": "sharing.rows[0]", "value": "a, b"}),
    ):
        (tmp_path / "xi.csv").write_text(text)
        with refused(gl.ClusterError, **facts):
            gl.Cluster.from_toml(tmp_path / "lab.toml")
    (tmp_path / "lab.toml").write_text(lab + sharing.replace("xi.csv", "none.csv"))
    with refused(gl.ClusterError, key="sharing.table"):
        gl.Cluster.from_toml(tmp_path / "lab.toml")
    (tmp_path / "lab.toml").write_text(lab + '[sharing]\ntable = "xi.csv"\n')
    with refused(gl.ClusterError, key="sharing.table", value="constant"):
        gl.Cluster.from_toml(tmp_path / "lab.toml")


@pytest.mark.parametrize(
    ("content", "facts"),
    [
        ("model,xi\na,1\n", {"key": "co_model", "value": "only model, xi"}),
        ("model,co_model,xi\na,b,x\n", {"key": "xi", "line": 2}),
        ("model,co_model,xi\na,b,1\na,b,2\n", {"key": "row 2", "value": "a, b"}),
        ("model,co_model,xi\n,b,1\n", {"key": "row 1", "value": "None, b"}),
        ("model,co_model,xi\n", {"key": "sharing.table", "value": "none"}),
    ],
)
def test_bad_interference_tables_are_refused(
    tmp_path: Path, content: str, facts: dict[str, Any]
) -> None:
    (tmp_path / "xi.csv").write_text(content)
    with refused(gl.ClusterError, **facts):
        gl.tables.read_interference(tmp_path / "xi.csv")
    infinite = pa.table({"model": ["a"], "co_model": ["b"], "xi": [float("inf")]})
    pq.write_table(infinite, tmp_path / "xi.parquet")
    with refused(gl.ClusterError, key="row 1: xi"):
        gl.tables.read_interference(tmp_path / "xi.parquet")


def test_pairs_become_slowdown_factors(tmp_path: Path) -> None:
    table = read_throughput(write(tmp_path / "rates.json", GAVEL))
    found = gl.tables.interference_of(table).to_pylist()
    # alone 4 a second: 3 beside itself, 2 beside the other
    assert [(row["co_model"], row["xi"]) for row in found] == [
        ("net (batch size 8)", 4 / 3),
        ("it's", 2.0),
    ]
    assert gl.tables.read_interference(tmp_path / "rates.json").num_rows == 2


@pytest.mark.shared
def test_slowdown_factors_of_the_public_pairs(table: ThroughputTable) -> None:
    found = gl.tables.interference_of(table).to_pylist()
    published = {
        "v100": (636, [1.00, 1.19, 1.47, 2.07, 4.86]),
        "p100": (656, [1.21, 1.43, 1.70, 2.03, 2.72]),
        "k80": (589, [1.36, 1.64, 1.87, 2.21, 2.74]),
    }
    for kind, (count, quantiles) in published.items():
        xi = [r["xi"] for r in found if r["gpu_type"] == kind and r["gpus"] == 1 and r["xi"]]
        assert len(xi) == count
        # only two digits are published, without the values between two measurements
        drawn = np.quantile(xi, [0.05, 0.25, 0.5, 0.75, 0.95])
        assert drawn.tolist() == pytest.approx(quantiles, rel=0.006)


GAVEL_CLUSTER = """
name = "gavel"
[[gpu_types]]
name = "V100"
memory_gb = 16
[[servers]]
count = 40
gpu = "V100"
gpus = 8
[throughput]
format = "gavel"
table = "{table}"
"""


@pytest.mark.shared
def test_a_gavel_workload_runs_its_durations(shared: Path, tmp_path: Path) -> None:
    rates = shared / "traces/tables/gavel/simulation_throughputs.json.gz"
    (tmp_path / "c.toml").write_text(GAVEL_CLUSTER.format(table=rates))
    cluster = gl.Cluster.from_toml(tmp_path / "c.toml")
    jobs = gl.synth.gavel(jobs=50, table=str(rates))
    # a trace of that format knows no durations: iterations and the table must give them back
    gl.write_trace(jobs, tmp_path / "jobs.trace", format="gavel")
    back = gl.read_trace(tmp_path / "jobs.trace")
    assert "duration_s" not in back.columns
    result = gl.simulate(cluster, back, "fifo")
    for job, drawn in zip(result.jobs.to_pylist(), jobs.table.to_pylist(), strict=True):
        # whole iterations: at most one is cut off
        rate = drawn["iterations"] / drawn["duration_s"]
        assert 0 <= drawn["duration_s"] - job["run_s"] <= 1 / rate + 1e-6


@pytest.mark.shared
def test_the_physical_gavel_traces_run(shared: Path, tmp_path: Path, snapshot: Snapshot) -> None:
    rates = shared / "traces/tables/gavel/simulation_throughputs.json.gz"
    text = GAVEL_CLUSTER.format(table=rates)
    (tmp_path / "c.toml").write_text(text)
    archive = shared / "traces/gavel-traces/gavel_traces.tar.xz"
    trace = gl.read_trace(f"{archive}::physical_cluster/max_min_fairness.trace")
    result = gl.simulate(str(tmp_path / "c.toml"), trace, "fifo")
    assert result.summary["finished"] == len(trace)
    with refused(gl.ClusterError, snapshot):
        gl.simulate("pollux-64", trace, "fifo")


def test_a_column_that_is_there_twice_is_named(tmp_path: Path) -> None:
    names = ["gpu_type", "model", "gpus", "iters_per_s", "gpus"]
    table = pa.table([pa.array([x]) for x in ("A", "m", 1, 5.0, 2)], names=names)
    with refused(gl.ClusterError, key="table", value="gpus"):
        ThroughputTable.from_arrow(table)
    names = ["job_id", "arrival_s", "gpus", "duration_s", "arrival_s"]
    twice = pa.table([pa.array([x]) for x in ("a", 0.0, 1, 5.0, 2.0)], names=names)
    with refused(gl.TraceError, column="arrival_s"):
        gl.Trace.from_arrow(twice)
    with refused(gl.TraceError, column="arrival_s"):
        gl.audit(twice, "pollux-64")


def test_a_json_table_without_its_format_says_so(tmp_path: Path) -> None:
    (tmp_path / "rates.json").write_text('{"v100": {"(\'a\', 1)": {"null": 2.0}}}')
    throughput = {"table": str(tmp_path / "rates.json")}
    lab = worlds.lab("1x1 v100", throughput=throughput)
    with refused(gl.ClusterError, key="throughput.format", value="native"):
        gl.Cluster.from_dict(lab)
    throughput["format"] = "gavel"
    read = gl.Cluster.from_dict(lab).throughput
    assert read is not None
    assert [row.iters_per_s for row in read.rows or ()] == [2.0]


@pytest.mark.parametrize("preset", ["hadar-60", "hadar-60-smooth"])
def test_rates_are_written_alike_however_they_were_read(preset: str) -> None:
    """The digest of a run depends on this, and sweeps recognise finished runs by the digest."""
    written = gl.Cluster.preset(preset).to_dict()
    assert written["throughput"]["rows"]
    assert gl.Cluster.from_dict(written).to_dict() == written
