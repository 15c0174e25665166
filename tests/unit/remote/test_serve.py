"""Tests `gl.serve`: a run over a socket equals the run in process, with any messages."""

from __future__ import annotations

import json
import random
import re
import signal
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gangline as gl
import worlds
from gangline.remote import messages
from gangline.testing.strategies import worlds as drawn_worlds
from refusals import refused
from unit.remote.peers import Peer, serve

if TYPE_CHECKING:
    from snapshots import Snapshot

ROOT = Path(__file__).resolve().parents[3]
PAGE = ROOT / "docs" / "guides" / "socket.md"
EXAMPLE = ROOT / "examples" / "socket_scheduler.py"
LAB = gl.Cluster.homogeneous(servers=3, gpus=4)
VIEW = {"waiting": ["job", "gpus"], "running": ["job"], "servers": ["gpus_free", "up"]}


def trace_of(seed: int, jobs: int = 30) -> gl.Trace:
    return gl.synth.philly(jobs=jobs, seed=seed, max_gpus=8)


def same(one: gl.Result, other: gl.Result) -> None:
    assert one.log_hash == other.log_hash
    assert one.jobs.equals(other.jobs)
    assert one.timeline.equals(other.timeline)
    if one.spec["options"].get("segments"):
        assert one.segments.equals(other.segments)
    measured = {*one.spec["measured"], *other.spec["measured"]}
    left, right = (
        {key: value for key, value in dict(result.summary).items() if key not in measured}
        for result in (one, other)
    )
    assert repr(left) == repr(right)  # some values are NaN


def first_fit(message: Any) -> list[dict[str, Any]]:
    return [{"do": "place", "job": job} for job in message["waiting"]["job"]]


def drive(peer: Peer, decide: Any = first_fit, **wishes: Any) -> Any:
    """Answer each decision; return the last message."""
    _, _, message = peer.begin(**wishes)
    return go_on(peer, message, decide)


def go_on(peer: Peer, message: Any, decide: Any = first_fit) -> Any:
    while message is not None and message["type"] == "decision":
        message = peer.ask({"type": "plan", "actions": decide(message)})
    return message


# ---- the same bytes


class Drawn:
    """Decisions by a seed: starts, stops, moves and timers, equal in both kinds of runs."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def __call__(self, message: Any) -> list[dict[str, Any]]:
        draw = self.random
        actions: list[dict[str, Any]] = []
        running = message["running"]["job"]
        for job in draw.sample(running, min(len(running), draw.randrange(3))):
            kind = draw.choice(["preempt", "release", "limit", "keep", "move"])
            if kind == "limit":
                continue
            if kind == "keep":
                actions.append({"do": "keep", "job": job, "overhead_s": draw.random()})
            elif kind == "move":
                actions += [{"do": "release", "job": job}, {"do": "place", "job": job}]
            else:
                actions.append({"do": kind, "job": job})
        waiting = message["waiting"]["job"]
        if draw.random() < 0.5:
            waiting = draw.sample(waiting, len(waiting))
        for job in waiting:
            rule = draw.choice(["consolidate", "spread", "random", "whole_servers"])
            actions.append({"do": "place", "job": job, "rule": rule})
        if draw.random() < 0.2 and (running or waiting):
            at_s = message["now_s"] + 1.0 + draw.random() * 100.0
            actions.append({"do": "wake_at", "time_s": at_s, "tag": draw.randrange(3)})
        return actions


class InProcess(gl.Policy):
    """The same decisions by calls of the methods of a plan."""

    wake_on = ("arrival", "completion", "capacity", "timer")

    def __init__(self, seed: int) -> None:
        self.decide_as = Drawn(seed)

    def decide(self, view: gl.View, changes: gl.Changes) -> gl.Plan:
        plan = gl.Plan(view)
        seen = {
            "now_s": view.now_s,
            "waiting": {"job": view.waiting.job.tolist()},
            "running": {"job": view.running.job.tolist()},
        }
        for action in self.decide_as(seen):
            given_ = {name: value for name, value in action.items() if name != "do"}
            getattr(plan, action["do"])(**given_)
        return plan


@settings(max_examples=15, deadline=None)
@given(world=drawn_worlds(), seed=st.integers(0, 99))
def test_a_run_over_the_socket_has_the_bytes_of_the_run_in_process(world: Any, seed: int) -> None:
    cluster, trace, options = world
    options = {**options, "segments": True, "on_infeasible": "drop"}
    outcomes: list[Any] = []

    def there() -> gl.Result:
        run = gl.Simulation(cluster, trace, **options)
        return serve(run, lambda peer: drive(peer, Drawn(seed), view=VIEW))

    for make in (lambda: gl.simulate(cluster, trace, InProcess(seed), **options), there):
        try:
            outcomes.append(make())
        except gl.GanglineError as error:  # both runs have the same error, such as a stall
            outcomes.append((type(error), str(error)))
    if isinstance(outcomes[0], gl.Result):
        same(*outcomes)
    else:
        assert outcomes[0] == outcomes[1]


class Strict(gl.Policy):
    def decide(self, view: gl.View, changes: gl.Changes) -> gl.Plan:
        plan = gl.Plan(view)
        for job in view.waiting.job:
            if not plan.place(job):
                break
        return plan


def test_strict_fifo_is_one_message_per_decision() -> None:
    def scheduler(peer: Peer) -> None:
        _, _, message = peer.begin()
        while message["type"] == "decision":
            actions = first_fit(message)
            message = peer.ask({"type": "plan", "actions": actions, "stop_at_refusal": True})
        assert message["summary"]["finished"] == 60

    result = serve(gl.Simulation(LAB, trace_of(3, 60)), scheduler)
    same(result, gl.simulate(LAB, trace_of(3, 60), Strict()))
    assert result.jobs["first_start_s"].equals(
        gl.simulate(LAB, trace_of(3, 60), "fifo").jobs["first_start_s"]
    )


def test_rounds_and_failures_and_types_are_told() -> None:
    lab = worlds.lab(
        "1x2 A",
        "2x2 B*2",
        failures={"table": [{"server": 1, "down_s": 50.0, "up_s": 90.0}]},
    )
    heard: list[Any] = []

    def decide(message: Any) -> list[dict[str, Any]]:
        heard.append(message)
        return first_fit(message)

    jobs = worlds.jobs("a 0 2 400", "b 0 2 400", "c 0 2 400")
    serve(gl.Simulation(lab, jobs), lambda peer: drive(peer, decide, view=VIEW))
    failed = next(message for message in heard if message["now_s"] == 50.0)
    assert failed["changes"]["servers_down"] == [1]
    assert failed["servers"]["up"] == [True, False, True]
    assert len(failed["changes"]["requeued"]) == 1
    back = next(message for message in heard if message["now_s"] == 90.0)
    assert back["changes"]["servers_up"] == [1]
    heard.clear()
    serve(
        gl.Simulation(worlds.lab("1x2 A"), worlds.jobs("a 5 1 10"), round_s=8.0),
        lambda peer: drive(peer, decide, view=VIEW),
    )
    assert [message["now_s"] for message in heard][:2] == [0.0, 8.0]
    assert all(message["changes"]["is_round"] for message in heard)


def test_the_world_names_every_label_that_a_view_has_as_a_number() -> None:
    labels = {
        "model": ["lm", "cnn"], "user": ["ann", "bob"], "vc": ["v1", "v0"],
        "account": ["ml", "bio"], "partition": ["gpu", "debug"], "qos": ["high", "low"],
    }  # fmt: skip
    seen: list[dict[str, list[str]]] = []

    def scheduler(peer: Peer) -> None:
        _, world, message = peer.begin(view={"waiting": ["job", *labels]})
        waiting, named = message["waiting"], world["labels"]
        seen.append({of: [named[of][number] for number in waiting[of]] for of in labels})
        assert named["gpu_type"] == ["A"]
        go_on(peer, message)

    jobs = pa.table({"arrival_s": [0, 0], "gpus": [1, 1], "duration_s": [5, 5], **labels})
    serve(gl.Simulation(worlds.lab("1x2 A"), jobs), scheduler)
    assert seen == [labels]


def test_it_goes_on_from_where_the_run_stands() -> None:
    run = gl.Simulation(LAB, trace_of(4))
    for _ in range(10):
        assert run.advance() == "decision"
        plan = gl.Plan(run.view)
        for job in run.view.waiting.job:
            plan.place(job)
        run.apply(plan)
    result = serve(run, drive)
    whole = serve(gl.Simulation(LAB, trace_of(4)), drive)
    same(result, whole)


# ---- the page and the example


def transcript() -> list[tuple[str, Any]]:
    """Return the messages of the page, each with its direction."""
    text = PAGE.read_text("utf-8")
    found: list[list[str]] = []
    for block in re.findall(r"^```text\n([<>].*?)^```$", text, re.M | re.S):
        for line in block.splitlines():
            if line[0] in "<>":
                found.append([line[0], line[1:]])
            else:
                found[-1][1] += line
    return [(direction, json.loads(message)) for direction, message in found]


def test_the_page_shows_a_run_as_it_is() -> None:
    lines = transcript()
    kinds = {message["type"] for _, message in lines}
    assert kinds == {"hello", "world", "decision", "draft", "drafted", "plan", "error", "end"}

    def scheduler(peer: Peer) -> None:
        for direction, message in lines:
            if direction == ">":
                peer.say(message)
                continue
            heard = peer.hear()
            if message["type"] == "end":  # the page leaves out most of its summary
                heard["summary"] = {key: heard["summary"][key] for key in message["summary"]}
                del heard["log_hash"]
            assert heard == message

    lab = gl.Cluster.homogeneous(servers=2, gpus=2, gpu="V100")
    run = gl.Simulation(lab, worlds.jobs("a 0 2 60", "b 10 4 30"), restart_s=5.0)
    result = serve(run, scheduler)
    # a runs 10 s, waits 30 s for b, starts again for 5 s and does the 50 s that it has left
    assert result.jobs["finish_s"].to_pylist() == [95.0, 40.0]


def test_the_page_lists_the_actions_and_their_fields() -> None:
    rows = re.findall(r"^\| ((?:`\w+`(?:, )?)+) \| (.*?) \|$", PAGE.read_text("utf-8"), re.M)
    listed = {
        action: set(re.findall(r"`(\w+)`", fields))
        for names, fields in rows
        for action in re.findall(r"`(\w+)`", names)
    }
    kinds = [
        getattr(messages, name)
        for name in ("Place", "Start", "Move", "Keep", "Preempt", "Release", "Restore")
    ] + [messages.Limit, messages.WakeAt, messages.Cancel]
    known = {kind.__struct_config__.tag: set(kind.__struct_fields__) for kind in kinds}
    assert {name: listed.get(name) for name in known} == known


@pytest.mark.parametrize("max_gpus", [1, 8])
def test_the_example_is_a_process_of_its_own(max_gpus: int) -> None:
    assert len(EXAMPLE.read_text("utf-8").splitlines()) <= 50
    assert "gangline" not in re.findall(r"^(?:from|import) (\w+)", EXAMPLE.read_text(), re.M)
    lab = gl.Cluster.homogeneous(servers=2, gpus=4)
    trace = gl.synth.philly(jobs=120, seed=2, max_gpus=max_gpus)
    started: list[subprocess.Popen[str]] = []

    def start(address: str) -> None:
        words = [sys.executable, "-I", str(EXAMPLE), *address.rsplit(":", 1)]
        started.append(subprocess.Popen(words, stderr=subprocess.PIPE, text=True))

    run = gl.Simulation(lab, trace, restart_s=60.0, segments=True)
    result = gl.serve(run, knowledge="remaining", timeout_s=60.0, on_listening=start)
    _, complaint = started[0].communicate(timeout=30)
    assert (started[0].returncode, complaint) == (0, "")
    srtf = gl.simulate(lab, trace, "srtf", restart_s=60.0, segments=True)
    assert srtf.summary["preemptions"] > 0
    assert result.jobs.equals(srtf.jobs)


# ---- wrong messages


@pytest.mark.parametrize(
    ("message", "kind", "words"),
    [
        (b"nonsense\n", "MessageError", "malformed"),
        (b"\xff\xfe\n", "MessageError", "malformed"),
        (b"\n", "MessageError", "truncated"),
        (b'{"actions":' + b"[" * 200_000 + b"\n", "MessageError", "recursion"),
        ([], "MessageError", "Expected `object`"),
        ({"type": "jump"}, "MessageError", "jump"),
        ({"type": "plan", "action": []}, "MessageError", "unknown field `action`"),
        ({"type": "plan", "actions": [{"do": "fly"}]}, "MessageError", "fly"),
        ({"type": "plan", "actions": [{"do": "place"}]}, "MessageError", "`job`"),
        ({"type": "plan", "actions": [{"do": "place", "job": -1}]}, "MessageError", ">= 0"),
        (
            {"type": "plan", "actions": [{"do": "place", "job": 2**70}]},
            "MessageError",
            "<= 4294967295",
        ),
        ({"type": "plan", "actions": [{"do": "place", "job": 0.5}]}, "MessageError", "`int`"),
        ({"type": "plan", "actions": [{"do": "place", "job": 9999}]}, "PolicyError", "no job 9999"),
        (
            {"type": "plan", "actions": [{"do": "place", "job": 0, "rule": "nowhere"}]},
            "PolicyError",
            "nowhere",
        ),
        (
            {"type": "plan", "actions": [{"do": "place", "job": 0, "params": {"job": 1}}]},
            "MessageError",
            "params",
        ),
        (
            {"type": "plan", "actions": [{"do": "start", "job": 0, "gpus": {"x": 1}}]},
            "MessageError",
            "key",
        ),
        ({"type": "plan", "actions": [{"do": "start", "job": 0}]}, "PolicyError", "`masks`"),
        (
            {"type": "plan", "actions": [{"do": "start", "job": 0, "masks": {"0": 2**64}}]},
            "PolicyError",
            "slot mask",
        ),
        ({"type": "plan", "actions": [{"do": "preempt", "job": 0}]}, "PlanError", "not running"),
        ({"type": "plan", "actions": [{"do": "wake_at", "time_s": 1e300}]}, "MessageError", "time"),
        ({"type": "draft", "steady": True}, "MessageError", "steady"),
        ({"type": "hello", "version": 1}, "MessageError", "hello"),
    ],
)
def test_a_wrong_message_changes_nothing(message: Any, kind: str, words: str) -> None:
    def scheduler(peer: Peer) -> None:
        _, _, decision = peer.begin()
        # a wrong message also discards earlier drafts
        assert peer.ask({"type": "draft", "actions": [{"do": "wake_at", "time_s": 1e6}]})
        error = peer.ask(message)
        assert (error["type"], error["error"], error["fatal"]) == ("error", kind, False)
        assert words.lower() in error["message"].lower()
        go_on(peer, decision)

    result = serve(gl.Simulation(LAB, trace_of(5)), scheduler)
    same(result, serve(gl.Simulation(LAB, trace_of(5)), drive))


def test_a_scheduler_that_is_always_wrong_ends_the_run(snapshot: Snapshot) -> None:
    heard: list[Any] = []

    def scheduler(peer: Peer) -> None:
        peer.begin()
        heard.extend(peer.ask(b"{}\n") for _ in range(100))
        assert peer.hear() is None

    with refused(gl.PeerError, snapshot):
        serve(gl.Simulation(LAB, trace_of(5)), scheduler)
    assert [message["fatal"] for message in heard] == [False] * 99 + [True]


@pytest.mark.parametrize(
    ("hello", "words"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", "malformed"),
        ({"type": "plan"}, "plan"),
        ({"type": "hello", "version": 2}, "version 1, not 2"),
        ({"type": "hello", "version": 1, "view": {"jobs": []}}, "jobs"),
        ({"type": "hello", "version": 1, "view": {"waiting": ["colour"]}}, "no column `colour`"),
        ({"type": "hello", "version": 1, "view": {"servers": ["name"]}}, "no column `name`"),
        ({"type": "hello", "version": 1, "view": {"running": ["remaining_s"]}}, "knowledge"),
        ({"type": "hello", "version": 1, "view": {"arrived": ["work_remaining"]}}, "knowledge"),
        (b"x" * 70_000 + b"\n", "more than 65,536 bytes"),
    ],
)
def test_who_does_not_say_hello_is_turned_away(hello: Any, words: str) -> None:
    def scheduler(peer: Peer) -> None:
        host, port = peer.socket.getpeername()
        stranger = Peer(f"{host}:{port}")
        # `peer` connects first and sends a wrong message; the other client is next
        assert peer.hear()["type"] == "hello"
        peer.say(hello)
        error = peer.hear()
        assert (error["type"], error["fatal"]) == ("error", True)
        assert words in error["message"]
        drive(stranger)
        stranger.close()

    reasons: list[str] = []
    run = gl.Simulation(LAB, trace_of(5))
    result = serve(run, scheduler, on_turned_away=reasons.append)
    assert result.summary["finished"] == 30
    assert len(reasons) == 1
    assert words in reasons[0]


def test_a_message_has_a_size(snapshot: Snapshot) -> None:
    def scheduler(peer: Peer) -> None:
        peer.begin()
        try:
            peer.say(b" " * (17 * 2**20))
        except OSError:
            return  # it was cut off in the middle

    with refused(gl.PeerError, snapshot):
        serve(gl.Simulation(LAB, trace_of(5)), scheduler)


def test_a_scheduler_that_leaves_is_named(snapshot: Snapshot) -> None:
    with refused(gl.PeerError, snapshot):
        serve(gl.Simulation(LAB, trace_of(5)), lambda peer: peer.begin())


@pytest.mark.parametrize("trickle", [False, True])
def test_a_scheduler_that_hangs_is_named(trickle: bool, snapshot: Snapshot) -> None:
    def scheduler(peer: Peer) -> None:
        peer.begin()
        for _ in range(40):  # single bytes are not an answer
            time.sleep(0.1)
            if trickle:
                try:
                    peer.say(b" ")
                except OSError:
                    return

    began = time.monotonic()
    with refused(gl.PeerError, snapshot):
        serve(gl.Simulation(LAB, trace_of(5)), scheduler, timeout_s=0.5)
    assert time.monotonic() - began < 30.0


def test_nobody_connects(snapshot: Snapshot) -> None:
    with refused(gl.PeerError, snapshot):
        gl.serve(gl.Simulation(LAB, trace_of(5)), timeout_s=0.1)


def test_a_stall_is_told_on_both_sides() -> None:
    heard: list[Any] = []
    with pytest.raises(gl.StalledError):
        serve(
            gl.Simulation(LAB, worlds.jobs("a 0 1 5")),
            lambda peer: heard.append(drive(peer, lambda _: [])),
        )
    assert (heard[0]["error"], heard[0]["fatal"]) == ("StalledError", True)


# ---- where it listens


def test_a_unix_socket_is_private_and_goes_away(tmp_path: Path) -> None:
    path = tmp_path / "run.socket"
    modes = []

    def scheduler(peer: Peer) -> None:
        modes.append(path.stat().st_mode & 0o777)
        drive(peer)

    result = serve(gl.Simulation(LAB, trace_of(5)), scheduler, listen=f"unix:{path}")
    assert result.summary["finished"] == 30
    assert modes == [0o600]
    assert not path.exists()


def test_a_file_of_yours_is_not_replaced(tmp_path: Path) -> None:
    path = tmp_path / "notes"
    path.write_text("mine")
    with pytest.raises(OSError, match="in use") as raised:
        gl.serve(gl.Simulation(LAB, trace_of(5)), f"unix:{path}", timeout_s=0.1)
    assert raised.value.filename == f"unix:{path}"
    assert path.read_text() == "mine"


@pytest.mark.parametrize(
    "listen", ["0.0.0.0:0", "192.0.2.1:7777", "[::]:0", "example.org:80", "nonsense", "a:b", ":1"]
)
def test_other_machines_are_kept_out(listen: str) -> None:
    with pytest.raises(gl.OptionError) as raised:
        gl.serve(gl.Simulation(LAB, trace_of(5)), listen, timeout_s=0.1)
    assert raised.value.field == "listen"


def test_other_machines_may_be_let_in(snapshot: Snapshot) -> None:
    with refused(gl.PeerError, snapshot):
        gl.serve(gl.Simulation(LAB, trace_of(5)), "0.0.0.0:0", any_host=True, timeout_s=0.1)


@pytest.mark.parametrize("field", ["timeout_s", "knowledge"])
def test_options_are_checked(field: str) -> None:
    wrong: dict[str, Any] = {field: {"timeout_s": 0.0, "knowledge": "all"}[field]}
    with pytest.raises(gl.OptionError) as raised:
        gl.serve(gl.Simulation(LAB, trace_of(5)), **wrong)
    assert raised.value.field == field


# ---- the command


def command(*more: str) -> list[str]:
    words = ["serve", "--trace", "synth:philly?jobs=30&seed=1&max_gpus=4", "--cluster", "2x4xV100"]
    return [sys.executable, "-m", "gangline", *words, *more]


def test_the_command_serves_and_saves(tmp_path: Path) -> None:
    words = command("--out", str(tmp_path / "out"), "--knowledge", "remaining")
    with subprocess.Popen(words, stdout=-1, stderr=-1, text=True) as process:
        assert process.stderr is not None
        said = process.stderr.readline()
        (address,) = re.findall(r"^listening on (127\.0\.0\.1:\d+)$", said.strip())
        with closing(Peer(address)) as peer:
            peer.say({"type": "hello", "version": 2})
            said = process.stderr.readline()
        assert said.startswith("a scheduler was rejected: version: this gangline speaks")
        with closing(Peer(address)) as peer:
            drive(peer)
        out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    assert "makespan" in out
    assert gl.load_result(tmp_path / "out").summary["finished"] == 30


def test_ctrl_c_ends_the_command() -> None:
    with subprocess.Popen(command(), stdout=-1, stderr=-1, text=True) as process:
        assert process.stderr is not None
        address = process.stderr.readline().split()[-1]
        peer = Peer(address)
        peer.begin()
        process.send_signal(signal.SIGINT)
        last = peer.hear()
        peer.close()
        out, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Traceback" not in out + err
    assert (last["fatal"], last["message"]) == (True, "the run was interrupted")


def test_a_scheduler_that_leaves_ends_the_command() -> None:
    with subprocess.Popen(command(), stdout=-1, stderr=-1, text=True) as process:
        assert process.stderr is not None
        address = process.stderr.readline().split()[-1]
        peer = Peer(address)
        peer.begin()
        peer.close()
        out, err = process.communicate(timeout=60)
    assert process.returncode == 3
    assert err.startswith("gangline: the scheduler closed the connection")
    assert "Traceback" not in out + err
