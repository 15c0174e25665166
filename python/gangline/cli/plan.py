"""`gangline plan`: finds the fewest servers, or the largest load, that meet targets."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from gangline._support import formatting
from gangline.cli import _console, _exit, _inputs, _page
from gangline.cli._inputs import (
    Flag,
    Json,
    MaybeWhole,
    Names,
    Replicates,
    Settings,
    TraceChoice,
    World,
)

if TYPE_CHECKING:
    from gangline.runs.options import ClusterOptions
    from gangline.studies.capacity import CapacityPlan
    from gangline.studies.capacity.contest import CapacityContest
    from gangline.trace.jobs.table import Trace


def plan(
    *,
    world: World,
    policies: Names,
    keep: Annotated[list[str], Parameter(negative="")],
    gpu: str | None = None,
    load: Flag = False,
    step: float | None = None,
    most: float | None = None,
    exhaustive: Flag = False,
    allow_overload: Flag = False,
    settings: Settings = None,
    replicates: Replicates | None = None,
    price_per_hour: float | None = None,
    workers: MaybeWhole = None,
    out: Path | None = None,
    html: Path | None = None,
    figure: Path | None = None,
    json: Json = False,
    raw: Flag = False,
    choice: TraceChoice | None = None,
) -> int:
    """Find the fewest servers, or the largest load, that meet targets.

    Parameters
    ----------
    world
        Trace, cluster and overheads.
    policies
        Name of a policy, or several separated by commas; module:Class is a policy in Python.
    keep
        A target such as "p95_wait<1h", quoted for the shell: a key of the summary, or a quantile of
        jct, queue, wait, slowdown or ftf; its mean over the seeds counts. Repeatable; all targets
        must be met.
    gpu
        GPU type of the servers whose number is varied; required if there are several types.
    load
        Find the largest load on the given cluster, instead of the fewest servers.
    step
        Step between successive loads to try; default 0.05.
    most
        The largest number of servers, or the largest load; by default, enough servers for every job
        to have its own, or a load of 20.
    exhaustive
        Try every size up to the largest that the search tries.
    allow_overload
        Accept an answer whose offered load is above 1.
    settings
        A parameter as KEY=VALUE or POLICY.KEY=VALUE, or a setting of the cluster as
        sharing.KEY=VALUE or runtime.KEY=VALUE; repeatable.
    replicates
        Seeds.
    price_per_hour
        Price of one GPU of the type; by default, the price in the cluster file.
    workers
        Maximum number of concurrent runs; by default, one per core.
    out
        Folder for the runs and plan.json; a stopped plan continues there.
    html
        File for a self-contained page with the curve.
    figure
        File for the curve as PDF, PNG, PGF or SVG; needs the extra plot.
    json
        Print one JSON document instead of a table.
    raw
        Print every value in full, one per line, in the unit at the end of its key.
    choice
        Options for reading the trace.
    """
    from gangline.runs.inputs import as_cluster
    from gangline.studies.capacity import plan_capacity as find
    from gangline.studies.capacity.contest import CapacityContest

    if html is not None:
        _page.check(html)
    if figure is not None:
        _check_figure(figure)
    chosen, tables = _policies(policies, settings)
    jobs = world.read(choice)
    _inputs.say_lacks(jobs, world.cluster, chosen, tables)
    asked: Any = chosen if len(chosen) > 1 else chosen[0]
    found: CapacityPlan | CapacityContest = find(
        world.cluster,
        jobs,
        asked,
        keep=keep,
        gpu=gpu,
        vary="load" if load else "servers",
        step=step,
        most=most,
        exhaustive=exhaustive,
        allow_overload=allow_overload,
        price_per_hour=price_per_hour,
        **tables,
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
        what = f"{formatting.plural(len(jobs), 'job')} from {source} on {Path(world.cluster).name}"
        _write_page(found, what, html)
    if json or raw:
        _console.data(found.to_dict(), raw=raw)
    else:
        for line in found.sentences():
            _console.prose(line)
        _show(found, jobs)
        _inputs.say_about(jobs, as_cluster(world.cluster), chosen)
    for path in (out, html, figure):
        if path is not None:
            _console.say(f"saved {path}")
    plans = found if isinstance(found, CapacityContest) else [found]
    return _exit.DONE if any(one.answer is not None for one in plans) else _exit.REFUSED


def _policies(names: str, settings: list[str] | None) -> tuple[list[Any], ClusterOptions]:
    """Return the policies, and the settings that belong to the tables of the cluster."""
    if "," in names:
        return _inputs.policies(names, settings)
    given, tables = _inputs.split_settings(settings)
    prefix = f"{names}."
    return [_inputs.policy(names, {k.removeprefix(prefix): v for k, v in given.items()})], tables


def _show(found: CapacityPlan | CapacityContest, jobs: Trace) -> None:
    """Print the table of sizes or of policies."""
    from gangline.studies.capacity.contest import CapacityContest

    first = found.plans[0] if isinstance(found, CapacityContest) else found
    title = f"{first.traces} draws of {jobs!r}" if first.traces > 1 else repr(jobs)
    if isinstance(found, CapacityContest):
        _console.table(found.titles(), found.cells(), title=title, best=found.marks())
    else:
        name = formatting.shortened(found.policy, formatting.short_names([found.policy]))
        _console.table(found.titles(), found.cells(), title=f"{name}: {title}")


def _check_figure(path: Path) -> None:
    """Raise an error before the runs if a figure could not be drawn after them."""
    from gangline import plot

    plot.check(path)


def _write_page(found: CapacityPlan | CapacityContest, what: str, path: Path) -> None:
    """Write the page with the question, the sentences, the curves and the tables."""
    from gangline.studies.capacity.contest import CapacityContest
    from gangline.studies.capacity.picture import SHOWN, curve
    from gangline.studies.capacity.result import in_words

    plans = list(found) if isinstance(found, CapacityContest) else [found]
    first, names = plans[0], formatting.short_names([plan.policy for plan in plans])
    dots = "A dot is one run." if first.seeds == 1 else "Dots are means over the seeds"
    if first.seeds > 1:
        points = [point for plan in plans for point in plan.points]
        banded = any(mean.low is not None for one in points for mean in one.values.values())
        dots += ", the band their 95 % intervals." if banded else "."
    if any(point.is_overloaded for plan in plans for point in plan.points):
        dots += " A hollow dot is a size that is offered more work than it can do."
    answers = "the dotted line is the answer"
    if len(plans) > 1:
        answers = "the dotted lines are the answers"
    about = (
        f"{dots} The solid line is the bound, {answers}; values above "
        f"{SHOWN:g} times the bound are cut off."
    )
    pictures = [
        (in_words(one), about, curve(plans, one)) for one in first.targets if one.bound > 0.0
    ]
    tables = [
        (
            formatting.shortened(_sizes_of(plan, plans), names),
            plan.titles()[:-1],
            [row[:-1] for row in plan.cells()],
        )
        for plan in plans
    ]  # without the bars
    title = f"{formatting.shortened(first.policy, names)}: what meets {first.kept}"
    if isinstance(found, CapacityContest):
        title = f"What keeps {first.kept}"
        tables.insert(0, ("Policies", found.titles(), found.cells()))
    _page.write_tables(title, [f"{what}.", *found.sentences()], tables, path, pictures)


def _sizes_of(plan: CapacityPlan, plans: list[CapacityPlan]) -> str:
    return "Sizes that were tried" + (f": {plan.policy}" if len(plans) > 1 else "")
