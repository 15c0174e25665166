"""`gangline advise`: finds a scheduler and a number of servers for a cluster's job log."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from gangline.cli import _console, _inputs, _page
from gangline.cli._inputs import (
    Jobs,
    Json,
    Lab,
    MaybeNames,
    MaybeWhole,
    Overheads,
    Settings,
    TraceChoice,
)
from gangline.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gangline.studies.advise import Advice
    from gangline.trace.jobs.table import Trace

_SPARE = ("p50", "GPUs", "mean JCT", "95 % interval", "load")
"""Columns that are omitted on a narrow terminal, in this order."""


def advise(
    log: Jobs,
    /,
    *,
    cluster: Lab,
    policies: MaybeNames = None,
    servers: str | None = None,
    gpu: str | None = None,
    price: Annotated[list[str] | None, Parameter(negative="")] = None,
    base: str | None = None,
    settings: Settings = None,
    overheads: Overheads | None = None,
    tolerance_s: Annotated[float, Parameter(name="--tolerance-s")] = 60.0,
    workers: MaybeWhole = None,
    out: Path = Path("advice"),
    json: Json = False,
    choice: TraceChoice | None = None,
) -> int:
    """Find the best scheduler and number of servers for the jobs in a log.

    Parameters
    ----------
    log
        The export of a scheduler, or any trace.
    cluster
        The current servers: a TOML file, a list of servers, a preset, or 8x8xA100.
    policies
        Names separated by commas; by default, several schedulers that a site could run.
    servers
        Total numbers of servers to compare, such as 6,8,12; +4 means 4 more than now. The default
        is 75 to 150 % of the current number.
    gpu
        GPU type whose servers are varied; by default, all types grow and shrink in proportion.
    price
        Price of a GPU-hour, or TYPE=PRICE; repeatable. The default is the price of the cluster.
    base
        The policy with which others are compared; by default, the one closest to the log.
    settings
        POLICY.KEY=VALUE, or KEY=VALUE for every policy that has the key; repeatable.
    overheads
        Costs of starts and stops.
    tolerance_s
        As for `gangline validate`; waits up to five times this value count as short in the
        calibration.
    workers
        Maximum number of concurrent runs; by default, one per core.
    out
        Folder for advice.html, advice.json, and the files that the printed commands use.
    json
        Print one JSON document instead of tables.
    choice
        Options for reading the log.
    """
    from gangline.runs.inputs import as_cluster
    from gangline.studies.advise import advise as find
    from gangline.studies.advise.saved import PAGE, check

    check(out)
    lab = as_cluster(cluster)
    sizes, prices = _sizes(servers, lab.servers_total), _prices(price)
    trace = (choice or TraceChoice()).read(log)
    chosen = _policies(policies, settings, trace)
    found = find(
        lab,
        trace,
        chosen,
        servers=sizes,
        gpu=gpu,
        price=prices,
        base=base,
        **(overheads or Overheads()).costs,
        tolerance_s=tolerance_s,
        workers=workers,
        progress=True,
    )
    found.save(out, command=_page.typed())
    if json:
        _console.document(found.to_dict())
    else:
        _show(found, out)
        _inputs.say_notes(trace)
        _inputs.say_names(trace, chosen or ())
    _console.say(f"saved {out / PAGE}")
    return 0


def _show(found: Advice, out: Path) -> None:
    """Print the sentences, the table, and the commands with which to check the sentences."""
    claims = found.claims(out.as_posix())
    for number, claim in enumerate(claims, 1):
        _console.paragraphs(f"{claim.text} [{number}]", "")
    base = found.name(found.base)
    title = f"Schedulers and sizes; changes against {base} on {found.servers} servers"
    _console.table(found.titles(), found.cells(), title=title, is_formatted=True, spare=_SPARE)
    _console.paragraphs(found.marks())
    if found.calibration.rows:
        titles, cells = found.calibration.titles(), found.likeness_cells()
        _console.table(
            titles, cells, title="Resemblance of the policies to the log", is_formatted=True
        )
        _console.paragraphs(found.calibration.legend())
    if found.best.users and found.best.policy != found.base:
        title = found.user_title()
        _console.table(found.user_titles(), found.user_cells(), title=title, is_formatted=True)
    _console.paragraphs(*(f"note: {line}" for line in found.notes()), "", "To check it:")
    _console.write(*(f"[{number}] {claim.command}" for number, claim in enumerate(claims, 1)))


def _policies(names: str | None, settings: list[str] | None, trace: Trace) -> list[Any] | None:
    if names is None and not settings:
        return None
    if names is None:
        from gangline.studies.advise.contenders import default_contenders

        named = [text.partition(".")[0] for text in settings or []]
        names = ",".join(default_contenders(trace, named))
    chosen, tables = _inputs.policies(names, settings)
    if tables:
        message = (
            "--set: advise does not accept settings of the cluster; put them in the cluster file"
        )
        raise OptionError(message, field="settings")
    return list(chosen)


def _sizes(text: str | None, here: int) -> list[int] | None:
    """Read numbers of servers; those with a sign are relative to the current number."""
    if text is None:
        return None
    try:
        sizes = [one.strip() for one in text.split(",")]
        return [int(one) + here * one.startswith(("+", "-")) for one in sizes]
    except ValueError:
        message = f"--servers: expected numbers separated by commas, such as 6,8,12; got {text!r}"
        raise OptionError(message, field="servers", value=text) from None


def _prices(texts: list[str] | None) -> Mapping[str, float] | float | None:
    """Read PRICE, or one or more TYPE=PRICE."""
    found: dict[str, float] = {}
    for text in texts or []:
        name, equals, number = text.rpartition("=")
        try:
            price = float(number)
        except ValueError:
            message = f"--price: expected PRICE or TYPE=PRICE, got `{text}`"
            raise OptionError(message, field="price", value=text) from None
        if not equals and len(texts or []) == 1:
            return price
        if not equals:
            message = f"--price: expected TYPE=PRICE when given several times, got `{text}`"
            raise OptionError(message, field="price", value=text)
        found[name] = price
    return found or None
