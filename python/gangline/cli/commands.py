"""Lists the commands, each with its module, a line of help, and examples.

`gangline --help` prints its list from here, so it imports neither the modules of the commands nor
the library that reads options.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from cyclopts import App

__all__ = ["COMMANDS", "GROUPS", "app", "examples", "overview"]


class Command(NamedTuple):
    """A top-level command."""

    place: str
    line: str


GROUPS = {
    "Answers": (
        "advise",
        "compare",
        "plan",
        "eta",
        "sweep",
        "bench",
        "reproduce",
        "paper",
        "validate",
        "profile",
    ),
    "One run": ("run", "serve", "explain", "report", "gantt", "audit"),
    "Information": ("policies", "cluster", "trace", "doctor"),
}
COMMANDS = {
    "run": Command("run:run", "simulate one policy, or repeat a saved run"),
    "serve": Command("serve:serve", "let a scheduler in another process drive a run"),
    "compare": Command("compare:compare", "compare several policies on one trace"),
    "advise": Command("advise:advise", "find the best scheduler and number of GPUs for a log"),
    "sweep": Command("sweep:sweep", "run a grid of runs from a TOML file and summarise it"),
    "plan": Command("plan:plan", "find the fewest servers, or the largest load, for targets"),
    "eta": Command("eta:eta", "forecast when the jobs waiting in a queue will start"),
    "bench": Command("bench:bench", "rank policies on a frozen suite of worlds"),
    "explain": Command("explain:explain", "say why a job of a saved run waited, or try a change"),
    "report": Command("report:report", "write an HTML report on saved runs"),
    "gantt": Command("gantt:gantt", "write a Gantt chart of jobs on GPUs, for Perfetto"),
    "reproduce": Command("reproduce:reproduce", "repeat the evaluation of a paper"),
    "paper": Command("paper:paper", "run new policies in the worlds of five papers"),
    "validate": Command("validate:validate", "compare simulated and observed times of jobs"),
    "profile": Command("profile:app", "measure your GPU, and run real jobs on it"),
    "policies": Command("policies:policies", "list policies, or the parameters of one"),
    "audit": Command("audit:audit", "check the tables of any simulator for broken rules"),
    "doctor": Command("doctor:doctor", "show what is installed and whether it works"),
    "cluster": Command("cluster:app", "show, check, convert and list clusters"),
    "trace": Command("trace:app", "inspect, check, convert, draw and fit traces"),
}
_WIDEST = 74  # the maximum width of a line in an example, before its backslash
_PHILLY = "--trace mini:philly --cluster pollux-64"
_DRAWN = '--trace "synth:pai?jobs=500&seed=0&max_gpus=16" --cluster 8x4xV100'
_EXAMPLES = {
    "run": (
        f"gangline run {_PHILLY} --policy srtf --restart-s 30 --out result",
        f"gangline run {_PHILLY} --policy las --set limits=600,3600",
        "gangline run result/spec.json",
    ),
    "compare": (
        f"gangline compare {_PHILLY} --policies fifo,srtf,tiresias",
        "gangline compare --trace jobs.csv --cluster 8x8xA100 --policies easy,las --html page.html",
        f"gangline compare {_DRAWN} --policies fifo,srtf --trace-seeds 0..9",
    ),
    "sweep": (
        "gangline sweep sweep.toml --by policy,rescale --html page.html",
        "gangline sweep sweep.toml --executor dask --address tcp://scheduler:8786",
    ),
    "plan": (
        f'gangline plan {_PHILLY} --policies easy,srtf --keep "p95_wait<4h"',
        f'gangline plan {_PHILLY} --policies fifo-skip --load --keep "jct_mean_s<=2h"',
    ),
    "eta": (
        "gangline eta --trace queue.txt --cluster 8x8xA100 --policy easy --history log.txt",
        "gangline eta --trace log.csv --cluster lab.toml --at 2d --job 4711",
    ),
    "advise": (
        "gangline advise sacct.txt --cluster 8x8xA100",
        "gangline advise jobs.json --cluster nodes.json --servers 6,8,12 --price A100=2.5",
    ),
    "bench": ("gangline bench --quick --policies fifo,srtf,my_module:MyPolicy",),
    "explain": (
        "gangline explain result --job 4711",
        "gangline explain result --job 4711 --what-if policy=srtf --what-if servers=+2",
    ),
    "report": ("gangline report results --html page.html",),
    "gantt": ("gangline gantt result --out result.pftrace --from 0 --to 86400",),
    "reproduce": ("gangline reproduce hadar --quick", "gangline reproduce dally --seeds 0..4"),
    "paper": (
        "gangline paper my_module:MyPolicy --quick --out kit",
        "gangline paper kit/repeat.toml",
    ),
    "serve": (f"gangline serve {_PHILLY} --listen 127.0.0.1:28000 --out result",),
    "validate": (
        "gangline validate --trace jobs.csv --cluster lab.toml --policies srtf --observed seen.csv",
    ),
    "profile models": ("gangline profile models",),
    "profile measure": (
        "gangline profile measure --out lab",
        "gangline profile measure resnet18,bert@32,mine=train:make@64 --out lab --processes 2",
    ),
    "profile draw": ("gangline profile draw lab --out jobs.csv --count 30",),
    "profile run": (
        "gangline profile run lab --trace jobs.csv --policies fifo,sjf-bsbf --out seen",
    ),
    "policies": ("gangline policies", "gangline policies las"),
    "audit": (
        "gangline audit result --cluster pollux-64 --trace mini:philly",
        "gangline audit segments.csv --columns job_id=job,start_s=begin,end_s=end",
    ),
    "doctor": ("gangline doctor",),
    "cluster show": ("gangline cluster show pollux-64", "gangline cluster show 8x8xA100"),
    "cluster validate": ("gangline cluster validate lab.toml",),
    "cluster convert": ("gangline cluster convert nodes.csv --out lab.toml",),
    "cluster presets": ("gangline cluster presets",),
    "trace info": (
        "gangline trace info jobs.csv --cluster lab.toml",
        "gangline trace info mini:philly --cluster pollux-64",
    ),
    "trace validate": ("gangline trace validate jobs.csv",),
    "trace formats": ("gangline trace formats",),
    "trace convert": ("gangline trace convert mini:philly philly.swf",),
    "trace synth": ('gangline trace synth "philly?jobs=1000&seed=1" --out jobs.parquet',),
    "trace fit": ("gangline trace fit placements",),
    "trace fit-runtime": ("gangline trace fit-runtime jobs.csv --observed seen.csv",),
}


def examples(command: str) -> str:
    """Return the last section of a command's help, as Markdown.

    Examples
    --------
    >>> examples("doctor").splitlines()[1:]
    ['```sh', 'gangline doctor', '```']
    """
    return "\n".join(["Examples:", "```sh", *map(_folded, _EXAMPLES[command]), "```"])


def _folded(line: str) -> str:
    """Wrap a command before an option, so that it fits into 80 columns and can still be pasted."""
    lines = [""]
    for part in line.replace(" --", "\n--").split("\n"):
        if lines[-1] and len(lines[-1]) + len(part) > _WIDEST:
            lines.append(f"    {part}")
        else:
            lines[-1] = f"{lines[-1]} {part}" if lines[-1] else part
    return " \\\n".join(lines)


def overview() -> str:
    """Return the list of commands that `gangline --help` prints, at most 80 characters wide."""
    lines = [
        "Exact and fast simulation of deep-learning job scheduling on GPU clusters.",
        "",
        "Usage: gangline COMMAND ...     gangline COMMAND --help shows help and examples",
    ]
    for title, names in GROUPS.items():
        lines += ["", f"{title}:", *(f"  {name:<11} {COMMANDS[name].line}" for name in names)]
    return "\n".join(
        [
            *lines,
            "",
            "Options:",
            "  --help, -h            show this text",
            "  --version             show the version",
            "  --install-completion  complete commands, options and values with Tab",
            "",
            "Start with:",
            "  gangline compare --trace mini:philly --cluster pollux-64 \\",
            "      --policies fifo,srtf,tiresias",
            "",
        ]
    )


@cache
def app() -> App:
    """Return the command-line parser, which imports a command's module only when it is used."""
    from cyclopts import App

    made = App(
        name="gangline",
        help="Exact and fast simulation of deep-learning job scheduling on GPU clusters.",
        suppress_keyboard_interrupt=False,
        result_action="return_value",
    )
    for name, command in COMMANDS.items():
        place = f"gangline.cli.{command.place}"
        if command.place.endswith(":app"):
            made.command(place, name=name)
        else:
            made.command(place, name=name, help_epilogue=examples(name))
    made.register_install_completion_command()
    return made
