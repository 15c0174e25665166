"""Tests the parameters of `kueue`: tables, their errors, and the ways to give them."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import pytest

import gangline as gl
import worlds
from commands import document, gangline
from gangline.errors import PolicyError
from refusals import refused

if TYPE_CHECKING:
    from pathlib import Path

    from snapshots import Snapshot

LAB = gl.Cluster.from_dict(worlds.lab("1x4 g"))
Rows = list[dict[str, Any]]


def queue(name: str = "default", nominal: int = 4, **says: Any) -> dict[str, Any]:
    return {"name": name, "flavors": [{"gpu": "g", "nominal": nominal}], **says}


def run(**params: Any) -> gl.Result:
    return gl.simulate(LAB, worlds.trace("0 0 2 5"), "kueue", params=params)


@pytest.mark.parametrize(
    ("params", "field"),
    [
        ({"queues": [{"flavors": []}]}, "queues[0].name"),
        ({"queues": [queue(within="Always")]}, "queues[0].within"),
        ({"queues": [queue(borrow="LowerPriority")]}, "queues[0].borrow"),
        ({"queues": [queue(weight=-1)]}, "queues[0].weight"),
        ({"queues": [queue(weight=1.2345678)]}, "queues[0].weight"),
        ({"queues": [queue(weight=1e7)]}, "queues[0].weight"),
        ({"queues": [queue(nominal=1.5)]}, "queues[0].flavors[0].nominal"),
        ({"queues": [queue(nominal=2**25)]}, "queues[0].flavors[0].nominal"),
        ({"queues": [queue() | {"flavors": [{"gpu": "x"}]}]}, "queues[0].flavors[0].gpu"),
        ({"queues": "default"}, "queues"),
        ({"queues": [3]}, "queues[0]"),
        ({"strategies": ["LessThanInitialShare", "LessThanOrEqualToFinalShare"]}, "strategies"),
        ({"strategies": []}, "strategies"),
    ],
)
def test_mistakes_are_named_by_their_path(params: dict[str, Any], field: str) -> None:
    with refused(PolicyError, policy="kueue", field=field):
        run(**params)


@pytest.mark.parametrize(
    ("params", "field"),
    [
        ({"queues": [queue(), queue(cohrt="x")]}, "queues[1].cohrt"),
        ({"queues": [queue(), queue()]}, "queues[1].name"),
        ({"cohorts": [{"name": "a"}, {"name": "a"}]}, "cohorts[1].name"),
        ({"queues": [queue() | {"flavors": [{"gpu": "g"}] * 2}]}, "queues[0].flavors[1].gpu"),
        (
            {"queues": [queue() | {"flavors": [{"gpu": "g", "nominal": "4"}]}]},
            "queues[0].flavors[0].nominal",
        ),
        ({"queues": [queue("other")]}, "queues"),
        # a cohort below a circle is not in it
        (
            {"cohorts": [{"name": name, "parent": above} for name, above in ("ab", "bc", "cb")]},
            "cohorts[1].parent",
        ),
        ({"cohorts": [{"name": "a", "parent": "a"}]}, "cohorts[0].parent"),
        ({"queues": [queue(reclaim="any")]}, "queues[0].reclaim"),
        ({"queues": [queue(reclaim="Always")]}, "queues[0].reclaim"),
        ({"strategies": ["LessThanInitialShar"]}, "strategies"),
    ],
)
def test_a_mistake_in_a_table_says_what_to_do(
    params: dict[str, Any], field: str, snapshot: Snapshot
) -> None:
    with refused(PolicyError, snapshot, policy="kueue", field=field):
        run(**params)


def test_equal_tables_are_one_run() -> None:
    """None, a whole number as a float, and a tuple are other forms of the same values."""
    said = gl.policies.make("kueue", {"queues": [queue(weight=2)]})
    same = gl.policies.make("kueue", {"queues": (queue(nominal=4.0, weight=2.0, cohort=None),)})
    assert said == same
    trace = "synth:philly?jobs=5&seed=1&max_gpus=4"
    one, other = (gl.RunSpec.make(LAB, trace, policy) for policy in (said, same))
    assert one.digest == other.digest
    assert gl.RunSpec.from_dict(gl.run(one).spec) == one


def test_labels_name_the_queues() -> None:
    policy = gl.policies.Kueue(queues=[queue("a"), queue("b")], fair_sharing=True)
    assert policy.label() == "kueue(queues=[a, b], fair_sharing=True)"


def test_settings_come_from_the_line_or_from_a_file(tmp_path: Path) -> None:
    trace, lab = tmp_path / "jobs.csv", tmp_path / "lab.toml"
    trace.write_text("job_id,arrival_s,gpus,duration_s,vc\nj,0,2,5,a\nk,0,2,5,a\n", "utf-8")
    lab.write_text('gpu_types = [{name="g"}]\nservers = [{count=1, gpu="g", gpus=4}]\n', "utf-8")
    words = ["run", "--trace", str(trace), "--cluster", str(lab), "--policy", "kueue", "--json"]
    line = 'queues=[{name = "a", flavors = [{gpu = "g", nominal = 2}]}]'
    (tmp_path / "kueue.toml").write_text(line.replace("queues=", "queues = "), "utf-8")
    # the quota holds one job at a time
    for setting in (line, f"@{tmp_path / 'kueue.toml'}"):
        assert document(*words, "--set", setting)["summary"]["makespan_s"] == 10.0
    # `compare` takes a file for each policy: kai's quota of 4 holds both jobs
    (tmp_path / "kai.toml").write_text('queues = [{name = "a", quota = 4}]', "utf-8")
    words[0], words[words.index("--policy") :] = "compare", ["--policies", "kueue,kai", "--json"]
    files = [("--set", f"{name}.@{tmp_path / name}.toml") for name in ("kueue", "kai")]
    found = document(*words, *itertools.chain(*files))
    assert [run["makespan_s"] for run in found["runs"]] == [10.0, 5.0]
    words[0], words[words.index("--policies") :] = "run", ["--policy", "kueue", "--json"]
    (tmp_path / "kueue.toml").write_text("queues = [", "utf-8")
    for name, words_of_it in (("kueue.toml", "expected TOML"), ("none.toml", "No such file")):
        failed = gangline(*words, "--set", f"@{tmp_path / name}")
        assert failed.returncode == 2
        assert words_of_it in failed.stderr
