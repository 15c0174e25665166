"""What a plan keeps: `queue_p95_s <= 3600`, on a key of the summary or a quantile over the jobs."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, NamedTuple

from gangline._formatting import did_you_mean
from gangline.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

__all__ = ["Target", "parse", "quantile_of", "value_of"]

_FORM = re.compile(r"\s*([A-Za-z]\w*)\s*(<=|>=)\s*(\S+)\s*")
_QUANTILE = re.compile(r"(jct|queue|wait|slowdown|ftf)_p([1-9]\d?)(_s)?")
_BY_CLOCK = ("wall_s", "solver_s", "decision_p50_us", "decision_p99_us", "decision_max_us")
# Summaries have these where they apply, so that a run without them does not tell their names.
_SOMETIMES = (
    "cost", "deadlines", "deadlines_met", "deadlines_dropped", "share_gpu_fraction", "xi_mean",
    "packing_gain", "shares_started", "shares_refused", "sub_batch_starts",
)  # fmt: skip


class Target(NamedTuple):
    """A bound on one number of a run."""

    key: str
    is_most: bool
    bound: float

    def keeps(self, value: float) -> bool:
        """Whether a value is within the bound; NaN is not."""
        return value <= self.bound if self.is_most else value >= self.bound

    def __str__(self) -> str:
        return f"{self.key} {'<=' if self.is_most else '>='} {self.bound:g}"


def parse(text: str) -> Target:
    """Read a target.

    Raises
    ------
    OptionError
        If it has another form, its key is unknown or depends on the clock of the machine, or the
        bound is no number.

    Examples
    --------
    >>> str(parse("queue_p95_s<=3600"))
    'queue_p95_s <= 3600'
    >>> parse("queue_p59_s<=3600").key  # any quantile of jct, queue, wait, slowdown and ftf
    'queue_p59_s'
    """
    found = _FORM.fullmatch(text)
    if found is None:
        raise _wrong(text, "KEY<=NUMBER or KEY>=NUMBER, such as queue_p95_s<=3600", text)
    key, sign, number = found.groups()
    try:
        bound = float(number)
    except ValueError:
        bound = math.nan
    if not math.isfinite(bound):
        raise _wrong(text, "a number after the sign, in the unit of the key", number)
    if key in _BY_CLOCK:
        raise _wrong(text, "a key that does not depend on the clock of this machine", key)
    if quantile_of(key) is None and key not in (known := _known_keys()):
        hint = did_you_mean(key, [*known, "queue_p95_s"])
        expected = "a key of the summary, or a quantile such as queue_p95_s"
        raise _wrong(text, expected, key, hint)
    return Target(key, sign == "<=", bound)


def quantile_of(key: str) -> tuple[str, float] | None:
    """Return the column of the jobs table and the share of a quantile's key; None if it is none.

    Examples
    --------
    >>> quantile_of("queue_p95_s"), quantile_of("ftf_p50"), quantile_of("ftf_p50_s")
    (('queue_s', 0.95), ('ftf', 0.5), None)
    """
    found = _QUANTILE.fullmatch(key)
    if found is None:
        return None
    column, percent, unit = found.groups()
    if (unit is None) != (column in ("slowdown", "ftf")):
        return None
    return f"{column}{unit or ''}", int(percent) / 100.0


def value_of(jobs: pa.Table, key: str) -> float:
    """Return a quantile over the jobs that have a value, by linear interpolation; NaN if none has.

    The definition is that of the summary's own quantiles (docs/concepts/metrics.md).
    """
    import numpy as np

    found = quantile_of(key)
    assert found is not None, key
    column, share = found
    values = jobs[column].to_numpy()
    values = values[~np.isnan(values)]
    return float(np.quantile(values, share)) if len(values) else math.nan


def _known_keys() -> Sequence[str]:
    """Return the keys of every summary, and those that some have; the clock's are left out."""
    from gangline.cluster import Cluster
    from gangline.simulate import simulate

    one = Cluster.homogeneous(servers=1, gpus=1)
    made = simulate(one, "synth:uniform?jobs=1&seed=0&max_gpus=1", "fifo")
    return [*(key for key in made.summary if key not in _BY_CLOCK), *_SOMETIMES]


def _wrong(text: str, expected: str, got: object, hint: str = "") -> OptionError:
    message = f"keep: {text}: expected {expected}, got {got!r}{hint}"
    return OptionError(message, field="keep", value=got)
