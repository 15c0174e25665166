"""What a run recorded of the jobs that it watched."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from gangline import _core

Row: TypeAlias = tuple[
    float, "str | None", "int | None", "int | None", "int | None", float, "str | None"
]
"""Instant, cause, other job, GPUs that it held, number, until when, words of a policy in Python."""

__all__ = ["Row", "Watched"]


class Watched(NamedTuple):
    """What a run recorded of the jobs that it watched.

    Attributes
    ----------
    said : dict of int to list of Row
        By row of the trace: what the policy said, sorted by time. The number is GPUs, a tier,
        copies or percent, as the cause has it.
    types : dict of int to list of int
        By row of the trace: GPU types that the job can use.
    fewest : dict of int to int
        By row of the trace: the fewest GPUs that the job may get.
    mixes_types : bool
        Whether a gang may have GPUs of several types.
    outages : list of (server, down_s, up_s)
        When servers were away.
    round_s : float
        Length of a round; NaN for a policy without.
    """

    said: dict[int, list[Row]]
    types: dict[int, list[int]]
    fewest: dict[int, int]
    mixes_types: bool
    outages: list[tuple[int, float, float]]
    round_s: float

    @classmethod
    def of(cls, output: _core.RunOutput) -> Watched:
        """Take it out of the output of a run."""
        capacity, usable, mixes, round_s = output.watched()
        said: dict[int, list[Row]] = {job: [] for job, _, _ in usable}
        for row in output.causes():
            said[row[1]].append((row[0], *row[2:]))
        types = {job: [at for at in range(64) if mask >> at & 1] for job, mask, _ in usable}
        fewest = {job: gpus for job, _, gpus in usable}
        down: dict[int, float] = {}
        outages = []
        for time_s, server, is_up in capacity:
            if not is_up:
                down[server] = time_s
            elif server in down:
                outages.append((server, down.pop(server), time_s))
        outages += [(server, time_s, math.inf) for server, time_s in down.items()]
        return cls(said, types, fewest, mixes, outages, math.nan if round_s is None else round_s)
