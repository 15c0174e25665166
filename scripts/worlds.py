"""Writes what each policy does in two worlds into its page, from runs.

    .venv/bin/python scripts/worlds.py            # writes; needs a build of the current Rust
    .venv/bin/python scripts/worlds.py --check    # writes nothing; fails if a page is stale

`scripts/worlds.toml` has the worlds. The page of a policy names a world in which the policy is best
in its own measure, and one in which it is not. The script writes only between these markers:

    <!-- worlds: NAME
    works = { world = "queue", measure = "jct_mean_s", rivals = ["fifo"], why = "A sentence." }
    fails = { world = "mixed", measure = "makespan_s", rivals = ["sjf"], why = "Another one." }
    -->
    <!-- end of worlds -->
"""

from __future__ import annotations

import argparse
import re
import sys
import tomllib
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import gangline as gl
from gangline._support import formatting

ROOT = Path(__file__).resolve().parent.parent
COMMAND = ".venv/bin/python scripts/worlds.py"
MARKED = re.compile(
    r"(<!-- worlds: (?P<policy>\S+)\n(?P<named>.*?)\n-->\n).*?(<!-- end of worlds -->)", re.S
)
FILE = re.compile(r"<!-- file: (\S+) -->\n```toml\n(.*?)```", re.S)
TITLES = {
    "jct_mean_s": "mean JCT",
    "jct_p99_s": "99th percentile of JCT",
    "makespan_s": "makespan",
    "ftf_max": "largest rho",
    "migrations": "number of moves",
    "cost": "cost",
}
"""Metrics, of which smaller values are better."""
LABELS = {("yarn-cs", "users"): {"queue_by": "user"}}
"""Parameters of a policy in a world."""
USED = 0.4  # The share of the GPU time in use under some policy; our own choice.
APART = 0.05  # The relative difference of two mean JCTs; our own choice.


class Shown(NamedTuple):
    """A policy and its rivals in a world."""

    world: str
    policies: tuple[str, ...]
    measure: str
    why: str
    rows: tuple[dict[str, Any], ...]
    """Summaries, in the order of the policies."""

    @property
    def is_best(self) -> bool:
        """Return whether the first policy has the least value of the measure."""
        values = [row[self.measure] for row in self.rows]
        return bool(values[0] < min(values[1:]))


@cache
def declared() -> dict[str, Any]:
    """Return the worlds by name."""
    found = tomllib.loads((ROOT / "scripts/worlds.toml").read_text("utf-8"))
    return dict(found["worlds"])


def pages() -> dict[str, Path]:
    """Return the page of each policy whose page names its worlds."""
    every = sorted((ROOT / "docs/policies").glob("*.md"))
    found = ((MARKED.search(page.read_text("utf-8")), page) for page in every)
    return {marked["policy"]: page for marked, page in found if marked is not None}


@cache
def _jobs(trace: str, max_gpus: int | None) -> gl.Trace:
    return gl.read_trace(trace, max_gpus=max_gpus)


@cache
def _cluster(name: str) -> gl.Cluster:
    if not name.endswith(".toml"):
        return gl.Cluster.preset(name)
    for page in sorted((ROOT / "docs/policies").glob("*.md")):
        for file, text in FILE.findall(page.read_text("utf-8")):
            if file == name:
                return gl.Cluster.from_dict(tomllib.loads(text))
    raise FileNotFoundError(name)


@cache
def summary(name: str, policy: str) -> dict[str, Any]:
    """Return the summary of a policy in a world."""
    world = declared()[name]
    options: dict[str, Any] = {"sharing": {"xi": world["xi"]}} if "xi" in world else {}
    params = LABELS.get((policy, name))
    result = gl.simulate(
        _cluster(world["cluster"]),
        _jobs(world["trace"], world.get("max_gpus")),
        policy,
        params=params,
        restart_s=world.get("restart_s", 0),
        **options,
    )
    return dict(result.summary)


def shown(policy: str) -> tuple[Shown, Shown]:
    """Run a policy and its rivals in both of its worlds."""
    marked = MARKED.search(pages()[policy].read_text("utf-8"))
    assert marked is not None
    named = tomllib.loads(marked["named"])

    def one(entry: dict[str, Any]) -> Shown:
        policies = (policy, *entry["rivals"])
        rows = tuple(summary(entry["world"], name) for name in policies)
        return Shown(entry["world"], policies, entry["measure"], entry["why"], rows)

    return one(named["works"]), one(named["fails"])


def _command(one: Shown) -> str:
    world = declared()[one.world]
    words = [f'gangline compare --trace "{world["trace"]}" --cluster {world["cluster"]}']
    words.append(f"--policies {','.join(one.policies)}")
    words += [f"--max-gpus {world['max_gpus']}"] if "max_gpus" in world else []
    words += [f"--restart-s {world['restart_s']}"] if "restart_s" in world else []
    words += [f"--set sharing.xi={world['xi']}"] if "xi" in world else []
    for policy in one.policies:
        params = LABELS.get((policy, one.world), {})
        words += [f"--set {policy}.{key}={value}" for key, value in params.items()]
    return " ".join(words)


def _text(measure: str, value: float) -> str:
    if measure.endswith("_s"):
        return formatting.duration(value)
    return formatting.count(value) if measure == "migrations" else f"{value:,.2f}"


def _table(one: Shown) -> str:
    measures = list(dict.fromkeys(["jct_mean_s", one.measure]))
    head = ["policy", *(TITLES[measure] for measure in measures), "GPUs in use"]
    rows = [head, ["---"] * len(head)]
    least = {measure: min(row[measure] for row in one.rows) for measure in measures}
    for policy, row in zip(one.policies, one.rows, strict=True):
        cells = [f"`{policy}`"]
        for measure in measures:
            text = _text(measure, row[measure])
            cells.append(f"**{text}**" if row[measure] == least[measure] else text)
        cells.append(formatting.percent(row["gpu_utilization"]))
        rows.append(cells)
    return "".join(f"| {' | '.join(cells)} |\n" for cells in rows)


def body(policy: str) -> str:
    """Return the text between the markers of a policy's page."""
    about = declared()
    parts = []
    for one, verb in zip(shown(policy), ("works well", "does not work well"), strict=True):
        parts.append(
            f"**A scenario in which `{policy}` {verb}.** {about[one.world]['about']}. {one.why} "
            f"The metric is the {TITLES[one.measure]}.\n\n"
            f"```console\n$ {_command(one)}\n```\n\n{_table(one)}"
        )
    return "\n".join(parts)


def written(policy: str) -> str:
    """Return the text of a page with its tables."""
    text = pages()[policy].read_text("utf-8")
    return MARKED.sub(lambda marked: f"{marked[1]}{body(policy)}{marked[4]}", text)


def too_alike(rows: list[dict[str, Any]]) -> str:
    """Return the fault of a world whose policies have these means; "" if there is none."""
    used = max(row["gpu_utilization"] for row in rows)
    times = [row["jct_mean_s"] for row in rows]
    apart = max(times) / min(times) - 1.0
    if used <= USED:
        return f"{used:.0%} of the GPU time is in use"
    return f"mean JCTs are {apart:.1%} apart" if apart <= APART else ""


def main() -> int:
    """Write the pages, or print which are out of date."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing, fail if stale")
    options = parser.parse_args()
    stale = 0
    for policy, path in pages().items():
        text = written(policy)
        for one in shown(policy):
            if fault := too_alike(list(one.rows)):
                stale += 1
                print(f"{policy}: world {one.world}: {fault}; choose another", file=sys.stderr)
        if text != path.read_text("utf-8"):
            if options.check:
                stale += 1
                print(f"{path.name}: out of date; run {COMMAND}", file=sys.stderr)
            else:
                path.write_text(text, "utf-8")
                print(path.name)
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
