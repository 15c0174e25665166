"""Tests the Python version of the random numbers: published vectors, goldens, laws."""

from __future__ import annotations

import math
import statistics
from typing import TYPE_CHECKING

import pytest

from reference import philox
from reference.philox import Purpose
from refusals import refused

if TYPE_CHECKING:
    from snapshots import Snapshot

# The known answers of the authors' library Random123 (philox4x32, 10 rounds).
PUBLISHED = [
    ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    (
        (0xFFFFFFFF,) * 4,
        (0xFFFFFFFF,) * 2,
        (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD),
    ),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]

# The table of rust/engine/src/rng.rs: address, 64 bits, below 10, below 2^63 + 1, exponential of
# mean 3, normal, geometric of mean 2.2.
GOLDENS = [
    (
        (0, Purpose.ARRIVALS, 0, 0, 0),
        0x29946DD3910223A1,
        (1, 1498070203773293008),
        (0.5317194213589966, -0.9845560357567015, 1),
    ),
    (
        (1, Purpose.GANGS, 2, 3, 5),
        0x09FA5768C80995E1,
        (0, 359491599031651056),
        (0.11926817994752709, -1.762692807320229, 1),
    ),
    (
        (0xDEADBEEF12345678, Purpose.PLACEMENT, (1 << 40) + 17, 7, (1 << 24) - 1),
        0x0B69A473556AFF77,
        (0, 411184611116548027),
        (0.13681500988252604, -1.6998377442538186, 1),
    ),
    (
        (2**64 - 1, Purpose.NOISE, 2**64 - 1, 2**32 - 1, 0),
        0x22B67EC90BDFCB26,
        (1, 5282945224206729540),
        (0.43714909473164787, -1.1003163444745876, 1),
    ),
    (
        (42, Purpose.DURATIONS, 999_999, 0, 1),
        0xFCAB2D84EF057C73,
        (9, 8792219327145554788),
        (13.02541144594483, 2.2258225787238034, 8),
    ),
]


@pytest.mark.parametrize(("counter", "key", "expected"), PUBLISHED)
def test_published_vectors(
    counter: tuple[int, ...], key: tuple[int, ...], expected: tuple[int, ...]
) -> None:
    assert philox.philox4x32(counter, key) == expected


def test_layout_puts_each_field_in_its_own_bits() -> None:
    block = philox.block(
        0x2222222211111111, Purpose.GANGS, 0x4444444433333333, 0x55555555, 0x666666
    )
    words = (0x33333333, 0x44444444, 0x55555555, 0x04666666)
    assert block == philox.philox4x32(words, (0x11111111, 0x22222222))


@pytest.mark.parametrize(("address", "bits", "integers", "numbers"), GOLDENS)
def test_goldens(
    address: tuple[int, int, int, int, int],
    bits: int,
    integers: tuple[int, int],
    numbers: tuple[float, float, int],
) -> None:
    assert philox.uniform_u64(*address) == bits
    assert philox.uniform(*address) == (bits >> 11) / 2**53
    assert philox.below(10, *address) == integers[0]
    assert philox.below(2**63 + 1, *address) == integers[1]
    # The platform's logarithm may differ from the engine's in the last digit.
    assert philox.exponential(3.0, *address) == pytest.approx(numbers[0], rel=1e-15, abs=0.0)
    assert philox.normal(*address) == pytest.approx(numbers[1], rel=1e-15, abs=0.0)
    assert philox.log_normal(0.5, *address) == pytest.approx(
        math.exp(numbers[1] / 2), rel=1e-15, abs=0.0
    )
    assert philox.geometric(2.2, *address) == numbers[2]


def test_below_goes_on_when_both_lanes_are_refused(snapshot: Snapshot) -> None:
    n = 2**63 + 1
    drawn = [philox.below(n, 7, Purpose.POLICY, number) for number in (2, 6, 9, 10)]
    assert drawn == [
        6451708932607085206,
        7743799874805691774,
        6400687313555975875,
        8812414927686712636,
    ]
    assert philox.below(1, 0, Purpose.POLICY, 0) == 0
    with refused(ValueError, snapshot):
        philox.below(0, 0, Purpose.POLICY, 0)


def test_zipf_golden_and_table_edges() -> None:
    zipf = philox.WeightTable.zipf(1000, 1.2)
    drawn = [zipf.index_at(philox.uniform(3, Purpose.USERS, number)) for number in range(12)]
    assert drawn == [1, 0, 0, 5, 310, 4, 0, 38, 0, 0, 0, 110]
    table = philox.WeightTable([0.0, 1.0, 0.0, 3.0, 0.0])
    assert [table.index_at(u) for u in (0.0, 0.249, 0.25, 1.0 - 2.0**-53)] == [1, 1, 3, 3]


def test_inverse_normal_agrees_with_the_standard_library() -> None:
    quantile = statistics.NormalDist().inv_cdf
    for exponent in range(1, 53):
        for p in (2.0**-exponent, 1.0 - 2.0**-exponent, 0.7 * 2.0**-exponent):
            # 1 - 2^-52 is far in the tail, where one digit of p changes many of the quantile. Both
            # versions are equally affected, so the tolerance can stay small.
            assert philox.inverse_normal(p) == pytest.approx(quantile(p), rel=2e-15, abs=1e-300)


def test_an_injected_library_is_used() -> None:
    doubled = philox.Maths(log=lambda x: 2.0 * math.log(x))
    address = (1, Purpose.FAILURES, 4, 0, 0)
    plain = philox.exponential(5.0, *address)
    assert philox.exponential(5.0, *address, maths=doubled) == 2.0 * plain > 0.0


@pytest.mark.parametrize(
    "address",
    [
        (-1, 1, 0, 0, 0),
        (2**64, 1, 0, 0, 0),
        (0, 0, 0, 0, 0),
        (0, 256, 0, 0, 0),
        (0, 1, 2**64, 0, 0),
        (0, 1, 0, 2**32, 0),
        (0, 1, 0, 0, 1 << 24),
    ],
)
def test_a_field_that_does_not_fit_is_an_error(
    address: tuple[int, int, int, int, int], snapshot: Snapshot
) -> None:
    with refused(ValueError, snapshot):
        philox.uniform(*address)
