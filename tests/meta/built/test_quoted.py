"""Checks that figures and tables in the docs are those of the saved measurements."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from examples.hadare_training.__main__ import read, tables

import quoted
import validation
from gangline import reproduce
from meta.house import ROOT

if TYPE_CHECKING:
    from pathlib import Path

TRAINING = ROOT / "examples" / "hadare_training"


def test_pages_quote_what_was_measured() -> None:
    stale = [str(path.relative_to(ROOT)) for path in quoted.stale()]
    assert not stale, f"run .venv/bin/python scripts/quoted.py; stale: {', '.join(stale)}"


def test_a_stale_figure_and_a_stale_table_are_found(tmp_path: Path) -> None:
    address = "hadar:ratio:makespan_s:hadar-ttd/gavel-las:all"
    (tmp_path / "docs").mkdir()
    page = tmp_path / "docs" / "page.md"
    text = f"It is <!-- figure: {address} -->9.99<!-- end -->.\n"
    page.write_text(text + "<!-- table: overview -->\nanother text\n<!-- end of table -->\n")
    fresh = quoted.stale(tmp_path)[page]
    assert "9.99" not in fresh
    assert "another text" not in fresh
    assert "| [Hadar](#hadar) |" in fresh
    page.write_text(fresh)
    assert quoted.stale(tmp_path) == {}


def test_an_unknown_figure_is_an_error() -> None:
    with pytest.raises(KeyError, match="no ratio"):
        quoted.figure(quoted.Data(), "hadar:ratio:makespan_s:hadar-ttd/fifo:all")


@pytest.mark.parametrize("name", quoted.STUDIES)
def test_what_is_kept_is_of_the_whole_study(name: str) -> None:
    study = reproduce.study(name)
    kept = quoted.Data()[name]
    assert kept["seeds"] == list(study.full.seeds)
    worlds = {(row["cluster"], row["network"], row["workload"]) for row in kept["rows"]}
    assert worlds == {
        (one.cluster, one.network, one.workload) for one in study.settings(study.full)
    }
    claimed = {one.times for one in study.factors} | {one.share for one in study.claims}
    found = {row["claimed"] for row in kept["claims"]}
    assert (None in found) == (None in claimed)
    numbers = sorted(value for value in claimed if value is not None)
    assert sorted(found - {None}) == pytest.approx(numbers, rel=1e-6)


@pytest.mark.shared
def test_the_validation_is_measured_anew(shared: Path) -> None:
    found = json.loads(validation.json_of(shared / "hardware"))
    assert found == json.loads(validation.DATA.read_text(encoding="utf-8"))
    assert len(found["rows"]) == 14
    given = [
        row
        for row in found["rows"]
        if (row["how"], row["layer"]) == ("as in the testbed", "scheduling")
    ]
    assert [row["policy"] for row in given] == ["srtf", "tiresias"]
    for row in given:
        assert abs(row["jct_mean_s"]) < 0.01
        assert abs(row["jct_p99_s"]) < 0.02
        assert row["abs_p50"] < 0.01
    assert len(found["varied"]) == len(validation.VARIED)
    assert len(found["leases"]) == 2 * len(validation.LEASES)
    assert len(found["transferred"]) == 12


def test_a_figure_of_the_validation() -> None:
    address = "validation:Muri:srtf:scheduling:jct_mean_s"
    assert quoted.figure(quoted.Data(), address) == "-1.0 %"
    with pytest.raises(KeyError, match="no row Muri, fifo, peer"):
        quoted.figure(quoted.Data(), "validation:Muri:fifo:peer:jct_mean_s")


def test_results_of_the_training_are_those_of_its_measurements() -> None:
    text = (TRAINING / "RESULTS.md").read_text(encoding="utf-8")
    made = "".join(f"{line}\n" for line in tables(read(TRAINING / "results.csv")))
    assert text.endswith(made)


def test_what_the_study_of_hadare_says_of_the_training_is_so() -> None:
    (said,) = (where for _, where in reproduce.study("hadare").elsewhere)
    assert "copies are more often worse than better" in said
    assert "after the same number of steps and after the same time" in said
    for line in quoted.training_counts().splitlines()[2:4]:
        _, _, worse, better, _ = line.strip("| ").split(" | ")
        assert int(worse) > int(better)
