"""Computes the engine's random numbers with the standard library only.

Philox4x32-10 (Salmon et al., SC 2011), addressed by (seed, purpose, id0, id1, counter); the
layout of the words and the meaning of each sampler are written at the top of
``rust/engine/src/rng.rs``. Logarithm, exponential and power come from a :class:`Maths`, so that
parity tests may pass the engine's own library and compare logic, not libraries.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

WORD = 0xFFFFFFFF
LANE = 0xFFFFFFFFFFFFFFFF
COUNTER_LIMIT = 1 << 24


class Purpose(IntEnum):
    """The purpose of a draw; the codes are part of the results."""

    ARRIVALS = 1
    DURATIONS = 2
    MODELS = 3
    GANGS = 4
    USERS = 5
    VCS = 6
    FAILURES = 7
    ESTIMATES = 8
    PLACEMENT = 9
    POLICY = 10
    EXTRA = 11
    POPULATION = 12
    REPAIRS = 13
    NOISE = 14
    JOB_PACE = 15
    RUN_PACE = 16
    STRAGGLERS = 17


@dataclass(frozen=True)
class Maths:
    """The three functions whose last digit depends on the mathematical library."""

    log: Callable[[float], float] = math.log
    exp: Callable[[float], float] = math.exp
    pow: Callable[[float, float], float] = math.pow


PLATFORM = Maths()


def philox4x32(counter: Sequence[int], key: Sequence[int]) -> tuple[int, int, int, int]:
    """Return one block of Philox4x32-10: four 32-bit words."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(10):
        p0 = 0xD2511F53 * c0
        p1 = 0xCD9E8D57 * c2
        c0, c1, c2, c3 = (p1 >> 32) ^ c1 ^ k0, p1 & WORD, (p0 >> 32) ^ c3 ^ k1, p0 & WORD
        k0 = (k0 + 0x9E3779B9) & WORD
        k1 = (k1 + 0xBB67AE85) & WORD
    return c0, c1, c2, c3


def block(
    seed: int, purpose: int, id0: int, id1: int = 0, counter: int = 0
) -> tuple[int, int, int, int]:
    """Return the block at one address; a field that does not fit raises ``ValueError``."""
    fits = (
        0 <= seed <= LANE
        and 1 <= purpose <= 255
        and 0 <= id0 <= LANE
        and 0 <= id1 <= WORD
        and 0 <= counter < COUNTER_LIMIT
    )
    if not fits:
        raise ValueError(f"no draw has the address {(seed, int(purpose), id0, id1, counter)}")
    words = (id0 & WORD, id0 >> 32, id1, int(purpose) << 24 | counter)
    return philox4x32(words, (seed & WORD, seed >> 32))


def uniform_u64(seed: int, purpose: int, id0: int, id1: int = 0, counter: int = 0) -> int:
    """Return a uniform 64-bit integer."""
    words = block(seed, purpose, id0, id1, counter)
    return words[0] | words[1] << 32


def uniform(seed: int, purpose: int, id0: int, id1: int = 0, counter: int = 0) -> float:
    """Return a uniform number in [0, 1) with 53 bits."""
    return (uniform_u64(seed, purpose, id0, id1, counter) >> 11) * 2.0**-53


def below(n: int, seed: int, purpose: int, id0: int, id1: int = 0, counter: int = 0) -> int:
    """Return a uniform integer in ``range(n)``, ``1 <= n < 2**64``, without bias."""
    if not 1 <= n <= LANE:
        raise ValueError(f"there is no uniform integer below {n}")
    words = block(seed, purpose, id0, id1, counter)
    while True:
        for lane in (words[0] | words[1] << 32, words[2] | words[3] << 32):
            product = lane * n
            if product & LANE >= 2**64 % n:
                return product >> 64
        words = philox4x32(words, (seed & WORD, seed >> 32))


def exponential(
    mean: float,
    seed: int,
    purpose: int,
    id0: int,
    id1: int = 0,
    counter: int = 0,
    maths: Maths = PLATFORM,
) -> float:
    """Return an exponential number with the given mean."""
    return -maths.log(1.0 - uniform(seed, purpose, id0, id1, counter)) * mean


def normal(
    seed: int,
    purpose: int,
    id0: int,
    id1: int = 0,
    counter: int = 0,
    maths: Maths = PLATFORM,
) -> float:
    """Return a standard normal number."""
    upper = uniform_u64(seed, purpose, id0, id1, counter) >> 12
    return inverse_normal((upper + 0.5) * 2.0**-52, maths)


def log_normal(
    sigma: float,
    seed: int,
    purpose: int,
    id0: int,
    id1: int = 0,
    counter: int = 0,
    maths: Maths = PLATFORM,
) -> float:
    """Return a log-normal number with median 1."""
    return maths.exp(sigma * normal(seed, purpose, id0, id1, counter, maths))


def geometric(
    mean: float,
    seed: int,
    purpose: int,
    id0: int,
    id1: int = 0,
    counter: int = 0,
    maths: Maths = PLATFORM,
) -> int:
    """Return the number of trials up to the first success: 1, 2, 3, ..."""
    if mean <= 1.0:
        return 1
    u = uniform(seed, purpose, id0, id1, counter)
    return 1 + math.floor(maths.log(1.0 - u) / maths.log(1.0 - 1.0 / mean))


class WeightTable:
    """A table that draws indices with probabilities by their weights."""

    def __init__(self, weights: Sequence[float]) -> None:
        self.last = max(i for i, weight in enumerate(weights) if weight > 0.0)
        self.cumulative: list[float] = []
        total = 0.0
        for weight in weights:
            total += weight
            self.cumulative.append(total)

    @classmethod
    def zipf(cls, items: int, exponent: float, maths: Maths = PLATFORM) -> WeightTable:
        """Return the table in which item k of 1..items has the weight k ** -exponent."""
        return cls([maths.pow(float(rank), -exponent) for rank in range(1, items + 1)])

    def index_at(self, u: float) -> int:
        """Return the first index whose cumulative weight is above u times the total."""
        return min(bisect_right(self.cumulative, u * self.cumulative[self.last]), self.last)


# Wichura, algorithm AS 241 (PPND16), Applied Statistics 37 (1988); lowest degree first.
CENTRE = (
    (
        3.3871328727963666080e0,
        1.3314166789178437745e2,
        1.9715909503065514427e3,
        1.3731693765509461125e4,
        4.5921953931549871457e4,
        6.7265770927008700853e4,
        3.3430575583588128105e4,
        2.5090809287301226727e3,
    ),
    (
        1.0,
        4.2313330701600911252e1,
        6.8718700749205790830e2,
        5.3941960214247511077e3,
        2.1213794301586595867e4,
        3.9307895800092710610e4,
        2.8729085735721942674e4,
        5.2264952788528545610e3,
    ),
)
SHOULDER = (
    (
        1.42343711074968357734e0,
        4.63033784615654529590e0,
        5.76949722146069140550e0,
        3.64784832476320460504e0,
        1.27045825245236838258e0,
        2.41780725177450611770e-1,
        2.27238449892691845833e-2,
        7.74545014278341407640e-4,
    ),
    (
        1.0,
        2.05319162663775882187e0,
        1.67638483018380384940e0,
        6.89767334985100004550e-1,
        1.48103976427480074590e-1,
        1.51986665636164571966e-2,
        5.47593808499534494600e-4,
        1.05075007164441684324e-9,
    ),
)
TAIL = (
    (
        6.65790464350110377720e0,
        5.46378491116411436990e0,
        1.78482653991729133580e0,
        2.96560571828504891230e-1,
        2.65321895265761230930e-2,
        1.24266094738807843860e-3,
        2.71155556874348757815e-5,
        2.01033439929228813265e-7,
    ),
    (
        1.0,
        5.99832206555887937690e-1,
        1.36929880922735805310e-1,
        1.48753612908506148525e-2,
        7.86869131145613259100e-4,
        1.84631831751005468180e-5,
        1.42151175831644588870e-7,
        2.04426310338993978564e-15,
    ),
)


def _rational(coefficients: tuple[tuple[float, ...], tuple[float, ...]], x: float) -> float:
    values = []
    for terms in coefficients:
        value = 0.0
        for term in reversed(terms):
            value = value * x + term
        values.append(value)
    return values[0] / values[1]


def inverse_normal(p: float, maths: Maths = PLATFORM) -> float:
    """Return the standard normal quantile of ``0 < p < 1``."""
    centred = p - 0.5
    if abs(centred) <= 0.425:
        return centred * _rational(CENTRE, 0.180625 - centred * centred)
    tail = p if centred < 0.0 else 1.0 - p
    depth = math.sqrt(-maths.log(tail))
    size = _rational(SHOULDER, depth - 1.6) if depth <= 5.0 else _rational(TAIL, depth - 5.0)
    return -size if centred < 0.0 else size
