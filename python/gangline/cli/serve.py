"""`gangline serve`: lets a scheduler in another process drive a run."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003 - cyclopts reads the annotations
from typing import Literal

from gangline.cli import _console
from gangline.cli._inputs import Flag, Json, Kept, MaybeSeconds, Seconds, TraceChoice, Whole, World
from gangline.errors import OptionError


def serve(
    *,
    world: World,
    listen: str | None = None,
    batsim: str | None = None,
    knowledge: Literal["online", "remaining"] = "online",
    round_s: MaybeSeconds = None,
    mixes_types: Flag = False,
    forks: Flag = False,
    any_host: Flag = False,
    timeout_s: Seconds = 600.0,
    seed: Whole = 0,
    out: Path | None = None,
    json: Json = False,
    kept: Kept | None = None,
    choice: TraceChoice | None = None,
) -> None:
    """Let a scheduler in another process drive a run over a socket.

    Parameters
    ----------
    listen
        HOST:PORT or unix:PATH to which the scheduler connects; default: 127.0.0.1 and a free port.
    batsim
        HOST:PORT of a scheduler written for Batsim, such as 127.0.0.1:28000; instead of --listen.
    knowledge
        Knowledge of the scheduler; with remaining, it sees how much work jobs have left.
    round_s
        Seconds between decisions, which begin at 0 s; by default, decisions are made at events.
    mixes_types
        Allow gangs on several GPU types.
    forks
        Allow jobs with several parts.
    any_host
        Allow --listen to name an address that other machines can reach. Connections are not
        protected by a password.
    timeout_s
        Maximum number of seconds to wait for a connection, and for each message.
    seed
        Seed of every random draw.
    out
        Folder for spec.json, summary.json and the tables.
    json
        Print one JSON document instead of a table.
    kept
        Tables and jobs to keep.
    choice
        Options for reading the trace.
    """
    from gangline.cli.run import check_places, show
    from gangline.remote.batsim import serve_batsim
    from gangline.remote.serve import listen_address
    from gangline.remote.serve import serve as listen_and_serve
    from gangline.runs.simulation import Simulation

    kept = kept or Kept()
    if listen is not None and batsim is not None:
        message = (
            "--batsim connects to the scheduler, and --listen waits for one: leave one of them out"
        )
        raise OptionError(message, field="listen", value=listen)
    where = listen or "127.0.0.1:0"
    listen_address(where, any_host=any_host)  # before the trace is read
    check_places(kept, out)
    jobs = world.read(choice)
    run = Simulation(
        world.cluster,
        jobs,
        round_s=round_s,
        mixes_types=mixes_types,
        forks=forks,
        seed=seed,
        **world.options,
        **kept.options,
    )
    if batsim is not None:
        result = serve_batsim(run, batsim, knowledge=knowledge, timeout_s=timeout_s)
    else:
        result = listen_and_serve(
            run,
            where,
            knowledge=knowledge,
            any_host=any_host,
            timeout_s=timeout_s,
            on_listening=lambda address: _console.say(f"listening on {address}"),
            on_turned_away=lambda why: _console.say(f"a scheduler was rejected: {why}"),
        )
    show(result, jobs, [], kept, out, json=json)
