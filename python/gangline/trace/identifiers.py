"""Unique job identifiers: kept, numbered, or made unique by a suffix. Whole columns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Callable


def identifiers(
    columns: dict[str, Any], rows: int, are_distinct: Callable[[], bool], notes: dict[str, int]
) -> Any:
    """Return the job ids of rows in the order of arrival.

    Without a column they are "0", "1", ...; the second, third, ... of equal ids get "#2", "#3", ...
    and are counted in `notes`. `are_distinct` returns what `surely_distinct` found.
    """
    if "job_id" not in columns:
        return pa.array(np.arange(rows)).cast(pa.string())
    ids = columns["job_id"]
    if are_distinct() or len(ids.unique()) == len(ids):
        return ids
    unique, renamed = _suffixed(ids)
    notes["duplicate_id"] = renamed
    return unique


def surely_distinct(ids: Any) -> bool:
    """Whether all texts are seen to be different; false leaves it open."""
    from gangline import _core

    _, offsets, data = ids.buffers()
    places = np.frombuffer(offsets, np.int32)[ids.offset : ids.offset + len(ids) + 1]
    return _core.surely_distinct(places, np.frombuffer(data or b"", np.uint8))


def _suffixed(ids: Any) -> tuple[Any, int]:
    import pyarrow.compute as pc

    codes = np.asarray(ids.dictionary_encode().indices.to_numpy())
    order = np.argsort(codes, kind="stable")
    ordered = codes[order]
    starts = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]])
    first = np.repeat(starts, np.diff(np.r_[starts, len(ordered)]))
    rank = np.empty(len(codes), dtype=np.int64)
    rank[order] = np.arange(len(codes)) - first  # 0 for the first of its name
    again = rank > 0
    suffix = pa.array(rank + 1).cast(pa.string())
    names = pc.if_else(pa.array(again), pc.binary_join_element_wise(ids, suffix, "#"), ids)
    if len(names.unique()) < len(names):
        names = _one_by_one(ids)  # a made name stood in the file already
    return names, int(again.sum())


def _one_by_one(ids: Any) -> Any:
    names = ids.to_pylist()
    taken = set(names)
    seen: dict[str, int] = {}
    for i, name in enumerate(names):
        count = seen.get(name, 0) + 1
        if count > 1:
            while f"{name}#{count}" in taken:
                count += 1
            names[i] = f"{name}#{count}"
            taken.add(names[i])
        seen[name] = count
    return pa.array(names, type=pa.string())
