"""Describes differences between runs that a page does not show elsewhere, such as copies."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gangline._support import formatting as words
from gangline.analysis.report import tables
from gangline.analysis.report.tables import text
from gangline.runs.premises import merged, reminder

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gangline.analysis.report.digest import Digest

__all__ = ["said"]


def said(runs: Sequence[Digest]) -> list[str]:
    """Return a sentence in HTML, or "", for each difference that affects a comparison.

    Parameters
    ----------
    runs : sequence of Digest
        The runs; if a policy has several seeds, only its first run is used.
    """
    first = {run.label: run for run in reversed(runs)}
    drawn = [first[label] for label in dict.fromkeys(run.label for run in runs)]
    off = text(reminder(merged(lack for run in drawn for lack in run.lacks)))
    return [_elastic(drawn), _copies(drawn), _speeds(drawn), *[off] * bool(off)]


def _elastic(drawn: Sequence[Digest]) -> str:
    resized = [run for run in drawn if run.shapes is not None and run.shapes.resized_jobs]
    if not resized or not resized[0].spec["cluster"].get("elastic"):
        return ""
    jobs = words.count(resized[0].spec["trace"]["jobs"])
    told = []
    for run in resized:
        assert run.shapes is not None
        least, most = run.shapes.resized_gpus
        told.append(
            f"under {tables.name(run.label)} {run.shapes.resized_jobs:,} of {jobs} jobs had a "
            f"different number of GPUs than in the trace ({least:,} to {most:,} at once)"
        )
    line = f"Jobs are elastic: {'; '.join(told)}."
    others = [tables.name(run.label) for run in drawn if run not in resized]
    if others:
        line += (
            f" Under {words.listed(others)} every job kept the gang of the trace. So a lead may be "
            "due to elastic jobs rather than to a better order; compare times to finish, not busy "
            "GPUs."
        )
    return line


def _copies(drawn: Sequence[Digest]) -> str:
    copied = [run for run in drawn if run.shapes is not None and run.shapes.copied_jobs]
    others = [tables.name(run.label) for run in drawn if run not in copied]
    if not copied or not others:
        return ""
    told = []
    for run in copied:
        assert run.shapes is not None
        told.append(
            f"Under {tables.name(run.label)} {words.plural(run.shapes.copied_jobs, 'job')} ran as "
            f"up to {run.shapes.copies_most} copies at once, each on separate GPUs"
        )
    return (
        f"{'; '.join(told)}. Under {words.listed(others)} a job held at most one gang. So "
        "a lead may be due to copies, not to a better order."
    )


def _speeds(drawn: Sequence[Digest]) -> str:
    if not any(run.shapes is not None and run.shapes.is_uniform for run in drawn):
        return ""
    return (
        "All GPU types run jobs equally fast here: the lengths of the jobs are given in seconds, "
        "and the types do not differ in speed. Therefore, the gain from a policy's choice "
        "of GPU types is not visible."
    )
