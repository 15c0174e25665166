"""`gangline plan`: the fewest servers, or the largest load, that keep targets."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from gangline import _formatting
from gangline.cli import _console, _exit, _inputs, _page
from gangline.cli._inputs import (
    Flag,
    Json,
    MaybeWhole,
    Replicates,
    Settings,
    TraceChoice,
    World,
)

if TYPE_CHECKING:
    from gangline.capacity import CapacityPlan

_CHARACTERS = 88  # of a line of text


def plan(
    *,
    world: World,
    policy: str,
    keep: Annotated[list[str], Parameter(negative="")],
    gpu: str | None = None,
    load: Flag = False,
    step: float | None = None,
    most: float | None = None,
    exhaustive: Flag = False,
    settings: Settings = None,
    replicates: Replicates | None = None,
    price_per_hour: float | None = None,
    workers: MaybeWhole = None,
    out: Path | None = None,
    html: Path | None = None,
    figure: Path | None = None,
    json: Json = False,
    choice: TraceChoice | None = None,
) -> int:
    """Find the fewest servers, or the largest load, that keep targets.

    Parameters
    ----------
    world
        Trace, cluster and overheads.
    policy
        Name of a policy, or module:Class of one in Python.
    keep
        A target such as "queue_p95_s<=3600": a key of the summary, or a quantile of jct, queue,
        wait, slowdown or ftf; the mean over the seeds counts. Repeatable: all are kept.
    gpu
        GPU type whose servers are varied; needed where there are several.
    load
        Find the largest load on the cluster as it is, instead of the fewest servers.
    step
        Difference between two loads that are tried; default 0.05.
    most
        The largest number of servers or load; default: servers for every job, or load 20.
    exhaustive
        Look at every size up to the largest that the search looks at.
    settings
        A parameter of the policy as KEY=VALUE, or sharing.KEY=VALUE; repeatable.
    replicates
        Seeds.
    price_per_hour
        Of one GPU of the type; default: as the cluster says.
    workers
        Runs at once; default: one per core.
    out
        Folder of the runs and of plan.json; a plan that was stopped goes on there.
    html
        File for a page with the curve; it loads nothing.
    figure
        File for the curve as PDF, PNG, PGF or SVG; needs the extra plot.
    json
        Print one JSON document instead of a table.
    choice
        How the trace is read.
    """
    from gangline.capacity import plan as find
    from gangline.run_inputs import as_cluster

    if html is not None:
        _page.check(html)
    if figure is not None:
        _check_figure(figure)
    given, sharing = _inputs.split_sharing(settings)
    config = _inputs.policy(policy, given)
    jobs = world.read(choice)
    found = find(
        world.cluster,
        jobs,
        config,
        keep=keep,
        gpu=gpu,
        vary="load" if load else "servers",
        step=step,
        most=most,
        exhaustive=exhaustive,
        price_per_hour=price_per_hour,
        sharing=sharing,
        out=out,
        workers=workers,
        progress=True,
        **(replicates or Replicates()).options,
        **world.options,
    )
    if figure is not None:
        from gangline import plot

        plot.save(plot.capacity(found), figure)
    if html is not None:
        source = world.trace if world.trace.startswith("synth:") else Path(world.trace).name
        what = f"{_formatting.plural(len(jobs), 'job')} from {source} on {Path(world.cluster).name}"
        _write_page(found, what, html)
    if json:
        _console.document(found.to_dict())
    else:
        _console.table(found.titles(), found.cells(), title=f"{found.policy}: {jobs!r}")
        for line in found.sentences():
            _console.write(*textwrap.wrap(line, _CHARACTERS))
        _inputs.say_about(jobs, as_cluster(world.cluster), [config])
    for path in (out, html, figure):
        if path is not None:
            _console.say(f"saved {path}")
    return _exit.REFUSED if found.answer is None else _exit.DONE


def _check_figure(path: Path) -> None:
    """Refuse now what could not be drawn after the runs."""
    from gangline import plot

    plot.check(path)


def _write_page(found: CapacityPlan, what: str, path: Path) -> None:
    """Write what was varied, the sentences, the curve and the table."""
    from gangline.capacity.picture import SHOWN, curve

    dots = "A dot is one run." if found.seeds == 1 else "Dots are means over the seeds"
    if found.seeds > 1:
        banded = any(mean.low is not None for one in found.points for mean in one.values.values())
        dots += ", the band their 95 % intervals." if banded else "."
    about = (
        f"{dots} The solid line is the bound, the dotted one the answer; what lies above "
        f"{SHOWN:g} times the bound is cut off."
    )
    pictures = [(str(one), about, curve(found, one)) for one in found.targets if one.bound > 0.0]
    rows = [row[:-1] for row in found.cells()]  # without the bars
    table = ("Sizes that were looked at", found.titles()[:-1], rows)
    kept = _formatting.listed([str(target) for target in found.targets])
    title = f"{found.policy}: what keeps {kept}"
    _page.write_tables(title, [f"{what}.", *found.sentences()], [table], path, pictures)
