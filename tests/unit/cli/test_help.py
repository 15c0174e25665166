"""Tests that help is quick and has examples, and what Tab completes."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys

import pytest

import gangline as gl
from commands import gangline
from gangline._core import registry
from gangline.cli import commands
from gangline.cli.commands import _EXAMPLES, COMMANDS, GROUPS, overview

# The import of each takes longer than a help page may take.
HEAVY = {"numpy", "pyarrow", "msgspec", "highspy", "gangline.policies", "gangline.studies"}
# It reads options, which a list of commands lacks.
READER = {"cyclopts", "rich", "attrs"}


def imported(*words: str) -> set[str]:
    """Return what a fresh interpreter has imported after a command."""
    code = "import sys; from gangline.cli.app import main; sys.argv = sys.argv[:1]\n"
    code += f"try: main({list(words)!r})\nexcept SystemExit: pass\n"
    code += "sys.stdout.flush(); print('|', *sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.rpartition("|")[2].split())


@pytest.mark.parametrize("words", [(), ("--help",), ("--version",)])
def test_the_list_of_commands_and_the_version_import_next_to_nothing(words: tuple[str]) -> None:
    assert not imported(*words) & (HEAVY | READER)


@pytest.mark.parametrize("name", sorted(set(COMMANDS) - {"cluster", "trace"}))
def test_the_help_of_a_command_imports_that_command_alone(name: str) -> None:
    found = imported(name, "--help")
    place = f"gangline.cli.{COMMANDS[name].place.partition(':')[0]}"
    others = {f"gangline.cli.{one.place.partition(':')[0]}" for one in COMMANDS.values()} - {place}
    assert place in found
    assert not found & others
    assert not found & HEAVY


def test_a_heavy_import_is_seen() -> None:
    assert "pyarrow" in imported("cluster", "show", "pollux-64", "--json") | imported(
        "trace", "info", "mini:pai", "--json"
    )


def test_every_command_is_listed_once_in_80_columns() -> None:
    listed = [name for names in GROUPS.values() for name in names]
    assert sorted(listed) == sorted(COMMANDS)
    assert max(map(len, overview().splitlines())) <= 80
    assert gangline("--help").stdout == overview() + "\n" == gangline().stdout


@pytest.mark.parametrize("name", ["trace", "cluster", "profile"])
def test_a_group_lists_each_command_with_what_it_does(name: str) -> None:
    shown = gangline(name, "--help").stdout
    for command in (one.split()[1] for one in names_of_commands() if one.startswith(f"{name} ")):
        assert re.search(rf"^│ {command} +[A-Z]\w+ ", shown, re.MULTILINE), command


def test_the_version_is_that_of_the_package() -> None:
    assert gangline("--version").stdout == f"gangline {gl.__version__}\n"


def names_of_commands() -> set[str]:
    """Return every command and subcommand of the command line's parser."""
    found = set()
    for name in COMMANDS:
        app = commands.app()[name]
        below = [child for child in app if not child.startswith("-")]
        found |= {f"{name} {child}" for child in below} if below else {name}
    return found


def test_every_command_has_examples() -> None:
    assert names_of_commands() == set(_EXAMPLES)


@pytest.mark.parametrize("name", sorted(_EXAMPLES))
def test_examples_are_read_as_written_and_stand_in_the_help(name: str) -> None:
    shown = gangline(*name.split(), "--help").stdout
    assert "Examples:" in shown
    for line in _EXAMPLES[name]:
        words = shlex.split(line)
        assert words[: len(name.split()) + 1] == ["gangline", *name.split()]
        commands.app().parse_args(words[1:], exit_on_error=False, print_error=False)
        assert line.split(" --")[0] in shown
    assert max(map(len, shown.splitlines())) <= 80


def offered(*words: str) -> set[str]:
    """Return the completions that Tab offers for the last word."""
    done = gangline("__complete", *words)
    _, _, records = done.stdout.partition("\x1fbegin\n")
    values = {line.partition("\t")[0] for line in records.splitlines()}
    return {value for value in values if value.startswith(words[-1])}


def test_tab_knows_values(tmp_path: object) -> None:
    policies = {entry["name"] for entry in registry() if not entry["hidden"]}
    assert offered("run", "--policy", "") >= policies | set(gl.policies.presets)
    assert offered("compare", "--policies", "fifo,sr") == {"fifo,srtf", "fifo,srsf"}
    assert offered("run", "--cluster", "pollux") == {"pollux-64", "pollux-64-elastic"}
    bundled = {f"mini:{name}" for name in ("helios", "kueue", "pai", "philly", "sacct")}
    assert offered("run", "--trace", "mini:") == bundled
    assert "synth:philly?" in offered("compare", "--trace", "synth:")
    assert offered("trace", "info", "--format", "ph") == {"philly-csv", "philly-json"}
    assert offered("trace", "synth", "dally-") == {"dally-batch", "dally-poisson", "dally-week"}
    assert offered("reproduce", "hadar") == {"hadar", "hadare", "hadar-search"}
    assert offered("policies", "yarn") == {"yarn-cs"}
    assert offered("profile", "measure", "conv,mlp-") == {"conv,mlp-small", "conv,mlp-large"}


def test_tab_knows_parameters_of_the_policy_on_the_line() -> None:
    assert offered("run", "--policy", "las", "--set", "lim") == {"limits="}
    two = offered("compare", "--policies", "las,dally-manual", "--set", "las.lim")
    assert two == {"las.limits="}
    placed = offered("run", "--policy", "las", "--set", "placement=r")
    assert placed == {"placement=random", "placement=random_server"}
    assert offered("run", "--policy", "gavel-las", "--set", "packed=") == {
        "packed=true",
        "packed=false",
    }
    assert offered("run", "--set", "lim") == set()


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_of_a_shell_is_sound_and_asks_for_values(shell: str) -> None:
    script = commands.app().generate_completion(shell=shell)  # type: ignore[arg-type]
    assert "__complete" in script
    for word in ("reproduce", "--on-infeasible", "--policies"):
        assert word in script
    if shell == "bash":
        assert "error drop" in script or "'error'" in script or '"error"' in script
        done = subprocess.run(["bash", "-n"], input=script, text=True, check=False)
        assert done.returncode == 0
