"""Converts phases to and from strings, for jobs whose rate changes with their progress."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

__all__ = [
    "EXPECTED",
    "factor_ranges",
    "parse_phases",
    "phase_classes",
    "phase_counts",
    "phases_text",
    "wrong_phases",
]

_MAX = 1024
_RELATIVE = (1e-6, 1e6)

Phase = tuple[float, float, float]
"""A phase: the progress at which it begins, its relative rate, and the relative size of a step."""

EXPECTED = (
    f"at most {_MAX} items progress:rate or progress:rate:size joined by `;`, not by commas, as in "
    f"0:1;0.3:1.6, with progress that begins at 0, rises and stays below 1, and rates and sizes "
    f"from {_RELATIVE[0]:g} to {_RELATIVE[1]:g}"
)
"""Description of a valid value of the column, for error messages."""

_NUMBER = r"\s*([+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?)\s*"
_ITEM = re.compile(f"{_NUMBER}:{_NUMBER}(?::{_NUMBER})?", re.ASCII)
_NO_CLASS = 2**32 - 1


def parse_phases(text: str) -> list[Phase] | None:
    """Return the start of each phase, its rate and its step size; None if the text is malformed.

    Examples
    --------
    >>> parse_phases("0:1;0.3:1.6:2")
    [(0.0, 1.0, 1.0), (0.3, 1.6, 2.0)]
    >>> parse_phases("  ")
    []
    >>> parse_phases("0.3:1.6") is None
    True
    """
    if not text.strip():
        return []
    items = [_ITEM.fullmatch(item) for item in text.split(";")]
    found = [
        (float(item[1]), float(item[2]), float(item[3] or 1)) for item in items if item is not None
    ]
    rises = all(first[0] < second[0] for first, second in pairwise(found))
    if len(found) < len(items) or not rises or len(found) > _MAX:
        return None
    if found[0][0] != 0.0 or found[-1][0] >= 1.0:
        return None
    least, greatest = _RELATIVE
    is_valid = all(least <= number <= greatest for _, *numbers in found for number in numbers)
    return found if is_valid else None


def phases_text(phases: Sequence[Phase]) -> str:
    """Return phases as a string, in the format of the `phases` column.

    Examples
    --------
    >>> phases_text([(0.0, 1.0, 1.0), (0.3, 1.6, 2.0)])
    '0.0:1.0:1.0;0.3:1.6:2.0'
    """
    return ";".join(":".join(map(repr, phase)) for phase in phases)


def wrong_phases(column: Any) -> npt.NDArray[np.bool_] | None:
    """Return a mask of the malformed rows in a text column; None for a column of another type."""
    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    if not (pa.types.is_string(kind) or pa.types.is_large_string(kind)):
        return None
    texts, codes = _coded(column)
    wrong = [text is not None and parse_phases(text) is None for text in texts]
    return np.asarray([*wrong, False], np.bool_)[codes]


def phase_classes(
    column: Any,
) -> tuple[npt.NDArray[np.uint32], list[list[Phase]]] | None:
    """Return the class of each job (2**32 - 1 = no phases), and the phases of each class.

    The result is None if no job has phases.
    """
    texts, codes = _coded(column)
    of_text = np.full(len(texts) + 1, _NO_CLASS, np.int64)
    found: list[list[Phase]] = []
    for code in np.unique(codes).tolist():
        phases = parse_phases(texts[code] or "") if code < len(texts) else None
        if phases:
            of_text[code] = len(found)
            found.append(phases)
    return (of_text[codes].astype(np.uint32), found) if found else None


def phase_counts(column: Any) -> npt.NDArray[np.int64]:
    """Return the number of phases of each job; 0 means no phases.

    Examples
    --------
    >>> phase_counts(pa.array(["0:1;0.3:1.6", None])).tolist()
    [2, 0]
    """
    texts, codes = _coded(column)
    return np.asarray([*(len(parse_phases(text or "") or ()) for text in texts), 0])[codes]


def factor_ranges(column: Any) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Return each job's smallest and largest rate relative to its mean rate; 1 without phases.

    Examples
    --------
    >>> slowest, fastest = factor_ranges(pa.array(["0:1;0.3:1.6", None]))
    >>> slowest.round(4).tolist(), fastest.round(4).tolist()
    ([0.7375, 1.0], [1.18, 1.0])
    """
    slowest, fastest = np.ones(len(column)), np.ones(len(column))
    found = phase_classes(column)
    if found is None:
        return slowest, fastest
    of_job, classes = found
    for code, phases in enumerate(classes):
        starts, rates, _ = np.asarray(phases).T
        factors = rates * (np.diff(starts, append=1.0) / rates).sum()
        slowest[of_job == code], fastest[of_job == code] = factors.min(), factors.max()
    return slowest, fastest


def _coded(column: Any) -> tuple[list[str | None], npt.NDArray[np.int64]]:
    """Return the distinct strings and each row's index in them; null has index `len(texts)`."""
    words = column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
    texts: list[str | None] = words.dictionary.to_pylist()
    return texts, words.indices.fill_null(len(texts)).to_numpy(zero_copy_only=False).astype(
        np.int64
    )
