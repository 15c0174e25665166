"""Checks and writes the messages of gangline's protocol.

Each message is a JSON object on one line. docs/guides/socket.md describes the messages.
"""

from __future__ import annotations

import inspect
from typing import Annotated, Any, Literal, TypeAlias

import msgspec

from gangline.policies.tables import Parts, Residents, RunningJobs, Servers, WaitingJobs

__all__ = [
    "COLUMNS",
    "NAME",
    "SECRET",
    "VERSION",
    "Action",
    "Answer",
    "Draft",
    "Hello",
    "PlanMessage",
    "encode",
    "read_answer",
    "read_hello",
]

NAME = "gangline"
VERSION = 1

Table: TypeAlias = Literal["arrived", "waiting", "running", "servers", "parts", "residents"]


def _columns(kind: type) -> frozenset[str]:
    found = inspect.getmembers(kind, lambda member: isinstance(member, property))
    return frozenset(name for name, _ in found)


_OF_JOBS = frozenset({"name"})
COLUMNS: dict[Table, frozenset[str]] = {
    "arrived": _columns(WaitingJobs) | _OF_JOBS,
    "waiting": _columns(WaitingJobs) | _OF_JOBS,
    "running": _columns(RunningJobs) | _OF_JOBS,
    "servers": _columns(Servers),
    "parts": _columns(Parts),
    "residents": _columns(Residents),
}
"""For each table, the columns that a scheduler may ask for."""

SECRET = frozenset({"remaining_s", "work_remaining"})
"""Additional columns for schedulers that declare the knowledge `remaining`."""

_Number = Annotated[int, msgspec.Meta(ge=0, lt=2**32)]
_Counts: TypeAlias = dict[Annotated[str, msgspec.Meta(pattern="^[0-9]{1,10}$")], int]


class _Message(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """The base class of messages; unknown fields are rejected: they may be typing errors."""


class Hello(_Message, tag="hello", kw_only=True):
    """A scheduler's first message: the version, and the columns that it wants to see."""

    version: int
    view: dict[Table, list[str]] = msgspec.field(
        default_factory=lambda: {
            "waiting": ["job", "gpus"],
            "running": ["job", "gpus"],
            "servers": ["gpus_free"],
        }
    )


class Action(_Message, tag_field="do", kw_only=True):
    """An action; its fields are the arguments of the `gangline.Plan` method of the same name."""

    def arguments(self) -> dict[str, Any]:
        """Return the fields that the scheduler has set, as keyword arguments."""
        return {
            name: value
            for name in self.__struct_fields__
            if (value := getattr(self, name)) is not msgspec.UNSET
        }


class _Terms(Action, kw_only=True):
    sub_batch: _Number | msgspec.UnsetType = msgspec.UNSET
    overhead_s: float | msgspec.UnsetType = msgspec.UNSET
    quota: float | msgspec.UnsetType | None = msgspec.UNSET
    accum: _Number | msgspec.UnsetType = msgspec.UNSET

    def arguments(self) -> dict[str, Any]:
        found = super().arguments()
        if self.quota is None:  # JSON has no infinity
            found["quota"] = float("inf")
        return found


class _Places(_Terms, kw_only=True):
    job: _Number
    gpus: _Counts | msgspec.UnsetType = msgspec.UNSET
    masks: _Counts | msgspec.UnsetType = msgspec.UNSET
    part: _Number = 0

    def arguments(self) -> dict[str, Any]:
        found = super().arguments()
        for name in ("gpus", "masks"):
            if name in found:
                found[name] = {int(server): value for server, value in found[name].items()}
        return found


class Place(_Terms, tag="place", kw_only=True):
    """The action `Plan.place`."""

    job: _Number
    rule: str = "consolidate"
    types: list[_Number] | msgspec.UnsetType = msgspec.UNSET
    gpus: _Number | msgspec.UnsetType = msgspec.UNSET
    params: dict[str, str | float | bool] = {}

    def arguments(self) -> dict[str, Any]:
        """Return the fields that are set, and the parameters of the placement rule."""
        found = super().arguments()
        params = found.pop("params")
        if twice := sorted(params.keys() & set(self.__struct_fields__)):
            raise ValueError(f"params: `{twice[0]}` is a field of the action itself")
        return {**found, **params}


class Start(_Places, tag="start", kw_only=True):
    """The action `Plan.start`."""


class Move(_Places, tag="move", kw_only=True):
    """The action `Plan.move`."""


class Keep(_Terms, tag="keep", kw_only=True):
    """The action `Plan.keep`."""

    job: _Number
    part: _Number = 0


class Preempt(Action, tag="preempt", kw_only=True):
    """The action `Plan.preempt`."""

    job: _Number
    part: _Number = 0


class Release(Action, tag="release", kw_only=True):
    """The action `Plan.release`."""

    job: _Number


class Restore(Action, tag="restore", kw_only=True):
    """The action `Plan.restore`."""

    job: _Number


class Limit(Action, tag="limit", kw_only=True):
    """The action `Plan.limit`."""

    job: _Number
    iterations: float


class WakeAt(Action, tag="wake_at", kw_only=True):
    """The action `Plan.wake_at`."""

    time_s: float
    tag: _Number = 0


class Cancel(Action, tag="cancel", kw_only=True):
    """The action `Plan.cancel`."""

    tag: _Number


_Actions: TypeAlias = list[
    Place | Start | Move | Keep | Preempt | Release | Restore | Limit | WakeAt | Cancel
]


class Draft(_Message, tag="draft", kw_only=True):
    """A message that adds actions to the plan without carrying it out yet."""

    actions: _Actions = []
    stop_at_refusal: bool = False


class PlanMessage(Draft, tag="plan", kw_only=True):
    """A message that adds actions to the plan and has it carried out."""

    steady: bool = False


Answer: TypeAlias = Draft | PlanMessage

_HELLO = msgspec.json.Decoder(Hello)
_ANSWER = msgspec.json.Decoder(Draft | PlanMessage)
_ENCODER = msgspec.json.Encoder()


def read_hello(line: bytes) -> Hello:
    """Parse and check a scheduler's first message."""
    return _HELLO.decode(line)


def read_answer(line: bytes) -> Answer:
    """Parse and check a scheduler's reply to a decision."""
    answer: Answer = _ANSWER.decode(line)
    return answer


def encode(kind: str, **fields: object) -> bytes:
    r"""Write a message as a line; non-finite numbers become null.

    Examples
    --------
    >>> encode("end", summary={"ftf_mean": float("nan")})
    b'{"type":"end","summary":{"ftf_mean":null}}\n'
    """
    return _ENCODER.encode({"type": kind, **fields}) + b"\n"
