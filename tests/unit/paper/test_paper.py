"""Tests the paper kit: its worlds, its conclusions from seeds, its folder, its repetition."""

from __future__ import annotations

import csv
import hashlib
import math
import re
import shutil
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

import gangline as gl
from commands import gangline
from gangline._support.panels import ticks
from gangline.errors import OptionError, PolicyError
from gangline.paper.run import Entrant, Paper, Row
from gangline.paper.show import figure_pgf, panels, reasons, table_tex, verdicts
from gangline.paper.worlds import NAMES, UNCHANGED, world
from gangline.policies.choice import PolicyReference
from gangline.runs.spec import keys_of
from gangline.studies.bench import published
from gangline.studies.bench.suite import World as Cell
from gangline.trace.read import read_again
from refusals import refused

if TYPE_CHECKING:
    from snapshots import Snapshot

GREEDY = '''
import gangline as gl
from kit_order import key


class Greedy(gl.Policy):
    """Waiting jobs in an order of their own."""

    def __init__(self, widest: bool = False) -> None:
        self.widest = widest

    def params(self):
        return {"widest": self.widest}

    def decide(self, view, changes):
        plan = gl.Plan(view)
        for i in key(view.waiting.gpus, self.widest).argsort(kind="stable"):
            plan.place(view.waiting.job[i])
        return plan


class Picky(Greedy):
    """Needs what no world has."""

    def decide(self, view, changes):
        raise gl.PolicyError("it needs a telescope")


class Broken(Greedy):
    """Has a mistake."""

    def decide(self, view, changes):
        return [][0]
'''
ORDER = """
def key(gpus, widest):
    return -gpus if widest else gpus
"""
WORLDS = "tiresias,sjf-bsbf"
FILES = [
    "table.tex", "table.csv", "table.parquet", "sensitivity.tex", "ratios.csv", "ratios.parquet",
    "runs.csv", "figure.pgf", "figure.tex", "methods.txt", "methods.tex", "repeat.toml",
    "kit_greedy.py", "kit_order.py",
]  # fmt: skip


def lines(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with policies."""
    folder = tmp_path_factory.mktemp("kit")
    (folder / "kit_greedy.py").write_text(GREEDY)
    (folder / "kit_order.py").write_text(ORDER)
    return folder


@pytest.fixture(scope="module")
def kit(home: Path) -> Path:
    """Return the folder of a small kit."""
    arguments = ("--quick", "--worlds", WORLDS, "--out", "made", "--workers", "2")
    done = gangline("paper", "kit_greedy:Greedy", *arguments, cwd=home)
    assert done.returncode == 0, done.stderr
    return home / "made"


# --- worlds ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_each_change_of_a_world_changes_it_and_nothing_is_listed_twice(name: str) -> None:
    place = world(name)
    base = keys_of(place.cluster()), place.draw(0, quick=True).identity
    seen = set()
    for change in place.changes_of(quick=True):
        assert change.label not in seen
        seen.add(change.label)
        made = keys_of(place.cluster(change)), place.draw(0, change, quick=True).identity
        assert made != base or change.options or change.params, change.label
        if change.what == "GPUs":
            assert place.cluster(change).gpus_total == int(change.value)
    labels = {rival.name for rival in place.rivals}
    assert set(place.heroes) <= labels


def test_the_world_of_hadar_is_that_of_its_study() -> None:
    place = world("hadar")
    options: dict[str, Any] = dict(place.options)
    mine = gl.simulate(place.cluster(), place.draw(3).source, "hadar-ttd", seed=3, **options)
    study = gl.reproduce.run(
        "hadar", workloads=["static-160"], policies=["hadar-ttd"], seeds=[3], quick=True
    )
    assert mine.log_hash in {row["log_hash"] for row in study.runs}


@pytest.mark.parametrize("seed", [0, 4])
def test_the_common_world_is_the_published_one_of_the_bench(seed: int) -> None:
    place = world("common")
    jobs = read_again(place.draw(seed))
    mine = gl.simulate(place.cluster(), jobs, "tiresias", seed=seed, restart_s=60.0)
    known = published.read_jct(1)["tiresias"][Cell("philly", "mixed", 1.0, 60.0), seed]
    assert mine.summary["jct_mean_s"] == pytest.approx(known, abs=6e-4)


def test_an_unknown_world_names_the_nearest(snapshot: Snapshot) -> None:
    with refused(OptionError, snapshot):
        world("halley")


# --- what seeds tell ------------------------------------------------------------------------------


def compared(mine: list[float], rival: list[float], status: str = "finished") -> Paper:
    entrant = Entrant("mine", PolicyReference(name="las"), None, [])
    made = Paper([entrant], [world("tiresias")], range(len(mine)), quick=False)
    reason = "" if status == "finished" else "why"
    cell = world("tiresias"), UNCHANGED
    made.rows = [
        Row(*cell, policy, policy == "mine", dict(enumerate(values)), *state)
        for policy, values, state in (
            ("mine", mine, ("finished", "")),
            ("tiresias", rival, (status, reason)),
        )
    ]
    return made


def test_a_ratio_is_the_geometric_mean_over_the_seeds() -> None:
    (pair,) = compared([1.0, 2.0], [2.0, 16.0]).pairs
    assert pair.times == pytest.approx(4.0)  # the geometric mean of 2 and 8
    assert pair.interval is None
    assert pair.verdict == "cannot tell: 2 seeds, but 5 are needed"


@pytest.mark.parametrize(
    ("factors", "verdict"),
    [
        ([2.0] * 5, "better"),
        ([0.5] * 5, "worse"),
        ([1.0] * 5, "equal"),
        ([2.0, 0.5, 2.0, 0.5, 1.0], "cannot tell"),
    ],
)
def test_a_verdict_needs_an_interval_on_one_side_of_1(factors: list[float], verdict: str) -> None:
    made = compared([10.0] * 5, [10.0 * one for one in factors])
    (pair,) = made.pairs
    assert pair.verdict == verdict
    assert pair.times == pytest.approx(math.prod(factors) ** 0.2)
    assert ("?" in table_tex(made).split("\\midrule")[1]) == (verdict == "cannot tell")


def test_sentences_name_those_that_the_seeds_tell_apart() -> None:
    made = compared([10.0] * 5, [20.0] * 5)
    place = made.worlds[0]
    made.rows += [
        Row(place, UNCHANGED, policy, policy == "new", dict(enumerate(values)), "finished", "")
        for policy, values in (("srtf", [5.0] * 5), ("new", [20.0, 5.0, 20.0, 5.0, 10.0]))
    ]
    (told,) = verdicts(made)
    assert told == (
        "mine in the world tiresias: better than tiresias; worse than srtf; not significantly "
        "different from new."
    )


def test_a_rival_that_does_not_apply_has_no_ratio_but_a_reason() -> None:
    made = compared([1.0] * 5, [], "does not apply")
    (pair,) = made.pairs
    assert pair.times is None
    assert pair.verdict == "tiresias does not apply"
    assert reasons(made) == ["tiresias in the world tiresias: does not apply: why."]
    assert "does not apply" in table_tex(made)
    assert panels(made)[0].series == {}
    assert figure_pgf(made).count("\\addplot") == 0


def test_ticks_have_room_and_contain_1() -> None:
    for low, high in ((0.5, 1.2), (0.03, 1.1), (0.9, 30.0), (0.001, 1000.0), (0.86, 1.14)):
        found = ticks(low, high)
        assert 1.0 in found
        gaps = [b / a for a, b in pairwise(found)]
        assert min(gaps, default=9.9) >= (high / low) ** 0.13


# --- the folder -----------------------------------------------------------------------------------


def test_the_folder_is_whole_and_names_every_file(kit: Path) -> None:
    assert set(FILES) <= {path.name for path in kit.iterdir()}
    text = (kit / "repeat.toml").read_text()
    for name in set(FILES) - {"repeat.toml"}:
        sha256 = hashlib.sha256((kit / name).read_bytes()).hexdigest()
        assert f'"{name}" = "{sha256}"' in text


def test_a_run_of_the_folder_is_the_run_of_simulate(kit: Path, home: Path) -> None:
    address = (
        "synth:philly?jobs=240&max_gpus=16&max_duration_s=86400&arrivals=poisson&load=4.0"
        "&cluster_gpus=60&seed=1"
    )
    lab = gl.Cluster.homogeneous(servers=15, gpus=4, gpu="P100")
    result = gl.simulate(lab, address, "tiresias", seed=1, restart_s=30.0)
    run = next(
        row for row in lines(kit / "runs.csv")
        if (row["world"], row["change"], row["policy"], row["seed"])
        == ("tiresias", "unchanged", "tiresias", "1")
    )  # fmt: skip
    assert run["log_hash"] == result.log_hash
    assert float(run["value"]) == result.summary["jct_mean_s"]


def test_means_and_ratios_are_those_of_the_runs(kit: Path) -> None:
    runs = lines(kit / "runs.csv")
    for row in pq.read_table(kit / "table.parquet").to_pylist():
        names = row["world"], row["change"], row["policy"]
        values = [
            float(r["value"]) for r in runs if (r["world"], r["change"], r["policy"]) == names
        ]
        assert row["mean"] == pytest.approx(sum(values) / 2)
        assert (row["low"], row["high"], len(values)) == (None, None, 2)
    for pair in lines(kit / "ratios.csv"):
        mine, rival = (
            [float(r["value"]) for r in runs
             if (r["world"], r["change"], r["policy"]) == (pair["world"], pair["change"], who)]
            for who in (pair["policy"], pair["rival"])
        )  # fmt: skip
        ratios = [b / a for a, b in zip(mine, rival, strict=True)]
        assert float(pair["ratio"]) == pytest.approx(math.sqrt(math.prod(ratios)))
        assert pair["verdict"] in ("equal", "cannot tell: 2 seeds, but 5 are needed")


def test_the_figure_has_every_ratio_of_the_paper_s_own_policy(kit: Path) -> None:
    drawn = (kit / "figure.pgf").read_text()
    assert drawn.count("{") == drawn.count("}")
    assert drawn.count("\\begin{axis}") == drawn.count("\\end{axis}") == 2
    points = {float(x) for x in re.findall(r"^([\d.e-]+) \S+ \S+ \S+$", drawn, re.M)}
    for pair in lines(kit / "ratios.csv"):
        if pair["rival"] == pair["world"]:
            assert float(f"{float(pair['ratio']):.6g}") in points
    assert "\\input{figure.pgf}" in (kit / "figure.tex").read_text()


def test_methods_name_code_worlds_seeds_and_what_cannot_be_told(kit: Path, home: Path) -> None:
    text = (kit / "methods.txt").read_text()
    for name in ("kit_greedy.py", "kit_order.py"):
        sha256 = hashlib.sha256((home / name).read_bytes()).hexdigest()
        assert f"{name} (sha256 {sha256[:16]}...)" in text
    core = hashlib.sha256(Path(gl._core.__file__).read_bytes()).hexdigest()
    assert f"gangline {gl.__version__} (core sha256 {core[:16]}..." in text
    assert "with widest = False" in text
    distinct = {
        (r["world"], r["policy"], r["seed"], r["log_hash"]) for r in lines(kit / "runs.csv")
    }
    count = int(re.findall(r"(\d+) runs finished", text)[0])
    assert len(distinct) <= count <= len(lines(kit / "runs.csv"))
    assert "seeds 0 and 1" in text
    assert re.search(r"(^|\s)World sjf-bsbf \(", text)
    assert "With 2 seeds there are no intervals" in text
    assert "synth:bsbf?jobs=120&seed=S" in text
    assert "jobs-240` of `gangline reproduce sjf-bsbf`; made small here: jobs = 120 " in text
    assert "synth:bsbf?jobs=120\\&seed=S" in (kit / "methods.tex").read_text()


# --- going on, and repeating ----------------------------------------------------------------------


def test_a_kit_goes_on_where_it_was_and_a_changed_policy_is_run_again(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("kit_greedy.py", "kit_order.py"):
        shutil.copy(home / name, tmp_path / name.replace("kit", "kitagain"))
    policy, order = tmp_path / "kitagain_greedy.py", tmp_path / "kitagain_order.py"
    policy.write_text(policy.read_text().replace("kit_order", "kitagain_order"))
    monkeypatch.syspath_prepend(tmp_path)

    def told(**options: Any) -> tuple[int, Paper]:
        steps: list[int] = []
        made = gl.paper.run(
            ["kitagain_greedy:Greedy"], worlds=["sjf-bsbf"], quick=True, out=tmp_path / "out",
            workers=1, progress=lambda done, failed, runs: steps.append(done), **options,
        )  # fmt: skip
        return len(steps), made

    runs, first = told(seeds=[0])
    assert runs == first.runs_count
    assert told(seeds=[0])[0] == 0
    assert told(seeds=[0, 1])[0] == runs
    order.write_text(order.read_text().replace("-gpus if widest else gpus", "-gpus"))
    again, changed = told(seeds=[0])
    mine = {row["digest"] for row in first.runs if row["policy"].startswith("Greedy")}
    assert again == len(mine)
    assert {r["log_hash"] for r in changed.runs} != {r["log_hash"] for r in first.runs}


def test_a_repetition_finds_the_same_bytes(kit: Path, tmp_path: Path) -> None:
    there = tmp_path / "sent"
    shutil.copytree(kit, there, ignore=shutil.ignore_patterns("work"))
    done = gangline("paper", str(there / "repeat.toml"), "--workers", "2", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    files = len(
        [name for name in there.iterdir() if name.name not in ("files.json", "repeat.toml")]
    )
    assert f"{files} files with the same bytes" in " ".join(done.stdout.split())


def test_a_repetition_finds_what_was_changed(kit: Path, tmp_path: Path) -> None:
    there = tmp_path / "sent"
    shutil.copytree(kit, there, ignore=shutil.ignore_patterns("work"))
    table = there / "table.csv"
    table.write_text(table.read_text().replace("tiresias", "tiresia", 1))
    asked = (there / "repeat.toml").read_text()
    # the numbers of the runs as other machines would have them
    runs = there / "runs.csv"
    text = runs.read_text()
    first = lines(runs)[0]
    runs.write_text(text.replace(first["value"], "1.5", 1))
    sha256 = hashlib.sha256(runs.read_bytes()).hexdigest()
    then = hashlib.sha256(text.encode()).hexdigest()
    (there / "repeat.toml").write_text(asked.replace(then, sha256))
    done = gangline("paper", str(there / "repeat.toml"), "--workers", "2", cwd=tmp_path)
    assert done.returncode == 3
    said = " ".join(done.stdout.split())
    assert "the first run that differs: tiresias, unchanged, Greedy" in said
    assert f"1.5 then, {first['value']} now" in said
    assert "table.csv: was changed after it was written" in said


def test_another_policy_file_is_refused_before_a_run(kit: Path, tmp_path: Path) -> None:
    there = tmp_path / "sent"
    shutil.copytree(kit, there, ignore=shutil.ignore_patterns("work"))
    order = there / "kit_order.py"
    order.write_text(order.read_text() + "# other\n")
    done = gangline("paper", str(there / "repeat.toml"), cwd=tmp_path)
    assert done.returncode == 2
    assert "kit_order.py is not the file that was run" in done.stderr
    order.unlink()
    done = gangline("paper", str(there / "repeat.toml"), cwd=tmp_path)
    assert "kit_order.py is missing next to it" in done.stderr


def test_a_file_that_is_none_of_a_kit_is_refused(tmp_path: Path) -> None:
    (tmp_path / "other.toml").write_text("a = 1\n")
    done = gangline("paper", "other.toml", cwd=tmp_path)
    assert done.returncode == 2
    assert "expected the repeat.toml of a paper kit" in done.stderr


# --- policies that do not work somewhere ----------------------------------------------------------


def test_policies_that_refuse_or_fail_are_told_and_do_not_end_the_kit(home: Path) -> None:
    arguments = ("--quick", "--worlds", "tiresias", "--out", "odd", "--workers", "2")
    both = "kit_greedy:Picky,kit_greedy:Broken"
    done = gangline("paper", both, *arguments, cwd=home)
    assert done.returncode == 3  # a new policy failed
    said = " ".join(done.stdout.split())
    assert "Picky(widest=False) in the world tiresias" in said or "Picky in the world" in said
    assert "does not apply: it needs a telescope" in said
    assert "failed: IndexError: list index out of range" in said
    rows = lines(home / "odd" / "table.csv")
    assert {row["status"] for row in rows if row["is_new"] == "true"} == {
        "does not apply", "failed",
    }  # fmt: skip
    assert all(row["status"] == "finished" for row in rows if row["is_new"] == "false")


def test_a_policy_that_a_world_lacks_something_for_does_not_apply() -> None:
    made = gl.paper.run(["sjf-bsbf"], worlds=["tiresias"], quick=True, seeds=[0], workers=1)
    mine = [row for row in made.rows if row.is_new]
    assert {row.status for row in mine} == {"does not apply"}
    assert "slowdown factors of jobs that share a GPU are unknown" in mine[0].reason
    (told,) = {line.partition(": ")[0] for line in reasons(made)}
    assert told == "sjf-bsbf in the world tiresias"
    assert verdicts(made) == ["1 seed: verdicts need five seeds or more."]


def test_one_of_the_rivals_is_compared_with_the_others() -> None:
    made = gl.paper.run(["tiresias"], worlds=["tiresias"], quick=True, seeds=[0], workers=1)
    rivals = [row.policy for row in made.rows if not row.is_new and row.change is UNCHANGED]
    assert rivals == ["tiresias-gittins", "gandiva", "yarn-cs", "srtf"]


@pytest.mark.parametrize(
    ("policies", "options"),
    [
        ([], {}),
        (["las", "las"], {}),
        (["las"], {"worlds": ["hadar", "hadar"]}),
        (["las"], {"seeds": [1, 1]}),
        (["las"], {"worlds": []}),
    ],
)
def test_what_is_repeated_or_missing_is_refused(
    policies: list[str], options: dict[str, Any], snapshot: Snapshot
) -> None:
    with refused((OptionError, PolicyError), snapshot):
        gl.paper.run(policies, **options)


def test_a_file_of_the_user_is_not_replaced(home: Path, tmp_path: Path) -> None:
    (tmp_path / "table.tex").write_text("mine")
    done = gangline("paper", "las", "--quick", "--out", ".", cwd=tmp_path)
    assert done.returncode == 2
    assert "table.tex: exists and is not an unchanged file of gangline" in done.stderr
    assert not (tmp_path / "work").exists()


@pytest.mark.parametrize("name", NAMES)
def test_a_small_world_says_how_it_differs_from_its_source(name: str) -> None:
    place = world(name)
    assert place.origin(quick=False) == place.source
    said = place.origin(quick=True)
    for key, small in place.quick.items():
        change = f"{key} = {small} instead of {place.trace.get(key, 'the default')}"
        assert change in said
        assert f"{key}={small}&" in place.address(0, quick=True)
    if name == "tiresias":
        assert said.endswith("jobs = 240 instead of 480, load = 4.0 instead of 1.5")


def test_a_small_world_leaves_out_changes_of_what_made_it_small() -> None:
    place = replace(world("hadar"), quick={"jobs": 3})
    assert all("jobs" not in one.trace for one in place.changes_of(quick=True))
    assert any("jobs" in one.trace for one in place.changes_of(quick=False))
