from __future__ import annotations

import math
import tomllib
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangline.cluster.description import Cluster
from gangline.errors import ClusterError
from refusals import refused

if TYPE_CHECKING:
    from pathlib import Path

    from snapshots import Snapshot

LAB = """
name = "lab"
[[gpu_types]]
name = "V100"
memory_gb = 16
[[gpu_types]]
name = "A100"
memory_gb = 40
speed = 2.5
price_per_hour = 1.25
[[servers]]
count = 5
gpu = "V100"
gpus = 4
rack = "fill:2"
[[servers]]
count = 2
gpu = "A100"
gpus = 8
rack = 7
"""


def lab(**changes: Any) -> dict[str, Any]:
    return {**tomllib.loads(LAB), **changes}


def test_from_toml_reads_types_servers_and_racks(tmp_path: Path) -> None:
    path = tmp_path / "lab.toml"
    path.write_text(LAB)
    cluster = Cluster.from_toml(path)
    assert (cluster.servers_total, cluster.gpus_total) == (7, 36)
    assert cluster.gpus_by_type() == {"V100": 20, "A100": 16}
    rows = cluster.server_arrays()
    assert rows["type"].tolist() == [0] * 5 + [1] * 2
    assert rows["gpus"].tolist() == [4] * 5 + [8] * 2
    # fill:2 gives racks 0, 0, 1, 1, 2; rack 7 becomes the next dense index
    assert rows["rack"].tolist() == [0, 0, 1, 1, 2, 3, 3]


def test_a_filled_block_starts_in_racks_of_its_own() -> None:
    data = lab()
    data["servers"][1]["rack"] = "fill:1"
    assert Cluster.from_dict(data).server_arrays()["rack"].tolist() == [0, 0, 1, 1, 2, 3, 4]


def test_toml_and_dict_round_trip() -> None:
    data = lab(
        network={"levels": {"*": [1.0, 0.9, 0.9], "vgg 16": [1.0, 1.0, 0.5]}},
        failures={"table": [{"server": 6, "down_s": 1.5, "up_s": 3.0}]},
        sharing={"interference": "table", "rows": [{"model": "a", "co_model": "b", "xi": 1.5}]},
    )
    cluster = Cluster.from_dict(data)
    assert Cluster.from_dict(cluster.to_dict()) == cluster
    assert Cluster.from_dict(tomllib.loads(cluster.to_toml())) == cluster


@given(
    st.lists(
        st.tuples(st.integers(1, 9), st.integers(1, 64), st.integers(1, 5)), min_size=1, max_size=5
    )
)
def test_any_blocks_give_one_row_per_server(blocks: list[tuple[int, int, int]]) -> None:
    servers = [{"count": c, "gpu": "G", "gpus": g, "rack": f"fill:{n}"} for c, g, n in blocks]
    cluster = Cluster.from_dict({"gpu_types": [{"name": "G", "memory_gb": 1}], "servers": servers})
    rows = cluster.server_arrays()
    assert len(rows["rack"]) == sum(c for c, _, _ in blocks) == cluster.servers_total
    assert cluster.gpus_total == sum(c * g for c, g, _ in blocks)
    assert cluster.racks_total == sum(-(-c // n) for c, _, n in blocks)


# These are counts of the public machine lists.
PRESETS = {
    "philly": (552, 2490),
    "venus": (133, 1064),
    "pai": (1814, 6742),
    "openb": (1213, 6212),
    "tiresias-60": (4, 16),
    "pollux-64": (16, 64),
    "lingjun": (847, 6776),
    "venus-2020": (158, 1264),
    "dally-2024": (64, 512),
    "dally-2024-small": (16, 128),
    "hadar-60": (15, 60),
    "hadar-60-smooth": (15, 60),
    "hadare-5": (5, 5),
    "hadar-60-pairs": (15, 60),
    "pollux-64-elastic": (16, 64),
    "mixed-64": (8, 64),
}


@pytest.mark.parametrize("name", PRESETS)
def test_presets_have_the_published_counts(name: str) -> None:
    cluster = Cluster.preset(name)
    assert (cluster.servers_total, cluster.gpus_total) == PRESETS[name]
    assert cluster.name == name


def test_presets_are_all_listed() -> None:
    assert Cluster.presets() == sorted(PRESETS)


def test_unknown_preset_lists_the_known_ones(snapshot: Snapshot) -> None:
    with refused(ClusterError, snapshot):
        Cluster.preset("venice")


def matrix(models: list[str], values: list[list[float]]) -> dict[str, Any]:
    return {"sharing": {"interference": "matrix", "models": models, "matrix": values}}


def rows(*changes: dict[str, Any]) -> dict[str, Any]:
    pair = {"model": "a", "co_model": "b", "xi": 1.5}
    return {"sharing": {"interference": "table", "rows": [pair | change for change in changes]}}


BAD: list[tuple[dict[str, Any], str, str]] = [
    ({"gpu_types": []}, "gpu_types", "at least one GPU type"),
    ({"servers": []}, "servers", "at least one block"),
    ({"nodes": 3}, "nodes", "unknown key"),
    ({"servers": [{"gpu": "V100", "gpus": 4}]}, "servers[0].count", "this key is required"),
    (
        {"servers": [{"count": 0, "gpu": "V100", "gpus": 4}]},
        "servers[0].count",
        "an integer >= 1, got 0",
    ),
    (
        {"servers": [{"count": 1, "gpu": "V100", "gpus": 65}]},
        "servers[0].gpus",
        "an integer <= 64, got 65",
    ),
    (
        {"servers": [{"count": 1, "gpu": "V10", "gpus": 4}]},
        "servers[0].gpu",
        'one of V100, A100, got "V10"',
    ),
    (
        {"servers": [{"count": 1, "gpu": "V100", "gpus": 4, "racks": 1}]},
        "servers[0].racks",
        "did you mean `rack`",
    ),
    (
        {"servers": [{"count": 1, "gpu": "V100", "gpus": 4, "rack": "full:2"}]},
        "servers[0].rack",
        'a rack index or "fill:N", got "full:2"',
    ),
    ({"network": {"preset": "dgx"}}, "network.preset", "one of dally-2024, hgx-h100"),
    (
        {"network": {"levels": {"*": [1.0, 1.5, 1.0]}}},
        "network.levels.*[1]",
        "factors in (0, 1] that do not rise with distance, got 1.5",
    ),
    ({"network": {"links": 1}}, "network.links", "unknown key; known: "),
    ({"failures": {"mtbf_hours": 1}}, "failures", "mtbf_hours and mttr_hours, or a table"),
    (
        {"failures": {"table": [{"server": 7, "down_s": 1}]}},
        "failures.table[0].server",
        "a server below 7, got 7",
    ),
    (
        {"failures": {"table": [{"server": 0, "down_s": 5, "up_s": 5}]}},
        "failures.table[0].up_s",
        "after down_s",
    ),
    (
        {"failures": {"table": [{"server": 0, "down_s": 60}, {"server": 0, "down_s": 70}]}},
        "failures.table[1].down_s",
        "a time when server 0 is up; in table[0] it is down from 60.0 on, got 70.0",
    ),
    (
        {
            "failures": {
                "table": [
                    {"server": 1, "down_s": 50, "up_s": 70},
                    {"server": 0, "down_s": 60},
                    {"server": 1, "down_s": 20, "up_s": 50.5},
                ]
            }
        },
        "failures.table[0].down_s",
        "a time when server 1 is up; in table[2] it is down from 20.0 to 50.5, got 50.0",
    ),
    (
        {"servers": {"count": 1, "gpu": "V100", "gpus": 4}},
        "servers",
        'a list of tables, each under [[servers]], got "a table"',
    ),
    ({"servers": ["V100"]}, "servers[0]", 'a table, got "V100"'),
    ({"name": ["V100"]}, "name", 'text, got "a list"'),
    ({"sharing": {"missing": "nothing"}}, "sharing.missing", "one of constant, error, infeasible"),
    ({"sharing": {"overhead_interferes": 1}}, "sharing.overhead_interferes", "true or false"),
    ({"sharing": {"combine": "max"}}, "sharing.combine", "no more than two jobs"),
    ({"sharing": {"max_share": 3}}, "sharing.max_share", "1 or 2"),
    ({"sharing": {"gang_fallback": "infeasible"}}, "sharing.gang_fallback", '"table" or "gavel"'),
    ({"sharing": {"util": {"x": 0.5}}}, "sharing.util", 'interference = "analytic"'),
    ({"sharing": {"interference": "gavel"}}, "sharing.table", "a throughput JSON with pairs"),
    ({"sharing": {"interference": "matrix"}}, "sharing.matrix", "one per model"),
    ({"sharing": {"interference": "analytic"}}, "sharing.util", "utilisation of each model"),
    (
        {"sharing": {"interference": "analytic", "util": {"x": 0.5, "y": 1.5}}},
        "sharing.util.y",
        "in (0, 1], got 1.5",
    ),
    (
        {"sharing": {"interference": "analytic", "util": {"x": 0.5}, "kappa": math.inf}},
        "sharing.kappa",
        "a finite number",
    ),
    (matrix(["x", "x"], [[1, 1], [1, 1]]), "sharing.models", "each model once"),
    (matrix(["x", "y"], [[1, 1]]), "sharing.matrix", "2 rows"),
    (matrix(["x", "y"], [[1, 1], [1]]), "sharing.matrix[1]", "2 numbers"),
    (matrix(["x"], [[math.inf]]), "sharing.matrix[0][0]", "a finite number"),
    (matrix(["x", "y"], [[1, 1.2], [1.3, 1]]), "sharing.matrix[1][0]", "symmetric = false"),
    (rows({"gpu_type": "T4"}), "sharing.rows[0].gpu_type", "one of V100, A100"),
    (rows({"batch_size": 8}), "sharing.rows[0]", "batch_size and co_batch_size"),
    (rows({"gpus": 0}), "sharing.rows[0].gpus", "an integer >= 1"),
    (rows({"xi": math.inf}), "sharing.rows[0].xi", "a finite number"),
    (rows({"gpus": 2}, {"gpus": 1}, {"gpus": 2}), "sharing.rows[2]", "each ordered pair once"),
    ({"sharing": {"xi": 0.5}}, "sharing.xi", "a number >= 1"),
    ({"sharing": {"interference": "table"}}, "sharing.rows", "at least one pair"),
    (
        {"throughput": {"rows": [{"gpu_type": "T4", "model": "m", "gpus": 1, "iters_per_s": 1}]}},
        "throughput.rows[0].gpu_type",
        'one of V100, A100, got "T4"',
    ),
]


@pytest.mark.parametrize(("changes", "key", "words"), BAD, ids=[f"{key}" for _, key, _ in BAD])
def test_a_bad_value_is_named_by_file_and_key(
    changes: dict[str, Any], key: str, words: str
) -> None:
    with pytest.raises(ClusterError) as caught:
        Cluster.from_dict(lab(**changes), path="lab.toml")
    assert caught.value.key == key
    assert caught.value.path == "lab.toml"
    assert str(caught.value).startswith(f"lab.toml: {key}: ")
    assert words in str(caught.value)


def test_the_mark_of_some_editors_before_the_first_letter_is_no_mistake(tmp_path: Path) -> None:
    path = tmp_path / "lab.toml"
    path.write_text(Cluster.preset("tiresias-60").to_toml(), encoding="utf-8-sig")
    assert Cluster.from_toml(path) == Cluster.from_file(path) == Cluster.preset("tiresias-60")
    path.rename(tmp_path / "lab")  # without its suffix, the first line shows the format
    assert Cluster.from_file(tmp_path / "lab") == Cluster.preset("tiresias-60")


def test_text_that_is_not_toml_names_the_file(tmp_path: Path, snapshot: Snapshot) -> None:
    path = tmp_path / "bad.toml"
    path.write_text("name = \n")
    with refused(ClusterError, snapshot):
        Cluster.from_toml(path)


def test_throughput_files_are_read_relative_to_the_cluster(tmp_path: Path) -> None:
    (tmp_path / "rates.csv").write_text(
        "gpu_type,model,batch_size,gpus,iters_per_s\nV100,net,,1,10.5\nA100,net,64,2,30\n"
    )
    path = tmp_path / "lab.toml"
    path.write_text(LAB + '[throughput]\ntable = "rates.csv"\n')
    cluster = Cluster.from_toml(path)
    assert cluster.throughput is not None
    rows = cluster.throughput.rows or ()
    assert [(r.gpu_type, r.batch_size, r.gpus, r.iters_per_s) for r in rows] == [
        ("V100", None, 1, 10.5),
        ("A100", 64, 2, 30.0),
    ]


def test_missing_throughput_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "lab.toml"
    path.write_text(LAB + '[throughput]\ntable = "none.parquet"\n')
    with refused(ClusterError, key="throughput.table"):
        Cluster.from_toml(path)


def test_html_shows_the_blocks() -> None:
    assert "<bdi>V100</bdi>" in Cluster.from_dict(lab())._repr_html_()
