"""Shows an explanation in a notebook: its sentences and a small timeline."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gangline._support.formatting import duration
from gangline._support.html import more, table
from gangline._support.html import text as escaped
from gangline.runs.explain import words

if TYPE_CHECKING:
    from gangline.runs.explain.facts import Facts

__all__ = ["html"]

_WIDTH, _HEIGHT = 640, 18
_RUN, _WAIT = "#0072b2", "#d9d9d9"


def html(said: Facts) -> str:
    """Return the explanation as self-contained HTML."""
    parts = [f"<p><bdi>{escaped(words.headline(said))}</bdi></p>"]
    if said.note:
        note = f"The reasons of the policy are not known: {said.note}."
        parts.append(f"<p><bdi>{escaped(note)}</bdi></p>")
    if said.waits or said.runs:
        parts.append(_bar(said))
    if said.waits:
        rows = [[duration(length_s), reason] for length_s, reason in words.reasons(said)]
        parts.append(table(["", ""], rows, f"Why it waited for {duration(said.wait_s)}"))
        passing = " ".join(line.strip() for line in words.passing(said))
        if said.rule:
            passing += f" What {said.policy} does: {said.rule}."
        parts.append(f"<p><bdi>{escaped(passing)}</bdi></p>")
    if said.runs:
        life = table([""], [[line] for line in words.events(said)])
        parts.append(more("the life of the job from its arrival on", life))
    if lost := words.losses(said):
        parts.append(f"<p>{escaped(lost)}</p>")
    return "".join(parts)


def _bar(said: Facts) -> str:
    spans = [(wait.start_s, wait.end_s, _WAIT, "waited") for wait in said.waits]
    spans += [(run.start_s, run.end_s, _RUN, "ran") for run in said.runs]
    begin, end = said.arrival_s, max(span[1] for span in spans)
    scale = _WIDTH / max(end - begin, 1e-9)
    bars = "".join(
        f'<rect x="{(low - begin) * scale:.2f}" width="{max((high - low) * scale, 0.2):.2f}" '
        f'height="{_HEIGHT}" fill="{colour}"><title>{what} for {duration(high - low)}, from '
        f"+{duration(low - begin)} on</title></rect>"
        for low, high, colour, what in sorted(spans)
    )
    label = f"{duration(end - begin)} from the job's arrival on; blue: with GPUs, grey: waiting"
    return (
        f'<svg role="img" aria-label="{escaped(label)}" viewBox="0 0 {_WIDTH} {_HEIGHT}" '
        f'style="width:100%;max-width:{_WIDTH}px;height:{_HEIGHT}px">{bars}</svg>'
        f'<div style="font-size:.85em">{escaped(label)}</div>'
    )
