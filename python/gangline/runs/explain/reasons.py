"""The reasons of waiting: those of policies, and those that follow from the tables alone.

A policy declares its reasons next to its code (`Reason` in rust/engine/src/watch.rs). The three
reasons here follow from the tables and the clock of a run. The states need no policy either, so
reports and audits, which read tables of any scheduler, use only states.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "APART",
    "HEAD_OF_LINE",
    "NOT_ASKED",
    "OF_TABLES",
    "ROUND",
    "SILENT",
    "STATES",
    "TOGETHER",
    "TOO_FEW",
    "Reason",
    "State",
]


class Reason(NamedTuple):
    """A reason, as it was declared.

    Attributes
    ----------
    name : str
        The value in the column `cause`.
    sentence : str
        The sentence, with placeholders for what causes name: {policy}, {others}, {some}, {until},
        {number}, {free}, {meanwhile}, {rule}, {when}.
    otherwise : str
        The sentence for causes that lack the job, instant or number in the first sentence, or for
        times when too few GPUs were free; empty if it is the same.
    number : str
        The unit of the number of a cause: "gpus", "copies", "percent", "tier", "words" or "".
    ends_when_free : bool
        Whether the job no longer waits for it once enough GPUs are free.
    """

    name: str
    sentence: str
    otherwise: str = ""
    number: str = ""
    ends_when_free: bool = False

    def names(self, place: str) -> bool:
        """Return whether the sentence has a placeholder of that name."""
        return f"{{{place}}}" in self.sentence

    def naming(self, labels: Mapping[str, str]) -> Reason:
        """Return the reason with names for things of the job, such as `{"queue": "research"}`.

        Examples
        --------
        >>> Reason("limit", "its queue held {number}").naming({"queue": "research"}).sentence
        'its queue `research` held {number}'
        """
        sentence, otherwise = self.sentence, self.otherwise
        for what, name in labels.items():
            known = f"its {what} `{name}`".replace("{", "{{").replace("}", "}}")
            sentence = sentence.replace(f"its {what}", known)
            otherwise = otherwise.replace(f"its {what}", known)
        return self._replace(sentence=sentence, otherwise=otherwise)


SILENT = Reason("", "{free}{left}", ends_when_free=True)
"""The policy does not say more than the tables do."""
NOT_ASKED = Reason("not asked", "the policy had not been asked: it decides {when}{meanwhile}")
"""The policy has made no decision since the job began to wait."""
ROUND = Reason("round", "enough GPUs had come free, and {policy} gives them out {when}")
"""GPUs have come free since the last decision, and the policy decides at round boundaries."""
OF_TABLES = {reason.name: reason for reason in (SILENT, NOT_ASKED, ROUND)}


class State(NamedTuple):
    """The facts in the tables of a run about an instant at which a job waits.

    Attributes
    ----------
    name : str
        Its value in the field `state` of an explanation.
    title : str
        Title of its column in a report.
    sentence : str
        The sentence, in the past tense.
    meaning : str
        Its definition, for guides and legends.
    """

    name: str
    title: str
    sentence: str
    meaning: str

    @property
    def key(self) -> str:
        """The name of the state in identifiers."""
        return self.name.replace(" ", "_").replace("-", "_")


TOO_FEW = State(
    "too few",
    "GPUs not free",
    "too few GPUs were free",
    "other jobs held them, or servers were down: fewer of any one type were free than it needs",
)
APART = State(
    "apart",
    "Free GPUs apart",
    "enough GPUs were free, but on too many servers",
    "enough GPUs were free, but on more servers than a gang of its size needs",
)
TOGETHER = State(
    "together",
    "Free GPUs together",
    "enough GPUs were free together, and the policy left them",
    "enough GPUs were free on as few servers as a gang of its size needs, and the policy left them",
)
STATES = (TOO_FEW, APART, TOGETHER)
"""Exactly one of these states holds at each moment."""
HEAD_OF_LINE = State(
    "head-of-line",
    "Head-of-line blocked",
    "enough GPUs were free for it, but not for the job that had come first",
    "head-of-line blocking: the job that had come first asked for more GPUs than were free, the "
    "waiting job for no more",
)
"""A case of `APART` or `TOGETHER`, which reports tell apart from these."""
