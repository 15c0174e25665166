"""Reasons for which jobs wait: a name, and the sentence that tells it.

A policy declares its reasons beside its code (`Reason` in rust/engine/src/watch.rs); the three here
are known from the tables and the clock of a run alone.
"""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["NOT_ASKED", "OF_TABLES", "ROUND", "SILENT", "Reason"]


class Reason(NamedTuple):
    """A reason, as it was declared.

    Attributes
    ----------
    name : str
        As the column `cause` has it.
    sentence : str
        With places for what causes name: {policy}, {others}, {some}, {until}, {number}, {free},
        {meanwhile}, {rule}, {when}.
    otherwise : str
        The sentence of causes that lack the job, instant or number which the first one names, or
        of times when too few GPUs were free; empty if it is the same.
    number : str
        What the number of a cause counts: "gpus", "copies", "percent", "tier", "words" or "".
    ends_when_free : bool
        Whether the job no longer waits for it once enough GPUs are free.
    """

    name: str
    sentence: str
    otherwise: str = ""
    number: str = ""
    ends_when_free: bool = False

    def names(self, place: str) -> bool:
        """Whether the sentence has a place of that name."""
        return f"{{{place}}}" in self.sentence


SILENT = Reason("", "{free}{left}", ends_when_free=True)
"""The policy does not say more than the tables do."""
NOT_ASKED = Reason("not asked", "the policy had not been asked: it decides {when}{meanwhile}")
"""The policy has made no decision since the job began to wait."""
ROUND = Reason("round", "enough GPUs had come free, and {policy} gives them out {when}")
"""GPUs have come free since the last decision, and the policy decides at round boundaries."""
OF_TABLES = {reason.name: reason for reason in (SILENT, NOT_ASKED, ROUND)}
