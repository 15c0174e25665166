"""Defines the reasons for waiting: those that policies give, and those that tables show.

A policy declares its reasons next to its code; see `Reason` in rust/engine/src/watch.rs. The three
reasons defined here follow from the tables and the clock of a run. The states of the free GPUs do
not depend on the policy either. Reports and audits work with the tables of any scheduler, and
therefore use only the states.
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
    """A reason for waiting, as declared by its policy.

    Attributes
    ----------
    name : str
        The value in the column `cause`.
    sentence : str
        The sentence, with placeholders for the facts that a cause can name: {policy}, {others},
        {some}, {until}, {number}, {free}, {meanwhile}, {rule}, {when}.
    otherwise : str
        The sentence to use if the cause lacks the job, instant or number that `sentence` needs, or
        if too few GPUs were free; empty if `sentence` always applies.
    number : str
        The unit of the number that a cause gives: "gpus", "copies", "jobs", "percent", "tier",
        "words" or "".
    ends_when_free : bool
        Whether the reason ends as soon as enough GPUs are free.
    """

    name: str
    sentence: str
    otherwise: str = ""
    number: str = ""
    ends_when_free: bool = False

    def names(self, place: str) -> bool:
        """Return whether the sentence has a placeholder with this name."""
        return f"{{{place}}}" in self.sentence

    def naming(self, labels: Mapping[str, str]) -> Reason:
        """Return the reason with names filled in, such as the job's queue: `{"queue": "research"}`.

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
"""The policy gives no reason beyond what the tables show."""
NOT_ASKED = Reason("not asked", "the policy had made no decision yet: it decides {when}{meanwhile}")
"""The policy has made no decision since the job began to wait."""
ROUND = Reason("round", "enough GPUs had come free, and {policy} assigns them {when}")
"""GPUs have come free since the last decision, and the policy decides at round boundaries."""
OF_TABLES = {reason.name: reason for reason in (SILENT, NOT_ASKED, ROUND)}


class State(NamedTuple):
    """The state of the free GPUs at an instant at which a job waits, according to the tables.

    Attributes
    ----------
    name : str
        The value in the field `state` of an explanation.
    title : str
        Title of the state's column in a report.
    sentence : str
        The sentence that describes the state, in the past tense.
    meaning : str
        The definition of the state, for guides and legends.
    """

    name: str
    title: str
    sentence: str
    meaning: str

    @property
    def key(self) -> str:
        """The name of the state as used in identifiers."""
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
    "enough GPUs were free together, and the policy left them idle",
    "enough GPUs were free on as few servers as a gang of its size needs, and the policy left them "
    "idle",
)
STATES = (TOO_FEW, APART, TOGETHER)
"""The states; exactly one of them holds at each instant."""
HEAD_OF_LINE = State(
    "head-of-line",
    "Head-of-line blocked",
    "enough GPUs were free for it, but not for the job that had come first",
    "head-of-line blocking: the job that arrived first asked for more GPUs than were free, while "
    "the waiting job did not",
)
"""A special case of `APART` or `TOGETHER` that reports count separately."""
