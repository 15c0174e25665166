"""`gangline validate`: compares simulated runs with observed times."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003 - cyclopts reads the annotations
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from gangline.cli import _console, _inputs, _page
from gangline.cli._inputs import Flag, Json, Names, Settings, TraceBeside, Whole, World
from gangline.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Sequence


def validate(
    *,
    world: World,
    policies: Names,
    observed: Annotated[list[str] | None, Parameter(negative="")] = None,
    columns: str | None = None,
    peer: Annotated[list[str] | None, Parameter(negative="")] = None,
    peer_columns: str | None = None,
    tolerance_s: Annotated[float, Parameter(name="--tolerance-s")] = 60.0,
    bias: Flag = False,
    settings: Settings = None,
    seed: Whole = 0,
    on_infeasible: Literal["error", "drop"] = "error",
    html: Path | None = None,
    json: Json = False,
    raw: Flag = False,
    choice: TraceBeside | None = None,
) -> int:
    """Measure how far simulated times are from observed times, job by job.

    Parameters
    ----------
    world
        Trace, cluster and overheads.
    policies
        Names separated by commas; module:Class is a policy in Python.
    observed
        The observed times: a table with job_id, with finish_s or jct_s, and, if known, with
        arrival_s, first_start_s or queue_s, and run_s. POLICY=FILE gives the table of one policy;
        repeatable. The default is the observed starts and finishes in the trace itself.
    columns
        NATIVE=THEIRS,... for other column names in these tables; NATIVE= leaves a column out.
    peer
        Results of another simulator for the same jobs; FILE or POLICY=FILE, repeatable.
    peer_columns
        NATIVE=THEIRS,... for the peer's tables; by default, the value of --columns.
    tolerance_s
        Two starts of a job that differ by at most this many seconds count as the same.
    bias
        Also print the bias by job size, length and model.
    settings
        POLICY.KEY=VALUE, or KEY=VALUE for every policy that has the key; repeatable.
    seed
        Seed of random draws.
    on_infeasible
        Whether a job that can never run ends the run or is left out.
    html
        File for a self-contained page with all tables and pictures.
    json
        Print one JSON document instead of tables.
    raw
        Print every value in full, one per line, in the unit at the end of its key.
    choice
        Options for reading the trace.
    """
    from gangline.files.quantities import mapping_of
    from gangline.policies.choice import resolve_policy
    from gangline.studies.validate import validate as hold

    if html is not None:
        _page.check(html)
    chosen, tables = _inputs.policies(policies, settings)
    resolved = [resolve_policy(one) for one in chosen]
    names = [name for one in resolved for name in (one.label, one.reference.name)]
    jobs = world.read(choice or TraceBeside())
    drops = on_infeasible == "drop"
    _inputs.say_lacks(jobs, world.cluster, chosen, tables, drops=drops)
    found = hold(
        world.cluster,
        jobs,
        chosen,
        None if observed is None else _tables("--observed", observed, names),
        columns=None if columns is None else mapping_of(columns, "--columns"),
        peer=None if peer is None else _tables("--peer", peer, names),
        peer_columns=None if peer_columns is None else mapping_of(peer_columns, "--peer-columns"),
        tolerance_s=tolerance_s,
        progress=True,
        seed=seed,
        on_infeasible=on_infeasible,
        **tables,
        **world.options,
    )
    if html is not None:
        found.write(html, command=_page.typed())
    if json or raw:
        _console.data(found.to_dict(), raw=raw)
        return 0
    _console.paragraphs(*found.sentences())
    _console.write("")
    for title, titles, cells in found.tables()[: None if bias else len(found)]:
        _console.table(titles, cells, title=title, is_formatted=True)
    for one in found:
        _console.say(*(f"note: {note}" for note in one.notes))
    _inputs.say_about(jobs, found.cluster, chosen)
    if not bias:
        _console.say("--bias also prints the bias by size, length and model")
    if html is not None:
        _console.say(f"saved {html}")
    return 0


def _tables(flag: str, texts: Sequence[str], names: Sequence[str]) -> Any:
    """Read FILE, or one or more POLICY=FILE."""
    found: dict[str, str] = {}
    plain = []
    for text in texts:
        name, equals, path = text.partition("=")
        if not equals or name not in names:
            plain.append(text)
        elif name in found:
            raise OptionError(f"{flag}: two tables for `{name}`", field=flag, value=name)
        else:
            found[name] = path
    if plain and (found or len(plain) > 1):
        message = f"{flag}: expected one FILE, or POLICY=FILE for each of the policies, got "
        raise OptionError(f"{message}`{plain[-1]}`", field=flag, value=plain[-1])
    return found or plain[0]
