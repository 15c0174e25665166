"""Explains why policies differ: waiting, preemptions and the most delayed jobs."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from gangline._support import formatting as words
from gangline.analysis.report import _gantt_svg, findings, stories, tables
from gangline.analysis.report.tables import Cell, Table, of, text
from gangline.analysis.report.waiting import REASONS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gangline.analysis.report.digest import Digest

    Row = Mapping[str, Any]

__all__ = ["content"]

_BY_REASON = (
    *(
        words.Measure(f"waited_{one.key}_s", one.title, one.meaning, words.duration, 0)
        for one in REASONS
    ),
    words.Measure("run_mean_s", "Mean running", "all time with GPUs", words.duration, 0),
    words.Measure(
        "idle_while_waiting",
        "Idle while jobs wait",
        "share of all GPU time that was idle while at least one job waited",
        words.share,
        0,
    ),
)
_REASONS = tuple((reason.key, one) for reason, one in zip(REASONS, _BY_REASON, strict=False))
# Class, text of the legend, title of the column, and explanation.
_PARTS = (
    ("useful", "work", "Work", "GPUs held with progress"),
    ("overhead", "starts and restarts", "Restarts", "GPUs held without progress after a start"),
    ("distance", "lost to distance", "Distance", "Lost because the GPUs of a job are far apart"),
    ("co-runner", "lost to co-runners", "Co-runners", "Lost because jobs share a GPU"),
    (
        "fragment",
        "idle, while a waiting job asked for no more GPUs than were idle",
        "Idle, a job would fit",
        "Head-of-line blocking, free GPUs on too many servers, or the choice of the policy",
    ),
    ("idle", "idle otherwise", "Idle otherwise", "No waiting job was small enough"),
)
_STORIES = "delayed"  # anchor of the stories
_CAUSES = (
    "; the tables do not show whether the policy preferred those jobs: "
    f'<a href="#{_STORIES}">the stories of the most delayed jobs</a> do'
)


def content(
    means: Sequence[Row], drawn: Sequence[Digest], best: Sequence[str], worst: str | None
) -> str:
    """Return the section as HTML.

    Parameters
    ----------
    means : sequence of dict
        One row per policy.
    drawn : sequence of Digest
        One run per policy, in the same order.
    best, worst : labels
        The recommended policies and, if there is one, the slowest policy. The section tells the
        stories of jobs under the first recommended policy and under the slowest.
    """
    first = next((run for run in drawn if run.label in best[:1]), None)
    tells = first is not None and first.again is not None and any(s.wait_s for s in first.stories)
    parts = [
        ("", _waiting(means, drawn, _CAUSES if tells else "")),
        ("Stopped jobs", _stopped(means, drawn)),
        ("GPU time breakdown", _cost(means, drawn)),
        *_told(drawn, [*best[:1], *([] if worst is None else [worst])]),
    ]
    return "".join(
        (f"<h3>{title}</h3>" if title else "") + inside for title, inside in parts if inside
    )


def _waiting(means: Sequence[Row], drawn: Sequence[Digest], causes: str) -> str:
    """Return the table of reasons for waiting; columns that are 0 or unknown for all are left out.

    `causes` is added to the text about GPUs that were not free.
    """
    rows = findings.reasons(means)
    is_known = any(row.get(_BY_REASON[0].key) is not None for row in rows)
    columns = _BY_REASON if is_known else findings.REASONS
    seen = [one for one in columns if any(row.get(one.key) for row in rows)]
    if not seen:
        return ""
    table = tables.ranked([run.label for run in drawn], rows, seen)
    colours = {}
    if is_known:
        colours = {one.title: f'<i class="w-{reason}"></i>' for reason, one in _REASONS}
        _put_bars(table, rows)
    about = "".join(
        f"<li>{colours.get(one.title, '')}<strong>{one.title}</strong>: {text(one.hint)}"
        f"{causes if one.key == _BY_REASON[0].key else ''}.</li>"
        for one in seen
        if one.hint
    )
    return (
        table.html("What jobs waited for, by policy")
        + f'<ul class="terms{" keyed" if is_known else ""}">{about}</ul>'
    )


def _put_bars(table: Table, rows: Sequence[Row]) -> None:
    """Insert the mean wait after the policy in each row, as a divided bar and as a time."""
    table.titles[1:1] = [
        ("All waiting, by reason", ""),
        ("All waiting, mean", "All of a job's time without GPUs, from arrival to finish"),
    ]
    longest = max((row.get("wait_mean_s") or 0.0 for row in rows), default=0.0) or 1.0
    for cell, row in zip(table.rows, rows, strict=True):
        wait = row.get("wait_mean_s")
        parts = [(name, (row.get(one.key) or 0.0) / longest) for name, one in _REASONS]
        bar = "".join(
            f'<span class="w-{name}" style="width:{100 * part:.2f}%"></span>'
            for name, part in parts
        )
        cell[1:1] = [
            Cell(f'<div class="stack thin">{bar}</div>', wait, kind="wide"),
            of(wait, words.duration),
        ]


def _stopped(means: Sequence[Row], drawn: Sequence[Digest]) -> str:
    """Return the table on stopped jobs; empty if no job was stopped or moved."""
    rows = findings.reasons(means)
    if not any(row.get("stops_per_job") for row in rows):
        return ""
    columns = [
        words.Measure("preemptions", "Preemptions", "", words.count, 0),
        words.Measure("migrations", "Moves", "", words.count, 0),
        words.Measure("stops_per_job", "Per job", "Preemptions and moves", words.times, 0),
        words.Measure("taken_by_shorter", "Taken by shorter", "", words.share, 0),
        words.Measure("taken_by_later", "Taken by later", "", words.share, 0),
        words.Measure("taken_by_smaller", "Taken by smaller", "", words.share, 0),
        words.Measure("overhead_fraction", "Lost to restarts", "", words.share, 0),
    ]
    seen = [one for one in columns if any(row.get(one.key) for row in rows)]
    table = tables.ranked([run.label for run in drawn], rows, seen)
    about = ""
    if any(one.key.startswith("taken") for one in seen):
        about = (
            "<p class=about>Of the jobs that took the GPUs of a stopped job when it was stopped, "
            "the shares that are shorter when alone, arrived later, or ask for fewer GPUs.</p>"
        )
    return about + table.html("Stopped jobs by policy")


def _cost(means: Sequence[Row], drawn: Sequence[Digest]) -> str:
    split = [findings.gpu_time(row) for row in means]
    # A loss that occurs under no policy needs no column.
    seen = [part for part in _PARTS if any(parts[part[0]] > 0.0 for parts in split)]
    rows = []
    for i, (run, parts) in enumerate(zip(drawn, split, strict=True)):
        stack = "".join(
            f'<span class="{name}" style="width:{100 * parts[name]:.2f}%"></span>'
            for name, _, _, _ in seen
        )
        said = "; ".join(f"{word} {words.share(parts[name])}" for name, word, _, _ in seen)
        wide = f'<div class="stack" role="img" aria-label="{text(said)}">{stack}</div>'
        rows.append(
            [
                tables.policy_cell(i, run.label),
                Cell(wide, parts["useful"], kind="wide"),
                *(of(parts[name], words.share) for name, _, _, _ in seen),
            ]
        )
    titles = [("Policy", ""), ("All GPU time until the last job finishes", "")]
    titles += [(title, hint) for _, _, title, hint in seen]
    legend = "".join(f'<li><i class="{name}"></i>{word}</li>' for name, word, _, _ in seen)
    table = Table(titles, rows).html("GPU time breakdown by policy")
    return f'<ul class="legend">{legend}</ul>{table}'


def _told(drawn: Sequence[Digest], labels: Sequence[str]) -> list[tuple[str, str]]:
    """Return titles and contents: the most delayed jobs, and an excerpt of the Gantt chart."""
    found = []
    for label in labels:
        run = next(run for run in drawn if run.label == label)
        under = f" under {tables.name(run.label)}" if drawn[1:] else ""
        mine = []
        if run.stories:
            many = len(run.stories)
            what = f"The {many} most delayed jobs" if many > 1 else "The most delayed job"
            anchor = f'<a id="{_STORIES}"></a>' if label == labels[0] else ""
            mine.append((f"{anchor}{what}{under}", _delayed(run, drawn)))
        if run.excerpt is not None:
            mine.append((f"Jobs on GPUs{under}", _gantt(run)))
        if label == labels[0]:
            found += mine
        elif mine:  # collapsed, because few readers need it
            inside = "".join(f"<h4>{title}</h4>{content}" for title, content in mine)
            found.append(("", tables.folded(f"The same{under}", inside)))
    return found


def _gantt(run: Digest) -> str:
    assert run.excerpt is not None
    dark = ["a preemption"] if run.summary.get("preemptions") else []
    dark += ["the end of a copy"] if run.shapes is not None and run.shapes.copied_jobs else []
    ends = f"; a dark end is {' or '.join(dark)}" if dark else ""
    about = (
        f"<p class=about>Each row is a GPU and each bar a job, in one of eight colours{ends}. The "
        "chart shows the busiest period; <code>gangline gantt</code> draws the whole run.</p>"
    )
    picture = _gantt_svg.draw(run.excerpt, f"Jobs on GPUs under {run.label}")
    frame = '<div class="scroll gantt" tabindex="0" role="group" aria-label="Jobs on GPUs">'
    return f"{about}{frame}{picture}</div>"


def _delayed(run: Digest, drawn: Sequence[Digest]) -> str:
    """Return the most delayed jobs, with their times under other policies and their stories."""
    others = [
        other
        for other in drawn
        if other is not run
        and len(other.jct_s) == len(run.jct_s)
        and other.spec["trace"]["sha256"] == run.spec["trace"]["sha256"]
    ]
    titles = [
        ("Job", ""),
        ("GPUs", ""),
        ("Alone", "Run time alone on the fastest GPUs"),
        ("Took", ""),
    ]
    titles += (
        [("Elsewhere", "JCT under the other policy that is best for this job")] if others else []
    )
    titles.append(("What happened", ""))
    rows = []
    told = stories.with_causes(run.stories, run.again, str(run.spec["log_hash"]))
    for story in told:
        row = [
            tables.label_cell(story.job, "name"),
            of(story.gpus, words.count),
            of(story.alone_s, words.duration),
            of(story.jct_s, words.duration),
        ]
        if others:
            took = [
                (float(other.jct_s[story.row]), other.label)
                for other in others
                if math.isfinite(other.jct_s[story.row])
            ]
            if took:
                least, label = min(took)
                shown = f"{text(words.duration(least))}, <bdi>{text(label)}</bdi>"
                row.append(Cell(shown, least))
            else:
                row.append(Cell("–", None))
        row.append(Cell(text(stories.sentences(story)), None, kind="words"))
        rows.append(row)
    about = (
        "<p class=about>The jobs with the longest delays, which are the times from arrival to "
        "finish minus the run times alone. <code>gangline explain DIR --job ID</code> explains any "
        "job."
    )
    if not any(story.causes for story in told) and any(story.wait_s for story in told):
        about += " The run was not repeated, so the reasons of the policy are not known."
    about += "</p>"
    return about + Table(titles, rows).html("The most delayed jobs", kind="told")
