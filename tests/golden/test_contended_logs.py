"""Freezes the event log of policies in a small contended world with preemptions and failures.

Times are whole seconds and the world is small, so that a person can redo the head of each log. The
whole run is checked against the slow simulator first; `GANGLINE_UPDATE_GOLDENS=1` rewrites them.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import worlds
from gangline import _core
from parity.harness import assert_same, run_engine, run_reference

if TYPE_CHECKING:
    import gangline as gl
    import reference

FOLDER = Path(__file__).parent / "logs" / "contended"
HEAD_LINES = 60
POLICIES: dict[str, dict[str, Any]] = {
    "fifo": {},
    "fifo-skip": {},
    "easy": {},
    "sjf": {},
    "sjf-strict": {},
    "srtf": {},
    "srsf": {},
    "las": {"limits": [20.0]},
    "tiresias": {"limits": [4.0, 12.0]},
    "gittins": {"limits": [20.0], "delta": 10.0},
    "tiresias-gittins": {"limits": [6.0], "delta": 3.0, "promote_knob": 2.0},
    "gandiva": {"quantum_s": 5.0, "switch_s": 1.0},
    "toy-share": {},
    "toy-round": {"round_s": 10.0},
}
PREEMPTIVE = [entry["name"] for entry in _core.registry() if entry["stops"] != "no"]


def world(*, share: bool) -> dict[str, Any]:
    """Return eight GPUs on four servers of two types in two racks, and 24 jobs for them.

    Every 3 s a job, in turn of 1, 2, 1, 4, 1 and 2 GPUs, in turn of 7, 20, 3, 11, 40, 5 and 16 s
    on type A; type B is twice as fast. Servers 1, 2 and 3 fail in turn. A restart costs 2 s.
    """
    gangs, lengths = (1, 2, 1, 4, 1, 2), (7, 20, 3, 11, 40, 5, 16)
    found: dict[str, Any] = {
        "cluster": worlds.lab(
            "2x2 A @fill:2",
            "2x2 B*2 @fill:2",
            name="contended",
            failures={
                "table": [
                    {"server": 1, "down_s": 25.0, "up_s": 40.0},
                    {"server": 2, "down_s": 33.0, "up_s": 60.0},
                    {"server": 3, "down_s": 50.0, "up_s": 70.0},
                ]
            },
        ),
        "jobs": [
            {
                "job_id": f"j{i:02}",
                "arrival_s": 3.0 * i,
                "gpus": gangs[i % 6],
                "duration_s": float(lengths[i % 7]),
                "model": "xy"[i % 2],
            }
            for i in range(24)
        ],
        "run": {"restart_s": 2.0, "seed": 3},
        "locality": {"*": {"rack": 0.5, "network": 0.5}},
    }
    if share:
        pairs = {("x", "x"): 1.25, ("x", "y"): 1.5, ("y", "x"): 1.0, ("y", "y"): 2.0}
        rows = [{"model": a, "co_model": b, "xi": xi} for (a, b), xi in pairs.items()]
        found["sharing"] = {"interference": "table", "rows": rows}
    return found


def text_of(result: gl.Result, outcome: reference.Outcome) -> str:
    lines = [
        " ".join([f"{at / 1e9:.9f}", kind, job, *(f"{server}:{slot}" for server, slot in gpus)])
        for at, kind, job, gpus in outcome.events
    ]
    assert len(lines) >= HEAD_LINES // 2
    return "\n".join([f"log_hash {result.log_hash}", *lines[:HEAD_LINES]]) + "\n"


@pytest.mark.parametrize("policy", POLICIES)
def test_golden_log_under_contention(policy: str) -> None:
    case, params = world(share=policy == "toy-share"), POLICIES[policy]
    outcome = run_reference(case, policy, params)
    result = run_engine(case, policy, params)
    assert_same(result, outcome)
    # The world contains queues, preemptions and failures.
    assert (outcome.preemptions > 0) == (policy in PREEMPTIVE)
    assert "failed" in result.segments.column("end_reason").to_pylist()
    assert any(result.segments.column("co_runner").to_pylist()) == (policy == "toy-share")
    text, path = text_of(result, outcome), FOLDER / f"{policy}.txt"
    if os.environ.get("GANGLINE_UPDATE_GOLDENS") == "1":
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    assert path.read_text(encoding="utf-8") == text


def test_the_head_of_srtf_by_hand() -> None:
    """By hand: type B comes first, j04 makes way, and the failure evicts j01."""
    head = (FOLDER / "srtf.txt").read_text(encoding="utf-8").splitlines()[1:]
    assert head[: len(SRTF_BY_HAND)] == SRTF_BY_HAND


SRTF_BY_HAND = [
    "0.000000000 start j00 2:0",  # 7 s at rate 2
    "3.000000000 start j01 3:0 3:1",  # 20 s at rate 2, whole on a server
    "3.500000000 finish j00",
    "6.000000000 start j02 2:0",
    "7.500000000 finish j02",
    "9.000000000 start j03 0:0 0:1 1:0 1:1",  # 11 s at rate 1/2: it is on two servers
    "12.000000000 start j04 2:0",
    "13.000000000 finish j01",
    "15.000000000 start j05 3:0 3:1",
    "17.500000000 finish j05",
    "18.000000000 start j06 2:1",
    "21.000000000 start j07 3:0 3:1",
    "24.500000000 finish j07",
    "24.500000000 start j08 3:0",  # it had to wait, because j04 has 16 s left and it needs 20
    "25.000000000 stop j03",  # server 1 fails; all its work is lost, and 4 GPUs of B are not free
    "26.000000000 finish j06",
    "26.000000000 move j04 0:0",  # it has 12 s left; j03 has 11 and takes type B
    "26.000000000 move j08 0:1",
    "26.000000000 start j03 2:0 2:1 3:0 3:1",
]


def test_the_head_of_gandiva_by_hand() -> None:
    """By hand: gang sizes keep to their servers, and j08 shares for half a second."""
    head = (FOLDER / "gandiva.txt").read_text(encoding="utf-8").splitlines()[1:]
    assert head[: len(GANDIVA_BY_HAND)] == GANDIVA_BY_HAND


GANDIVA_BY_HAND = [
    "0.000000000 start j00 2:0",
    "3.000000000 start j01 3:0 3:1",  # a server without groups
    "3.500000000 finish j00",
    "6.000000000 start j02 2:0",
    "7.500000000 finish j02",
    "9.000000000 start j03 0:0 0:1 1:0 1:1",
    "12.000000000 start j04 2:0",
    "13.000000000 finish j01",
    "15.000000000 start j05 3:0 3:1",
    "17.500000000 finish j05",
    "18.000000000 start j06 2:1",  # the server that j04's size has claimed
    "21.000000000 start j07 3:0 3:1",
    "24.500000000 finish j07",  # at 24 s j08 joined j04, whose turn would end at 29 s
    "24.500000000 start j08 3:0",  # now it has its own GPUs
    "25.000000000 stop j03",  # server 1 fails; four GPUs of a type are nowhere free
    "26.000000000 finish j06",
    "30.000000000 start j10 2:1",  # j09 also asks for four
    "32.000000000 finish j04",
    "33.000000000 stop j10",  # server 2 fails
    "33.000000000 start j10 3:1",  # next to j08, which has the same size
    "33.000000000 start j11 0:0 0:1",
]


def test_no_contended_golden_is_left_over() -> None:
    assert sorted(path.stem for path in FOLDER.glob("*.txt")) == sorted(POLICIES)


def test_every_contended_golden_tells_its_policy_from_the_others() -> None:
    hashes = [path.read_text("utf-8").partition("\n")[0] for path in sorted(FOLDER.glob("*.txt"))]
    assert len(set(hashes)) == len(POLICIES)
