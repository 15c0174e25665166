"""Tests that the saved results of examples/gpu_profile are those of its measurements."""

from __future__ import annotations

from examples.gpu_profile.report import HERE, profile_of, read_jobs, write


def test_results_are_those_of_the_kept_measurements() -> None:
    measured = profile_of(HERE / "h100.json")
    # of the raw file: resnet18 alone, before the pairs and after
    alone = [65.56455, 66.02557, 66.79085, 63.44001, 63.79907, 66.37139]
    assert [round(x, 5) for x in measured.samples("resnet18")] == alone
    text = write(measured, read_jobs(HERE / "h100_jobs.csv"))
    assert (HERE / "RESULTS.md").read_text("utf-8") == text
    table = text.partition("## Thirty jobs\n\n")[2].partition("\n\n")[0]
    assert table in (HERE / "README.md").read_text("utf-8")
