"""Helps real trainers to divide a round's steps among copies and to merge their parameters.

HadarE trains copies of one job on different nodes at the same time. Before a round, `divide_steps`
gives each copy a number of training steps, so that all copies finish together. After the round,
`merge_parameters` averages the copies' parameters, weighted by the steps that each has done. Both
are pure functions of numpy arrays and know nothing of the simulator. They follow our interpretation
of HadarE (arXiv 2503.10918).

Examples
--------
A model with two weights on two nodes, of which the second is three times as fast:

>>> import numpy as np
>>> from gangline import hadare
>>> hadare.divide_steps(4, rates=[1.0, 3.0], window_s=60.0).tolist()
[1, 3]
>>> trained = [{"w": np.array([1.0, 2.0])}, {"w": np.array([3.0, 6.0])}]
>>> hadare.merge_parameters(trained, steps=[1, 3])["w"].tolist()
[2.5, 5.0]
"""

from __future__ import annotations

import math
import operator
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Literal

from gangline.errors import MergeError, PolicyError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import numpy as np
    import numpy.typing as npt

    Array = npt.NDArray[np.generic]
    Parameters = Mapping[str, npt.NDArray[np.generic]]

__all__ = ["divide_steps", "merge_parameters"]

_STEPS_MAX = 2**63 - 1
_BLOCK = 1 << 16  # the number of elements in a block; its float64 copies fit in the cache


def divide_steps(
    remaining: int, rates: Sequence[float] | npt.NDArray[np.float64], window_s: float
) -> npt.NDArray[np.int64]:
    """Divide training steps among copies of different speeds, so that they stop together.

    A copy has time for B = floor(rate x window) steps in the window. If the job needs the B steps
    of all copies, each copy gets B steps. Otherwise, the remaining steps are divided in proportion
    to the rates and rounded by largest remainders. No copy gets more than B steps.

    Parameters
    ----------
    remaining : int
        Steps that the job still needs, 0 or more.
    rates : float array, shape (copies,)
        Steps per second of each copy, finite and at least 0.
    window_s : float
        Seconds for which the copies can train: the length of the round minus its overhead; at least
        0.

    Returns
    -------
    int64 array, shape (copies,)
        Steps of each copy. They add up to exactly `min(remaining, sum of B)`, and equal inputs give
        equal outputs.

    Raises
    ------
    PolicyError
        A value is outside the ranges above; `field` names the argument.

    Notes
    -----
    Source: our interpretation of HadarE (arXiv 2503.10918). The quotients are exact fractions, not
    floats, so that large numbers of steps are divided without rounding errors.

    Examples
    --------
    >>> divide_steps(1000, [3.0, 3.0, 1.0], window_s=345.0)
    array([429, 428, 143])
    >>> divide_steps(10_000, [10, 5, 2, 2, 1], window_s=345.0)  # a full round: 3,100 are left
    array([3450, 1725,  690,  690,  345])
    """
    import numpy as np

    wanted = _whole("remaining", remaining)
    speeds = np.asarray(rates, dtype=np.float64)
    if speeds.ndim != 1:
        raise _refused("rates", rates, "a list of numbers, one per copy")
    if not (np.isfinite(speeds) & (speeds >= 0)).all():
        raise _refused("rates", rates, "finite numbers of at least 0")
    window = float(window_s)
    if not (math.isfinite(window) and window >= 0):
        raise _refused("window_s", window_s, "a finite number of seconds, at least 0")
    times = [speed * window for speed in speeds.tolist()]
    # A copy may have time for more steps than remain, even for infinitely many. The exact number
    # then does not matter.
    room = [math.floor(most) if most <= wanted else wanted + 1 for most in times]
    if sum(room) <= wanted:
        return np.array(room, dtype=np.int64)
    exact = [Fraction(speed) for speed in speeds.tolist()]
    total = sum(exact)
    shares = [wanted * speed / total for speed in exact]
    steps = [min(math.floor(share), most) for share, most in zip(shares, room, strict=True)]
    order = sorted(range(len(steps)), key=lambda k: (steps[k] - shares[k], k))
    left = wanted - sum(steps)
    while left > 0:
        for k in order:
            if left > 0 and steps[k] < room[k]:
                steps[k] += 1
                left -= 1
    return np.array(steps, dtype=np.int64)


def merge_parameters(
    params: Sequence[Parameters],
    steps: Sequence[int] | npt.NDArray[np.int64],
    *,
    integer: Literal["largest", "equal"] = "largest",
    allow_nonfinite: bool = False,
) -> dict[str, Array]:
    """Average the parameters of copies, weighted by the training steps that each has done.

    Float and complex arrays are added up in float64 (complex128) in the order of the copies, and
    the result is rounded to their own dtype. The result never lies outside the range of the copies'
    values. A copy without steps is left out. If only one copy took steps, its arrays are returned
    unchanged.

    Parameters
    ----------
    params : sequence of dict
        Parameters of each copy by name; names, shapes and dtypes must be the same in all copies.
        They are never changed.
    steps : int array, shape (copies,)
        Training steps that each copy has done since the last merge: 0 or more, and not all 0.
    integer : "largest" or "equal"
        Rule for integer and boolean arrays (counters): take those of the first copy with the most
        steps, or require that all are equal.
    allow_nonfinite : bool
        Whether to average NaN and infinity by numpy's rules instead of raising an error.

    Returns
    -------
    dict of str to array
        New arrays by name, in the first copy's order.

    Raises
    ------
    MergeError
        There is nothing to merge, the copies differ in names, shapes or dtypes, an array is neither
        numeric nor boolean, counters differ with `integer="equal"`, or a value is not finite.
        `name` and `copy` say where the problem is, and `why` describes it.

    Notes
    -----
    Source: our interpretation of HadarE (arXiv 2503.10918). The weight of a copy is its number of
    steps divided by the total. The arrays are processed in small blocks, so hardly any memory is
    needed beyond the result.

    Examples
    --------
    >>> import numpy as np
    >>> slow = {"w": np.array([1.0, 2.0]), "epoch": np.array(7)}
    >>> fast = {"w": np.array([3.0, 6.0]), "epoch": np.array(9)}
    >>> merged = merge_parameters([slow, fast], steps=[1, 3])
    >>> merged["w"], int(merged["epoch"])
    (array([2.5, 5. ]), 9)
    """
    import numpy as np

    if integer not in ("largest", "equal"):
        raise MergeError(f'integer: expected "largest" or "equal", got {integer!r}', why="integer")
    arrays = [{name: np.asarray(value) for name, value in copy.items()} for copy in params]
    counts = _counts(steps, len(arrays))
    for k, copy in enumerate(arrays):
        _check_alike(arrays[0], copy, k)
    used = [k for k, count in enumerate(counts) if count > 0]
    # The counts are Python integers, so their sum cannot overflow.
    weights = [counts[k] / sum(counts) for k in used]
    most = max(used, key=lambda k: (counts[k], -k))
    merged: dict[str, Array] = {}
    for name in arrays[0]:
        parts = [arrays[k][name] for k in used]
        if _is_inexact(parts[0].dtype):
            if not allow_nonfinite:
                _check_finite(name, parts, used)
            merged[name] = parts[0].copy() if len(used) == 1 else _average(parts, weights)
        else:
            if integer == "equal":
                _check_equal(name, parts, used)
            merged[name] = arrays[most][name].copy()
    return merged


def _refused(field: str, value: object, expected: str) -> PolicyError:
    return PolicyError(f"{field}: expected {expected}, got {value!r}", field=field, value=value)


def _whole(field: str, value: object) -> int:
    try:
        number = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        number = -1
    if not 0 <= number <= _STEPS_MAX:
        raise _refused(field, value, "a whole number of steps from 0 to 2**63 - 1")
    return number


def _counts(steps: Sequence[int] | npt.NDArray[np.int64], copies: int) -> list[int]:
    """Return the number of steps of each copy, after checking them."""
    counts = []
    for k, value in enumerate(steps):
        try:
            count = operator.index(value)
        except TypeError:
            count = -1
        if count < 0:
            why = f"expected a whole number of steps of at least 0, got {value!r}"
            raise MergeError(f"steps of copy {k}: {why}", copy=k, why=why)
        counts.append(count)
    if len(counts) != copies:
        why = f"{copies} copies have parameters and {len(counts)} have steps"
        raise MergeError(f"{why}: give one number of steps per copy", why=why)
    if not sum(counts):
        why = "no copy has done a step" if counts else "there are no copies"
        raise MergeError(f"{why}: there is nothing to merge", why=why)
    return counts


def _check_alike(first: Mapping[str, Array], copy: Mapping[str, Array], k: int) -> None:
    """Check that a copy has the same names, shapes and dtypes as the first copy."""
    for name in [*first, *copy]:
        if name not in first or name not in copy:
            why = f"copy {k} has an array that copy 0 lacks"
            if name not in copy:
                why = f"copy 0 has an array that copy {k} lacks"
            raise _broken(name, k, why)
        mine, theirs = copy[name], first[name]
        if mine.shape != theirs.shape:
            raise _broken(name, k, f"shape {mine.shape} in copy {k}, {theirs.shape} in copy 0")
        if mine.dtype != theirs.dtype:
            raise _broken(name, k, f"dtype {mine.dtype} in copy {k}, {theirs.dtype} in copy 0")
        if not _is_inexact(mine.dtype) and mine.dtype.kind not in "iub":
            raise _broken(name, k, f"dtype {mine.dtype}: only numbers and booleans can be merged")


def _broken(name: str, copy: int, why: str) -> MergeError:
    return MergeError(f"parameter `{name}`: {why}", name=name, copy=copy, why=why)


def _is_inexact(dtype: np.dtype[Any]) -> bool:
    """Return whether a dtype is averaged: floats, complex numbers, and types such as bfloat16."""
    import numpy as np

    own = dtype.kind == "V" and dtype.names is None and dtype.subdtype is None
    return dtype.kind in "fc" or (own and np.can_cast(dtype, np.float64))


def _wide(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the dtype in which values are added up."""
    import numpy as np

    if dtype.kind == "V":
        return np.dtype(np.float64)
    return np.result_type(dtype, np.float64)


def _blocks(part: Array) -> Iterator[Array]:
    """Yield the array as small blocks in a wider dtype, without copying the whole array."""
    wide = _wide(part.dtype)
    flat = part.reshape(-1) if part.flags.c_contiguous else part.flat
    for start in range(0, part.size, _BLOCK):
        yield flat[start : start + _BLOCK].astype(wide)


def _check_finite(name: str, parts: Sequence[Array], used: Sequence[int]) -> None:
    import numpy as np

    for k, part in zip(used, parts, strict=True):
        if not all(np.isfinite(block).all() for block in _blocks(part)):
            why = f"a value of copy {k} is not finite"
            raise _broken(name, k, f"{why}; allow_nonfinite=True merges it anyway")


def _check_equal(name: str, parts: Sequence[Array], used: Sequence[int]) -> None:
    import numpy as np

    for k, part in zip(used, parts, strict=True):
        if not np.array_equal(part, parts[0]):
            raise _broken(name, k, f"counters of copy {k} differ from those of copy {used[0]}")


def _average(parts: Sequence[Array], weights: Sequence[float]) -> Array:
    """Return the weighted mean of arrays, computed block by block."""
    import numpy as np

    dtype = parts[0].dtype
    merged = np.empty(parts[0].size, dtype=dtype)
    start = 0
    # The weighted sum of very large numbers can overflow by rounding; it is then clipped to their
    # range.
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        for values in zip(*map(_blocks, parts), strict=True):
            mean = _mean(values, weights)
            merged[start : start + len(mean)] = mean.astype(dtype)
            start += len(mean)
    return merged.reshape(parts[0].shape)


def _mean(values: Sequence[npt.NDArray[Any]], weights: Sequence[float]) -> npt.NDArray[Any]:
    """Return the weighted sum in the order of the copies, clipped to the range of the values."""
    import numpy as np

    if values[0].dtype.kind == "c":
        mean = np.empty_like(values[0])
        mean.real = _mean([value.real for value in values], weights)
        mean.imag = _mean([value.imag for value in values], weights)
        return mean
    total: npt.NDArray[Any] = np.zeros_like(values[0])
    low, high = values[0].copy(), values[0].copy()
    for value, weight in zip(values, weights, strict=True):
        total += weight * value
        np.minimum(low, value, out=low)
        np.maximum(high, value, out=high)
    # Opposite infinities add up to NaN, which is not clipped.
    cut: npt.NDArray[Any] = np.maximum(np.minimum(total, high), low)
    return cut
