"""Recognises job outcomes in the words that any simulator uses for them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from gangline.trace.jobs.schema import STATUS_WORDS

if TYPE_CHECKING:
    import numpy.typing as npt

    Bools = npt.NDArray[np.bool_]

__all__ = ["Fates", "fates", "reasons"]

_OURS = ("unfinished", "preempted", "moved", "retimed", "stopped")
_REASONS = ("finished", "preempted", "moved", "failed", "retimed", "stopped")
_MEANING = {**STATUS_WORDS, **dict.fromkeys(_OURS, "running"), "dropped": "killed"}
del _MEANING["unknown"]  # the word says nothing about the outcome
_OPEN = ("running", "unknown")  # `STATUS_WORDS` maps the words for waiting jobs to unknown


@dataclass(frozen=True)
class Fates:
    """For each row of a column, the meaning of its word.

    Attributes
    ----------
    finished : bool array
        Whether the word means that the job is finished.
    is_open : bool array
        Whether the word means that the job is still running or waiting.
    strange : bool array
        Whether the word is unknown or missing.
    words : dict of str to int
        Unknown words, most frequent first, and how often each occurs.
    """

    finished: Bools
    is_open: Bools
    strange: Bools
    words: dict[str, int]


def fates(labels: Any) -> Fates:
    """Interpret a dictionary array of words."""
    written = [str(word).strip() for word in labels.dictionary.to_pylist()]
    meaning = [_MEANING.get(word.lower()) for word in written]
    codes = labels.indices.fill_null(len(written)).to_numpy(zero_copy_only=False)

    def where(wanted: list[bool], *, empty: bool) -> Bools:
        found: Bools = np.asarray([*wanted, empty], dtype=np.bool_)[codes]
        return found

    unknown: Counter[str] = Counter()
    counts = np.bincount(codes, minlength=len(written) + 1).tolist()
    for word, found, count in zip([*written, ""], [*meaning, None], counts, strict=True):
        if found is None and count:
            unknown[f"`{word}`" if word else "(empty)"] += count
    return Fates(
        where([found == "finished" for found in meaning], empty=False),
        where([found in _OPEN for found in meaning], empty=False),
        where([found is None for found in meaning], empty=True),
        dict(unknown.most_common()),
    )


def reasons(labels: Any) -> npt.NDArray[np.str_]:
    """Translate a dictionary array of reasons into gangline's terms; "" = unknown."""
    written = [str(word).strip().lower() for word in labels.dictionary.to_pylist()]
    is_done = [_MEANING.get(word) == "finished" for word in written]
    ours = [
        "finished" if done else word if word in _REASONS else ""
        for word, done in zip(written, is_done, strict=True)
    ]
    codes = labels.indices.fill_null(len(written)).to_numpy(zero_copy_only=False)
    found: npt.NDArray[np.str_] = np.asarray([*ours, ""])[codes]
    return found
