"""Rounds with pairs and shares that no program would give: the engine and the slow simulator."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gangline.lp import rounds
from parity import harness
from parity.draws import settings_of
from parity.test_parity import QUIET, compare
from parity.worlds import sharing_worlds


class Drawn(rounds.Shares):
    """Zeros, ties and numbers of every size, of each job alone and beside each kind.

    Half of the allocations give each job one way to run: then rounds may be skipped.
    """

    def __init__(self, policy: str, params: dict[str, Any]) -> None:
        super().__init__(policy, params)
        self.asks = 0

    def packed(self, **ask: Any) -> tuple[np.ndarray, list[rounds.PairShare]]:
        self.asks += 1
        alone = np.zeros(ask["rates"].shape)
        beside: list[rounds.PairShare] = []
        kind, rates = ask["kind"].astype(int), ask["pair_rates"]
        kinds, types = len(rates), alone.shape[1]
        of_all = np.random.default_rng(self.asks)
        is_one, only = of_all.random() < 0.5, int(of_all.integers(types))
        for row, job in enumerate(ask["jobs"].tolist()):
            numbers = np.random.default_rng([self.asks, int(job)])
            few = np.array([0.0, 0.0, 0.25, 1.0 / types, numbers.random()])
            alone[row] = numbers.choice(few, types)
            may = (rates[kind[row]] > 0) & (rates[:, kind[row]] > 0)
            drawn = numbers.choice(few, (kinds, types)) * may
            if is_one:
                drawn[:], alone[row] = 0.0, 0.0
                here = drawn[kind[row]] if may[kind[row], only] else alone[row]
                here[only] = numbers.choice(few[2:])
            beside += [(row, int(k), int(t), float(drawn[k, t])) for k, t in np.argwhere(drawn)]
        return alone, beside


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
    params = given_ | {"packed": True, "solver": "simplex"}  # Python is asked
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(rounds, "Shares", Drawn)
        patched.setattr(harness, "Shares", Drawn)
        compare(world, "gavel-las", params)
