"""What a run recorded of the jobs that it watched."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from gangline import _core

Row: TypeAlias = tuple[float, "str | None", int, float]
"""Instant, cause, number, until when."""

__all__ = ["Row", "Watched"]


class Watched(NamedTuple):
    """What a run recorded of the jobs that it watched.

    Attributes
    ----------
    said : dict of int to rows of (time_s, cause, number, until_s)
        By row of the trace: what the policy said, sorted by time. The number is another job, GPUs
        or a tier, as the cause has it.
    types : dict of int to list of int
        By row of the trace: GPU types that the job can use.
    mixes_types : bool
        Whether a gang may have GPUs of several types.
    outages : list of (server, down_s, up_s)
        When servers were away.
    round_s : float
        Length of a round; NaN for a policy without.
    """

    said: dict[int, list[Row]]
    types: dict[int, list[int]]
    mixes_types: bool
    outages: list[tuple[int, float, float]]
    round_s: float

    @classmethod
    def of(cls, output: _core.RunOutput) -> Watched:
        """Take it out of the output of a run."""
        capacity, usable, mixes, round_s = output.watched()
        said: dict[int, list[Row]] = {job: [] for job, _ in usable}
        for time_s, job, cause, number, until_s in output.causes():
            said[job].append((time_s, cause, number, until_s))
        types = {job: [at for at in range(64) if mask >> at & 1] for job, mask in usable}
        down: dict[int, float] = {}
        outages = []
        for time_s, server, is_up in capacity:
            if not is_up:
                down[server] = time_s
            elif server in down:
                outages.append((server, down.pop(server), time_s))
        outages += [(server, time_s, math.inf) for server, time_s in down.items()]
        return cls(said, types, mixes, outages, math.nan if round_s is None else round_s)
