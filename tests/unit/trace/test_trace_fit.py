"""Tests fits of iteration times on drawn data with known parameters, and on public tables."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
import pytest

import gangline as gl
from gangline.cli.app import main
from gangline.cluster.tables import PolluxProfile, StepFit, fit_pollux, read_pollux
from gangline.cluster.tables.pollux import Step
from refusals import refused

if TYPE_CHECKING:
    from pathlib import Path

KNOWN = (0.05, 0.004, 0.3, 0.02, 0.06, 0.015, 2.5)
SHAPES = ("1", "2", "3", "4", "22", "44", "444", "1111")
# An independent fit to the same public placements: a_c, b_c, a_n, b_n, a_r, b_r, gamma.
PUBLIC = {
    "bert": (0.1692, 0.0586, 1.352, 0.01424, 0.2872, 0.01121, 1.901),
    "cifar10": (0.01733, 0.0007018, 0.1211, 0.002392, 0.03168, 0.0009819, 1.999),
    "deepspeech2": (0.3041, 0.02423, 0.3778, 0.0285, 0.0869, 0.001855, 1.432),
    "imagenet": (0.06454, 0.004474, 0.299, 0.005553, 0.000157, 1e-8, 2.489),
    "ncf": (0.006924, 6.322e-7, 0.01817, 0.0004277, 0.006192, 0.0001517, 1.226),
    "yolov3": (0.1827, 0.02595, 0.699, 0.02336, 0.139, 0.02148, 1.163),
}


def plain(parameters: tuple[float, ...], gpus: int, servers: int, samples: int) -> Step:
    """Return the formula for one point."""
    a_c, b_c, a_n, b_n, a_r, b_r, gamma = parameters
    once = a_c + b_c * samples
    a, b = (a_n, b_n) if servers > 1 else (a_r, b_r)
    sync = a + b * max(gpus - 2, 0) if gpus > 1 else 0.0
    step = (once**gamma + sync**gamma) ** (1.0 / gamma)
    return Step(step, max(step - once, 0.0))


def drawn(shapes: tuple[str, ...] = SHAPES, noise: float = 0.0) -> PolluxProfile:
    random = np.random.default_rng(5)
    curves: dict[str, dict[int, Step]] = {}
    for shape in shapes:
        for samples in (8, 16, 32, 64, 128):
            exact = plain(KNOWN, sum(map(int, shape)), len(shape), samples)
            off = float(np.exp(noise * random.standard_normal()))
            step = Step(exact.step_s * off, exact.sync_s * off)
            curves.setdefault(shape, {})[samples] = step
    return PolluxProfile("drawn", curves, {}, {})


def test_known_parameters_are_found() -> None:
    found = fit_pollux(drawn())
    assert found[:7] == pytest.approx(KNOWN, rel=1e-4)
    assert found.error_max < 1e-6
    assert found.points == len(SHAPES) * 5
    for gpus, servers, samples in ((1, 1, 8), (4, 1, 20), (12, 3, 64)):
        exact = plain(KNOWN, gpus, servers, samples)
        assert found.step_s(gpus, servers, samples) == pytest.approx(exact.step_s, rel=1e-5)
        twice = 2 * (exact.step_s - exact.sync_s) + exact.step_s
        assert found.step_s(gpus, servers, samples, 2) == pytest.approx(twice, rel=1e-5)


def test_noise_moves_them_a_little() -> None:
    found = fit_pollux(drawn(noise=0.03))
    assert found[:7] == pytest.approx(KNOWN, rel=0.3)
    assert 0.005 < found.error_median < 0.03 < found.error_max < 0.15


def test_what_was_not_measured_is_zero() -> None:
    inside = fit_pollux(drawn(("1", "2", "4")))
    assert (inside.a_n, inside.b_n) == (0.0, 0.0)
    assert inside.a_r == pytest.approx(KNOWN[4], rel=1e-3)
    alone = fit_pollux(drawn(("1",)))
    assert alone[2:7] == (0.0, 0.0, 0.0, 0.0, 1.0)
    pair = fit_pollux(drawn(("1", "2")))
    assert pair.b_r == 0.0


def test_too_little_to_fit_is_refused() -> None:
    one = PolluxProfile("one", {"1": {8: Step(1.0, 0.0)}, "2": {8: Step(1.1, 0.1)}}, {}, {})
    with refused(gl.TraceError, column="local_bsz"):
        fit_pollux(one)
    nothing = PolluxProfile("none", {"1": {8: Step(1.0, 0.0), 9: Step(0.0, 0.0)}}, {}, {})
    with refused(gl.TraceError, column="step_time", value=0.0):
        fit_pollux(nothing)


@pytest.mark.shared
def test_the_public_tables_give_the_published_iteration_times(
    shared: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = shared / "traces" / "tables" / "pollux" / "pollux_traces.tar.xz"
    profiles = read_pollux(file)
    assert main(["trace", "fit", str(file), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert set(found) == set(PUBLIC)
    for name, expected in PUBLIC.items():
        mine = found[name]
        assert [mine["a_c"], mine["b_c"]] == pytest.approx(expected[:2], rel=0.05)
        assert mine["gamma"] == pytest.approx(expected[6], abs=0.35)
        assert mine["error_median"] < 0.08
        # single parameters of a synchronisation are not determined, but their sums are
        own = StepFit(**mine)
        off = [
            own.step_s(sum(map(int, shape)), len(shape), samples)
            / plain(expected, sum(map(int, shape)), len(shape), samples).step_s
            - 1.0
            for shape, curve in profiles[name].placements.items()
            for samples in curve
        ]
        assert float(np.median(np.abs(off))) < 0.06


def test_the_command_prints_parameters_and_errors(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    lines = ["placement,local_bsz,step_time,sync_time"]
    for shape in SHAPES:
        for samples in (8, 32, 128):
            step = plain(KNOWN, sum(map(int, shape)), len(shape), samples)
            lines.append(f"{shape},{samples},{step.step_s!r},{step.sync_s!r}")
    (folder / "placements.csv").write_text("\n".join(lines) + "\n")
    header = "num_nodes,num_replicas,local_bsz,step_time,sync_time\n1,1,8,0.1,0.0\n"
    (folder / "scalability.csv").write_text(header)
    row = "progress,iteration,metric,grad_sqr,grad_var\n0,1,1,1,1\n"
    (folder / "validation-8.csv").write_text(row)
    assert main(["trace", "fit", str(tmp_path), "--applications", "mine"]) == 0
    said = capsys.readouterr().out
    assert "mine" in said
    assert "0.004" in said
    assert "0.0 %" in said
    assert main(["trace", "fit", str(tmp_path), "--applications", "other"]) == 2
    assert main(["trace", "fit", str(tmp_path / "nothing")]) == 2
