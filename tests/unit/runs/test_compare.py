from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import gangline as gl
import worlds
from gangline._support import formatting as words
from gangline.runs.comparison import assumptions, headline
from refusals import refused

if TYPE_CHECKING:
    from pathlib import Path

    from snapshots import Snapshot

LAB = gl.Cluster.homogeneous(servers=1, gpus=2)
# fifo: A 0-10, B 10-12. sjf: both arrive at 0 and B is shorter, so B runs first.
JOBS = pa.table({"arrival_s": [0.0, 0.0], "gpus": [2, 2], "duration_s": [10.0, 2.0]})


def both(**options: Any) -> gl.Comparison:
    return gl.compare(LAB, JOBS, ["fifo", gl.policies.Sjf()], **options)


def test_rows_follow_policies_then_seeds() -> None:
    table = both(seeds=[0, 1]).table
    assert table.column("policy").to_pylist() == ["fifo", "fifo", "sjf", "sjf"]
    assert table.column("seed").to_pylist() == [0, 1, 0, 1]
    assert table.column("jct_mean_s").to_pylist() == [11.0, 11.0, 7.0, 7.0]


def test_verdict_marks_the_best_and_not_the_neutral() -> None:
    titles, cells, best = both().verdict()
    jct = titles.index("mean JCT")
    assert [row[jct] for row in cells] == ["11s", "7s"]
    assert [row[jct] for row in best] == [False, True]
    for neutral in ("preempt.", "GPU util."):  # restarts and slow GPUs also keep GPUs busy
        assert not any(row[titles.index(neutral)] for row in best)


@pytest.mark.parametrize(
    ("values", "direction", "form", "expected"),
    [
        # within 1 % of the best is a tie, and both are marked
        ([100.0, 101.0, 101.1], -1, words.count, [True, True, False]),
        ([100.0, 99.0, 98.9], 1, words.count, [True, True, False]),
        # both are shown as 0.1 %, so they tie
        ([0.0006, 0.0014, 0.5], -1, words.share, [True, True, False]),
        ([0.0, 0.27, 35.0], -1, words.duration, [True, False, False]),
        # all values tie, so none is marked
        ([0.1139, 0.1133, 0.1139], 1, words.share, [False] * 3),
        ([5.0], -1, words.duration, [False]),
        ([None, 5.0], -1, words.duration, [False, False]),
        ([None, 5.0, 6.0, float("nan")], -1, words.duration, [False, True, False, False]),
        ([1.0, 2.0], 0, words.count, [False, False]),
        ([-3.0, -1.0], -1, words.count, [True, False]),
    ],
)
def test_the_best_of_a_column(
    values: list[float | None], direction: int, form: Any, expected: list[bool]
) -> None:
    assert words.leaders(values, direction, form) == expected


def test_means_average_over_seeds() -> None:
    means = both(seeds=[0, 1]).means()
    assert [(row["policy"], row["seeds"], row["jct_mean_s"]) for row in means] == [
        ("fifo", 2, 11.0),
        ("sjf", 2, 7.0),
    ]


def test_results_come_one_by_one_and_need_not_be_kept() -> None:
    seen: list[str] = []
    comparison = both(each=lambda result: seen.append(result.policy), keep=False)
    assert seen == ["fifo", "sjf"]
    assert comparison.results == []
    assert len(comparison.rows) == 2


def test_save_writes_every_run(tmp_path: Path) -> None:
    folder = both().save(tmp_path / "out")
    names = sorted(path.name for path in folder.iterdir())
    assert names == ["comparison.json", "fifo-s0", "sjf-s0"]
    assert gl.load_result(folder / "sjf-s0").summary["jct_mean_s"] == 7.0
    data = json.loads((folder / "comparison.json").read_text())
    assert [row["policy"] for row in data["runs"]] == ["fifo", "sjf"]


def test_repr_is_a_table() -> None:
    lines = repr(both()).splitlines()
    assert lines[0].split()[0] == "policy"
    assert [line.split()[0] for line in lines[1:]] == ["fifo", "sjf"]


@pytest.mark.parametrize(
    ("policies", "options", "facts"),
    [
        ([], {}, {"field": "policies"}),
        (["fifo"], {"seeds": []}, {"field": "seeds"}),
        ("fifo", {}, {"field": "policies", "value": "fifo"}),
        (["las"], {"params": {"fifo": {"fit": "first"}}}, {"field": "params", "value": "fifo"}),
        ([gl.policies.Las()], {"params": {"las": {}}}, {"field": "params", "value": "las"}),
    ],
)
def test_what_would_compare_nothing_or_use_nothing_is_refused(
    policies: Any, options: dict[str, Any], facts: dict[str, Any]
) -> None:
    with refused(gl.PolicyError, **facts):
        gl.compare(LAB, JOBS, policies, **options)


def test_a_policy_that_would_not_start_is_refused_before_the_first_run() -> None:
    """A lease of 1,200 s is shorter than restarts of 3,600 s; everything else is valid."""
    seen: list[str] = []
    with refused(gl.PolicyError, field="lease_s", value="1200"):
        gl.compare(
            LAB,
            JOBS,
            ["fifo", "sjf", "themis"],
            seeds=[0, 1],
            restart_s=3600.0,
            each=lambda result: seen.append(result.policy),
        )
    assert seen == []


def test_jobs_that_a_later_policy_cannot_place_are_named_before_the_first_run() -> None:
    """Only the last policy forbids gangs over several servers."""
    pair = gl.Cluster.homogeneous(servers=2, gpus=1)
    trace = JOBS.append_column("job_id", pa.array(["alpha", "beta"]))
    policies = [gl.policies.Fifo(), gl.policies.Fifo(max_level="server")]
    seen: list[str] = []
    with refused(gl.InfeasibleJobError, job_id="alpha", jobs=[0, 1]):
        gl.compare(pair, trace, policies, each=lambda result: seen.append(result.policy))
    assert seen == []


class CountsStarts(worlds.OneByOne):
    """Counts its runs."""

    def __init__(self) -> None:
        self.starts = 0

    def start(self, view: gl.View) -> None:
        self.starts += 1


def test_a_policy_object_is_started_once_per_run() -> None:
    own = CountsStarts()
    gl.compare(LAB, JOBS, ["fifo", own], seeds=[0, 1])
    assert own.starts == 2


def test_restart_times_of_models_that_no_job_has_are_noted() -> None:
    trace = JOBS.append_column("model", pa.array(["ResNet", "BERT"]))
    given = {"resnet": 4.0, "BERT": 1.0}
    spec = gl.simulate(LAB, trace, "fifo", restart_by_model=given).spec
    assert spec["notes"] == {"restart_by_model_without_jobs": 1}
    assert gl.simulate(LAB, trace, "fifo", restart_by_model={"BERT": 1.0}).spec["notes"] == {}


class Named(gl.Policy):
    """Starts no job twice; `name` distinguishes objects only if the caller sets it."""

    def __init__(self, name: str, *, is_last_first: bool = False) -> None:
        self._name = name
        self._is_last_first = is_last_first

    def label(self) -> str:
        return self._name

    def decide(self, view: gl.View, changes: gl.Changes) -> gl.Plan:
        plan = gl.Plan()
        jobs = list(view.waiting("job"))
        if jobs and not len(view.running("job")):
            plan.start(jobs[-1 if self._is_last_first else 0], {0: 2})
        return plan


@pytest.mark.parametrize(
    ("policies", "seeds", "words"),
    [
        (["fifo", "sjf"], [1, 1], "seeds: duplicate value 1"),
        (["fifo", "fifo"], [0], "policies: duplicate `fifo`"),
        (["fifo", gl.policies.Fifo()], [0], "policies: duplicate `fifo`"),
        ([Named("a"), Named("a", is_last_first=True)], [0], "policies: duplicate `a`; .*label"),
    ],
)
def test_what_would_be_averaged_as_two_seeds_of_one_policy_is_refused(
    policies: list[Any], seeds: list[int], words: str, snapshot: Snapshot
) -> None:
    kind = gl.OptionError if words.startswith("seeds") else gl.PolicyError
    with refused(kind, snapshot):
        gl.compare(LAB, JOBS, policies, seeds=seeds)


@pytest.mark.parametrize("field", ["seeds", "trace_seeds"])
@pytest.mark.parametrize("seeds", [range(10_001), range(10**12)])
def test_more_seeds_than_anybody_runs_are_refused_at_once(field: str, seeds: range) -> None:
    drawn: dict[str, Any] = {field: seeds}
    with refused(gl.OptionError, field=field):
        gl.compare(LAB, "synth:philly?jobs=9&seed=1", ["fifo"], **drawn)
    with refused(gl.OptionError, field=field):
        gl.plan_capacity(LAB, "synth:philly?jobs=9&seed=1", keep="jct_mean_s<=9", **drawn)


@pytest.mark.parametrize(
    ("seeds", "facts"),
    [
        ([1.5], {"field": "seed", "value": 1.5}),
        (["a"], {"field": "seed", "value": "a"}),
        (3, {"field": "seeds", "value": 3}),
    ],
)
def test_a_seed_that_is_no_whole_number_is_refused(seeds: Any, facts: dict[str, Any]) -> None:
    with refused(gl.OptionError, **facts):
        gl.compare(LAB, JOBS, ["fifo"], seeds=seeds)


def test_one_seed_by_the_name_of_simulate_is_told_to_use_seeds(snapshot: Snapshot) -> None:
    with refused(gl.OptionError, snapshot):
        gl.compare(LAB, JOBS, ["fifo"], seed=1)


def test_policies_and_seeds_may_come_one_by_one() -> None:
    generated = gl.compare(LAB, JOBS, (x for x in ["fifo", "sjf"]), seeds=(x for x in [0, 1]))
    assert len(generated.rows) == 4


def test_one_policy_in_place_of_a_list_is_named() -> None:
    with refused(gl.PolicyError, field="policies", value="Fifo"):
        gl.compare(LAB, JOBS, gl.policies.Fifo())  # type: ignore[arg-type]


def test_labels_that_a_file_system_cannot_tell_apart_get_folders_of_their_own(
    tmp_path: Path,
) -> None:
    names = ["é", "ü", "a b", "a/b", ".a", "b" * 300, f"{'b' * 300}2"]
    both = gl.compare(LAB, JOBS, [Named(name) for name in names])
    both.save(tmp_path / "results")
    loaded = gl.report.load_runs(tmp_path / "results")
    assert [run.policy for run in loaded] == names


def test_a_best_policy_that_knows_durations_is_said_to(snapshot: Snapshot) -> None:
    told = both().sentences()[1]
    snapshot(told)
    jobs = pa.table({"arrival_s": [0.0, 1.0], "gpus": [2, 2], "duration_s": [10.0, 2.0]})
    three = gl.compare(LAB, jobs, ["fifo", "las", "srtf"], params={"las": {"limits": [5.0]}})
    means = [row["jct_mean_s"] for row in three.means()]
    assert means[2] < means[1] < means[0]
    (told,) = [line for line in three.sentences() if "assumes" in line]
    snapshot(told)
    # with costs of restarts and errors of durations, neither is assumed
    for policy in (gl.policies.Srtf(), gl.policies.Srtf(estimate_error=0.5)):
        paid = gl.compare(LAB, jobs, ["fifo", policy], restart_s=0.5).sentences()[1:]
        assert not any("free preemption" in line for line in paid)
        assert any("exact durations" in line for line in paid) == (not policy.estimate_error)


def test_copies_of_a_job_are_named_as_an_assumption(snapshot: Snapshot) -> None:
    rows = [{"policy": "hadare", "jct_mean_s": 40.0}, {"policy": "fifo", "jct_mean_s": 90.0}]
    policies = {"hadare": {"copy_gpus": "server"}, "fifo": {}}
    snapshot(assumptions(rows, policies))


def test_a_best_policy_that_knows_no_durations_is_said_to_be_no_more(snapshot: Snapshot) -> None:
    assert not any("durations" in line for line in gl.compare(LAB, JOBS, ["fifo"]).sentences())
    rows = [{"policy": "las", "jct_mean_s": 40.0}, {"policy": "srtf", "jct_mean_s": 45.0}]
    knows = {"las": {"knowledge": "online"}, "srtf": {"knowledge": "remaining"}}
    assert assumptions(rows, knows) == ""
    rows[1]["jct_mean_s"] = 39.9  # within 1 %
    rows.append({"policy": "fifo", "jct_mean_s": 90.0})
    snapshot(assumptions(rows, knows | {"fifo": {"knowledge": "online"}}))


def test_policies_that_the_seeds_do_not_tell_apart_are_not_called_the_same(
    snapshot: Snapshot,
) -> None:
    rows = [
        {"policy": "fifo", "jct_mean_s": 7200.0, "preemptions": 0},
        {"policy": "srtf", "jct_mean_s": 3600.0, "preemptions": 3},
    ]
    snapshot(headline(rows, tied=["srtf", "fifo"]))


def test_means_over_different_jobs_are_named() -> None:
    jobs = pa.table(
        {
            "arrival_s": [0.0, 0.0],
            "gpus": [2, 1],
            "duration_s": [10.0, 2.0],
            "account": ["lab", "lab"],
        }
    )
    slurm = gl.policies.Slurm(account_grp_gpus={"lab": 1})
    read = gl.compare(LAB, jobs, ["fifo", slurm], on_infeasible="drop").sentences()
    (said,) = (line for line in read if line.startswith("These means"))
    assert said.startswith("These means are over different jobs: 2 finished under fifo and 1 under")
    assert not [line for line in both().sentences() if line.startswith("These means")]
