"""Times of day in traces: to seconds, with or without a zone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gangline.errors import TraceError
from gangline.trace.normalise import numbers, valid

if TYPE_CHECKING:
    import numpy.typing as npt

_MICROSECONDS = 1e6


def seconds(times: Any, epoch_us: int) -> npt.NDArray[np.float64]:
    """Return seconds since `epoch_us`; NaN where unknown."""
    microseconds = times.cast(pa.int64())
    if microseconds.null_count == 0:
        return (numbers(microseconds) - epoch_us) / _MICROSECONDS
    known = numbers(microseconds.fill_null(epoch_us))
    return np.where(valid(times), (known - epoch_us) / _MICROSECONDS, np.nan)


def earliest(times: Any) -> int:
    """Return the earliest time as microseconds since 1970; 0 if none is known."""
    least = pc.min(times.cast(pa.int64())).as_py()
    return 0 if least is None else int(least)


def text(epoch_us: int) -> str:
    """Return an epoch as text."""
    return str(np.datetime64(epoch_us, "us")).removesuffix(".000000")


def column(values: npt.NDArray[np.float64]) -> Any:
    """Return seconds as an Arrow column; NaN becomes null."""
    return pa.array(values, from_pandas=bool(np.isnan(values).any()))


class Local:
    """Local times made comparable.

    Parameters
    ----------
    zone : str or None
        Name in the tz database; None leaves the times as the clock on the wall showed them.
    path : str
        For messages.

    Attributes
    ----------
    repeated : int
        Times that occur twice, at the end of summer time; the first is taken.
    """

    def __init__(self, zone: str | None, path: str) -> None:
        self.zone = zone
        self._path = path
        self.repeated = 0

    def convert(self, times: Any) -> tuple[Any, npt.NDArray[np.bool_]]:
        """Return the times in UTC, null where there is no such time, and those rows."""
        never = np.zeros(len(times), dtype=np.bool_)
        if self.zone is None:
            return times, never
        try:
            early, late = (
                pc.assume_timezone(times, self.zone, ambiguous=which, nonexistent=which)
                for which in ("earliest", "latest")
            )
            same = pc.equal(pc.local_timestamp(early), times)
        except (pa.ArrowInvalid, pa.ArrowKeyError):
            raise TraceError(
                f"{self._path}: zone: expected a name of the tz database such as "
                f'"America/Los_Angeles", got "{self.zone}"',
                path=self._path,
                column="zone",
                value=self.zone,
            ) from None
        never = ~numbers(same.fill_null(fill_value=True)).astype(np.bool_)
        differs = numbers(pc.not_equal(early, late).fill_null(fill_value=False)).astype(np.bool_)
        self.repeated += int((differs & ~never).sum())
        moment = early.cast(pa.timestamp("us"))
        return pc.if_else(pa.array(never), pa.scalar(None, moment.type), moment), never
