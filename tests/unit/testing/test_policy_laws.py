"""Tests laws that policies claim: a wrong policy breaks each, and ours keep theirs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import gangline as gl
from gangline import _core
from gangline.testing import CLAIMS, LAWS, LawBroken, World, gallery, strategies
from refusals import refused

if TYPE_CHECKING:
    from snapshots import Snapshot

GUIDE = Path(__file__).parents[3] / "docs" / "guides" / "test-a-policy.md"
POLICIES = sorted({name for names in CLAIMS.values() for name in names})


def world(*jobs: tuple[float, int, float], gpus: int = 1, servers: int = 1) -> World:
    """Return a plain world of jobs (arrival, GPUs, duration) named a, b, c."""
    return World(
        {
            "gpu_types": [{"name": "A", "memory_gb": 16}],
            "servers": [{"count": servers, "gpu": "A", "gpus": gpus}],
        },
        [
            {"job_id": "abcdefgh"[i], "arrival_s": at, "gpus": gang, "duration_s": length}
            for i, (at, gang, length) in enumerate(jobs)
        ],
    )


def told(policy: Any, law: str, of: World) -> str | None:
    """Return the report on one law in one world; None if the policy keeps it."""
    try:
        gl.testing.check_policy(policy, [of], laws=[law])
    except LawBroken as error:
        assert error.law == law
        return error.broken[0][1]
    return None


GUIDE = Path(__file__).parents[3] / "docs/guides/test-a-policy.md"


def test_the_guide_lists_the_claims() -> None:
    page = GUIDE.read_text("utf-8")
    for law, policies in CLAIMS.items():
        assert f"\n{law}: {', '.join(policies)}\n" in page


def test_each_law_is_broken_by_a_policy_of_the_gallery_and_kept_by_one_of_ours() -> None:
    others = {"StalledError", "repeats", "ends"}
    assert set(gallery.BREAKS) == set(LAWS) | others
    assert set(CLAIMS) == set(LAWS)
    assert all(CLAIMS.values())


def test_claims_are_of_policies_that_users_have() -> None:
    assert set(POLICIES) <= set(gl.policies.registry)
    declared = {entry["name"] for entry in _core.registry() if entry["work_conserving"]}
    assert set(CLAIMS["work-conserving"]) <= declared


def shape(row: str) -> str:
    """Return a row of the gallery without its numbers and jobs.

    Hypothesis draws constants of all modules that are loaded, so worlds differ in them.
    """
    before, _, said = row.partition(": ")
    return before.rpartition("|")[0] + re.sub(r"\d+(\.\d+)?|\bjob [a-z]\b", "#", said)


@pytest.mark.parametrize("name", gallery.BREAKS)
def test_a_wrong_policy_is_told_and_the_program_repeats_it(name: str) -> None:
    kind = gallery.BREAKS[name]
    found = gl.testing.counterexample(kind(), 2000, laws=[name] if name in LAWS else [])
    assert found is not None
    row = f"| `{name}` | `{kind.__name__.strip('_')}` | {found.headline} |"
    assert shape(row) in [shape(line) for line in GUIDE.read_text("utf-8").splitlines()]
    lines = found.program.splitlines()
    assert len(lines) <= 10
    assert len(found.world.jobs) <= 6
    with pytest.raises(type(found.error)) as caught:
        exec(found.program.replace("import gangline as gl", ""), {"gl": gl})
    assert getattr(caught.value, "law", "StalledError") == name
    assert str(caught.value) == str(found.error)


def test_the_sound_policy_of_the_gallery_keeps_the_laws_of_fifo_skip() -> None:
    claimed = [law for law, names in CLAIMS.items() if "fifo-skip" in names]
    gl.testing.check_policy(gallery.Sound(), 50, laws=claimed)


@pytest.mark.parametrize("name", POLICIES)
def test_our_policies_keep_what_they_claim(name: str) -> None:
    claimed = [law for law, names in CLAIMS.items() if name in names]
    gl.testing.check_policy(name, 25, laws=claimed)


@pytest.mark.parametrize("name", sorted(set(gl.policies.registry) - set(POLICIES)))
def test_our_other_policies_keep_the_laws_of_every_run(name: str) -> None:
    gl.testing.check_policy(name, 8)


# By hand: one server; a holds it from 0 to 4 s, then b from 4 to 6 s.
TWO = world((0.0, 1, 4.0), (1.0, 1, 2.0))


@pytest.mark.parametrize(
    ("policy", "law", "of", "words"),
    [
        # b, which is longer, first: a waits 5 s; nothing came before it, and the longest run is 5 s
        (gallery.LongestFirst(), "bounded-starvation", world((0, 1, 1), (0, 1, 5)), None),
        # two jobs of 1 s pass by a, which needs both GPUs: it waits 2 s, and 1 s is allowed
        (
            gallery.SmallestGangFirst(),
            "bounded-starvation",
            world((0, 2, 1), (0, 1, 1), (0, 1, 1), (0, 1, 1), gpus=2),
            (
                "job a waits 2 s for its first start; 0 earlier jobs were not done when it "
                "arrived, and no job holds GPUs for more than 1 s"
            ),
        ),
        ("fifo", "no-overtaking", TWO, None),
        (
            gallery.LastComeFirstServed(),
            "no-overtaking",
            world((0, 1, 2), (0, 1, 2)),
            "job b starts at 0 s while job a, which arrived before it, waits",
        ),
        # c fits beside a, and b does not: c overtakes b, which asks for more
        ("fifo-skip", "no-overtaking", world((0, 1, 5), (1, 2, 1), (2, 1, 1), gpus=2),
         "job c starts at 2 s while job b, which arrived before it, waits"),
        ("fifo-skip", "arrival-order", world((0, 1, 5), (1, 2, 1), (2, 1, 1), gpus=2), None),
        (
            "fifo",
            "shortest-first",
            world((0, 1, 9), (1, 1, 5), (2, 1, 3)),
            (
                "job b starts at 9 s while job c, which asks for the same number of GPUs and is "
                "not longer, waits"
            ),
        ),
        # b is not there when a starts
        ("fifo", "shortest-first", TWO, None),
        # 4 + 6 - 1 over two; sooner is 1 and 5: the mean of 1 and 6 is 3.5, of 6 and 5 5.5
        (
            gallery.LongestFirst(),
            "as-good-as-fifo-skip",
            world((0, 1, 1), (0, 1, 5)),
            "the mean JCT is 5.5 s, but 3.5 s under fifo-skip",
        ),
        # on half of the GPU a would take 2 s
        (
            "fifo",
            "sharing-incentive",
            world((0, 1, 5), (0, 1, 1)),
            "job b takes 6 s, but would take 2 s on an equal share of the GPUs (1/2 of them)",
        ),
        ("srtf", "sharing-incentive", world((0, 1, 5), (0, 1, 1)), None),
        # a needs 1 s; b has had that at 1 s
        (
            gallery.LongestFirst(),
            "no-envy",
            world((0, 1, 1), (0, 1, 5)),
            (
                "job a finishes at 6 s; with the GPU time of job b, which asks for as many GPUs "
                "and came after it, it would have finished at 1 s"
            ),
        ),
        # b is shorter than a: a could not have finished with the time of b
        ("srtf", "no-envy", world((0, 1, 5), (0, 1, 1)), None),
        # meetings after 100 s with one server, after 400 s with two
        (
            gallery.Committee(),
            "more-capacity",
            world((0, 1, 1)),
            "the makespan is 101 s, and 401 s with one more server of the last kind",
        ),
        ("fifo-skip", "more-capacity", TWO, None),
        ("fifo", "seed-independence", world((0, 1, 1), gpus=4), None),
    ],
)  # fmt: skip
def test_what_a_law_says_of_worlds_worked_out_by_hand(
    policy: Any, law: str, of: World, words: str | None
) -> None:
    assert told(policy, law, of) == words


def test_a_bound_is_what_is_allowed() -> None:
    """The mean JCT is 5.5 s, and 3.5 s under fifo-skip: 11/7 times as long."""
    of = world((0, 1, 1), (0, 1, 5))
    law = LAWS["as-good-as-fifo-skip"]
    policy = gallery.LongestFirst()
    gl.testing.check_policy(policy, [of], laws=[law.within(11 / 7)])
    with pytest.raises(LawBroken):
        gl.testing.check_policy(policy, [of], laws=[law.within(1.57)])


@pytest.mark.parametrize(
    ("law", "bound", "words"),
    [
        ("no-overtaking", 2.0, "the law `no-overtaking` has no bound"),
        ("no-envy", -1.0, "no-envy: bound: expected a number >= 0, got -1.0"),
        ("no-envy", float("nan"), "no-envy: bound: expected a number >= 0, got nan"),
    ],
)
def test_a_wrong_bound_is_refused(law: str, bound: float, words: str) -> None:
    with pytest.raises(gl.OptionError) as caught:
        LAWS[law].within(bound)
    assert str(caught.value) == words


def test_a_wrong_name_is_refused_with_the_nearest(snapshot: Snapshot) -> None:
    with refused(gl.OptionError, snapshot):
        gl.testing.check_policy("fifo", 1, laws=["no-envi"])
    with refused(gl.OptionError, field="worlds", value=0):
        gl.testing.check_policy("fifo", 0)


def test_laws_of_plain_worlds_are_not_checked_in_others() -> None:
    """With a restart, or servers that fail, the numbers of these laws mean something else."""
    of = world((0, 1, 1), (0, 1, 5))
    of.options["restart_s"] = 1.0
    for law in ("shortest-first", "no-envy", "sharing-incentive", "as-good-as-fifo-skip"):
        assert told(gallery.LongestFirst(), law, of) is None


class Forgets(gallery.Sound):
    """Starts a job that has waited for more than half an hour only if no other job waits."""

    now_s = 0.0

    def decide(self, view: gl.View, changes: gl.Changes) -> gl.Plan:
        self.now_s = view.now_s
        return super().decide(view, changes)

    def order(self, waiting: list[tuple[int, ...]]) -> list[tuple[int, ...]]:
        return [job for job in waiting if self.now_s - job[3] <= 1800.0] or waiting


class Ticking(gallery.Sound):
    """Decides at every event, and 20 times a second while there are jobs."""

    wake_on = ("arrival", "completion", "capacity", "timer")

    def decide(self, view: gl.View, changes: gl.Changes) -> gl.Plan:
        plan = super().decide(view, changes)
        if len(view.waiting("job")) or len(view.running("job")):
            plan.wake_at(view.now_s + 0.05)
        return plan


def test_worlds_of_hours_break_a_law_that_worlds_of_seconds_keep() -> None:
    laws = ["arrival-order"]
    in_seconds = gl.testing.check_policy(Forgets(), 300, laws=laws, time_scales=[1.0])
    assert in_seconds.longest_wait_s < 1800.0
    found = gl.testing.counterexample(Forgets(), 300, laws=laws)
    assert found is not None
    assert found.error.law == "arrival-order"  # type: ignore[attr-defined]


def test_the_answer_says_what_there_was_to_check() -> None:
    """In the first world job b waits from 1 to 4 s; in the second one no job waits."""
    worlds = [TWO, world((0.0, 1, 4.0), (9.0, 1, 2.0))]
    laws = ["no-overtaking", "more-capacity"]
    found = gl.testing.check_policy("fifo", worlds, laws=laws)
    assert found == gl.testing.Coverage(
        worlds=2,
        waits=1,
        preemptions=0,
        longest_wait_s=3.0,
        unfinished=0,
        laws={"no-overtaking": 1, "more-capacity": 2},
    )
    assert repr(found).splitlines() == [
        "2 worlds: a job waits in 1 of them, for at most 3 s; jobs are preempted in 0",
        "worlds that could break `no-overtaking`: 1",
        "worlds that could break `more-capacity`: 2",
    ]
    # job a gives up the GPU at 1 s for job b, which is shorter
    assert gl.testing.check_policy("srtf", [TWO]).preemptions == 1


def test_a_law_with_nothing_to_check_is_a_warning() -> None:
    with pytest.warns(UserWarning, match="`no-overtaking` had nothing to check: none of 1 world"):
        gl.testing.check_policy("fifo", 1, laws=["no-overtaking"])  # of one job


def test_a_policy_with_a_timer_is_not_endless_in_a_world_of_hours() -> None:
    """20 ticks a second are more than 5,000 events in five minutes."""
    found = gl.testing.check_policy(Ticking(), 20, time_scales=[3600.0])
    assert 0 < found.unfinished < found.worlds == 20
    with pytest.raises(LawBroken) as caught:
        gl.testing.check_policy(Ticking(), 20, time_scales=[3600.0], max_events=5000)
    assert caught.value.law == "ends"


def test_a_scale_multiplies_all_times_but_the_costs_of_starts() -> None:
    cluster = {
        "failures": {"table": [{"server": 1, "down_s": 1.0, "up_s": 8.0}]},
        "capacity": [{"at_s": 3.0, "servers": 2}],
        "runtime": {"checkpoint_s": 1.0},
    }
    jobs = [{"job_id": "a", "arrival_s": 2.0, "gpus": 1, "duration_s": 5.0, "iterations": 10.0}]
    options = {"restart_s": 3.0, "count_arrivals": [0.0, 8.0]}
    stretched = strategies._stretched(World(cluster, jobs, options), 60.0)
    assert stretched == World(
        {
            "failures": {"table": [{"server": 1, "down_s": 60.0, "up_s": 480.0}]},
            "capacity": [{"at_s": 180.0, "servers": 2}],
            "runtime": {"checkpoint_s": 1.0},
        },
        [{"job_id": "a", "arrival_s": 120.0, "gpus": 1, "duration_s": 300.0, "iterations": 600.0}],
        {"restart_s": 3.0, "count_arrivals": [0.0, 480.0]},
    )
    random = World({"failures": {"mtbf_hours": 0.01}}, [], {})
    assert strategies._stretched(random, 60.0).cluster_keys == {"failures": {"mtbf_hours": 0.6}}


def test_the_same_seed_draws_the_same_worlds() -> None:
    policy, laws = gallery.LastComeFirstServed(), ["arrival-order"]
    found = [gl.testing.counterexample(policy, 100, laws=laws, seed=3) for _ in range(2)]
    assert found[0] is not None
    assert found[1] is not None
    assert found[0].program == found[1].program


def test_a_failure_in_drawn_worlds_shows_program_and_picture() -> None:
    with pytest.raises(gl.StalledError) as caught:
        gl.testing.check_policy(gallery.Forgetful(), 100)
    note = "\n".join(caught.value.__notes__)
    assert note.splitlines()[0] == "2 jobs, 1 server, 1 GPU: job b waits for ever"
    assert "job b waits" in note.splitlines()[4]
    assert "gl.testing.check_policy(Forgetful(), [world])" in note


def test_a_failure_in_given_worlds_names_the_world() -> None:
    worlds = [(*TWO,), (*world((0, 1, 2), (0, 1, 2)),)]
    with pytest.raises(LawBroken) as caught:
        gl.testing.check_policy(gallery.LastComeFirstServed(), worlds, laws=["no-overtaking"])
    assert caught.value.__notes__ == ["in world 1, counted from 0"]


def test_the_picture_shows_who_held_what_and_who_waited() -> None:
    """By hand: a and b on two GPUs from 0 s, b until 1 s; c needs both, from 2 s on."""
    of = world((0, 1, 2), (0, 1, 1), (0, 2, 1), gpus=2)
    from gangline.testing.picture import gantt

    assert gantt(of, of.simulate("fifo", segments=True)).splitlines() == [
        "                0 s       1         2",
        "server 0 GPU 0  " + "a" * 20 + "c" * 10,
        "server 0 GPU 1  " + "b" * 10 + "." * 10 + "c" * 10,
        "job c waits     " + "-" * 20,
    ]
