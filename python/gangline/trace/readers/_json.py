"""Decodes the records of a JSON document at once, or one by one if that fails."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
import numpy as np

from gangline.files.faults import Faults
from gangline.files.jsontext import JsonFile, convert

if TYPE_CHECKING:
    import numpy.typing as npt

    from gangline.trace.jobs.normalise import Raw

_T = TypeVar("_T")


class Records:
    """The records of a document that could be decoded, and the faults in the other records."""

    def __init__(self, file: JsonFile) -> None:
        self.file = file
        self.faults = Faults()
        self.lost = 0
        self._places: npt.NDArray[np.int64] | None = None

    def salvage(self, items: list[Any], kind: type[_T]) -> list[_T]:
        """Convert the items one by one; record the items that do not fit the type."""
        good, places, wrong = convert(items, kind)
        for place, where, expected in wrong:
            self.faults.add(np.asarray([place]), where or None, expected)
        self.lost = len(wrong)
        self._places = np.asarray(places, dtype=np.int64)
        return good

    def places(self, rows: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return the positions in the document's array from which these rows were read."""
        return rows if self._places is None else self._places[rows]

    def attach(self, raw: Raw) -> None:
        """Set up a Raw so that its errors contain key paths."""
        raw.faults = self.faults
        raw.lost = self.lost
        raw.records = self.places
        raw.locate = self.file.locate


def decode_list(file: JsonFile, kind: type[_T]) -> tuple[list[_T], Records]:
    """Decode an array of records."""
    records = Records(file)
    try:
        return file.decode(list[kind]), records  # type: ignore[valid-type]
    except msgspec.ValidationError:
        pass
    try:
        items = file.decode(list[Any])
    except msgspec.ValidationError:
        raise file.shape_error(list[Any]) from None
    return records.salvage(items, kind), records
