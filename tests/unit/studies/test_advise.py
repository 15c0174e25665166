"""Tests advice from logs: worlds by hand, and an independent count of every number."""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
import re
import shlex
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import gangline as gl
from commands import document, gangline
from gangline._support.formatting import brief, duration, times
from gangline._support.statistics import ANY, interval
from gangline.errors import OptionError, PolicyError, TraceError
from gangline.policies.choice import resolve_policy
from gangline.runs.inputs import as_cluster
from gangline.studies.advise.calibration import Calibration, Likeness, calibrate
from gangline.studies.advise.contenders import contender, default_contenders
from gangline.studies.advise.parts import Parts
from gangline.studies.advise.sizes import default_sizes, resized
from gangline.studies.validate.ranks import Pair
from gangline.studies.validate.waits import Waits
from logs import LAB, log_of
from refusals import refused

if TYPE_CHECKING:
    from pathlib import Path

    from gangline.studies.advise import Advice

# Gangs of eight on one server of eight.
#                        fifo, as observed   sjf, 1 server   either, 2 servers
#   a  ana, at 0, 3600 s       0                  0                0
#   b  ben, at 0, 3600 s       3600               6000             0
#   c  cho, at 60, 600 s       7200               3600             3600
#   d  ana, at 120, 1800 s     7800               4200             3600
# Waits: fifo 0, 3600, 7140, 7680; sjf 0, 6000, 3540, 4080; two servers 0, 0, 3540, 3480.
ONE = "1x8xA100"
JOBS: dict[str, list[Any]] = {
    "job_id": ["a", "b", "c", "d"],
    "arrival_s": [0.0, 0.0, 60.0, 120.0],
    "gpus": [8, 8, 8, 8],
    "duration_s": [3600.0, 3600.0, 600.0, 1800.0],
    "user": ["ana", "ben", "cho", "ana"],
}
OBSERVED = {
    "observed_start_s": [0.0, 3600.0, 7200.0, 7800.0],
    "observed_finish_s": [3600.0, 7200.0, 7800.0, 9600.0],
}
SIX = ("easy", "fifo", "fifo-skip", "sjf", "las", "srtf")
SYNTH = "synth:pai?jobs=600&seed=3&max_gpus=16&users=12&load=1&cluster_gpus=64"


def by_hand(**options: Any) -> Advice:
    """Return the advice on the log above."""
    table = pa.table({**JOBS, **OBSERVED})
    return gl.advise(ONE, table, ["sjf", "fifo"], servers=[1, 2], workers=1, **options)


class TestByHand:
    def test_waits_of_each_row(self) -> None:
        found = by_hand()
        waits = {(one.policy, one.servers): one.wait.mean for one in found}
        assert waits == {
            ("sjf", 1): 3405.0,
            ("fifo", 1): 4605.0,
            ("sjf", 2): 1755.0,
            ("fifo", 2): 1755.0,
        }
        row = found["sjf", 1]
        assert row.wait_p50_s == (3540.0 + 4080.0) / 2
        assert row.wait_p99_s == pytest.approx(4080.0 + 0.97 * 1920.0)
        assert row.jct_mean_s == 3405.0 + (3600 + 3600 + 600 + 1800) / 4
        assert row.difference.mean == pytest.approx(3405.0 - 4605.0)
        # 8 GPUs x 9,600 s are offered in 120 s to 8 GPUs
        assert (row.load, row.is_over, row.gpus, row.cannot_run) == (80.0, True, 8, 0)

    def test_the_log_is_that_of_fifo(self) -> None:
        found = by_hand().calibration
        near, far = found.rows
        assert (near.policy, near.resembles, near.waits.distance) == ("fifo", True, 1.0)
        assert near.waits.rank_correlation == pytest.approx(1.0)
        assert (near.waits.jobs, near.waits.waiting) == (4, 3)
        # sjf: b waits 6000 s, not 3600 s, and c and d pass it; c and d wait less
        apart = [math.log(6060 / 3660), math.log(7200 / 3600), math.log(7740 / 4140)]
        factors = [sum(apart) / 4, sum(apart) / 4, math.log(3) / 4]
        assert far.waits.distance == pytest.approx(math.exp(sum(factors) / 3))
        assert far.waits.wait_mean_s.error == pytest.approx(3405 / 4605 - 1)
        assert far.waits.rank_correlation == pytest.approx(0.4)  # ranks 1 2 3 4 and 1 4 2 3
        assert by_hand().base == "fifo"

    def test_users_who_gain_and_lose(self) -> None:
        row = by_hand()["sjf", 1]
        # ana: (0 + 7680) / 2 to (0 + 4080) / 2, twice; cho: 7140 to 3540
        assert [(one.name, one.jobs, one.base_s, one.wait_s) for one in row.gain] == [
            ("ana", 2, 3840.0, 2040.0),
            ("cho", 1, 7140.0, 3540.0),
        ]
        assert [(one.name, one.change_s) for one in row.lose] == [("ben", 2400.0)]

    def test_costs(self) -> None:
        found = by_hand(price={"A100": 2.0})
        costs = {one.servers: one.cost_per_month for one in found}
        assert costs == {1: pytest.approx(8 * 2 * 730.5), 2: pytest.approx(16 * 2 * 730.5)}
        assert "11,688" in found.cells()[0]
        assert "That costs 11,688 more a month." in repr(found)
        assert by_hand()["sjf", 1].cost_per_month is None

    def test_what_it_says(self) -> None:
        said = {claim.kind: claim.text for claim in by_hand().claims()}
        assert said["scheduler"] == (  # no interval over four jobs
            "With the current 1 server, jobs wait least under `sjf`: 56 min 45 s on average, "
            "instead of 1 h 17 min under `fifo` (26 % less)."
        )
        assert said["plain"] == (
            "`sjf` needs to know how long each job will run. Of the schedulers that neither need "
            "this nor stop jobs, `fifo` has the shortest mean wait, 1 h 17 min."
        )
        assert said["users"] == (  # no user is left whose change is small
            "Under `sjf` 2 of 3 users wait less than under `fifo` and 1 waits longer."
        )
        assert said["needs"].startswith("`sjf` needs to know how long each job will run: ")


def test_without_observed_starts_it_cannot_calibrate_and_goes_on() -> None:
    found = gl.advise(ONE, pa.table(JOBS), ["fifo", "easy"], servers=[1], workers=1)
    assert (found.calibration.rows, found.base, len(found)) == ((), "easy", 2)
    said = {claim.kind: claim.text for claim in found.claims()}
    assert said["calibration"] == ("No policy can be calibrated: the log has no observed starts.")
    assert "Without a calibration, the others are compared with `easy`." in found.notes()


def test_a_log_of_no_contender_is_said_to_be_one() -> None:
    log = log_of(SYNTH, "easy", seed=1)
    order = np.random.default_rng(0).permutation(len(log))
    wait = log["observed_start_s"].to_numpy() - log["arrival_s"].to_numpy()
    start = log["arrival_s"].to_numpy() + wait[order]
    finish = start + log["duration_s"].to_numpy()
    log = log.set_column(4, "observed_start_s", pa.array(start))
    log = log.set_column(5, "observed_finish_s", pa.array(finish))
    found = gl.advise(LAB, log, SIX, servers=[8])
    assert not any(one.resembles for one in found.calibration.rows)
    assert found.calibration.sentences()[0].startswith("No contender resembles the log. ")
    # the log distinguishes none of them, and a site cannot know run times
    assert found.calibration.rows[0].policy == "srtf"
    assert found.base == "las"
    said = next(claim.text for claim in found.claims() if claim.kind == "calibration")
    assert said.endswith(
        "The others are compared with `las`, which does not need to know how long each job will "
        "run."
    )


def test_a_log_without_waits_tells_nothing() -> None:
    starts = {"observed_start_s": JOBS["arrival_s"]}
    found = gl.advise("4x8xA100", pa.table({**JOBS, **starts}), ["fifo", "sjf"], servers=[4])
    said = (
        "The log has only 4 jobs, too few to tell schedulers apart. `fifo` comes closest to it: "
        "its waits and its order of jobs differ from those of the log by a factor of 1.00 on "
        "average (1 = no difference)."
    )
    assert found.calibration.sentences() == [said]
    assert [row[-1] for row in found.calibration.cells()] == ["–", "–"]
    many = {name: [*of] * 10 for name, of in {**JOBS, **starts}.items()}
    many |= {"arrival_s": [3600.0 * i for i in range(40)], "job_id": [str(i) for i in range(40)]}
    many["observed_start_s"] = many["arrival_s"]
    found = gl.advise("4x8xA100", pa.table(many), ["fifo", "sjf"], servers=[4])
    assert found.calibration.sentences() == [
        said.replace(
            "The log has only 4 jobs, too few to tell schedulers apart.",
            "Only 0 of 40 jobs waited for longer than 5 min (0 %), so the log hardly distinguishes "
            "policies.",
        ),
        "The distances in parts of the log do not tell `sjf` from `fifo`.",
    ]
    assert [one.resembles for one in found.calibration.rows] == [True, True]
    assert [row[-1] for row in found.calibration.cells()] == ["–", "–"]


class TestResemblance:
    """Rows with numbers that are given, in the order of their distances."""

    @staticmethod
    def calibration(*rows: tuple[str, float, float, float]) -> Calibration:
        """Build rows of policy, mean wait (observed: 100 s), rank correlation and distance."""
        return Calibration(
            tuple(
                Likeness(
                    policy=name,
                    waits=Waits(99, 0.0, 99, *[Pair(100.0, mean)] * 2, rank, *[far] * 3),
                    is_apart=True,
                )
                for name, mean, rank, far in rows
            ),
            "",
        )

    def test_the_table_says_which_number_is_off(self) -> None:
        found = self.calibration(
            ("fifo", 264.0, 0.73, 2.98), ("skip", 62.0, 0.51, 2.99), ("las", 32.0, 0.39, 3.6)
        )
        last = [row[-1] for row in found.cells()]
        assert last == ["no: mean wait", "yes", "no: mean wait and rank corr."]
        assert "within a factor of 2 of that in the log" in found.legend()

    def test_the_base_of_several_is_one_that_knows_no_run_times(self) -> None:
        near, *rest = self.calibration(
            ("easy", 100.0, 0.9, 1.5), ("skip", 300.0, 0.9, 1.6), ("slurm", 100.0, 0.9, 1.7)
        ).rows
        rows = (near, *(dataclasses.replace(one, is_apart=False) for one in rest))
        plain = ["skip", "slurm"]
        assert Calibration(rows, "").base(plain) == "slurm"  # skip does not resemble the log
        assert Calibration((near, *rest), "").base(plain) == "easy"  # the log tells them apart
        assert Calibration(rows, "").base([]) == "easy"
        assert Calibration((), "no starts").base(plain) is None

    def test_values_that_are_shown_as_the_limit_meet_it(self) -> None:
        found = self.calibration(("a", 200.04, 0.396, 1.0), ("b", 200.06, 0.394, 1.0))
        assert [row[3:5] for row in found.cells()] == [["+100.0 %", "0.40"], ["+100.1 %", "0.39"]]
        assert [one.resembles for one in found.rows] == [True, False]

    def test_another_policy_than_the_nearest_resembles_the_log(self) -> None:
        found = self.calibration(("fifo", 264.0, 0.73, 2.98), ("skip", 62.0, 0.51, 2.99))
        assert found.sentences()[0].startswith(
            "`fifo` comes closest to the log but does not resemble it: its waits and its order of "
            "jobs differ from those of the log by a factor of 2.98 on average (1 = no "
            "difference). `skip` resembles it. "
        )


def test_a_job_too_large_for_a_size_is_counted_there(tmp_path: Path) -> None:
    found = gl.advise("2x8xA100", pa.table({**JOBS, "gpus": [16, 8, 8, 8]}), ["fifo"], servers=[1])
    assert {one.servers: one.cannot_run for one in found} == {1: 1, 2: 0}
    assert "Too large for 1 server, and left out there: 1 job." in found.notes()
    # no policy on one server has the jobs of the base, so none is marked as the best there
    page = found.write(tmp_path / "advice.html").read_text(encoding="utf-8")
    assert "Too large for 1 server" in page


STATES = ("IDLE", "IDLE+DRAIN", "DOWN*")


def test_servers_of_a_list_that_were_down_are_told(tmp_path: Path) -> None:
    nodes = tmp_path / "nodes.txt"
    lines = [f"NodeName=n{at} Gres=gpu:A100:8 State={state}" for at, state in enumerate(STATES)]
    nodes.write_text("\n\n".join(lines) + "\n")
    found = gl.advise(str(nodes), pa.table(JOBS), ["fifo"], servers=[3])
    assert "2 servers in the list were not up, but count as up." in found.notes()
    (tmp_path / "up.toml").write_text(gl.read_cluster(nodes, up_only=True).to_toml())
    found = gl.advise(tmp_path / "up.toml", pa.table(JOBS), ["fifo"], servers=[1])
    said = [note for note in found.notes() if "not up" in note]
    assert said == ["2 servers in the list were not up, and are left out."]


def test_a_log_without_users_has_no_table_of_them() -> None:
    nameless = {name: of for name, of in JOBS.items() if name != "user"}
    found = gl.advise(ONE, pa.table({**nameless, **OBSERVED}), ["fifo", "sjf"], servers=[1])
    assert not any(one.users for one in found)
    assert "lose" not in found.titles()
    kinds = [claim.kind for claim in found.claims()]
    assert kinds == ["scheduler", "plain", "calibration", "load", "needs"]
    assert found.claims()[0].command.endswith("--by all")


def test_commands_have_the_costs_of_starts_and_stops() -> None:
    costs = {"restart_s": 5.0, "first_start_s": 7.5, "checkpoint_interval_s": 60.0}
    flags = "--restart-s 5 --first-start-s 7.5 --checkpoint-interval-s 60"
    assert flags in by_hand(**costs).claims()[0].command


def test_a_policy_that_leaves_jobs_out_is_not_the_best() -> None:
    # gavel-allox runs jobs of one GPU only, which here never wait
    gpus = {**JOBS, **OBSERVED, "gpus": [8, 8, 1, 8]}
    found = gl.advise(ONE, pa.table(gpus), ["fifo", "gavel-allox"], servers=[1])
    assert found["gavel-allox", 1].wait.mean < found["fifo", 1].wait.mean
    assert found.best.policy == "fifo"
    assert any("With 1 server `gavel-allox` can never run 3 jobs" in note for note in found.notes())


class TestLimits:
    """A user may have four GPUs, so that only job `c`, which asks for one, can run."""

    LIMITS: ClassVar = {"qos_user_gpus": {"normal": 4}, "qos_priority": {"normal": 1, "high": 2}}
    TABLE = pa.table({**JOBS, **OBSERVED, "gpus": [8, 8, 1, 8]})

    def test_means_over_different_jobs_are_told(self) -> None:
        label = "slurm(qos_priority={'normal': 1, 'high': 2}, qos_user_gpus={'normal': 4})"
        params = {"slurm": self.LIMITS}
        chosen = ["slurm", "fifo"]
        found = gl.advise(
            ONE, self.TABLE, chosen, servers=[1, 2], params=params, base=label, workers=1
        )
        assert [row[:2] + row[4:5] for row in found.cells()[:2]] == [
            ["slurm", "1", "0s"], ["fifo", "1", "1h17m*"],
        ]  # fmt: skip
        assert found.marks().endswith(
            "*: the means of the row do not cover the same jobs as those of slurm on 1 "
            "server, and the "
            "change covers the jobs that finish in both"
        )
        said = {claim.kind: claim.text for claim in found.claims()}
        assert said["scheduler"].endswith(
            "3 of 4 jobs can never run under `slurm` and are left out: each asks for more GPUs "
            "than a limit of its QOS, its user or its account allows. They ran in the log, so the "
            "settings or the servers differ from the log's."
        )
        assert found.notes()[0] == f"`slurm` stands for {label}."
        assert any(
            note.startswith("With 1 and 2 servers `slurm` can never run 3 jobs; they")
            for note in found.notes()
        )
        assert label not in repr(found)

    def test_the_best_is_best_over_the_same_jobs(self) -> None:
        """Under `slurm` `b` waits for `a` of the same user, while `c` and `d` never run.

        Under `fifo` `b` starts at once, but `c` waits for `a`, and `d` waits for `c`.
        """
        jobs = {
            "job_id": ["a", "b", "c", "d"],
            "arrival_s": [0.0, 60.0, 120.0, 130.0],
            "gpus": [4, 4, 8, 8],
            "duration_s": [3600.0, 600.0, 1800.0, 600.0],
            "user": ["ana", "ana", "ben", "ben"],
        }
        params = {"slurm": {"qos_user_gpus": {"normal": 4}}}
        label = "slurm(qos_user_gpus={'normal': 4})"
        found = gl.advise(
            ONE, pa.table(jobs), ["slurm", "fifo"], servers=[1], params=params, base=label
        )
        assert found[label, 1].wait.mean == 3540.0 / 2
        assert found["fifo", 1].wait.mean == (3480.0 + 5270.0) / 4
        assert found.best.policy == "fifo"
        assert found.claims()[0].text == (
            "With the current 1 server, jobs wait least under `fifo`: 36 min 28 s on average, "
            f"instead of 29 min 30 s under `{label}`. These means are over different jobs: 4 "
            f"finish under `fifo`, and 2 under `{label}`. Over the jobs that finish in both, the "
            f"mean changes by -29m30s. 2 of 4 jobs can never run under `{label}` and are left out: "
            "each asks for more GPUs than a limit of its QOS, its user or its account allows."
        )

    def test_quotas_do_not_grow_with_the_servers(self) -> None:
        queues = [{"name": "default", "flavors": [{"gpu": "A100", "nominal": 8}]}]
        params = {"kueue": {"queues": queues}}
        table, chosen = pa.table(JOBS), ["kueue", "fifo"]
        found = gl.advise(ONE, table, chosen, servers=[1, 2], params=params, base="fifo")
        label = found.contenders[0].label
        (quotas,) = (note for note in found.notes() if "quotas" in note)
        assert quotas == (
            f"The quotas of `{found.name(label)}` cover 8 GPUs at every size: with more servers, "
            "raise them too, or the additional GPUs stay idle."
        )
        found = gl.advise(ONE, table, chosen, servers=[1, 2], params=params, base=label)
        said = {claim.kind: claim.text for claim in found.claims()}
        assert "jobs wait as long as with the current 1." in said["larger"]
        assert said["larger"].endswith(quotas)
        assert not any("quotas" in note for note in found.notes())
        assert contender(resolve_policy("kueue")).quota_gpus is None

    def test_a_setting_that_does_not_fit_the_cluster_is_an_error(self) -> None:
        params = {"slurm": {"partition_types": {"main": ["a100"]}}}
        with refused(PolicyError, field="partition_types.main", value="a100"):
            gl.advise(ONE, self.TABLE, ["fifo", "slurm"], servers=[1], params=params)


class TestSizes:
    def test_default(self) -> None:
        assert default_sizes(64) == [48, 58, 64, 80, 96]

    def test_blocks_shrink_in_proportion(self) -> None:
        lab = resized(as_cluster("6x8xA100,2x4xV100"), 4)
        assert (lab.name, lab.gpus_by_type()) == ("3x8xA100,1x4xV100", {"A100": 24, "V100": 4})

    def test_one_type_grows(self) -> None:
        table = pa.table({**JOBS, **OBSERVED})
        found = gl.advise("1x8xA100,1x8xV100", table, ["fifo"], servers=[3], gpu="A100")
        assert found.clusters[3].gpus_by_type() == {"A100": 16, "V100": 8}
        said = {claim.kind: claim.text for claim in found.claims()}
        # two servers: c and d wait for a and b; a third server runs c at once, then d
        assert said["scheduler"].startswith("With the current 2 servers (1 A100, 1 V100), no other")
        assert said["larger"] == (
            "With 3 servers (2 A100, 1 V100) under `fifo`, jobs wait 2 min 15 s on average, "
            "instead of 29 min 15 s with the current 2."
        )
        assert (
            "The other sizes are 3 servers (2 A100, 1 V100); --gpu varies the servers of one type."
            in found.notes()
        )
        with refused(OptionError, field="servers", value=1):
            gl.advise("2x8xA100,2x8xV100", table, ["fifo"], servers=[1], gpu="A100")

    def test_a_sign_means_more_or_fewer_than_now(self, tmp_path: Path) -> None:
        pq.write_table(pa.table(JOBS), tmp_path / "log.parquet")
        typed = ("log.parquet", "--cluster", "4x8xA100", "--policies", "fifo", "--json")
        done = gangline("advise", *typed, "--servers", "+4,6", cwd=tmp_path)
        assert [row["servers"] for row in json.loads(done.stdout)["options"]] == [4, 6, 8]

    def test_the_present_size_is_always_there(self) -> None:
        assert sorted({one.servers for one in by_hand()}) == [1, 2]
        table = pa.table(JOBS)
        found = gl.advise("2x8xA100", table, ["fifo"], servers=[3], workers=1)
        assert [one.servers for one in found] == [2, 3]


class TestParts:
    DAY_S = 86400.0

    def test_weeks_then_days_then_tenths(self) -> None:
        spans = {
            40 * self.DAY_S: 5,
            20.5 * self.DAY_S: 20,
            4 * self.DAY_S: 10,
            400 * self.DAY_S: 52,
        }
        assert {span: Parts.of(np.array([100.0, 100.0 + span])).count for span in spans} == spans

    def test_the_mean_is_that_of_the_jobs(self) -> None:
        parts = Parts.of(np.array([0.0, 1.0, 2.0, 15.0, 25.0, 35.0, 100.0]))
        values = np.array([1.0, 2.0, np.nan, 4.0, 4.0, 4.0, 9.0])
        found = parts.mean(values)
        assert found.mean == 4.0
        assert parts.codes.tolist() == [0, 0, 0, 1, 2, 3, 9]
        # by part: 4 + (sum of the jobs - 4 each) x 10 parts / 6 jobs
        of_parts = [4.0 + (3.0 - 8.0) * 10 / 6, *[4.0] * 8, 4.0 + 5.0 * 10 / 6]
        assert (found.low, found.high) == pytest.approx(interval(of_parts, ANY))

    def test_no_interval_over_fewer_than_five_parts_with_jobs(self) -> None:
        parts = Parts.of(np.array([0.0, 1.0, 15.0, 25.0, 100.0]))
        found = parts.mean(np.arange(5.0))
        assert (found.mean, found.low, found.high) == (2.0, None, None)
        assert parts.about().startswith("There are no intervals: ")

    def test_one_instant(self) -> None:
        assert Parts.of(np.zeros(3)).codes.tolist() == [0, 0, 0]


class TestRefusals:
    def test_wrong_options(self) -> None:
        table = pa.table(JOBS)
        with pytest.raises(OptionError, match="servers: expected integers >= 1, got 0"):
            gl.advise(ONE, table, servers=[0])
        with pytest.raises(OptionError, match="price: no GPU type `H100`"):
            gl.advise(ONE, table, price={"H100": 1.0})
        with pytest.raises(OptionError, match="price: expected a number >= 0"):
            gl.advise(ONE, table, price=-1.0)
        with pytest.raises(PolicyError, match="base: `las` is not among the policies: fifo"):
            gl.advise(ONE, table, ["fifo"], base="las")
        with pytest.raises(PolicyError, match="policies: duplicate `fifo`"):
            gl.advise(ONE, table, ["fifo", "fifo"])

    @pytest.mark.parametrize(
        ("typed", "said"),
        [
            (("--servers", "6;8"), "--servers: expected numbers separated by commas"),
            (("--price", "cheap"), "--price: expected PRICE or TYPE=PRICE, got `cheap`"),
            (
                ("--price", "1", "--price", "A=2"),
                "--price: expected TYPE=PRICE when given several times",
            ),
        ],
    )
    def test_wrong_words(self, tmp_path: Path, typed: tuple[str, ...], said: str) -> None:
        pq.write_table(pa.table(JOBS), tmp_path / "log.parquet")
        done = gangline("advise", "log.parquet", "--cluster", ONE, *typed, cwd=tmp_path)
        assert (done.returncode, said in done.stderr) == (2, True), done.stderr

    def test_a_file_of_another_origin_stays(self, tmp_path: Path) -> None:
        (tmp_path / "advice").mkdir()
        page = tmp_path / "advice" / "advice.html"
        page.write_text("mine")
        pq.write_table(pa.table(JOBS), tmp_path / "log.parquet")
        done = gangline("advise", "log.parquet", "--cluster", ONE, cwd=tmp_path)
        assert (done.returncode, page.read_text()) == (2, "mine")


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Advise on a log by the command line, twice into the same folder."""
    home: Path = tmp_path_factory.mktemp("advise")
    pq.write_table(log_of(SYNTH, "easy", seed=1), home / "log.parquet")
    world = ("--cluster", "lab.toml", "--policies", ",".join(SIX))
    typed = ("advise", "log.parquet", *world, "--price", "V100=2", "--workers", "1")
    lab = as_cluster("8x8xV100")
    (home / "lab.toml").write_text(lab.to_toml().replace("8x8xV100", "lab"))
    for _ in range(2):
        done = gangline(*typed, cwd=home)
        assert done.returncode == 0, done.stderr
    (home / "stdout.txt").write_text(done.stdout, encoding="utf-8")
    return home


def checked(home: Path, kind: str) -> tuple[str, dict[str, Any]]:
    """Return the printed text of a claim, and the JSON of its own command."""
    claims = json.loads((home / "advice" / "advice.json").read_text())["claims"]
    number, claim = next((i, one) for i, one in enumerate(claims, 1) if one["kind"] == kind)
    printed = (home / "stdout.txt").read_text()
    assert f"[{number}] {claim['command']}\n" in printed
    assert f"{claim['text']} [{number}]" in " ".join(printed.split())
    words = shlex.split(claim["command"])
    done = gangline(*words[1:], "--json", cwd=home)
    assert done.returncode == 0, done.stderr
    return claim["text"], json.loads(done.stdout)


class TestEverySentenceByItsCommand:
    def test_load(self, saved: Path) -> None:
        text, found = checked(saved, "load")
        load = found["offered_load"]["load"]
        assert f"{100 * load:.0f} %" in text or times(load) in text or f"{100 * load:.1f} %" in text

    def test_calibration(self, saved: Path) -> None:
        text, found = checked(saved, "calibration")
        by = {one["policy"]: one["layers"]["prediction"]["waits"] for one in found["policies"]}
        best = min(by, key=lambda name: by[name]["distance"])
        waits = by[best]
        assert text.startswith(
            f"`{best}` comes closest to the log: its waits and its order of jobs differ from those "
            f"of the log by a factor of {waits['distance']:.2f} on average (1 = no difference)."
        )
        assert best == "easy"

    def test_scheduler(self, saved: Path) -> None:
        text, found = checked(saved, "scheduler")
        (base, before), (best, after) = (
            (name, rows[0]["wait_mean_s"]) for name, rows in found["by"].items()
        )
        assert text.startswith(
            f"With the current 8 servers, jobs wait least under `{best}`: {duration(after)} on "
            f"average, instead of {duration(before)} under `{base}` "
            f"({100 * (1 - after / before):.0f} % less)."
        )

    def test_plain(self, saved: Path) -> None:
        text, found = checked(saved, "plain")
        waits = {name: rows[0]["wait_mean_s"] for name, rows in found["by"].items()}
        least = min(waits, key=lambda name: waits[name])
        assert f"`{least}` has the shortest mean wait, {duration(waits[least])}." in text
        assert set(waits) == {"fifo", "fifo-skip"}

    def test_users(self, saved: Path) -> None:
        text, found = checked(saved, "users")
        base, best = ({row["name"]: row for row in rows[1:]} for rows in found["by"].values())
        change = {name: best[name]["wait_mean_s"] - base[name]["wait_mean_s"] for name in base}

        def is_seen(name: str) -> bool:
            most = max(best[name]["wait_mean_s"], base[name]["wait_mean_s"])
            return bool(abs(change[name]) > max(60.0, 0.05 * most))

        gain = [name for name in base if is_seen(name) and change[name] < 0]
        lose = [name for name in base if is_seen(name) and change[name] > 0]
        assert (
            f" {len(gain)} of {len(base)} users {'waits' if len(gain) == 1 else 'wait'} less"
            in text
        )
        assert f" and {len(lose)} {'waits' if len(lose) == 1 else 'wait'} longer" in text

    def test_sizes(self, saved: Path) -> None:
        text, found = checked(saved, "more")
        ((name, rows),) = found["by"].items()
        is_enough = text.startswith(f"To make jobs wait no longer under `{name}` ")
        assert is_enough or text.startswith(f"Under `{name}` even ")
        assert f" {duration(rows[0]['wait_mean_s'])} on average" in text

    def test_needs(self, saved: Path) -> None:
        claims = json.loads((saved / "advice" / "advice.json").read_text())["claims"]
        needs = next(one for one in claims if one["kind"] == "needs")
        assert needs["text"].startswith("`easy`, `sjf` and `srtf` need to know")
        listed = document("policies", "--json")
        known = {one["name"] for one in listed if one["durations"] == "yes"}
        assert known & set(SIX) == {"easy", "sjf", "srtf"}


def test_the_numbers_of_the_page_survive_a_recount(saved: Path) -> None:
    page = (saved / "advice" / "advice.html").read_text("utf-8")
    start = page.index("<table", page.index("Schedulers and sizes"))
    rows = re.findall(r"<tr>(.*?)</tr>", page[start : page.index("</table>", start)], re.S)
    titles, *body = [
        [re.sub(r"<[^>]*>", "", cell) for cell in re.findall(r"<t[hd].*?</t[hd]>", row, re.S)]
        for row in rows
    ]
    assert len(body) == 5 * len(SIX)
    log = gl.read_trace(saved / "log.parquet")
    users = [str(name) for name in log.column("user").to_pylist()]
    runs = {}
    for row in body:
        cells = dict(zip(titles, row, strict=True))
        size, policy = int(cells["servers"]), cells["policy"]
        result = gl.simulate(f"{size}x8xV100", log, policy)
        runs[policy, size] = result.jobs["wait_s"].to_pylist()
        waits = sorted(runs[policy, size])
        assert cells["mean wait"].removesuffix(" (best)") == brief(sum(waits) / len(waits))
        middle = (waits[299] + waits[300]) / 2  # of 600
        place = 0.99 * 599
        low = waits[int(place)]
        high = low + (place - int(place)) * (waits[int(place) + 1] - low)
        assert (cells["p50"], cells["p99"]) == (brief(middle), brief(high))
        assert cells["mean JCT"] == brief(result.summary["jct_mean_s"])
        assert cells["GPUs"] == f"{8 * size:,}"
        assert cells["per month"] == f"{8 * size * 2 * 730.5:,.0f}"
    advice = json.loads((saved / "advice" / "advice.json").read_text())
    base = runs[advice["base"], 8]
    for row in body:
        cells = dict(zip(titles, row, strict=True))
        waits = runs[cells["policy"], int(cells["servers"])]
        gain = lose = 0
        for name in set(users):
            mine = [i for i, user in enumerate(users) if user == name]
            before, after = (sum(of[i] for i in mine) / len(mine) for of in (base, waits))
            if abs(after - before) > max(60.0, 0.05 * max(before, after)):
                gain, lose = gain + (after < before), lose + (after > before)
        assert (cells["users who gain"], cells["lose"]) == (str(gain), str(lose))


class TestDefaults:
    """Tests that `slurm` and `kueue` contend if they can do more than `fifo-skip`."""

    @pytest.mark.parametrize(
        ("columns", "first"),
        [
            ({}, []),
            ({"time_limit_s": [None, None, None, 60.0]}, ["slurm"]),
            ({"time_limit_s": pa.nulls(4, pa.float64())}, []),
            ({"priority": [5.0, 5.0, 5.0, 5.0]}, []),
            ({"priority": [5.0, None, 5.0, 5.0]}, ["kueue"]),
        ],
    )
    def test_by_what_the_log_has(self, columns: dict[str, Any], first: list[str]) -> None:
        jobs = gl.Trace.from_arrow(pa.table({**JOBS, **columns}))
        assert default_contenders(jobs) == [*first, *SIX]

    def test_a_log_without_jobs(self) -> None:
        with pytest.raises(TraceError):
            gl.advise(ONE, pa.table({**JOBS, "priority": [1.0, 2.0, 3.0, 4.0]}).slice(0, 0))

    def test_a_policy_with_parameters_contends(self, tmp_path: Path) -> None:
        found = gl.advise(ONE, pa.table(JOBS), servers=[1], params={"slurm": {"limit_factor": 2}})
        assert found.contenders[0].label == "slurm(limit_factor=2.0)"
        pq.write_table(pa.table(JOBS), tmp_path / "log.parquet")
        typed = ("log.parquet", "--cluster", ONE, "--servers", "1", "--json")
        done = gangline("advise", *typed, "--set", "kueue.requeue_s=2", cwd=tmp_path)
        rows = json.loads(done.stdout)["options"]
        assert [row["policy"] for row in rows] == ["kueue(requeue_s=2.0)", *SIX]

    def test_a_log_of_fifo_skip_is_not_one_of_slurm(self) -> None:
        found = gl.advise("8x8xA100", "mini:kueue", servers=[8])
        assert found.base == "fifo-skip"  # traces/make.py


@pytest.mark.parametrize(
    ("name", "params", "knows", "stops"),
    [
        ("slurm", {}, False, False),
        ("slurm", {"limit_factor": 1.5}, True, False),
        ("slurm", {"qos_preempt": {"high": ["low"]}}, False, True),
        ("slurm", {"qos_preempt": {"high": []}}, False, False),
        ("kueue", {}, False, False),
        (
            "kueue",
            {"queues": [{"name": "a"}, {"name": "b", "within": "LowerPriority"}]},
            False,
            True,
        ),
        ("kueue", {"queues": [{"name": "a", "reclaim": "Any"}]}, False, True),
        ("kueue", {"queues": [{"name": "a", "within": "Never"}]}, False, False),
        ("las", {}, False, True),
        ("easy", {}, True, False),
    ],
)
def test_what_a_contender_needs(name: str, params: Any, knows: bool, stops: bool) -> None:
    found = contender(resolve_policy(name, params))
    assert (found.needs_run_times, found.stops_jobs) == (knows, stops)


def test_a_log_of_which_nothing_fits_is_refused() -> None:
    jobs = {"arrival_s": [0, 0], "gpus": [1, 1], "duration_s": [9, 9], "gpu_types": [["X"], ["X"]]}
    with pytest.raises(TraceError, match="no job can ever run on this cluster"):
        gl.advise("1x8xA100", pa.table(jobs), ["fifo"])


def nearest(seed: int, **noise: Any) -> tuple[str, Calibration] | None:
    """Return the policy that made a log with noise, and what calibration finds.

    None if less than 3 % of the jobs wait for two minutes: such a log is that of every policy.
    """
    rng = np.random.default_rng(seed)
    shape, load = ("philly", "pai", "helios")[seed % 3], rng.uniform(0.8, 1.2)
    jobs, policy = int(rng.choice([600, 1500, 3000])), SIX[int(rng.integers(len(SIX)))]
    trace = f"synth:{shape}?jobs={jobs}&seed={seed}&max_gpus=16&load={load:.3f}&cluster_gpus=64"
    log = gl.Trace.from_arrow(log_of(trace, policy, seed=seed, **noise))
    arrival = log.numbers("arrival_s")
    waits = log.numbers("observed_finish_s") - arrival - log.numbers("duration_s")
    if (waits > 120.0).mean() < 0.03:
        return None
    chosen = [contender(resolve_policy(name)) for name in SIX]
    options = {"on_infeasible": "drop"}
    found = calibrate(as_cluster(LAB), log, chosen, Parts.of(arrival), 60.0, options)
    return policy, found


@pytest.mark.slow
def test_calibration_finds_the_policy_that_made_a_log_with_noise() -> None:
    made = itertools.islice(filter(None, map(nearest, itertools.count())), 100)
    assert sum(policy == found.rows[0].policy for policy, found in made) >= 95
