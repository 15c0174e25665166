"""Measure how near `pollux` comes to its public simulator at four loads, and keep the numbers.

    .venv/bin/python scripts/pollux_loads.py FILE

FILE is pollux_traces.tar.xz, the profiles of the public simulator. The runs are those of
tests/golden/test_pollux_loads.py, and the numbers go to benches/studies/pollux-loads.json, from
which scripts/quoted.py writes tables of docs/policies/pollux.md and docs/decisions.md.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "tests")]

from golden.test_pollux_loads import KEPT, means, near  # noqa: E402


def main() -> None:
    """Measure, and write the file."""
    parser = argparse.ArgumentParser(prog="pollux_loads.py")
    parser.add_argument("profiles", type=Path, metavar="FILE", help="pollux_traces.tar.xz")
    rows = [
        {key: [round(one, 7) for one in of] if isinstance(of, list) else of
         for key, of in row.items()}
        for row in near(means(parser.parse_args().profiles))
    ]  # fmt: skip
    text = ",\n".join(json.dumps(row) for row in rows)
    KEPT.write_text(f'{{"rows": [\n{text}\n]}}\n', encoding="utf-8")


if __name__ == "__main__":
    main()
