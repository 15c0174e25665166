"""Tests `gl.serve_batsim`: schedulers written for Batsim drive a run."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import threading
from typing import TYPE_CHECKING, Any

import pytest
import zmq

import gangline as gl
import worlds
from gangline.remote import batsim
from refusals import refused

if TYPE_CHECKING:
    from collections.abc import Callable

    from snapshots import Snapshot


class Reply:
    """A ZeroMQ socket that gives prepared answers and keeps what it received."""

    def __init__(self, kind: int = zmq.REP) -> None:
        self.context = zmq.Context()
        self.door = self.context.socket(kind)
        port = self.door.bind_to_random_port("tcp://127.0.0.1")
        self.address = f"127.0.0.1:{port}"
        self.heard: list[Any] = []
        self.over = threading.Event()

    def serve(self, answer: Callable[[Any], Any]) -> None:
        try:
            while not self.over.is_set():
                if not self.door.poll(10):
                    continue
                request = json.loads(self.door.recv())
                self.heard.append(request)
                reply = answer(request)
                if reply is None:
                    break
                if isinstance(reply, list):
                    self.door.send_multipart(reply)
                else:
                    self.door.send(
                        reply if isinstance(reply, bytes) else json.dumps(reply).encode()
                    )
        finally:
            self.context.destroy(linger=0)

    def events(self, kind: str) -> list[Any]:
        return [
            event for message in self.heard for event in message["events"] if event["type"] == kind
        ]


def run_with(
    answer: Callable[[Any], Any], jobs: Any, lab: Any, reply: Reply | None = None, **options: Any
) -> tuple[gl.Result, Reply]:
    peer = reply or Reply()
    failures: list[BaseException] = []

    def act() -> None:
        try:
            peer.serve(answer)
        except BaseException as error:  # noqa: BLE001 - the test raises it
            failures.append(error)

    thread = threading.Thread(target=act)
    thread.start()
    try:
        run = gl.Simulation(lab, jobs)
        result = gl.serve_batsim(run, peer.address, **{"timeout_s": 20.0, **options})
    finally:
        peer.over.set()
        thread.join(30.0)
        assert failures == []
    return result, peer


def event(kind: str, at_s: float, **data: Any) -> dict[str, Any]:
    return {"timestamp": at_s, "type": kind, "data": data}


class FirstCome:
    """A strict FIFO on the lowest free resources, written like schedulers for Batsim."""

    def __init__(self) -> None:
        self.free: set[int] = set()
        self.queue: list[tuple[str, int]] = []

    def __call__(self, message: Any) -> Any:
        for heard in message["events"]:
            data = heard["data"]
            if heard["type"] == "SIMULATION_BEGINS":
                self.free = {resource["id"] for resource in data["compute_resources"]}
            elif heard["type"] == "JOB_SUBMITTED":
                self.queue.append((data["job_id"], data["job"]["res"]))
            elif heard["type"] == "JOB_COMPLETED":
                self.free |= {int(resource) for resource in data["alloc"].split()}
        orders = []
        while self.queue and self.queue[0][1] <= len(self.free):
            job, size = self.queue.pop(0)
            chosen = sorted(self.free)[:size]
            self.free -= set(chosen)
            alloc = " ".join(map(str, chosen))
            orders.append(event("EXECUTE_JOB", message["now"], job_id=job, alloc=alloc))
        return {"now": message["now"], "events": orders}


def test_first_come_first_served_is_fifo() -> None:
    lab = gl.Cluster.homogeneous(servers=3, gpus=4)
    trace = gl.synth.philly(jobs=60, seed=3, max_gpus=8)
    result, peer = run_with(FirstCome(), trace, lab)
    fifo = gl.simulate(lab, trace, "fifo")
    for column in ("first_start_s", "finish_s"):
        assert result.jobs[column].equals(fifo.jobs[column])
    assert len(peer.events("JOB_SUBMITTED")) == len(peer.events("JOB_COMPLETED")) == 60


def test_what_is_said_and_when() -> None:
    lab = worlds.lab("1x2 A", "1x1 B")
    _, peer = run_with(FirstCome(), worlds.jobs("a 5 2 10", "b 7 1 4"), lab)
    first = peer.heard[0]
    assert [one["type"] for one in first["events"]] == ["SIMULATION_BEGINS"]
    data = first["events"][0]["data"]
    assert (data["nb_resources"], data["nb_compute_resources"]) == (3, 3)
    assert data["compute_resources"][2]["properties"] == {
        "server": "1",
        "slot": "0",
        "rack": "0",
        "gpu_type": "B",
    }
    submitted = {"id": "gangline!0", "name": "a", "res": 2, "subtime": 5.0, "profile": "job0"}
    told = [
        (message["now"], [(one["type"], one["timestamp"]) for one in message["events"]])
        for message in peer.heard[1:]
    ]
    assert peer.heard[1]["events"][0]["data"] == {"job_id": "gangline!0", "job": submitted}
    # b gets the third GPU, so it ends at 11, and a at 15
    assert told == [
        (5.0, [("JOB_SUBMITTED", 5.0)]),
        (7.0, [("JOB_SUBMITTED", 7.0), ("NOTIFY", 7.0)]),
        (11.0, [("JOB_COMPLETED", 11.0)]),
        (15.0, [("JOB_COMPLETED", 15.0)]),
        (15.0, [("SIMULATION_ENDS", 15.0)]),
    ]
    assert peer.events("JOB_COMPLETED")[1]["data"] == {
        "job_id": "gangline!0",
        "job_state": "COMPLETED_SUCCESSFULLY",
        "return_code": 0,
        "kill_reason": "",
        "alloc": "0 1",
    }


def test_walltimes_are_told_on_request_alone() -> None:
    lab, jobs = worlds.lab("1x2 A"), worlds.jobs("a 0 1 10")
    for knowledge, walltime in (("online", None), ("remaining", 10.0)):
        _, peer = run_with(FirstCome(), jobs, lab, knowledge=knowledge)
        (submitted,) = peer.events("JOB_SUBMITTED")
        assert submitted["data"]["job"].get("walltime") == walltime
        expected = None if walltime is None else {"type": "delay", "delay": walltime}
        assert submitted["data"].get("profile") == expected


def scripted(*answers: list[dict[str, Any]], now_s: dict[int, float] | None = None) -> Any:
    """Answer the messages after the first in turn; nothing after the last."""
    left = list(answers)
    count = 0

    def answer(message: Any) -> Any:
        nonlocal count
        orders = left.pop(0) if left and count else []
        at_s = (now_s or {}).get(count, message["now"])
        count += 1
        return {"now": at_s, "events": orders}

    return answer


def test_orders_for_later_are_carried_out_then() -> None:
    jobs = worlds.jobs("a 0 1 10", "b 1 1 10")
    execute = [event("EXECUTE_JOB", 2.5, job_id="gangline!0", alloc="0")]
    other = [event("EXECUTE_JOB", 3.0, job_id="gangline!1", alloc="1")]
    # the scheduler computes until 3 and then hears of b
    result, peer = run_with(scripted(execute, other, now_s={1: 3.0}), jobs, worlds.lab("1x2 A"))
    assert result.jobs["first_start_s"].to_pylist() == [2.5, 3.0]
    assert [message["now"] for message in peer.heard] == [0.0, 0.0, 3.0, 12.5, 13.0, 13.0]
    assert peer.heard[2]["events"][0]["timestamp"] == 1.0


def test_a_call_comes_when_it_was_asked_for() -> None:
    calls = [event("CALL_ME_LATER", 0.0, timestamp=4.0)]
    start = [event("EXECUTE_JOB", 4.0, job_id="gangline!0", alloc="1")]
    result, peer = run_with(scripted(calls, start), worlds.jobs("a 0 1 10"), worlds.lab("1x2 A"))
    assert [one["timestamp"] for one in peer.events("REQUESTED_CALL")] == [4.0]
    assert result.jobs["finish_s"].to_pylist() == [14.0]


def test_killed_and_rejected_jobs_are_over() -> None:
    jobs = worlds.jobs("a 0 2 10", "b 4 2 10", "c 4 2 10")
    result, peer = run_with(
        scripted(
            [event("EXECUTE_JOB", 0.0, job_id="gangline!0", alloc="0-1")],
            [
                event("KILL_JOB", 4.0, job_ids=["gangline!0"]),
                event("REJECT_JOB", 4.0, job_id="gangline!1"),
            ],
            # it hears of the kill at once and reassigns the GPUs
            [event("EXECUTE_JOB", 4.0, job_id="gangline!2", alloc="0-1")],
        ),
        jobs,
        worlds.lab("1x2 A"),
        knowledge="remaining",
    )
    assert result.jobs["status"].to_pylist() == ["unfinished", "unfinished", "finished"]
    assert result.jobs["finish_s"].to_pylist() == [None, None, 14.0]
    (killed,) = peer.events("JOB_KILLED")
    assert (killed["timestamp"], killed["data"]["job_ids"]) == (4.0, ["gangline!0"])
    assert killed["data"]["job_progress"]["gangline!0"]["progress"] == pytest.approx(0.4)
    states = [one["data"]["job_state"] for one in peer.events("JOB_COMPLETED")]
    assert states == ["COMPLETED_KILLED", "COMPLETED_SUCCESSFULLY"]
    assert peer.heard[-1]["events"][-1]["type"] == "SIMULATION_ENDS"


@pytest.mark.parametrize(
    "order",
    [
        event("SET_RESOURCE_STATE", 0.0, resources="0", state="1"),
        event("QUERY", 0.0, requests={"consumed_energy": {}}),
        event("NOTIFY", 0.0, type="weather"),
        event("EXECUTE_JOB", 0.0, job_id="gangline!0"),
        event("EXECUTE_JOB", 0.0, job_id="gangline!0", alloc="0-2"),
        event("EXECUTE_JOB", 0.0, job_id="gangline!0", alloc=""),
        event("EXECUTE_JOB", 0.0, job_id="gangline!9", alloc="0"),
        event("EXECUTE_JOB", 0.0, job_id="other!0", alloc="0"),
        event("EXECUTE_JOB", 99.0, job_id="gangline!0", alloc="0"),
        event("EXECUTE_JOB", -1.0, job_id="gangline!0", alloc="0"),
        {"type": "EXECUTE_JOB"},
        "EXECUTE_JOB",
    ],
)
def test_what_cannot_be_carried_out_is_named(order: Any, snapshot: Snapshot) -> None:
    with refused(gl.PeerError, snapshot):
        run_with(scripted([order]), worlds.jobs("a 0 1 10"), worlds.lab("1x2 A"))


def test_a_place_that_is_taken_is_a_plan_error(snapshot: Snapshot) -> None:
    orders = [event("EXECUTE_JOB", 0.0, job_id=f"gangline!{job}", alloc="0") for job in (0, 1)]
    with refused(gl.PlanError, snapshot):
        run_with(scripted(orders), worlds.jobs("a 0 1 9", "b 0 1 9"), worlds.lab("1x2 A"))


@pytest.mark.parametrize("answer", [b"nonsense", b"", b"[]", b'{"now": 0}', b"[" * 300_000])
def test_a_message_that_cannot_be_read(answer: bytes) -> None:
    with pytest.raises(gl.PeerError) as raised:
        run_with(lambda _: answer, worlds.jobs("a 0 1 10"), worlds.lab("1x2 A"))
    assert raised.value.reason == "wrong"


def test_a_message_of_two_frames_is_refused(snapshot: Snapshot) -> None:
    with refused(gl.PeerError, snapshot):
        run_with(lambda _: [b"{}", b"{}"], worlds.jobs("a 0 1 9"), worlds.lab("1x2 A"))


def test_a_message_that_is_too_long_ends_the_run(
    monkeypatch: pytest.MonkeyPatch, snapshot: Snapshot
) -> None:
    monkeypatch.setattr(batsim, "MESSAGE_BYTES_MAX", 1000)
    jobs, lab = worlds.jobs("a 0 1 9"), worlds.lab("1x2 A")
    with refused(gl.PeerError, snapshot):
        run_with(lambda _: b" " * 1001, jobs, lab)
    with refused(gl.PeerError, snapshot):  # the reply was received
        run_with(lambda _: b" " * 1000, jobs, lab)


@pytest.mark.parametrize("kind", [zmq.PUB, zmq.PULL])
def test_other_sockets_are_refused(kind: int) -> None:
    peer = Reply(kind)
    try:
        run = gl.Simulation(worlds.lab("1x2 A"), worlds.jobs("a 0 1 9"))
        with refused(gl.PeerError, reason="wrong", address=peer.address):
            gl.serve_batsim(run, peer.address, timeout_s=20.0)
    finally:
        peer.context.destroy(linger=0)


def test_a_scheduler_that_leaves_hangs_or_is_not_there(snapshot: Snapshot) -> None:
    jobs, lab = worlds.jobs("a 0 1 10"), worlds.lab("1x2 A")
    with pytest.raises(gl.PeerError) as raised:
        run_with(lambda _: None, jobs, lab)  # long before the limit of 20 s
    assert raised.value.reason == "left"
    peer = Reply()  # it is bound, and never answers
    try:
        with refused(gl.PeerError, snapshot):
            gl.serve_batsim(gl.Simulation(lab, jobs), peer.address, timeout_s=0.3)
    finally:
        peer.context.destroy(linger=0)
    with socket.create_server(("127.0.0.1", 0)) as door:
        address = f"127.0.0.1:{door.getsockname()[1]}"
    with refused(gl.PeerError, reason="silent", address=address):
        gl.serve_batsim(gl.Simulation(lab, jobs), address, timeout_s=0.3)


WAITS = """
import gangline as gl
jobs = "synth:philly?jobs=2&seed=1&max_gpus=1"
run = gl.Simulation(gl.Cluster.homogeneous(servers=1, gpus=1), jobs)
print("waits", flush=True)
try:
    gl.serve_batsim(run, "ADDRESS")
except KeyboardInterrupt:
    print("interrupted")
"""


def test_control_c_ends_the_wait() -> None:
    peer = Reply()
    code = WAITS.replace("ADDRESS", peer.address)
    try:
        with subprocess.Popen(
            [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True
        ) as process:
            assert peer.door.poll(30_000)  # the request has arrived and waits for the reply
            process.send_signal(signal.SIGINT)
            assert process.communicate(timeout=30)[0] == "waits\ninterrupted\n"
    finally:
        peer.context.destroy(linger=0)


def test_without_pyzmq_the_extra_is_named(
    monkeypatch: pytest.MonkeyPatch, snapshot: Snapshot
) -> None:
    monkeypatch.setitem(sys.modules, "zmq", None)
    run = gl.Simulation(worlds.lab("1x2 A"), worlds.jobs("a 0 1 9"))
    with refused(gl.MissingExtraError, snapshot):
        gl.serve_batsim(run, timeout_s=0.1)


def test_what_the_protocol_cannot_say_is_refused(snapshot: Snapshot) -> None:
    failures = {"table": [{"server": 0, "down_s": 1.0, "up_s": 2.0}]}
    lab = worlds.lab("1x2 A", failures=failures)
    with refused(gl.OptionError, snapshot):
        gl.serve_batsim(gl.Simulation(lab, worlds.jobs("a 0 1 10")), timeout_s=0.1)
    run = gl.Simulation(worlds.lab("1x2 A"), worlds.jobs("a 0 1 10"))
    run.advance()
    with refused(gl.OptionError, snapshot):
        gl.serve_batsim(run, timeout_s=0.1)
    with pytest.raises(gl.OptionError) as raised:
        gl.serve_batsim(run, "unix:x", timeout_s=0.1)
    assert raised.value.field == "connect"
    run = gl.Simulation(worlds.lab("1x2 A"), worlds.jobs("a 0 1 10"))
    with refused(gl.OptionError, field="connect", value="no host:1"):
        gl.serve_batsim(run, "no host:1", timeout_s=0.1)
    assert raised.value.field == "connect"
