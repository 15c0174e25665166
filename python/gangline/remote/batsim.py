"""Defines `gangline.serve_batsim`, which lets a scheduler written for Batsim make the decisions.

The sources are the page "Protocol" of Batsim's documentation (JSON over ZeroMQ, Batsim 3 and 4) and
the fields that pybatsim 3.2.1 reads. docs/guides/socket.md lists the differences.
"""

from __future__ import annotations

import math
import re
import time
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import msgspec

from gangline._support.safe import safe
from gangline.errors import MissingExtraError, OptionError, PeerError, StalledError
from gangline.remote.channel import check_timeout, parse
from gangline.remote.serve import MESSAGE_BYTES_MAX

if TYPE_CHECKING:
    from gangline.policies.protocol import Plan
    from gangline.remote.channel import Address
    from gangline.runs.result import Result
    from gangline.runs.simulation import Simulation

__all__ = ["serve_batsim"]

_WORKLOAD = "gangline"
_CALL, _ORDER = 0, 1  # tags of timers: requested calls, and events that take effect later
_IGNORED = {"SET_JOB_METADATA"}  # it sets metadata that Batsim only writes to its table of jobs
_NOTES = {"registration_finished", "continue_registration"}
_POLL_MS_MAX = 500.0  # a Ctrl-C just before a poll takes effect only when the poll ends


class _Order(msgspec.Struct, frozen=True):
    """An event that a scheduler sends."""

    timestamp: float
    type: str
    data: dict[str, Any] = {}


class _Reply(msgspec.Struct, frozen=True):
    now: float
    events: list[_Order]


class _JobId(msgspec.Struct, frozen=True):
    job_id: str


class _Execution(_JobId, frozen=True):
    alloc: str


class _Killing(msgspec.Struct, frozen=True):
    job_ids: list[str]


class _Time(msgspec.Struct, frozen=True):
    timestamp: float


class _Note(msgspec.Struct, frozen=True):
    type: str


_REPLY = msgspec.json.Decoder(_Reply)


def serve_batsim(
    run: Simulation,
    connect: str = "127.0.0.1:28000",
    *,
    knowledge: Literal["online", "remaining"] = "online",
    timeout_s: float = 600.0,
) -> Result:
    """Let a scheduler written for Batsim make the decisions of a run.

    The scheduler listens on a ZeroMQ reply socket, as for Batsim 3 or 4. The scheduler may be
    started before or after this call. The resources are the GPUs, numbered server by
    server. This function needs the extra `batsim`.

    Parameters
    ----------
    run : Simulation
        A run that has not started yet.
    connect : str, default "127.0.0.1:28000"
        HOST:PORT of the scheduler; the default is Batsim's.
    knowledge : str, default "online"
        "remaining" tells the scheduler each job's duration on its fastest type, as `walltime`.
    timeout_s : float, default 600
        Maximum number of seconds to wait for the scheduler, and for each message.

    Returns
    -------
    Result
        Jobs that the scheduler rejected or killed have the status "unfinished".

    Raises
    ------
    PeerError
        If the scheduler disconnects, hangs, or requests something that does not exist.
    PlanError
        If the scheduler executes a job on GPUs on which the job cannot run, because the protocol
        has no reply for this case.
    StalledError
        If jobs wait and no future event can start them.
    OptionError
        If an option is wrong, or the run contains events that the protocol cannot express.
    MissingExtraError
        If pyzmq is not installed.

    Examples
    --------
    No scheduler listens at this address:

    >>> import gangline as gl
    >>> run = gl.Simulation("2x4xA100", "synth:philly?jobs=5&seed=1&max_gpus=4")
    >>> gl.serve_batsim(run, "127.0.0.1:9", timeout_s=0.1)
    Traceback (most recent call last):
    ...
    gangline.errors.PeerError: no scheduler listened at 127.0.0.1:9 within 0.1 s
    """
    if knowledge not in ("online", "remaining"):
        message = f'knowledge: expected "online" or "remaining", got {knowledge!r}'
        raise OptionError(message, field="knowledge", value=knowledge)
    check_timeout(timeout_s)
    address = parse(connect, "connect")
    if address.port is None:
        raise OptionError("connect: expected HOST:PORT", field="connect", value=connect)
    if run.now_s > 0.0 or run.is_due or len(run.view.running):
        raise OptionError("run: expected a run that has not started yet", field="run")
    world = run.result()
    for table in ("failures", "capacity"):
        if table in world.spec["cluster"]:
            message = (
                f"cluster: Batsim's protocol has no equivalent of `{table}`, which this cluster has"
            )
            raise OptionError(message, field="cluster")
    to_come = sum(status != "dropped" for status in world.jobs.column("status").to_pylist())
    with _Scheduler(address, timeout_s) as scheduler:
        knows_work = knowledge == "remaining"
        return _Session(run, scheduler, to_come, knows_work=knows_work).drive()


class _Scheduler:
    """A ZeroMQ request socket; every wait has a limit and ends when the other side disconnects.

    ZeroMQ would otherwise reconnect silently and lose the request. Therefore, an error is raised
    when the monitor reports that the connection has ended.
    """

    def __init__(self, address: Address, timeout_s: float) -> None:
        try:
            import zmq
        except ImportError:
            message = "schedulers for Batsim need the library pyzmq: pip install 'gangline[batsim]'"
            raise MissingExtraError(message, extra="batsim") from None
        self._address = address
        self._timeout_s = timeout_s
        self._was_there = False
        self._context = zmq.Context()
        self._socket = self._context.socket(zmq.REQ)
        self._socket.maxmsgsize = MESSAGE_BYTES_MAX
        self._socket.immediate = True  # it is ready to send only after the other side has connected
        self._socket.ipv6 = ":" in address.host
        self._monitor = self._socket.get_monitor_socket(
            zmq.Event.HANDSHAKE_SUCCEEDED
            | zmq.Event.DISCONNECTED
            | zmq.Event.HANDSHAKE_FAILED_NO_DETAIL
            | zmq.Event.HANDSHAKE_FAILED_PROTOCOL
            | zmq.Event.HANDSHAKE_FAILED_AUTH
        )
        try:
            self._socket.connect(f"tcp://{address}")
        except zmq.ZMQError:
            self._context.destroy(linger=0)
            message = f"connect: expected HOST:PORT, got {address}"
            raise OptionError(message, field="connect", value=str(address)) from None

    def __enter__(self) -> _Scheduler:
        return self

    def __exit__(self, *_: object) -> None:
        self._context.destroy(linger=0)

    def ask(self, request: bytes) -> bytes:
        """Send a request and return the reply."""
        import zmq

        absent = f"no scheduler listened at {self._address}"
        self._wait(zmq.POLLOUT, absent, address=str(self._address))
        self._socket.send(request)
        self._wait(zmq.POLLIN, "the scheduler did not answer")
        reply = self._socket.recv_multipart()
        if len(reply) != 1:
            raise _wrong(f"its message has {len(reply)} frames, expected 1")
        return reply[0]

    def _wait(self, event: int, otherwise: str, **facts: object) -> None:
        import zmq
        from zmq.utils.monitor import recv_monitor_message

        poller = zmq.Poller()
        poller.register(self._socket, event)
        poller.register(self._monitor, zmq.POLLIN)
        until = time.monotonic() + self._timeout_s
        while True:
            left_ms = max(until - time.monotonic(), 0.0) * 1e3
            ready = dict(poller.poll(math.ceil(min(left_ms, _POLL_MS_MAX))))
            if self._socket in ready:
                return
            if self._monitor not in ready and time.monotonic() < until:
                continue
            if self._monitor not in ready:
                message = f"{otherwise} within {self._timeout_s:g} s"
                raise PeerError(message, reason="silent", **facts)
            if recv_monitor_message(self._monitor)["event"] != zmq.Event.HANDSHAKE_SUCCEEDED:
                break
            self._was_there = True
        if not self._was_there:
            message = f"{self._address} is not a ZeroMQ reply socket, or it needs a password"
            raise PeerError(message, reason="wrong", address=str(self._address))
        message = (
            "the connection ended too early: the scheduler left, or it sent a message of more "
            f"than {MESSAGE_BYTES_MAX:,} bytes"
        )
        raise PeerError(message, reason="left")


class _Later(NamedTuple):
    """An event from the scheduler, and the time at which it takes effect."""

    at_s: float
    order: _Order


class _Session:
    """A scheduler and the run that it drives."""

    def __init__(
        self, run: Simulation, scheduler: _Scheduler, to_come: int, *, knows_work: bool
    ) -> None:
        self._run = run
        self._scheduler = scheduler
        self._knows_work = knows_work
        gpus = run.view.servers.gpus.tolist()
        self._places = [(server, slot) for server, size in enumerate(gpus) for slot in range(size)]
        self._alloc: dict[int, str] = {}  # the GPUs of running jobs
        self._duration_s: dict[int, float] = {}
        self._gone: set[int] = set()  # rejected or killed jobs; in the run, they wait forever
        self._to_come = to_come
        self._events: list[dict[str, Any]] = []  # events that were not sent yet
        self._later: list[_Later] = []
        self._ready_s = 0.0  # the scheduler is busy computing until this time

    def drive(self) -> Result:
        """Let the scheduler make all decisions of the run."""
        run = self._run
        self._say("SIMULATION_BEGINS", self._world())
        self._exchange()  # Batsim sends this event alone; schedulers initialise when they get it
        try:
            while run.advance() == "decision":
                self._decide()
            self._look()
        except StalledError:
            if not set(run.view.waiting.job.tolist()) <= self._gone:
                raise
        self._say("SIMULATION_ENDS", {})
        self._exchange()
        return run.result()

    def _decide(self) -> None:
        from gangline.policies.protocol import Plan

        plan = Plan()
        self._look()
        while True:
            self._carry_out(plan)
            if not self._events or not self._is_now(self._ready_s):
                break
            self._exchange()
        times = [later.at_s for later in self._later]
        if self._events:
            times.append(self._ready_s)
        if times:
            plan.cancel(_ORDER)
            plan.wake_at(min(times), _ORDER)
        self._run.apply(plan)

    def _look(self) -> None:
        """Record the changes in the run as events."""
        changes, waiting = self._run.changes, self._run.view.waiting
        for job in changes.finished.tolist():
            self._say("JOB_COMPLETED", self._completed(job, "COMPLETED_SUCCESSFULLY"))
        arrived = changes.arrived.tolist()
        rows = waiting.job.searchsorted(arrived)
        columns = (waiting.gpus, waiting.arrival_s, waiting.remaining_s)
        for job, *facts in zip(
            arrived, *(column[rows].tolist() for column in columns), strict=True
        ):
            self._say("JOB_SUBMITTED", self._submitted(job, *facts))
        self._to_come -= len(arrived)
        if arrived and self._to_come == 0:
            self._say("NOTIFY", {"type": "no_more_static_job_to_submit"})
        for _, tag in changes.timers:
            if tag == _CALL:
                self._say("REQUESTED_CALL", {})

    def _exchange(self) -> None:
        """Send the events that happened, and record the events that the scheduler sends back."""
        before_s = max(self._run.now_s, self._ready_s)
        message = {"now": before_s, "events": self._events}
        self._events = []
        line = self._scheduler.ask(msgspec.json.encode(message))
        try:
            reply = _REPLY.decode(line)
        except (msgspec.MsgspecError, RecursionError) as error:
            raise _wrong(f"its message cannot be read: {error}") from None
        for order in reply.events:
            if order.timestamp < before_s or order.timestamp > reply.now:
                why = f"{safe(order.type, 50)} has the timestamp {order.timestamp}"
                raise _wrong(f"{why}, expected {before_s} to {reply.now}, in ascending order")
            before_s = order.timestamp
            self._later.append(_Later(order.timestamp, order))
        self._ready_s = reply.now

    def _carry_out(self, plan: Plan) -> None:
        due = [later for later in self._later if self._is_now(later.at_s)]
        self._later = [later for later in self._later if not self._is_now(later.at_s)]
        for _, order in due:
            try:
                self._obey(order, plan)
            except msgspec.ValidationError as error:
                raise _wrong(f"data of {safe(order.type, 50)}: {error}") from None

    def _obey(self, order: _Order, plan: Plan) -> None:
        if order.type == "EXECUTE_JOB":
            wish = msgspec.convert(order.data, _Execution)
            job = self._job(wish.job_id)
            plan.start(job, masks=self._masks(wish.alloc))
            self._alloc[job] = wish.alloc
        elif order.type == "REJECT_JOB":
            self._gone.add(self._job(msgspec.convert(order.data, _JobId).job_id))
        elif order.type == "KILL_JOB":
            self._kill(msgspec.convert(order.data, _Killing).job_ids, plan)
        elif order.type == "CALL_ME_LATER":
            at_s = msgspec.convert(order.data, _Time).timestamp
            if self._is_now(at_s):
                self._say("REQUESTED_CALL", {})
            else:
                plan.wake_at(at_s, _CALL)
        elif order.type == "NOTIFY" and msgspec.convert(order.data, _Note).type in _NOTES:
            pass
        elif order.type not in _IGNORED:
            raise _wrong(f"this run cannot carry out {safe(order.type, 50)}")

    def _kill(self, names: list[str], plan: Plan) -> None:
        running = self._run.view.running
        left_s = dict(zip(running.job.tolist(), running.remaining_s.tolist(), strict=True))
        progress = {}
        for name in names:
            job = self._job(name)
            if job not in self._alloc:
                continue
            plan.preempt(job)
            self._gone.add(job)
            done = 1.0 - left_s.get(job, 0.0) / self._duration_s[job] if self._knows_work else 0.0
            progress[name] = {"profile": _profile(job), "progress": done}
            self._say("JOB_COMPLETED", self._completed(job, "COMPLETED_KILLED"))
        self._say("JOB_KILLED", {"job_ids": names, "job_progress": progress})

    def _say(self, kind: str, data: dict[str, Any]) -> None:
        self._events.append({"timestamp": self._run.now_s, "type": kind, "data": data})

    def _is_now(self, at_s: float) -> bool:
        """Return whether an instant has come; both times are rounded to whole nanoseconds."""
        now_ns = max(self._run.view.now_ns, round(self._run.now_s * 1e9))
        return round(at_s * 1e9) <= now_ns

    def _world(self) -> dict[str, Any]:
        """Return the data of SIMULATION_BEGINS, with the field names of Batsim 3 and Batsim 4."""
        view = self._run.view
        types, servers = view.labels("gpu_type"), view.servers
        kinds, racks = servers.gpu_type.tolist(), servers.rack.tolist()
        resources = [
            {
                "id": number,
                "name": f"server{server}:gpu{slot}",
                "state": "idle",
                "properties": {
                    "server": str(server),
                    "slot": str(slot),
                    "rack": str(racks[server]),
                    "gpu_type": types[kinds[server]],
                },
            }
            for number, (server, slot) in enumerate(self._places)
        ]
        return {
            "nb_resources": len(resources),
            "nb_compute_resources": len(resources),
            "nb_storage_resources": 0,
            "allow_compute_sharing": False,
            "allow_storage_sharing": False,
            "allow_time_sharing_on_compute": False,
            "allow_time_sharing_on_storage": False,
            "config": {
                "redis-enabled": False,
                "dynamic-jobs-enabled": False,
                "dynamic-jobs-acknowledged": False,
                "profiles-forwarded-on-submission": self._knows_work,
                "profile-reuse-enabled": False,
                "forward-unknown-events": False,
            },
            "compute_resources": resources,
            "storage_resources": [],
            "workloads": {_WORKLOAD: _WORKLOAD},
            "profiles": {_WORKLOAD: {}},
        }

    def _submitted(
        self, job: int, gpus: int, arrival_s: float, duration_s: float
    ) -> dict[str, Any]:
        self._duration_s[job] = duration_s
        facts = {
            "id": _name(job),
            "name": self._run.view.name_of(job),
            "res": gpus,
            "subtime": arrival_s,
            "profile": _profile(job),
        }
        if not self._knows_work:
            return {"job_id": _name(job), "job": facts}
        return {
            "job_id": _name(job),
            "job": {**facts, "walltime": duration_s},
            "profile": {"type": "delay", "delay": duration_s},
        }

    def _completed(self, job: int, state: str) -> dict[str, Any]:
        return {
            "job_id": _name(job),
            "job_state": state,
            "return_code": 0 if state == "COMPLETED_SUCCESSFULLY" else -1,
            "kill_reason": "",
            "alloc": self._alloc.pop(job, ""),
        }

    def _job(self, name: str) -> int:
        """Return the index of a job that was submitted and neither rejected nor killed."""
        workload, _, number = name.partition("!")
        job = int(number) if workload == _WORKLOAD and _NUMBER.fullmatch(number) else -1
        if job not in self._duration_s:
            raise _wrong(f"no job `{safe(name, 50)}` was submitted")
        if job in self._gone:
            raise _wrong(f"job `{name}` was rejected or killed before")
        return job

    def _masks(self, alloc: str) -> dict[int, int]:
        """Return the slots in an interval set such as `0-3 7`, as a bit mask for each server."""
        masks: dict[int, int] = {}
        for interval in re.split(r"[ ,]+", alloc.strip()):
            first, dash, last = interval.partition("-")
            ends = (first, last if dash else first)
            if not all(_NUMBER.fullmatch(end) and int(end) < len(self._places) for end in ends):
                most = len(self._places) - 1
                message = f'alloc "{safe(alloc, 50)}": expected numbers from 0 to {most}'
                raise _wrong(f"{message}, as in `0-3 7`")
            for resource in range(int(ends[0]), int(ends[1]) + 1):
                server, slot = self._places[resource]
                masks[server] = masks.get(server, 0) | 1 << slot
        return masks


_NUMBER = re.compile("[0-9]{1,9}")


def _name(job: int) -> str:
    return f"{_WORKLOAD}!{job}"


def _profile(job: int) -> str:
    return f"job{job}"


def _wrong(why: str) -> PeerError:
    return PeerError(f"the scheduler broke the protocol of Batsim: {why}", reason="wrong")
