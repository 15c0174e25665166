"""Shows the measurements of benchmarks with their limits and the unused part of the limits.

A benchmark yields its lines as it measures them, and ends with `sys.exit(told(...))`. It prints
text, or JSON where GANGLINE_BENCH_JSON is set, which is how benches/run.py calls it.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

AS_JSON = "GANGLINE_BENCH_JSON"


@dataclass(frozen=True)
class Line:
    """A measured value, its limit (None if it is only informative), and its name."""

    name: str
    value: float
    limit: float | None = None
    note: str = ""
    at_least: bool = False

    @property
    def verdict(self) -> str:
        """Return whether the value passes; empty if it has no limit."""
        if self.limit is None:
            return ""
        kept = self.value >= self.limit if self.at_least else self.value <= self.limit
        return "pass" if kept else "FAIL"

    @property
    def bound(self) -> str:
        """Return the limit as text."""
        sign = ">=" if self.at_least else "<="
        return "" if self.limit is None else f"{sign} {self.limit:,.7g}"

    @property
    def left(self) -> str:
        """Return the unused part of the limit; for a lower limit, how far the value may fall."""
        if not self.limit or not self.value:
            return ""
        used = self.limit / self.value if self.at_least else self.value / self.limit
        return f"{100 * (1 - used):.0f} %"

    @property
    def shown(self) -> str:
        """Return the value with its significant digits."""
        return f"{self.value:,.0f}" if abs(self.value) >= 1000 else f"{self.value:.3g}"

    def row(self) -> str:
        """Return a row of the table."""
        cells = (self.name, self.shown, self.bound, self.left, self.verdict, self.note)
        return f"| {' | '.join(cells)} |"


def told(lines: Iterable[Line]) -> int:
    """Print each line when it is measured; return the exit code, 0 if all limits hold."""
    failed = 0
    for line in lines:
        failed += line.verdict == "FAIL"
        if os.environ.get(AS_JSON):
            print(json.dumps(asdict(line)), flush=True)
            continue
        judged = f" ({line.bound}, {line.left or 'none'} left, {line.verdict})"
        note = f"; {line.note}" if line.note else ""
        print(f"{line.name}: {line.shown}{judged if line.verdict else ''}{note}", flush=True)
    return 1 if failed else 0
