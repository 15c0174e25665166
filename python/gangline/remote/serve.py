"""Defines `gangline.serve`, which lets a scheduler in another process make the decisions."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Literal, get_args

import msgspec

from gangline.errors import GanglineError, OptionError, PeerError
from gangline.policies.protocol import Label
from gangline.remote.channel import accept, check_timeout, listening, parse
from gangline.remote.messages import (
    COLUMNS,
    NAME,
    SECRET,
    VERSION,
    Answer,
    Hello,
    PlanMessage,
    encode,
    read_answer,
    read_hello,
)

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

    from gangline.policies.protocol import Plan
    from gangline.remote.channel import Address, Channel
    from gangline.runs.result import Result
    from gangline.runs.simulation import Simulation

__all__ = ["listen_address", "serve"]

# Our own choice: a plan that starts 100,000 jobs by name needs a third of this limit.
MESSAGE_BYTES_MAX = 16 * 2**20
# Our own choice: a scheduler that sends this many wrong messages in a row ignores the error
# replies.
REFUSALS_MAX = 100
_HELLO_S = 10.0  # Our own choice: a silent client must not block the scheduler for long.
_HELLO_BYTES = 65536
_LAST_WORDS_S = 1.0

_REFUSED = (
    # RecursionError comes from JSON with too many levels
    *(GanglineError, msgspec.MsgspecError, RecursionError),
    *(ValueError, TypeError, OverflowError),
)


def listen_address(listen: str, *, any_host: bool = False) -> Address:
    """Return the address to listen on; a public address is rejected unless `any_host` is set."""
    address = parse(listen, "listen")
    if not (address.is_local or any_host):
        message = (
            f"listen: {address} can be reached from other machines, and there is no password; "
            "use 127.0.0.1 or unix:PATH, or set `any_host`"
        )
        raise OptionError(message, field="listen", value=listen)
    return address


def serve(
    run: Simulation,
    listen: str = "127.0.0.1:0",
    *,
    knowledge: Literal["online", "remaining"] = "online",
    any_host: bool = False,
    timeout_s: float = 600.0,
    on_listening: Callable[[str], object] | None = None,
    on_turned_away: Callable[[str], object] | None = None,
) -> Result:
    r"""Let a scheduler in another process make the decisions of a run, from now to its end.

    One scheduler connects and speaks the protocol of docs/guides/socket.md, in the form of JSON
    lines.

    Parameters
    ----------
    run : Simulation
        The run. From this call on, it accepts only plans, as after `Simulation.apply`.
    listen : str, default "127.0.0.1:0"
        HOST:PORT or unix:PATH; for port 0, the system chooses a port.
    knowledge : str, default "online"
        "remaining" if the scheduler may read how much work jobs have left.
    any_host : bool, default False
        Whether `listen` may name an address that other machines can reach. There is no password.
    timeout_s : float, default 600
        Maximum number of seconds to wait for a connection, and for each message.
    on_listening : callable, optional
        Called once, with the address, when schedulers can connect.
    on_turned_away : callable, optional
        Called with the reason whenever a connecting scheduler is rejected. Another scheduler may
        then connect.

    Returns
    -------
    Result
        The result; it is byte for byte that of an in-process run with the same plans.

    Raises
    ------
    PeerError
        If no scheduler connects, or the scheduler disconnects, hangs, or sends 100 wrong messages
        in a row.
    StalledError
        If jobs wait and no future event can start them.
    OptionError
        If an option is wrong.
    OSError
        If the address cannot be used.

    Examples
    --------
    >>> import gangline as gl, json, socket, threading
    >>> def first_fit(address):
    ...     host, port = address.split(":")
    ...     with socket.create_connection((host, int(port))) as connection:
    ...         lines = connection.makefile("rw", newline="\n")
    ...         for line in lines:
    ...             message = json.loads(line)
    ...             if message["type"] == "hello":
    ...                 answer = {"type": "hello", "version": 1}
    ...             elif message["type"] == "decision":
    ...                 jobs = message["waiting"]["job"]
    ...                 actions = [{"do": "place", "job": job} for job in jobs]
    ...                 answer = {"type": "plan", "actions": actions}
    ...             else:
    ...                 continue
    ...             lines.write(json.dumps(answer) + "\n")
    ...             lines.flush()
    >>> threads = []
    >>> def start(address):
    ...     threads.append(threading.Thread(target=first_fit, args=[address]))
    ...     threads[0].start()
    >>> lab = gl.Cluster.homogeneous(servers=2, gpus=4)
    >>> run = gl.Simulation(lab, "synth:philly?jobs=20&seed=1&max_gpus=8")
    >>> gl.serve(run, on_listening=start).summary["finished"]
    20
    >>> threads[0].join()
    """
    if knowledge not in ("online", "remaining"):
        message = f'knowledge: expected "online" or "remaining", got {knowledge!r}'
        raise OptionError(message, field="knowledge", value=knowledge)
    check_timeout(timeout_s)
    with listening(listen_address(listen, any_host=any_host)) as (door, bound):
        if on_listening is not None:
            on_listening(str(bound))
        channel, wish = _greet(door, timeout_s, knowledge, on_turned_away)
    with channel:
        try:
            result = _Session(run, channel, wish, knowledge).drive()
        except KeyboardInterrupt:
            _last_words(channel, PeerError("the run was interrupted"))
            raise
        except GanglineError as error:
            _last_words(channel, error)
            raise
    return result


def _greet(
    door: socket.socket,
    timeout_s: float,
    knowledge: Literal["online", "remaining"],
    on_turned_away: Callable[[str], object] | None,
) -> tuple[Channel, Hello]:
    """Accept the first client that speaks the protocol, and reject those that come before it."""
    until = time.monotonic() + timeout_s
    while True:
        channel = accept(door, until, timeout_s)
        try:
            channel.send(encode("hello", protocol=NAME, version=VERSION, knowledge=knowledge))
            line = channel.line(_HELLO_BYTES, min(timeout_s, _HELLO_S))
            hello = read_hello(line)
            _check(hello, knowledge)
        except _REFUSED as error:
            _last_words(channel, error)
            channel.close()
            if on_turned_away is not None:
                on_turned_away(str(error))
        except BaseException:
            channel.close()
            raise
        else:
            return channel, hello


def _check(hello: Hello, knowledge: str) -> None:
    """Reject a different version, and columns that do not exist or must stay hidden."""
    if hello.version != VERSION:
        message = f"version: this gangline speaks version {VERSION}, not {hello.version}"
        raise PeerError(message, reason="wrong")
    for table, columns in hello.view.items():
        for column in columns:
            if column not in COLUMNS[table]:
                message = f"view.{table}: no column `{column}`"
                raise PeerError(message, reason="wrong")
            if column in SECRET and knowledge != "remaining":
                message = f"view.{table}: `{column}` needs a run with the knowledge `remaining`"
                raise PeerError(message, reason="wrong")


def _last_words(channel: Channel, error: BaseException) -> None:
    """Tell the scheduler why the run ended, if the scheduler is still connected."""
    try:
        channel.send(_error(error, is_fatal=True), _LAST_WORDS_S)
    except PeerError:
        return


_FACTS = ("job", "server", "rule", "tag", "field", "reason")


def _error(error: BaseException, *, is_fatal: bool) -> bytes:
    kind = type(error).__name__
    if not isinstance(error, GanglineError):  # invalid JSON, or a number beyond the limits
        kind = "MessageError"
    facts = {name: fact for name in _FACTS if (fact := getattr(error, name, None)) is not None}
    plain = {name: fact for name, fact in facts.items() if isinstance(fact, (int, str))}
    return encode("error", error=kind, message=str(error), fatal=is_fatal, facts=plain)


class _Session:
    """A scheduler and the run that it drives."""

    def __init__(
        self,
        run: Simulation,
        channel: Channel,
        hello: Hello,
        knowledge: Literal["online", "remaining"],
    ) -> None:
        self._run = run
        self._channel = channel
        self._wish = hello.view
        self._decisions = 0
        view = run.view
        self._channel.send(
            encode(
                "world",
                now_s=run.now_s,
                knowledge=knowledge,
                servers={
                    name: view.servers(name).tolist() for name in ("gpus", "gpu_type", "rack")
                },
                labels={name: view.labels(name) for name in get_args(Label)},
            )
        )

    def drive(self) -> Result:
        """Let the scheduler make all decisions of the run."""
        while self._run.advance() == "decision":
            self._decide()
        result = self._run.result()
        self._channel.send(
            encode("end", now_s=self._run.now_s, log_hash=result.log_hash, summary=result.summary)
        )
        return result

    def _decide(self) -> None:
        from gangline.policies.protocol import Plan

        reply, refusals = self._decision(), 0
        plan = Plan(self._run.view)
        while True:
            self._channel.send(reply)
            line = self._channel.line(MESSAGE_BYTES_MAX)
            try:
                answer = read_answer(line)
                done = _act(plan, answer)
                if isinstance(answer, PlanMessage):
                    self._apply(plan, is_steady=answer.steady)
                    return
                reply = encode("drafted", done=done, gpus_free=_free(plan))
            except _REFUSED as error:
                refusals += 1
                if refusals >= REFUSALS_MAX:
                    message = f"the scheduler sent {refusals} wrong messages in a row: {error}"
                    raise PeerError(message, reason="wrong") from error
                reply = _error(error, is_fatal=False)
                plan = Plan(self._run.view)

    def _apply(self, plan: Plan, *, is_steady: bool) -> None:
        from gangline.policies.protocol import STEADY

        self._run.apply((plan, STEADY) if is_steady else plan)
        self._decisions += 1

    def _decision(self) -> bytes:
        changes = self._run.changes
        lists = (
            *("started", "preempted", "moved", "retimed", "arrived", "finished", "requeued"),
            *("servers_up", "servers_down"),
        )
        arrived = changes.arrived
        return encode(
            "decision",
            decision=self._decisions,
            now_s=self._run.now_s,
            changes={
                **{name: getattr(changes, name).tolist() for name in lists},
                "parts_lost": changes.parts_lost,
                "timers": [tag for _, tag in changes.timers],
                "is_round": changes.is_round,
                "has_room": changes.has_room,
            },
            **{
                table: self._table(table, columns, arrived) for table, columns in self._wish.items()
            },
        )

    def _table(self, table: str, columns: list[str], arrived: Any) -> dict[str, Any]:
        view = self._run.view
        rows: Any = getattr(view, "waiting" if table == "arrived" else table)
        chosen = slice(None)
        if table == "arrived":
            chosen = rows.job.searchsorted(arrived)
        return {
            name: [view.name_of(job) for job in rows.job[chosen].tolist()]
            if name == "name"
            else rows(name)[chosen].tolist()
            for name in columns
        }


def _act(plan: Plan, answer: Answer) -> list[bool]:
    """Add actions to a plan; for each one that is tried, return whether it was accepted."""
    done = []
    for action in answer.actions:
        name = str(action.__struct_config__.tag)
        did: bool | None = getattr(plan, name)(**action.arguments())
        done.append(did is not False)
        if answer.stop_at_refusal and did is False:
            break
    return done


def _free(plan: Plan) -> list[int]:
    return [mask.bit_count() for mask in plan.free_mask.tolist()]
