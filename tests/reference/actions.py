"""Defines the actions of a plan."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .elastic import Config
    from .world import Gpu

Tag = tuple[Any, ...]


@dataclass(frozen=True, kw_only=True)
class Terms:
    """The terms of a part: by default the full batch and the overhead of the run.

    No configuration of an elastic job means its traced total batch. With a quota it does at most
    this much more work, then holds its GPUs idle.
    """

    part: int = 0
    sub_batch: int | None = None
    config: Config | None = None
    overhead_ns: int | None = None
    quota: float | None = None


@dataclass(frozen=True)
class Start(Terms):
    """Give a part its GPUs."""

    job: int
    gpus: tuple[Gpu, ...]


@dataclass(frozen=True)
class Preempt:
    """Take a part's GPUs away."""

    job: int
    _: KW_ONLY
    part: int = 0


@dataclass(frozen=True)
class Move(Terms):
    """Move a part to other GPUs; a move to its own GPUs is the same as Keep."""

    job: int
    gpus: tuple[Gpu, ...]


@dataclass(frozen=True)
class Keep(Terms):
    """Change a part on its GPUs: an overhead pauses it, and its work so far is safe."""

    job: int


Action = Start | Preempt | Move | Keep


@dataclass
class Plan:
    """The actions of a decision."""

    actions: list[Action] = field(default_factory=list)
    wake: dict[Tag, int] = field(default_factory=dict)
    cancel: list[Tag] = field(default_factory=list)
    steady: bool = False
