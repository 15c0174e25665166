"""Tests that every policy can run in the training run of the published wheel."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

import gangline as gl

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.slow
def test_every_policy_is_trained(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = importlib.util.spec_from_file_location("train", ROOT / "scripts" / "train.py")
    assert spec is not None
    assert spec.loader is not None
    train = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(train)
    finished: dict[str, float] = {}
    simulate = gl.simulate

    def seen(cluster: gl.Cluster, trace: gl.Trace, policy: str, **options: object) -> gl.Result:
        result = simulate(cluster, trace, policy, **options)
        finished[policy] = finished.get(policy, 0) + result.summary["finished"]
        return result

    monkeypatch.setattr(gl, "simulate", seen)
    train.main(many=500, few=40)
    assert set(finished) == set(gl.policies.registry)
    assert min(finished.values()) >= 30  # gavel-allox leaves out gangs
