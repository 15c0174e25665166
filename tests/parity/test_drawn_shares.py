"""Compares engine and slow simulator on rounds with pairs and shares that no LP would give."""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gangline.lp import highs
from parity.draws import settings_of
from parity.test_parity import QUIET, compare
from parity.worlds import sharing_worlds


def drawn(policy: str, **program: Any) -> tuple[list[highs.Solution], str, bool]:
    """Draw zeros, ties and numbers of every size for each column; equal LPs get equal shares.

    Half of the LPs give most columns nothing, so that jobs have one way to run and rounds may be
    skipped.
    """
    del policy
    arrays = [program[name] for name in ("cost", "row_lower", "row_upper", "index", "value")]
    numbers = np.random.default_rng(zlib.crc32(b"".join(own.tobytes() for own in arrays)))
    columns = len(program["cost"])
    few = np.array([0.0, 0.0, 0.25, 1.0 / 3.0, 1.0])
    x = np.where(
        numbers.random(columns) < 0.5, numbers.choice(few, columns), numbers.random(columns)
    )
    if numbers.random() < 0.5:
        x *= numbers.random(columns) < 0.2
    found = highs.Solution(x, np.zeros(len(program["row_lower"])), 1.0, 1)
    return [found] * (1 + len(program.get("then", ()))), "simplex", False


@settings(suppress_health_check=QUIET, max_examples=100)
@given(data=st.data())
def test_pairs_with_drawn_shares_agree_with_the_slow_simulator(data: st.DataObject) -> None:
    world = data.draw(sharing_worlds(), label="world")
    if data.draw(st.booleans(), label="few kinds"):
        for row in world["jobs"]:
            row["gpus"] = 1
            row.pop("memory_gb", None)
            row.pop("batch_size", None)
    given_ = data.draw(settings_of("gavel-las"), label="params")
    params = given_ | {"packed": True, "solver": "simplex"}  # the core does not solve it
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(highs, "solve", drawn)
        compare(world, "gavel-las", params)
