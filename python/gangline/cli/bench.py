"""`gangline bench`: ranks policies with the same knowledge on a frozen suite."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from gangline._support import formatting
from gangline.cli import _console, _exit, _inputs, _page, complete
from gangline.cli._inputs import Flag, Json, MaybeWhole  # noqa: TC001 - cyclopts reads them

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gangline.policies.choice import PolicyLike
    from gangline.studies.bench import Bench

_TABLES = ("bench.csv", "bench.parquet")
_JSON = "bench.json"
_SPARE = ("preempt. per job", "ms per run", "mean rank")
"""Columns that are omitted on a narrow terminal, in this order."""


def bench(
    *,
    policies: Annotated[
        list[str] | None,
        Parameter(name=["--policies", "--policy"], negative="", completer=complete.policies),
    ] = None,
    quick: Flag = False,
    suite: MaybeWhole = None,
    traces: Path | None = None,
    workers: MaybeWhole = None,
    out: Path | None = None,
    row: Path | None = None,
    verify: Path | None = None,
    json: Json = False,
    raw: Flag = False,
) -> int:
    """Run policies on a frozen suite of worlds and rank them among those with the same knowledge.

    The command measures how well policies schedule. The programs in the project's folder benches
    measure the speed of gangline itself.

    Parameters
    ----------
    policies
        Names separated by commas; module:Class is a policy in Python. The default is all policies
        that solve no linear programs. For other policies, the tables show the published results.
    quick
        Run only a small part of the suite, which takes seconds.
    suite
        Version of the suite; by default, the newest.
    traces
        A folder with the suite's real traces, recognised by their SHA-256.
    workers
        Maximum number of concurrent runs; by default, one per core.
    out
        Folder for bench.csv, bench.parquet, bench.html, bench.json, and a table and runs as for a
        sweep; default: gangline-bench-VERSION. A stopped bench continues there.
    row
        Folder for the row of one policy in Python, to be sent in a pull request: its numbers, the
        hashes of its events, and its file.
    verify
        Run a row, or a folder of rows, again and compare the results. With --quick, repeat only the
        runs of the small part.
    json
        Print one JSON document instead of tables.
    raw
        Print every value in full, one per line, in the unit at the end of its key.
    """
    from gangline.studies import bench as benchmark

    if verify is not None:
        return _verify(verify, workers, quick=quick, json=json)
    version = benchmark.load_suite(suite).version
    folder = Path(f"gangline-bench-{version}") if out is None else out
    page = folder / "bench.html"
    _check(folder, page)
    names = [name.strip() for text in policies or () for name in text.split(",") if name.strip()]
    given = [_named(name) for name in names]
    if row is not None:
        _check_row(given, row, quick=quick)
    done = benchmark.bench(
        given or None,
        suite=version,
        quick=quick,
        traces=traces,
        out=folder,
        workers=workers,
        progress=True,
    )
    _write(done, folder, page)
    if row is not None:
        benchmark.write_row(done, given[0], row)
    if json or raw:
        _console.data(done.to_dict(), raw=raw)
    else:
        _show(done)
    _console.say(f"saved in {folder}: bench.html, bench.csv, bench.parquet, bench.json, runs/")
    if row is not None:
        _console.say(f"saved the row in {row}; `gangline bench --verify {row}` runs it again")
    return _exit.REFUSED if done.failed else _exit.DONE


def _check_row(given: list[PolicyLike], row: Path, *, quick: bool) -> None:
    from gangline.errors import OptionError
    from gangline.studies.bench.submission import check_row

    if quick or len(given) != 1:
        message = "--row: expected one policy on the whole suite: --policies MODULE:CLASS"
        if quick:
            message += ", without --quick"
        raise OptionError(message, field="row", value=str(row))
    check_row(given[0], row)


def _verify(path: Path, workers: int | None, *, quick: bool, json: bool) -> int:
    from gangline.studies import bench as benchmark

    found = benchmark.verify(path, quick=quick, workers=workers)
    if json:
        _console.document([one._asdict() for one in found])
    else:
        _console.paragraphs(*(line for one in found for line in one.sentences()))
    return _exit.REFUSED if any(one.differences for one in found) else _exit.DONE


def _named(name: str) -> PolicyLike:
    return _inputs.policy(name, {}) if ":" in name else name


def _unknown(titles: Sequence[str], rows: Sequence[Sequence[object]]) -> list[str]:
    """Return the columns in which no row has a value because no policy was run."""
    return [name for i, name in enumerate(titles) if all(row[i] == "–" for row in rows)]


def _check(folder: Path, page: Path) -> None:
    """Raise an error before the runs if an output could not be written after them."""
    from gangline.files import listed_files
    from gangline.files.places import check_free
    from gangline.studies.bench.run import KIND

    listed_files.check(folder, _TABLES)
    check_free(folder / _JSON, KIND)
    if folder.is_dir():
        _page.check(page)


def _write(done: Bench, folder: Path, page: Path) -> None:
    from gangline import plot
    from gangline.files import listed_files
    from gangline.files.json_files import write_sealed
    from gangline.studies.bench import show
    from gangline.studies.bench.run import KIND

    with listed_files.replacing(folder, _TABLES) as part:
        for name in _TABLES:
            plot.write_table(done.table, part / name)
    write_sealed(folder / _JSON, KIND, done.to_dict())
    show.write_page(done, page, _page.typed())


def _show(done: Bench) -> None:
    from gangline.studies.bench import show

    _console.paragraphs(*show.answers(done))
    _console.write("")
    left_out: dict[str, None] = {}
    for title, titles, rows in show.standings(done):
        spare = _unknown(titles, rows)
        numbers = [i for i, name in enumerate(titles) if name != "policy"]
        width = _console.NARROW
        gone = _console.table(
            titles, rows, title=title, numbers=numbers, at_most=width, spare=(*spare, *_SPARE)
        )
        left_out.update(dict.fromkeys(name for name in gone if name not in spare))
    if left_out:
        _console.say(f"not shown here: {formatting.listed(list(left_out))}; see bench.html")
    for title, titles, rows in show.loads(done):
        _console.table(titles, rows, title=title)
    _console.paragraphs(*show.sentences(done))
