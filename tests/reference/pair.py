"""Compares two jobs on one set of GPUs: overlap now, or one after the other.

The resident needs ``b`` more seconds alone, the newcomer ``a``; ``g`` is what smaller passes cost
the newcomer, ``xi_a`` and ``xi_b`` what each loses while both are there.
"""

from __future__ import annotations


def overlapped(a: float, b: float, xi_a: float, xi_b: float, g: float = 1.0) -> float:
    """Return the mean completion of the two, from now, if they overlap from now on (Tcon)."""
    return min(
        g * a / 2 + (1 - 1 / (2 * xi_a)) * (xi_b * b),
        b / 2 + (1 - 1 / (2 * xi_b)) * (xi_a * g * a),
    )


def in_turn(a: float, b: float) -> float:
    """Return the mean completion if the newcomer waits for the resident to end (Tseq)."""
    return b + a / 2


def threshold(xi_a: float, xi_b: float, g: float = 1.0) -> float:
    """Return c of the canonical rule: overlap if and only if b > c x a."""
    q = xi_b * (2 * xi_a - 1) / (2 * xi_a)
    other = g * xi_a * (2 - 1 / xi_b) - 1
    return min((g - 1) / (2 * (1 - q)), other) if q < 1 else other


def shares(a: float, b: float, xi_a: float, xi_b: float, g: float = 1.0) -> bool:
    """Return whether the two should overlap now; a tie in decimals waits."""
    return b - threshold(xi_a, xi_b, g) * a > 1e-12 * (a + b)
