"""`gangline paper`: compares policies with papers' baselines, writes a folder for your paper."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from gangline.cli import _console, _exit, _inputs
from gangline.cli._inputs import Flag, Json, MaybeWhole, Settings  # noqa: TC001 - cyclopts reads them

if TYPE_CHECKING:
    from gangline.paper import Paper

_FILE = ".toml"


def paper(
    policies: str,
    /,
    *,
    settings: Settings = None,
    worlds: str | None = None,
    seeds: str | None = None,
    quick: Flag = False,
    workers: MaybeWhole = None,
    out: Path | None = None,
    json: Json = False,
) -> int:
    """Run a policy in five papers' worlds and a common one, and write a folder for your paper.

    The folder contains tables and a figure in LaTeX, a paragraph on methods, and repeat.toml.
    `gangline paper repeat.toml` runs everything again and compares every file.

    Parameters
    ----------
    policies
        Names separated by commas (module:Class is a policy in Python), or a kit's repeat.toml.
    settings
        A parameter as KEY=VALUE, or POLICY.KEY=VALUE; repeatable.
    worlds
        Any of hadar, dally, sjf-bsbf, gavel, tiresias and common, separated by commas; by default,
        all.
    seeds
        Seeds separated by commas or as a range; default 0..9. Intervals need five or more seeds.
    quick
        Run small workloads with two seeds, which takes seconds and gives no verdicts.
    workers
        Maximum number of concurrent runs; by default, one per core.
    out
        Folder of the kit; default: gangline-paper. A stopped kit continues there. With a
        repeat.toml, the new results are kept only if this option names a folder.
    json
        Print one JSON document instead of tables.
    """
    if policies.endswith(_FILE):
        return _repeat(Path(policies), workers, out, json=json)
    from gangline.paper import run, show, write
    from gangline.paper.folder import check
    from gangline.paper.run import entrants

    given, tables = _inputs.policies(policies, settings)
    if tables:
        from gangline.errors import OptionError

        message = "--set: sharing and runtime belong to the worlds, which are fixed"
        raise OptionError(message, field="set", value=str(tables))
    folder = Path("gangline-paper") if out is None else out
    check(folder, [path for one in entrants(given) for path in one.files])
    made = run(
        given,
        worlds=None if worlds is None else [name.strip() for name in worlds.split(",")],
        quick=quick,
        seeds=None if seeds is None else _inputs.seeds(seeds),
        out=folder,
        workers=workers,
        progress=True,
    )
    files = write(made, folder)
    if json:
        _console.document(show.document(made))
    else:
        for title, titles, cells in show.terminal(made):
            _console.table(titles, cells, title=title)
        _console.paragraphs(
            *show.legend(made), *show.verdicts(made), *show.reasons(made), *made.notes
        )
    _console.say(f"saved in {folder}: {', '.join(files)}; work/ may be removed")
    return _exit.REFUSED if _has_failed(made) else _exit.DONE


def _has_failed(made: Paper) -> bool:
    return any(row.is_new and row.status == "failed" for row in made.rows)


def _repeat(path: Path, workers: int | None, out: Path | None, *, json: bool) -> int:
    from gangline.paper import repeat

    _inputs.find_modules_here()
    found = repeat(path, out=out, workers=workers, progress=True)
    if json:
        _console.document({**found._asdict(), "repeats": not found.differences})
    else:
        _console.paragraphs(*found.sentences())
    return _exit.REFUSED if found.differences else _exit.DONE
