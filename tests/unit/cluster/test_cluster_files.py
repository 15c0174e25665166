"""Tests clusters from node lists: each kind, capacity over time, damage, the public files."""

from __future__ import annotations

import csv
import gzip
import io
import lzma
import tarfile
from collections import Counter
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gangline as gl
from gangline.cli.app import main
from gangline.cluster.node_lists.notes import NOTES
from refusals import refused
from samples.tables import EXPORTS, HELIOS, LINGJUN, NODE_LISTS, OPENB, PAI, PHILLY, SPOT, TIRESIAS

if TYPE_CHECKING:
    from pathlib import Path

    from snapshots import Snapshot

ALL = NODE_LISTS | EXPORTS


def read(tmp_path: Path, text: str, **options: Any) -> gl.Cluster:
    path = tmp_path / "nodes.csv"
    path.write_text(text)
    return gl.read_cluster(path, **options)


def blocks(cluster: gl.Cluster) -> list[tuple[int, str, int, int | str]]:
    return [(b.count, b.gpu, b.gpus, b.rack) for b in cluster.servers]


def test_lingjun_racks_are_pairs_of_switches(tmp_path: Path) -> None:
    cluster = read(tmp_path, LINGJUN)
    # S1 of P2 and S1 of P10 are two racks
    assert blocks(cluster) == [(2, "GPU", 8, "fill:1"), (2, "GPU", 8, "fill:2")]
    assert cluster.racks_total == 3
    assert cluster.notes == {"gpus_assumed": 4, "pods": 2, "memory_assumed": 1}
    assert read(tmp_path, LINGJUN, gpus=4, gpu="H800", name="x").gpus_by_type() == {"H800": 16}


def test_openb_leaves_out_servers_without_gpus(tmp_path: Path) -> None:
    cluster = read(tmp_path, OPENB)
    assert blocks(cluster) == [(2, "P100", 2, "fill:32"), (1, "G2", 8, "fill:32")]
    assert cluster.servers[0].cpus == 64
    assert cluster.servers[1].memory_gb == 512.0
    assert cluster.notes == {"servers_without_gpus": 1, "racks_assumed": 2}


def test_pai_has_no_header_but_may_have_one(tmp_path: Path) -> None:
    plain = read(tmp_path, PAI)
    assert blocks(plain) == [(2, "T4", 2, "fill:32"), (1, "MISC", 8, "fill:32")]
    headed = read(tmp_path, "machine,gpu_type,cap_cpu,cap_mem,cap_gpu\n" + PAI)
    assert headed == plain


def test_tiresias_switches_are_racks(tmp_path: Path) -> None:
    cluster = read(tmp_path, TIRESIAS, gpu="P100")
    assert blocks(cluster) == [(6, "P100", 4, "fill:3")]
    assert (cluster.racks_total, cluster.servers[0].memory_gb) == (2, 256.0)


def test_philly_memory_names_the_type(tmp_path: Path) -> None:
    cluster = read(tmp_path, PHILLY)
    assert cluster.gpus_by_type() == {"GPU-12GB": 2, "GPU-24GB": 16}
    assert [gpu.memory_gb for gpu in cluster.gpu_types] == [12.0, 24.0]
    assert read(tmp_path, PHILLY.split("\n", 1)[1]) == cluster


def test_spot_models(tmp_path: Path) -> None:
    cluster = read(tmp_path, SPOT)
    assert blocks(cluster) == [(2, "A100-80GB", 8, "fill:32"), (1, "A10", 1, "fill:32")]
    assert [gpu.memory_gb for gpu in cluster.gpu_types] == [80.0, 24.0]


def test_helios_days_are_capacity_over_time(tmp_path: Path) -> None:
    cluster = read(tmp_path, HELIOS)
    assert blocks(cluster) == [(4, "V100", 8, "fill:32")]
    day = 86_400.0
    steps = [(row.at_s, row.servers) for row in cluster.capacity or ()]
    assert steps == [(0.0, 3), (3 * day, 1), (4 * day, 4)]
    # 36 GPUs are four servers and four GPUs more; 16 + 19 is not 36
    assert cluster.notes == {"gpus_per_server_assumed": 8, "gpus_left_out": 4, "total_differs": 1}
    assert cluster.outages() == [
        (1, 3 * day, 4 * day),
        (2, 3 * day, 4 * day),
        (3, 0.0, 4 * day),
    ]


def test_helios_begins_where_told_and_takes_one_cluster(tmp_path: Path) -> None:
    cluster = read(tmp_path, HELIOS, vc="vcA", start="2020-04-03T12:00:00")
    steps = [(row.at_s, row.servers) for row in cluster.capacity or ()]
    assert steps == [(0.0, 2), (43_200.0, 0), (129_600.0, 2)]
    early = read(tmp_path, HELIOS, start="2020-03-31")
    assert [row.at_s for row in early.capacity or ()] == [0.0, 4 * 86_400.0, 5 * 86_400.0]


def test_a_run_sees_the_capacity_change() -> None:
    lab = gl.Cluster.homogeneous(servers=2, gpus=1).to_dict()
    capacity = [{"at_s": 0.0, "servers": 1}, {"at_s": 10.0, "servers": 2}]
    jobs = {"job_id": ["a", "b"], "arrival_s": [0.0, 0.0], "gpus": [1, 1]}
    import pyarrow as pa

    table = pa.table({**jobs, "duration_s": [30.0, 5.0]})
    result = gl.simulate({**lab, "capacity": capacity}, table, "fifo")
    # b waits for the second server
    assert result.jobs.column("first_start_s").to_pylist() == [0.0, 10.0]
    assert result.timeline.column("gpus_total").to_pylist()[0] == 1
    # the server that leaves evicts its job, and b starts again when it returns
    leaving = [{"at_s": 3.0, "servers": 1}, {"at_s": 10.0, "servers": 2}]
    result = gl.simulate({**lab, "capacity": leaving}, table, "fifo")
    assert result.jobs.column("finish_s").to_pylist() == [30.0, 15.0]


def test_capacity_round_trips_and_is_checked(tmp_path: Path) -> None:
    cluster = read(tmp_path, HELIOS)
    path = tmp_path / "c.toml"
    path.write_text(cluster.to_toml())
    assert gl.Cluster.from_toml(path) == cluster
    lab = gl.Cluster.homogeneous(servers=2, gpus=1).to_dict()
    for capacity, facts in (
        ([{"at_s": 5.0, "servers": 3}], {"key": "capacity[0].servers", "value": 3}),
        ([{"at_s": 5.0, "servers": 1}] * 2, {"key": "capacity[1].at_s", "value": 5.0}),
        ([{"at_s": -1.0, "servers": 1}], {"key": "capacity[0].at_s", "value": -1.0}),
    ):
        with refused(gl.ClusterError, **facts):
            gl.Cluster.from_dict({**lab, "capacity": capacity})
    both = {"capacity": [{"at_s": 0, "servers": 1}], "failures": {"mtbf_hours": 1, "mttr_hours": 1}}
    with refused(gl.ClusterError, key="capacity", value="both"):
        gl.Cluster.from_dict({**lab, **both})


@given(
    st.lists(st.tuples(st.integers(1, 9), st.integers(0, 5)), min_size=1, max_size=6),
    st.integers(0, 80),
)
def test_outages_leave_as_many_servers_as_the_step_says(
    steps: list[tuple[int, int]], moment: int
) -> None:
    at_s = 0.0
    rows = []
    for gap, servers in steps:
        at_s += gap
        rows.append({"at_s": at_s, "servers": servers})
    lab = gl.Cluster.homogeneous(servers=5, gpus=1).to_dict()
    outages = gl.Cluster.from_dict({**lab, "capacity": rows}).outages()
    away = sum(down <= moment < up for _, down, up in outages)
    there = [row["servers"] for row in rows if row["at_s"] <= moment]
    assert 5 - away == (there[-1] if there else 5)


@pytest.mark.parametrize(
    ("text", "facts"),
    [
        ("", {"line": 1, "expected": "a known header"}),
        ("a,b\n1,2\n", {"line": 1, "expected": "a known header"}),
        (LINGJUN + "a,G,P1,S1\n", {"key": "ip", "line": 6, "value": "a"}),
        (LINGJUN + "e,G,,S1\n", {"key": "psw", "line": 6, "value": ""}),
        (LINGJUN + "e,G,P1\n", {"line": 6, "expected": "4 fields, got 3"}),
        (OPENB + "n4,64000,1,x,T4\n", {"key": "gpu", "line": 6, "value": "x"}),
        (OPENB + "n4,64000,1,-1,T4\n", {"key": "gpu", "line": 6, "value": "-1"}),
        (OPENB + "n4,64000,1,2,\n", {"key": "model", "line": 6, "value": ""}),
        (
            OPENB + "n4,64000,1,65,T4\n",
            {"key": "gpu", "line": 6, "value": "65"},
        ),
        ("sn,cpu_milli,memory_mib,gpu,model\n", {"line": 1, "expected": "at least one row"}),
        (
            "sn,cpu_milli,memory_mib,gpu,model\nn,1,1,0,\n",
            {"key": "GPUs", "line": 1, "value": "none"},
        ),
        (TIRESIAS.replace("2,3", "0,3"), {"key": "num_switch", "line": 2, "value": "0"}),
        (PHILLY + "m4,2,24\n", {"key": "single gpu mem", "line": 5, "value": "24"}),
        (HELIOS + "2020-04-05,1,1,2\n", {"key": "date", "line": 6, "value": "2020-04-05"}),
        (HELIOS + "2020-02-30,1,1,2\n", {"key": "date", "line": 6, "value": "2020-02-30"}),
        (HELIOS + "2020-05-01,,1,2\n", {"key": "vca", "line": 6, "value": ""}),
        ("date,a,total\n2020-01-01,7,7\n", {"key": "total", "line": 1, "value": "0"}),
        (OPENB + '"n4,64\n', {"line": 6, "expected": "CSV (unexpected end of data)"}),
        (OPENB + "n\0,1,1,1,T4\n", {"line": 6, "expected": "no NUL bytes"}),
    ],
)
def test_bad_files_name_their_line(tmp_path: Path, text: str, facts: dict[str, Any]) -> None:
    with refused(gl.ClusterError, **facts):
        read(tmp_path, text)


def test_bytes_that_are_no_text_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "nodes.csv"
    path.write_bytes(OPENB.encode() + b"\xff\n")
    with refused(gl.ClusterError, path=str(path), line=6):
        gl.read_cluster(path)
    path = tmp_path / "nodes.csv.gz"
    path.write_bytes(gzip.compress(OPENB.encode())[:-9])
    with refused(gl.ClusterError, path=str(path)):
        gl.read_cluster(path)


@given(st.binary(max_size=120), st.sampled_from([*ALL, ""]))
def test_any_bytes_are_read_or_refused(content: bytes, kind: str) -> None:
    import tempfile
    from pathlib import Path

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "nodes.csv"
        path.write_bytes(ALL.get(kind, "").encode() + content)
        try:
            cluster = gl.read_cluster(path)
        except gl.ClusterError:
            return
        assert cluster.gpus_total > 0


@pytest.mark.parametrize(
    "options",
    [
        {"gpu_count": 8},
        {"gpus": 0},
        {"format": "x"},
    ],
)
def test_bad_options_are_named(tmp_path: Path, options: dict[str, Any], snapshot: Snapshot) -> None:
    with refused(gl.ClusterError, snapshot):
        read(tmp_path, LINGJUN, **options)
    with refused(gl.ClusterError, key="start", value="soon"):
        read(tmp_path, HELIOS, start="soon")
    with refused(gl.ClusterError, key="vc", line=1, value="vcC"):
        read(tmp_path, HELIOS, vc="vcC")


@pytest.mark.parametrize("kind", list(ALL))
def test_every_kind_is_shown_validated_converted_and_run(
    tmp_path: Path, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "nodes.csv"
    path.write_text(ALL[kind])
    assert main(["cluster", "show", str(path)]) == 0
    assert main(["cluster", "show", str(path), "--format", kind, "--json"]) == 0
    assert main(["cluster", "validate", str(path)]) == 0
    out = tmp_path / "out.toml"
    assert main(["cluster", "convert", str(path), "-o", str(out), "--set", "name=mine"]) == 0
    assert gl.Cluster.from_toml(out).name == "mine"
    trace = "synth:philly?jobs=5&max_gpus=1"
    assert gl.simulate(str(path), trace, "fifo").summary["finished"] == 5
    assert "note: " in capsys.readouterr().out or kind == "tiresias"


def test_every_note_is_explained(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "nodes.csv"
    seen = set()
    for text in [*ALL.values(), "date,vcA,total\n2020-04-01,17,16\n"]:
        path.write_text(text)
        seen |= set(gl.read_cluster(path).notes)
        assert main(["cluster", "show", str(path)]) == 0
        for line in capsys.readouterr().out.splitlines():
            if line.startswith("note: "):
                name, words = line.removeprefix("note: ").split(": ")
                assert words == NOTES[name.split()[0]]
    up = EXPORTS["scontrol"]
    path.write_text(up + "\n" + up.replace("n1", "n2").replace("IDLE", "DOWN"))
    seen |= set(gl.read_cluster(path, up_only=True).notes)
    assert seen == set(NOTES)


def test_toml_needs_no_suffix(tmp_path: Path) -> None:
    lab = gl.Cluster.homogeneous(servers=2, gpus=1)
    for head in ("", "# a lab\n", "\n"):
        (tmp_path / "lab").write_text(head + lab.to_toml())
        assert gl.Cluster.from_file(tmp_path / "lab") == lab
    with refused(gl.ClusterError, key="gpus"):
        gl.Cluster.from_file(tmp_path / "lab", gpus=3)
    with pytest.raises(OSError, match="no such"):
        gl.Cluster.from_file(tmp_path / "absent.csv")


def test_the_lingjun_preset_has_the_published_shape() -> None:
    cluster = gl.Cluster.preset("lingjun")
    assert (cluster.servers_total, cluster.racks_total) == (847, 119)
    sizes = Counter(Counter(cluster.server_arrays()["rack"].tolist()).values())
    assert sizes == {8: 68, 7: 23, 6: 15, 5: 7, 2: 3, 4: 2, 3: 1}


@pytest.mark.shared
class TestPublicFiles:
    """Tests on the published lists."""

    def test_lingjun(self, shared: Path) -> None:
        cluster = gl.read_cluster(shared / "traces/lingjun2023-topo/topo.csv.gz")
        assert (cluster.servers_total, cluster.racks_total) == (847, 119)
        preset = gl.Cluster.preset("lingjun")
        assert blocks(cluster) == blocks(preset)

    def test_openb(self, shared: Path) -> None:
        folder = shared / "traces/openb2023"
        whole = gl.read_cluster(folder / "openb_node_list_all_node.csv.gz")
        assert (whole.servers_total, whole.gpus_total) == (1213, 6212)
        assert whole.notes["servers_without_gpus"] == 310
        only = gl.read_cluster(folder / "openb_node_list_gpu_node.csv.gz")
        preset = gl.Cluster.preset("openb")
        assert whole.gpus_by_type() == only.gpus_by_type() == preset.gpus_by_type()

        def counted(cluster: gl.Cluster) -> Counter[tuple[str, int]]:
            return sum((Counter({(b.gpu, b.gpus): b.count}) for b in cluster.servers), Counter())

        assert counted(whole) == counted(preset)

    def test_pai(self, shared: Path) -> None:
        archive = shared / "traces/pai2020-gpu-sub/pai_machine_spec.tar.gz"
        cluster = gl.read_cluster(f"{archive}::pai_machine_spec.csv")
        assert (cluster.servers_total, cluster.gpus_total) == (1814, 6742)
        assert cluster.notes["servers_without_gpus"] == 83
        assert cluster.gpus_by_type() == gl.Cluster.preset("pai").gpus_by_type()

    def test_tiresias_and_muri(self, shared: Path) -> None:
        archive = shared / "traces/tiresias-traces/tiresias_csv.tar.xz"
        cluster = gl.read_cluster(f"{archive}::n160g8.csv")
        assert (cluster.servers_total, cluster.racks_total, cluster.gpus_total) == (160, 5, 1280)
        archive = shared / "traces/muri-traces/muri_traces.tar.xz"
        cluster = gl.read_cluster(f"{archive}::cluster_exp/cluster_specs/n4g8.csv")
        assert cluster.gpus_total == 32 // 2

    @pytest.mark.parametrize("name", ["cluster_gpu_number", "Earth_gpu_number"])
    def test_helios(self, shared: Path, name: str) -> None:
        path = shared / f"traces/helios-venus-gpu/{name}.csv.gz"
        cluster = gl.read_cluster(path)
        totals = [int(row["total"]) for row in csv.DictReader(io.StringIO(_text(path)))]
        assert cluster.gpus_total == max(totals)
        for day in (0, 100, 140, 180):
            gone = sum(down <= day * 86_400 < up for _, down, up in cluster.outages())
            assert cluster.gpus_total - 8 * gone == totals[day]

    def test_the_venus_preset_over_time(self, shared: Path) -> None:
        cluster = gl.read_cluster(shared / "traces/helios-venus-gpu/cluster_gpu_number.csv.gz")
        preset = gl.Cluster.preset("venus-2020")
        assert cluster.capacity == preset.capacity
        assert blocks(cluster) == blocks(preset)


def _text(path: Path) -> str:
    return gzip.decompress(path.read_bytes()).decode()


def test_a_member_of_an_archive_is_read(tmp_path: Path) -> None:
    (tmp_path / "spec.csv").write_text(PAI)
    with tarfile.open(tmp_path / "a.tar.gz", "w:gz") as archive:
        archive.add(tmp_path / "spec.csv", "spec.csv")
    assert gl.read_cluster(tmp_path / "a.tar.gz::spec.csv").gpus_total == 12
    assert main(["cluster", "show", f"{tmp_path}/a.tar.gz::spec.csv"]) == 0


@pytest.mark.parametrize(
    ("kind", "change"),
    [
        (kind, change)
        for kind in NODE_LISTS
        for change in ("gz", "xz", "zst", "crlf", "cr", "bom", "blank lines", "number")
        if (kind, change) != ("pai", "number")  # without a header a column has no name
    ],
)
def test_harmless_differences_of_node_lists_are_accepted(
    kind: str, change: str, tmp_path: Path
) -> None:
    text = NODE_LISTS[kind]
    numbered = "".join(
        f"{i - 1 if i else ''},{line}\n" for i, line in enumerate(text.strip().split("\n"))
    )
    data = {
        "gz": gzip.compress(text.encode(), mtime=0),
        "xz": lzma.compress(text.encode()),
        "zst": pa.compress(text.encode(), codec="zstd", asbytes=True),
        "crlf": text.replace("\n", "\r\n").encode(),
        "cr": text.replace("\n", "\r").encode(),
        "bom": b"\xef\xbb\xbf" + text.encode(),
        "blank lines": b"\n\r\n" + text.encode() + b"\n\n",
        "number": numbered.encode(),
    }[change]
    (tmp_path / "nodes").write_bytes(data)
    expected = read(tmp_path, text)
    found = gl.Cluster.from_file(tmp_path / "nodes")
    assert (found, found.notes) == (expected, expected.notes)


def test_packed_bytes_that_look_like_toml_are_a_list(tmp_path: Path) -> None:
    """The first line of compressed bytes may contain an equals sign."""
    found = next(
        packed
        for packed in (gzip.compress(OPENB.encode(), mtime=seconds) for seconds in range(1 << 16))
        if b"=" in packed.strip().splitlines()[0]
    )
    (tmp_path / "nodes").write_bytes(found)
    assert gl.Cluster.from_file(tmp_path / "nodes") == read(tmp_path, OPENB)


def test_a_column_twice_is_an_error(tmp_path: Path) -> None:
    text = "".join(f"{line},{line.split(',')[0]}\n" for line in SPOT.strip().split("\n"))
    with refused(gl.ClusterError, line=1, expected="one column gpu_model, got 2"):
        read(tmp_path, text)
