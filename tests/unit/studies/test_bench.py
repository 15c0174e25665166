"""Tests the frozen suite, its ranks by knowledge, and that published numbers are current."""

from __future__ import annotations

import gzip
import hashlib
import importlib.util
import json
import math
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.csv as pc
import pyarrow.parquet as pq
import pytest

import gangline as gl
from gangline.cli import bench as cli_bench
from gangline.cli.app import main
from gangline.errors import OptionError, PolicyError, TraceError
from gangline.studies.bench import bench, load_suite, published, suites
from gangline.studies.bench.entries import CLASSES, default_policies, entries
from gangline.studies.bench.show import loads, sentences, tables
from gangline.studies.bench.show import standings as standings_of
from gangline.studies.bench.standings import standings
from gangline.studies.bench.suite import World
from refusals import refused

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import ModuleType

    from gangline.studies.bench import Bench

ROOT = Path(__file__).resolve().parents[3]
# The suite is frozen: a changed suite gets a new file. The second hash is that of its rates.
DIGESTS = {
    1: (
        "5b78b20f327cc78203cc4164c1355166ceca9ee6eddfb2ffadacdf51d26728be",
        "82eec324c1a441eeb5e0d9adcb84b7fa235464dbb0219c5c2548e9b56cb8a08a",
    )
}
OWN = '''
import gangline as gl

class Own(gl.Policy):
    """The oldest jobs that fit on one server, or on all that are free."""

    def decide(self, view, changes):
        plan, free = gl.Plan(), view.servers("gpus_free").copy()
        for job, gpus in zip(view.waiting("job"), view.waiting("gpus")):
            if free.sum() < gpus:
                break
            taken = {}
            for server in (-free).argsort(kind="stable"):
                part = min(int(free[server]), int(gpus) - sum(taken.values()))
                if part:
                    taken[int(server)] = part
            plan.start(job, taken)
            for server, part in taken.items():
                free[server] -= part
        return plan

class Knowing(Own):
    knowledge = "remaining"

class Stuck(Own):
    def decide(self, view, changes):
        return gl.Plan()
'''


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    name = f"own_{hashlib.sha256(str(tmp_path).encode()).hexdigest()[:12]}"
    (tmp_path / f"{name}.py").write_text(OWN, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return name


@pytest.fixture(scope="module")
def quick(tmp_path_factory: pytest.TempPathFactory) -> tuple[Bench, Path]:
    folder = tmp_path_factory.mktemp("bench")
    return bench(["fifo", "srtf", "las", "gittins"], quick=True, out=folder, workers=1), folder


def without_clock(data: dict[str, Any]) -> dict[str, Any]:
    rows = [{k: v for k, v in row.items() if k != "run_s"} for row in data["rows"]]
    return {**data, "rows": rows}


def test_suites_are_frozen() -> None:
    assert suites() == sorted(DIGESTS)
    for version, (digest, rates) in DIGESTS.items():
        suite = load_suite(version)
        assert suite.version == version
        assert suite.digest == digest
        assert suite.rates_sha256 == rates
        folder = ROOT / "python/gangline/studies/bench"
        assert hashlib.sha256((folder / suite.rates).read_bytes()).hexdigest() == rates


def test_worlds_of_the_suite() -> None:
    suite = load_suite(1)
    worlds = suite.worlds()
    assert len(worlds) == len(set(worlds)) == 3 * 2 * 3 * 2
    assert {world.load for world in worlds} == {0.7, 1.0, 1.3}
    assert {world.restart_s for world in worlds} == {0.0, 60.0}
    assert set(suite.worlds(quick=True)) < set(worlds)
    assert len(suite.seeds) == 5


@pytest.mark.parametrize("workload", ["philly", "helios", "pai"])
def test_traces_have_the_load_of_their_world(workload: str) -> None:
    suite = load_suite(1)
    for (name, load), reference in suite.traces_at_load(workload, 3, {}).items():
        cluster = suite.cluster(name)
        jobs = gl.read_trace(reference.source, **reference.options)
        gpus, durations = jobs.numbers("gpus"), jobs.numbers("duration_s")
        # by hand: a P100 is worth the mean of the speeds of the three models, and so is a K80
        worth = {"V100": 1.0, "P100": (0.6 + 0.7 + 0.85) / 3, "K80": (0.2 + 0.4 + 0.7) / 3}
        room = sum(block.count * block.gpus * worth[block.gpu] for block in cluster.servers)
        offered = math.fsum((gpus * durations).tolist()) / jobs.span_s
        assert offered / room == pytest.approx(load, rel=1e-4)
        assert cluster.gpus_total == 64


def test_an_unknown_suite_is_an_error() -> None:
    with refused(OptionError, field="suite", value=9):
        load_suite(9)


def test_classes_come_from_declarations(own: str) -> None:
    names = default_policies()
    assert {"fifo", "srtf", "hadare"} <= set(names)
    assert not {"gavel-las", "pollux", "toy-timer"} & set(names)
    found = {entry.label: entry.knowledge for entry in entries(names, 1.0)}
    assert found["fifo"] == found["las"] == found["gavel-isolated"] == "nothing"
    assert found["gittins"] == found["tiresias-gittins"] == "distribution"
    assert found["srtf"] == found["themis"] == "durations"
    assert found["srtf(estimate_error=1.0)"] == "estimates"
    assert found["hadare"] == "copies"
    assert "las(estimate_error=1.0)" not in found
    assert set(found.values()) == set(CLASSES)
    from gangline.cli._inputs import policy

    mine = entries([policy(f"{own}:Own", {}), policy(f"{own}:Knowing", {})], 1.0)
    assert [entry.knowledge for entry in mine] == ["nothing", "durations"]


WORLDS = [World("a", "x", 1.0, 0.0), World("b", "x", 1.0, 0.0)]


def scores(values: dict[str, Sequence[Sequence[float]]]) -> Any:
    """Return scores from a row per world with a value per seed."""
    return {
        label: {
            (world, seed): row[seed]
            for world, row in zip(WORLDS, rows, strict=True)
            for seed in range(len(row))
        }
        for label, rows in values.items()
    }


def test_standings_worked_out_by_hand() -> None:
    given = scores(
        {
            "base": [[8.0] * 5, [16.0] * 5],
            "quick": [[2.0] * 5, [16.0] * 5],  # ranks 1 and 1.5; speedups 4 and 1: 2
            "slow": [[32.0] * 5, [64.0] * 5],  # ranks 3 and 3; speedups 1/4 and 1/4
            "told": [[1.0] * 5, [1.0] * 5],
            "lacks": [[1.0] * 4, [1.0] * 5],
        }
    )
    classes = dict.fromkeys(given, "nothing") | {"told": "durations"}
    rows = standings(given, classes, WORLDS, range(5), "base")
    shown = [(row["policy"], row["place"], row["rank"], row["speedup"]) for row in rows]
    assert shown == [
        ("quick", 1, 1.25, 2.0),
        ("base", 2, 1.75, 1.0),
        ("slow", 3, 3.0, 0.25),
        ("told", 1, 1.0, pytest.approx(math.sqrt(8.0 * 16.0))),
    ]
    assert rows[0]["rank_low"] == rows[0]["rank_high"] == 1.25


def test_policies_that_seeds_do_not_tell_apart_share_the_place() -> None:
    noisy = [[1.0, 3.0, 1.0, 3.0, 1.0], [3.0, 1.0, 1.0, 3.0, 1.0]]
    given = scores({"one": noisy, "other": [[2.0] * 5] * 2, "last": [[9.0] * 5] * 2})
    rows = standings(given, dict.fromkeys(given, "nothing"), WORLDS, range(5), "last")
    assert [row["place"] for row in rows] == [1, 1, 3]
    equal = scores({"a": [[5.0] * 5] * 2, "b": [[5.0] * 5] * 2, "c": [[1.0] * 5] * 2})
    rows = standings(equal, dict.fromkeys(equal, "nothing"), WORLDS, range(5), "a")
    assert [row["place"] for row in rows] == [1, 2, 2]


def test_the_tables_of_a_terminal_have_80_columns_and_whole_numbers(
    quick: tuple[Bench, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    done, _ = quick
    cli_bench._show(done)
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 88  # sentences
    titles = [title for title, _, _ in standings_of(done)]
    (first,) = (i for i, line in enumerate(lines) if line == titles[0])
    last = next(i for i, line in enumerate(lines) if line.startswith("Offered load"))
    assert max(map(len, lines[first:last])) <= 80
    shown = " ".join(lines[first:last])
    for row in [*done.rows, *done.real_rows]:
        assert f"{row['rank']:.1f} ({row['rank_low']:.1f}, {row['rank_high']:.1f})" in shown
        speedup = [row[key] for key in ("speedup", "speedup_low", "speedup_high")]
        assert "{:.2f} ({:.2f}, {:.2f})".format(*speedup) in shown


def test_policies_with_durations_are_not_ranked_with_those_without(
    quick: tuple[Bench, Path],
) -> None:
    done, _ = quick
    for _, _, rows in tables(done):
        labels = [row[1] for row in rows]
        classes = {row["knowledge"] for row in done.rows if row["policy"] in labels}
        assert len(classes) == 1
    run = {row["policy"]: row for row in done.rows if row["run"]}
    assert run.keys() == {"fifo", "srtf", "srtf(estimate_error=1.0)", "las", "gittins"}
    assert run["fifo"]["speedup"] == 1.0
    # a crowded world distinguishes preemption by remaining time from arrival order
    assert run["srtf"]["speedup_low"] > 2.0
    assert "A small part of suite 1" in sentences(done)[0]
    assert "1 world (philly, homogeneous, load 1.3, restarts of 60 s)" in sentences(done)[0]


def test_the_offered_load_of_a_world_is_shown(quick: tuple[Bench, Path]) -> None:
    """On one GPU type the suite makes it what the world says."""
    done, folder = quick
    (one,) = done.offered_loads
    assert (one["workload"], one["cluster"], one["load"]) == ("philly", "homogeneous", 1.3)
    assert one["offered_load"] == pytest.approx(1.3, rel=1e-4)
    ((_, titles, rows),) = loads(done)
    assert titles == ["workload", "cluster", "at 1.3"]
    assert rows == [["philly", "homogeneous", "1.30"]]
    assert done.to_dict()["offered_load"] == done.offered_loads
    column = pq.read_table(folder / "table.parquet")["offered_load"].to_pylist()
    assert sum(column) / len(column) == pytest.approx(one["offered_load"])


def test_published_results_are_those_of_this_code(quick: tuple[Bench, Path]) -> None:
    done, _ = quick
    then = published.read_jct(1)
    assert done.scores.keys() <= then.keys()
    for label, of in done.scores.items():
        for cell, value in of.items():
            assert value == then[label][cell], f"{label} on {cell}: run scripts/bench_results.py"


@pytest.fixture(scope="module")
def script() -> ModuleType:
    path = ROOT / "scripts/bench_results.py"
    spec = importlib.util.spec_from_file_location("bench_results", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


MIXED = World("philly", "mixed", 1.3, 60.0)


def test_no_published_row_is_stale(script: ModuleType) -> None:
    """Every published policy has the values of its row in a crowded world of several types."""
    assert script.stale([(MIXED, 0)]) == []


@pytest.mark.slow
def test_no_published_row_is_stale_on_other_worlds(script: ModuleType) -> None:
    """Each world is run once with some seed."""
    cells = [(world, at % 5) for at, world in enumerate(load_suite(1).worlds())]
    assert script.stale(cells) == []


def test_a_stale_row_is_told(script: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """The stale rows are one off by a millionth, one without a policy, and a missing one."""
    then, rows = published.read_jct(1), published.read_rows(1)
    kept = ("fifo", "srtf", "srtf(estimate_error=1.0)")
    then, rows = {one: then[one] for one in kept}, {one: rows[one] for one in kept}
    then["srtf"][MIXED, 0] *= 1.0 + 1e-6
    rows["gone"] = rows["fifo"]
    monkeypatch.setattr(published, "read_jct", lambda _: then)
    monkeypatch.setattr(published, "read_rows", lambda _: rows)
    told = script.stale([(MIXED, 0)])
    assert "gone: there is no such policy" in told
    assert "las: not published; run `scripts/bench_results.py las`" in told
    assert [line.partition(" on ")[0] for line in told if " on " in line] == ["srtf"]


def test_published_results_are_whole() -> None:
    suite = load_suite(1)
    cells = {(world, seed) for world in suite.worlds() for seed in suite.seeds}
    then, rows = published.read_jct(1), published.read_rows(1)
    assert then.keys() == rows.keys()
    classes = {one.label: one.knowledge for one in entries(default_policies(solving=True), 1.0)}
    for label, of in then.items():
        row = rows[label]
        assert of.keys() == cells, label
        assert int(row["runs"]) == len(cells)
        assert row["suite_sha256"] == suite.digest
        assert row["jct_sha256"] == published.digest_of(of), label
        assert row["ships"] == ("yes" if label in classes else "no")
        assert row["knowledge"] == classes.get(label, row["knowledge"])
        if row["ships"] == "yes":
            assert row["gangline"] == gl.__version__, f"{label}: run scripts/bench_results.py"
    again = standings(
        then, {k: r["knowledge"] for k, r in rows.items()}, suite.worlds(), suite.seeds, "fifo"
    )
    assert [row["policy"] for row in again] == list(rows)
    for row in again:
        assert float(rows[row["policy"]]["rank"]) == pytest.approx(row["rank"], rel=1e-4)
        assert int(rows[row["policy"]]["place"]) == row["place"]


def test_the_suite_discriminates() -> None:
    """The load, the cluster and knowledge change the best policy and its lead."""
    then = published.read_jct(1)

    def mean_s(label: str, **part: Any) -> float:
        logs = [
            math.log(value)
            for (world, _), value in then[label].items()
            if all(getattr(world, key) == wanted for key, wanted in part.items())
        ]
        assert logs
        return math.exp(math.fsum(logs) / len(logs))

    for cluster in ("homogeneous", "mixed"):
        ratios = [
            mean_s("fifo", cluster=cluster, load=load) / mean_s("srsf", cluster=cluster, load=load)
            for load in (0.7, 1.0, 1.3)
        ]
        assert 1.1 < ratios[0] < ratios[1] < ratios[2]
    assert mean_s("fifo", cluster="mixed") > 1.3 * mean_s("fifo", cluster="homogeneous")
    for label in ("srtf", "las", "gavel-isolated"):
        assert mean_s(label, restart_s=60.0) > mean_s(label, restart_s=0.0)
    assert mean_s("srtf") < mean_s("srtf(estimate_error=1.0)") < mean_s("fifo")


def test_the_page_of_the_docs_is_that_of_the_data() -> None:
    command = [sys.executable, str(ROOT / "scripts/bench_results.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_workers_change_no_number(quick: tuple[Bench, Path], tmp_path: Path) -> None:
    done, _ = quick
    names = ["gittins", "las", "srtf", "fifo"]
    other = bench(names, quick=True, out=tmp_path, workers=3)
    assert other.scores == done.scores
    assert without_clock(other.to_dict())["rows"] == without_clock(done.to_dict())["rows"]


def test_a_damaged_result_is_run_again(quick: tuple[Bench, Path]) -> None:
    done, folder = quick
    some = next((folder / "runs").iterdir())
    (some / "jobs.parquet").write_bytes(b"")
    again = bench(["fifo", "srtf", "las", "gittins"], quick=True, out=folder, workers=1)
    assert again.scores == done.scores
    assert gl.load_result(some).jobs.num_rows == 1000


def test_command_line_with_a_policy_of_its_own(
    own: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    start = ["bench", "--quick", "--workers", "2", "--out", str(out)]
    code = main([*start, "--policy", f"{own}:Own", "--policy", "fifo"])
    shown = capsys.readouterr()
    assert code == 0, shown.err
    assert "Own" in shown.out
    assert "published" in shown.out
    document = json.loads((out / "bench.json").read_text("utf-8"))
    mine = next(row for row in document["rows"] if row["policy"] == "Own")
    assert mine["run"]
    assert mine["knowledge"] == "nothing"
    assert mine["speedup"] == pytest.approx(1.0, rel=0.2)  # the order of arrival, as fifo
    rows = pq.read_table(out / "bench.parquet").to_pylist()
    assert [row["policy"] for row in rows] == [row["policy"] for row in document["rows"]]
    assert pc.read_csv(out / "bench.csv").num_rows == len(rows)
    page = (out / "bench.html").read_text("utf-8")
    assert "<svg" in page
    assert "http://" not in page
    assert main([*start, "--policy", f"{own}:Stuck", "--json"]) == 3
    document = json.loads(capsys.readouterr().out)
    mine = next(row for row in document["rows"] if row["policy"] == "Stuck")
    assert mine["place"] is None
    assert mine["failed"] == 5
    assert {run["error"] for run in document["failed"]} == {"StalledError"}


@pytest.mark.parametrize(
    "arguments",
    [
        ["--policy", "absent"],
        ["--policy", "absent:Own"],
        ["--policy", "fifo", "--policy", "fifo"],
        ["--suite", "9"],
    ],
)
def test_wrong_usage(
    arguments: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["bench", "--quick", "--out", str(tmp_path / "out"), *arguments]) == 2
    assert capsys.readouterr().err.startswith("gangline: ")


def test_real_traces_are_recognised_by_their_content(tmp_path: Path) -> None:
    (tmp_path / "philly.csv").write_text("timestamp,duration\n", encoding="utf-8")
    with refused(TraceError, path=str(tmp_path)):
        bench(["fifo"], quick=True, traces=tmp_path)
    with refused(TraceError, path=str(tmp_path / "philly.csv")):
        bench(["fifo"], quick=True, traces=tmp_path / "philly.csv")
    with refused(TraceError, path=str(tmp_path / "absent")):
        bench(["fifo"], quick=True, traces=tmp_path / "absent")
    with pytest.raises(PolicyError):
        bench(["absent"], quick=True)


@pytest.mark.shared
def test_real_traces(tmp_path: Path, shared: Path) -> None:
    place = shared / "traces/philly-sia/philly.csv.gz"
    plain = tmp_path / "traces" / "philly.csv"
    plain.parent.mkdir()
    plain.write_bytes(gzip.decompress(place.read_bytes()))
    suite = load_suite(1)
    assert suite.find_traces(plain.parent) == {"philly-2017": plain}
    assert suite.find_traces(place.parent) == {"philly-2017": place}
    done = bench(["srtf"], quick=True, traces=plain.parent, out=tmp_path / "out", workers=1)
    assert done.failed == []
    rows = {row["policy"]: row for row in done.real_rows}
    assert rows.keys() == {"fifo", "srtf", "srtf(estimate_error=1.0)"}
    assert rows["fifo"]["speedup"] == 1.0
    assert rows["fifo"]["runs"] == 2 * 3 * 2 * 5
    assert rows["srtf"]["speedup"] > 1.0
