"""`gangline reproduce`: repeats a paper's evaluation, and says which of its claims hold."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003 - cyclopts reads the annotations
from typing import Annotated, Any

from cyclopts import Parameter

from gangline.cli import _console, _inputs, complete
from gangline.cli._inputs import Flag, Json, MaybeNames, MaybeSeconds, Whole  # noqa: TC001 - cyclopts reads the annotations


def reproduce(
    paper: Annotated[str, Parameter(completer=complete.study)],
    /,
    *,
    quick: Flag = False,
    clusters: str | None = None,
    networks: str | None = None,
    workloads: str | None = None,
    policies: MaybeNames = None,
    seeds: str | None = None,
    restart_s: MaybeSeconds = None,
    workers: Whole = 1,
    out: Path | None = None,
    html: Path | None = None,
    tables: Flag = False,
    json: Json = False,
    raw: Flag = False,
) -> int:
    """Repeat a paper's evaluation (worlds, baselines), and show its claims next to our numbers.

    Parameters
    ----------
    paper
        dally, hadar, hadare, hadar-search or sjf-bsbf.
    quick
        Run only a small part, which takes less than a minute and gives no verdicts.
    clusters
        Clusters of the study, separated by commas; for dally, RACKSxSERVERS such as 4x4,8x8.
    networks
        Link presets, separated by commas.
    workloads
        Names separated by commas; an unknown name gives an error that lists all valid names.
    policies
        Policies compared in the study, or any other policies, separated by commas.
    seeds
        Seeds of the workloads, separated by commas; tables show means.
    restart_s
        Time in seconds without progress after a restart or move, for all policies.
    workers
        Maximum number of concurrent runs; it does not change the numbers.
    out
        Folder for reproduction.json and for the runs of each world, as `compare --out` writes them.
    html
        File for a self-contained page with all tables and figures.
    tables
        Also print the tables of each world and of all ratios.
    json
        Print one JSON document instead of tables.
    raw
        Print every value in full, one per line, in the unit at the end of its key.
    """
    from gangline.studies.reproduce import run

    if html is not None:
        from gangline.cli import _page

        _page.check(html)
    axes = {
        "clusters": clusters,
        "networks": networks,
        "workloads": workloads,
        "policies": policies,
    }
    made = run(
        paper,
        quick=quick,
        seeds=() if seeds is None else _inputs.seeds(seeds),
        out=out,
        progress=True,
        restart_s=restart_s,
        workers=workers,
        **{axis: _names(axis, text) for axis, text in axes.items() if text is not None},
    )
    if html is not None:
        pictures = [(one.title, one.about, one.svg) for one in made.figures()]
        lines = [*made.head(), *made.sentences()]
        _page.write_tables(made.study.title, lines, made.tables(), html, pictures)
    if json or raw:
        _console.data(made.to_dict(), raw=raw)
        return 0
    _console.prose("\n".join(made.head()) + "\n")
    claims = made.claim_tables()
    others = made.tables()[len(claims) :]
    for title, titles, cells in claims:
        _console.table(titles, cells, title=title)
    _console.prose("\n".join(made.sentences()))
    for title, titles, cells in others if tables else ():
        for part, shown in _folded(titles, cells):
            _console.table(part, shown, title=title)
    if not tables:
        _console.say("--tables also prints the tables of each world and of all ratios")
    for path in (out, html):
        if path is not None:
            _console.say(f"saved {path}")
    return 0


def _folded(titles: list[str], cells: list[list[Any]]) -> list[tuple[list[str], list[list[Any]]]]:
    """Split a table that is wider than the terminal into several, each with the first column."""
    from gangline._support.html import show

    room = _console.columns()
    widths = [
        3 + max(len(name), *(len(show(row[i])) for row in cells)) for i, name in enumerate(titles)
    ]
    parts: list[list[int]] = [[0]]
    for i in range(1, len(titles)):
        if len(parts[-1]) > 1 and 1 + sum(widths[k] for k in parts[-1]) + widths[i] > room:
            parts.append([0])
        parts[-1].append(i)
    return [
        ([titles[k] for k in part], [[row[k] for k in part] for row in cells]) for part in parts
    ]


def _names(axis: str, text: str) -> list[str]:
    """Read names separated by commas, such as `a,b`."""
    from gangline.errors import GanglineError

    names = [name.strip() for name in text.split(",") if name.strip()]
    if not names:
        raise GanglineError(f"--{axis}: expected names separated by commas, got {text!r}")
    return names
