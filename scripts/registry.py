"""Writes what repeats the declarations of policies: dataclasses in Python, tables of the docs.

    .venv/bin/python scripts/registry.py            # writes; needs a build of the current Rust
    .venv/bin/python scripts/registry.py --check    # writes nothing; fails if a file is stale

A policy is declared once, in `rust/policies/src/registry/`. This script reads the declarations
from the compiled module (or, with `--declarations FILE`, from JSON of the same shape) and writes:

- `python/gangline/policies/_generated.py`: a frozen dataclass per policy, `registry`, `presets`;
- the rows of policies in `docs/policies/index.md`;
- the tables of parameters in `docs/policies/*.md`;
- the tables of reasons and states in `docs/guides/explain.md`.

In Markdown it writes only between markers. The page of a policy has the markers for its parameters:

    <!-- parameters: NAME -->
    <!-- end of parameters -->

One page may describe several policies; names with the same parameters may share a table:
`NAME, OTHER`.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import textwrap
from itertools import takewhile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
COMMAND = ".venv/bin/python scripts/registry.py"
MODULE = "python/gangline/policies/_generated.py"
WIDTH = 100
SUMMARY_WIDTH = WIDTH - 10  # the width of the first line of a docstring

Policy = dict[str, Any]
Parameter = dict[str, Any]

MORE = {
    "estimate_error": "[other estimates](../concepts/estimates.md)",
    "compat": "[what differs, and by how much](../concepts/public-timing.md#how-much-it-changes)",
    "packed": "[pairs](../concepts/rounds.md#pairs)",
}
"""Where the docs say more on a parameter."""


class Fault(Exception):  # noqa: N818 - what is wrong, for the one who reads it
    """A file or a declaration that keeps this script from writing."""


def class_name(name: str) -> str:
    """Return the name of a policy's dataclass: `fifo-skip` is `FifoSkip`."""
    return "".join(part.capitalize() for part in name.split("-"))


def words_of(parameter: Parameter) -> str:
    """Return the type of a choice of words; that of placement rules has a name."""
    if parameter["name"] == "placement":
        return "Rule"
    return f"Literal[{', '.join(map(literal, parameter.get('choices', ())))}]"


def annotation(parameter: Parameter) -> str:
    """Return the type of a field."""
    default = parameter["default"]
    plain = value_type(parameter)
    return plain if default is not None else f"{plain} | None"


def value_type(parameter: Parameter) -> str:
    """Return the type of a value that a user gives."""
    default, kind = parameter["default"], parameter["kind"]
    if kind == "named":
        return f"Mapping[str, {value_type(parameter['each'])}]"
    return {
        "bool": "bool",
        "number": "int" if isinstance(default, int) else "float",
        "choice": words_of(parameter),
        "text": "str",
        "numbers": "tuple[float, ...]",
        "shares": "Mapping[str, float]",
        "weights": "Mapping[str, float]",
        "names": "tuple[str, ...]",
        "tables": "tuple[Mapping[str, Any], ...]",
    }[kind]


def literal(value: object) -> str:
    """Return a value as Python code: tuples for lists, double quotes."""
    if isinstance(value, list):
        inner = ", ".join(literal(item) for item in value)
        return f"({inner},)" if len(value) == 1 else f"({inner})"
    return json.dumps(value) if isinstance(value, str) else repr(value)


def field_line(parameter: Parameter) -> str:
    """Return the line of a dataclass that declares a field."""
    start = f"    {parameter['name']}: {annotation(parameter)} = "
    settings = []
    kind = parameter["kind"]
    if kind in ("shares", "weights", "named", "tables"):
        settings = ["default=None", "hash=False", f'metadata={{"kind": "{kind}"}}']
    elif kind == "names":
        default = literal(parameter["default"])
        settings = [f"default={default}", 'metadata={"kind": "names"}']
    elif parameter["rule"] in ("maybe", "maybe_whole"):
        default = literal(parameter["default"])
        settings = [f"default={default}", 'metadata={"kind": "maybe"}']
    if not settings:
        line = start + literal(parameter["default"])
        if len(line) <= WIDTH:
            return line
        words = "".join(f"        {literal(word)},\n" for word in parameter["choices"])
        name, default = parameter["name"], literal(parameter["default"])
        return f"    {name}: Literal[\n{words}    ] = {default}"
    line = f"{start}field({', '.join(settings)})"
    if len(line) <= WIDTH:
        return line
    inside = f"        {', '.join(settings)}\n"
    if len(inside) > WIDTH:
        inside = "".join(f"        {setting},\n" for setting in settings)
    return f"{start}field(\n{inside}    )"


def sentence(text: str) -> str:
    """Return a text with a capital letter and a full stop."""
    return text[0].upper() + text[1:] + ("" if text.endswith(".") else ".")


def values(parameter: Parameter) -> str:
    """Return the type of a parameter and its range, for a docstring."""
    kind, expected = parameter["kind"], parameter["expected"]
    optional = ", optional" if parameter["default"] is None else ""
    if kind == "number":
        number = "int" if isinstance(parameter["default"], int) else "float"
        limits = re.sub(r"^a (whole )?number ?| or none$", "", expected)
        is_whole = number == "float" and parameter["rule"] in ("whole", "maybe_whole")
        whole = "a whole number " if is_whole else ""
        return f"{number}, {whole}{limits}{optional}"
    return {
        "bool": "bool",
        "text": "str",
        "choice": f"str, {expected}",
        "numbers": f"tuple of float, {expected}{optional}",
        "shares": "mapping of str to float, optional",
        "weights": "mapping of str to float, optional",
        "named": f"mapping, {expected}, optional",
        "names": f"tuple of str, {expected}",
        "tables": f"tuple of mappings, {expected}, optional",
    }[kind]


def parameter_lines(parameters: list[Parameter]) -> list[str]:
    """Return the section on parameters of a docstring."""
    lines = ["    Parameters", "    ----------"]
    for parameter in parameters:
        head = f"{parameter['name']} : {values(parameter)}"
        lines += textwrap.wrap(head, WIDTH, initial_indent=" " * 4, subsequent_indent=" " * 8)
        unit = UNITS.get(parameter["unit"], parameter["unit"])
        text = sentence(parameter["doc"]) + (f" In {unit}." if unit else "")
        indent = " " * 8
        lines += textwrap.wrap(text, WIDTH, initial_indent=indent, subsequent_indent=indent)
    return lines


UNITS = {"s": "seconds", "GPU-s": "GPU-seconds", "GPU-s per GPU": "GPU-seconds per GPU"}


def own(policy: Policy) -> list[Parameter]:
    """Return the parameters of a policy without those of placement."""
    return [parameter for parameter in policy["parameters"] if not parameter["placement"]]


def placement(policy: Policy) -> list[Parameter]:
    """Return the parameters of placement, if the policy has them."""
    return [parameter for parameter in policy["parameters"] if parameter["placement"]]


def example(policy: Policy) -> list[str]:
    """Return an example that runs: a parameter set, and the label that it gives."""
    name = policy["name"]
    for parameter in (*own(policy), *placement(policy)[1:]):
        default = parameter["default"]
        if parameter["kind"] == "choice":
            value: object = next(word for word in parameter["choices"] if word != default)
        elif parameter["kind"] == "bool":
            value = not default
        else:
            continue
        given = {parameter["name"]: value}
        if given in policy["presets"].values():
            continue
        defaults = {item["name"]: item["default"] for item in policy["parameters"]}
        shown = {key: defaults[key] for key in policy["always_shown"]} | given
        call = f"{class_name(name)}({parameter['name']}={literal(value)})"
        label = ", ".join(f"{key}={item}" for key, item in shown.items())
        return [f"    >>> {call}.label()", f"    '{name}({label})'"]
    return [f"    >>> {class_name(name)}().label()", f"    '{name}'"]


def config_class(parameters: list[Parameter]) -> str:
    """Return the base class of the policies that place by a rule."""
    lines = [
        "@dataclass(frozen=True, kw_only=True)",
        "class PolicyConfig(PolicyBase):",
        '    """A policy that places by a rule of its parameters.',
        "",
        *parameter_lines(parameters),
        "",
        "    Examples",
        "    --------",
        "    >>> import gangline as gl",
        '    >>> policy = gl.policies.Srtf(placement="spread")',
        "    >>> isinstance(policy, gl.policies.PolicyConfig), policy.fit",
        "    (True, 'best')",
        '    """',
        "",
        *(field_line(parameter) for parameter in parameters),
    ]
    return "\n".join(lines)


def by_program(policies: list[Policy]) -> list[Parameter]:
    """Return the parameters with which every policy that solves an LP begins."""
    solved = [own(policy) for policy in policies if is_solved(policy)]
    same = takewhile(lambda at: at.count(at[0]) == len(at), zip(*solved, strict=False))
    return [parameters[0] for parameters in same]


def is_solved(policy: Policy) -> bool:
    """Return whether a policy solves an LP by a solver that the user chooses."""
    return any(parameter["name"] == "solver" for parameter in policy["parameters"])


def program_class(parameters: list[Parameter]) -> str:
    """Return the base class of the policies that compute shares by an LP."""
    lines = [
        "@dataclass(frozen=True, kw_only=True)",
        "class GavelConfig(PolicyConfig):",
        '    """A policy in rounds whose shares are the optimum of a linear program.',
        "",
        *parameter_lines(parameters),
        "",
        "    The other parameters are those of `PolicyConfig`.",
        "",
        "    Examples",
        "    --------",
        "    >>> import gangline as gl",
        "    >>> policy = gl.policies.GavelLas(round_s=60.0)",
        "    >>> isinstance(policy, gl.policies.GavelConfig), policy.solver",
        "    (True, 'auto')",
        '    """',
        "",
        *(field_line(parameter) for parameter in parameters),
    ]
    return "\n".join(lines)


def policy_class(policy: Policy, of_programs: list[Parameter]) -> str:
    """Return the dataclass of a policy; `of_programs` are the parameters of `GavelConfig`."""
    summary, base = sentence(policy["summary"]), "PolicyBase"
    if len(summary) > SUMMARY_WIDTH:
        name, length = policy["name"], len(policy["summary"])
        raise Fault(f"{name}: a summary of {length} characters, at most {SUMMARY_WIDTH - 1}")
    fields = own(policy)
    if is_solved(policy):
        fields = fields[len(of_programs) :]
    lines = [f'    """{summary}', "", f"    Source: {policy['source']}.", ""]
    if fields:
        lines += [*parameter_lines(fields), ""]
    rule = placement(policy)[:1]
    if rule:
        base = "GavelConfig" if is_solved(policy) else "PolicyConfig"
        others = "Other parameters" if fields else "The parameters"
        lines += [f"    {others} are those of `{base}`.", ""]
        if rule[0]["default"] != "consolidate":
            lines[-2] = lines[-2][:-1] + f"; `placement` is {rule[0]['default']}."
            fields = [rule[0], *fields]
    lines += ["    Examples", "    --------", *example(policy), '    """', ""]
    lines.append(f'    name: ClassVar[str] = "{policy["name"]}"')
    if policy["always_shown"]:
        shown = literal(policy["always_shown"])
        lines.append(f"    always_shown: ClassVar[tuple[str, ...]] = {shown}")
    presets = [name for name, params in policy["presets"].items() if params]
    if presets:
        lines.append("    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {")
        lines += [preset_entry(name, policy["presets"][name]) for name in presets]
        lines.append("    }")
    if fields:
        lines += ["", *(field_line(parameter) for parameter in fields)]
    head = ["@dataclass(frozen=True, kw_only=True)", f"class {class_name(policy['name'])}({base}):"]
    return "\n".join([*head, *lines])


def preset_entry(name: str, params: dict[str, Any]) -> str:
    """Return the lines of a preset's parameters, in the form of the formatter."""
    items = [f'"{key}": {literal(value)}' for key, value in params.items()]
    line = f'        "{name}": {{{", ".join(items)}}},'
    if len(line) <= WIDTH:
        return line
    inside = "".join(f"            {item},\n" for item in items)
    return f'        "{name}": {{\n{inside}        }},'


def preset_lines(name: str, kind: str, params: dict[str, Any]) -> str:
    """Return the lines of a preset, in the form of the formatter."""
    inside = ", ".join(f"{key}={literal(value)}" for key, value in params.items())
    alias = "" if params else f'.known_as("{name}")'
    line = f'    "{name}": lambda: {kind}({inside}){alias},'
    return (
        line if len(line) <= WIDTH else f'    "{name}": lambda: {kind}(\n        {inside}\n    ),'
    )


def module(policies: list[Policy]) -> str:
    """Return the module of dataclasses."""
    kinds = [class_name(policy["name"]) for policy in policies]
    shared = next(found for policy in policies if (found := placement(policy)))
    exported = sorted([*kinds, "GavelConfig", "PolicyConfig"])
    of_programs = by_program(policies)
    presets = [
        preset_lines(name, class_name(policy["name"]), params)
        for policy in policies
        for name, params in policy["presets"].items()
    ]
    head = f'''"""Policies as frozen dataclasses, as `rust/policies/src/registry/` declares them.

Written by `{COMMAND}`: change the declaration, build, and run that.
"""

# ruff: noqa: S105 - a pass over a queue is no password

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from gangline.policies.parameters import OnDemand, PolicyBase

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = [
'''
    names = "".join(f'    "{name}",\n' for name in exported) + "]\n\n"
    rules = next(one["choices"] for one in shared if one["name"] == "placement")
    names += "Rule = Literal[\n" + "".join(f'    "{rule}",\n' for rule in rules)
    names += ']\n"""A placement rule."""'
    table = "registry: Mapping[str, type[PolicyBase]] = {\n    kind.name: kind\n    for kind in (\n"
    table += "".join(f"        {kind},\n" for kind in kinds)
    table += '    )\n}\n"""Every policy by its name."""'
    named = "_PRESETS: dict[str, Callable[[], PolicyBase]] = {\n" + "\n".join(presets) + "\n}\n"
    named += "presets: Mapping[str, PolicyBase] = OnDemand(_PRESETS)\n"
    named += '"""Names that stand for a policy with some of its parameters set."""\n'
    classes = [config_class(shared), program_class(of_programs)]
    classes += [policy_class(policy, of_programs) for policy in policies]
    return "\n\n\n".join([head + names, *classes]) + f"\n\n\n{table}\n\n{named}"


def between(path: str, text: str, start: str, end: str, body: str) -> str:
    """Replace the text between two markers."""
    head, found, rest = text.partition(f"{start}\n")
    old, closed, tail = rest.partition(end)
    if not found or not closed or start in old:
        raise Fault(f"{path}: expected the lines `{start}` and `{end}`")
    return f"{head}{start}\n{body}{end}{tail}"


def catalogue(policies: list[Policy]) -> str:
    """Return the table of all policies, with links to their pages."""
    names = sorted((policy["name"] for policy in policies), key=len, reverse=True)
    others = rf"(?<![\w-])({'|'.join(names)})(?![\w-])"
    rows = [
        "| policy | in one line | stops jobs | [knows durations](../concepts/estimates.md) |",
        "|---|---|---|---|",
    ]
    for policy in policies:
        link = f"[`{policy['name']}`]({policy['page']}.md)"
        summary = re.sub(others, r"`\1`", policy["summary"])
        asked = policy["durations_with"]
        durations = f"with `{asked}`" if asked else policy["durations"]
        rows.append(f"| {link} | {summary} | {policy['stops']} | {durations} |")
    return "\n".join(rows) + "\n"


def shown(value: object) -> str:
    """Return a default in the form that `--set` takes."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return f"`{value}`" if value else '""'
    return f"[{', '.join(map(shown, value))}]" if isinstance(value, list) else str(value)


def meaning(parameter: Parameter) -> str:
    """Return the meaning of a parameter, and the values that it takes."""
    doc, kind = parameter["doc"].replace("|", "\\|"), parameter["kind"]
    text = re.sub(r"[\w.]*_[\w.]*\w", r"`\g<0>`", doc)
    told = set(re.findall(r"\w+", doc))
    if kind == "choice" and not told.issuperset(parameter["choices"]):
        text += "; " + ", ".join(f"`{word}`" for word in parameter["choices"])
    if kind in ("number", "numbers", "named"):
        text += "; " + re.sub(r"^a number ", "", parameter["expected"])
    more = MORE.get(parameter["name"])
    return f"{text}; see {more}" if more else text


def parameter_rows(
    parameters: list[Parameter], what: str = "parameter", told: tuple[str, ...] = ()
) -> list[str]:
    """Return a table of parameters, then one for the keys of each parameter of tables."""
    rows = [f"| {what} | default | unit | meaning |", "|---|---|---|---|"] if parameters else []
    for parameter in parameters:
        default = shown(parameter["default"])
        if what != "parameter" and parameter["kind"] == "text" and parameter["default"] is None:
            default = "must be given"
        cells = (default, parameter["unit"], meaning(parameter))
        rows.append(f"| `{parameter['name']}` | " + " | ".join(cells) + " |")
    for parameter in parameters:
        keys = f"key of a table in `{parameter['name']}`"
        if parameter["kind"] == "tables" and keys not in told:
            more = parameter_rows(parameter["keys"], keys, told)
            rows += ["", *more]
            told += tuple(row.split(" |")[0][2:] for row in more if row.startswith("| key "))
    return rows


def parameter_table(policy: Policy) -> str:
    """Return the table of a policy's own parameters, with a link to the others."""
    rows = parameter_rows(own(policy))
    rule = placement(policy)[:1]
    if rule:
        start = "It also has the parameters" if rows else "It has the parameters"
        rows += [""] if rows else []
        rows.append(
            f"{start} of [placement](../concepts/placement.md); "
            f"the default of `placement` is `{rule[0]['default']}`."
        )
    return "\n".join(rows) + "\n"


def reason_table(policies: list[Policy]) -> str:
    """Return the table of reasons for which jobs wait, and which policies give each."""
    meanings: dict[str, str] = {}
    givers: dict[str, list[str]] = {}
    for policy in policies:
        for reason in policy["reasons"]:
            meanings.setdefault(reason["name"], reason["meaning"])
            givers.setdefault(reason["name"], []).append(policy["name"])
    rows = ["| reason (`cause`) | what it means | policies |", "|---|---|---|"]
    for name, meant in meanings.items():
        those = dict.fromkeys(re.sub(r"^gavel-(?!fifo$).*", "gavel-*", one) for one in givers[name])
        cell = ", ".join(f"`{one}`" for one in those)
        rows.append(f"| `{name}` | {meant} | {cell} |")
    return "\n".join(rows) + "\n"


def state_table() -> str:
    """Return the table of the states of a waiting job, which follow from the tables alone."""
    from gangline.runs.explain.reasons import APART, HEAD_OF_LINE, TOGETHER, TOO_FEW

    rows = ["| state | column of a report | what it means |", "|---|---|---|"]
    states = (TOO_FEW, HEAD_OF_LINE, APART, TOGETHER)
    rows += [f"| `{state.name}` | {state.title} | {state.meaning} |" for state in states]
    return "\n".join(rows) + "\n"


PARAMETERS = re.compile(r"<!-- parameters: ([\w, -]+?) -->\n")
PARAMETERS_END = "<!-- end of parameters -->"


def page(path: str, text: str, policies: list[Policy]) -> str:
    """Return a page of the docs with its tables of parameters."""
    by_name = {policy["name"]: policy for policy in policies}
    missing = set(by_name)
    for match in PARAMETERS.finditer(text):
        names = [name.strip() for name in match[1].split(",")]
        strange = [name for name in names if name not in by_name]
        if strange:
            raise Fault(f"{path}: `{strange[0]}` is declared with another page, or not at all")
        tables = {parameter_table(by_name[name]) for name in names}
        if len(tables) > 1:
            raise Fault(f"{path}: {match[1]} have different parameters: give each a table")
        missing -= set(names)
        text = between(path, text, match[0].rstrip("\n"), PARAMETERS_END, tables.pop())
    if missing:
        name = sorted(missing)[0]
        raise Fault(
            f"{path}: expected the lines `<!-- parameters: {name} -->` and `{PARAMETERS_END}`"
        )
    return text


POLICIES = "<!-- policies: written by scripts/registry.py -->"
POLICIES_END = "<!-- end of policies -->"
PAGES = "<!-- pages: written by scripts/registry.py -->"
PAGES_END = "<!-- end of pages -->"
REASONS = "<!-- reasons: written by scripts/registry.py -->"
REASONS_END = "<!-- end of reasons -->"
STATES = "<!-- states: written by scripts/registry.py -->"
STATES_END = "<!-- end of states -->"


def written(declared: list[Policy], root: Path) -> dict[str, str]:
    """Return the text of every file that repeats declarations, by its path below the root."""
    policies = [policy for policy in declared if not policy["hidden"]]
    texts = {MODULE: module(policies)}

    def read(path: str) -> str:
        try:
            return (root / path).read_text("utf-8")
        except FileNotFoundError:
            raise Fault(f"{path}: no such page; write it") from None

    index = "docs/policies/index.md"
    guide = "docs/guides/explain.md"
    text = between(guide, read(guide), REASONS, REASONS_END, reason_table(policies))
    texts[guide] = between(guide, text, STATES, STATES_END, state_table())
    text = between(index, read(index), POLICIES, POLICIES_END, catalogue(policies))
    pages = list(dict.fromkeys(policy["page"] for policy in policies))
    toctree = "\n".join([":::{toctree}", ":hidden:", "", *pages, ":::"]) + "\n"
    texts[index] = between(index, text, PAGES, PAGES_END, toctree)
    for name in pages:
        path = f"docs/policies/{name}.md"
        here = [policy for policy in policies if policy["page"] == name]
        texts[path] = page(path, read(path), here)
    return texts


def stale(declared: list[Policy], root: Path) -> dict[str, str]:
    """Return the files whose text is out of date, with their right text."""
    return {
        path: text
        for path, text in written(declared, root).items()
        if not (root / path).is_file() or (root / path).read_text("utf-8") != text
    }


def main() -> int:
    """Write the files, or print which are out of date."""
    parser = argparse.ArgumentParser(description="Write what repeats the declarations of policies.")
    parser.add_argument("--check", action="store_true", help="write nothing, fail if stale")
    parser.add_argument("--declarations", type=Path, help="JSON instead of the compiled module")
    parser.add_argument("--root", type=Path, default=ROOT, help="the checkout to write to")
    options = parser.parse_args()
    if options.declarations:
        declared = json.loads(options.declarations.read_text("utf-8"))
    else:
        from gangline import _core

        declared = _core.registry()
    try:
        changed = stale(declared, options.root)
    except Fault as fault:
        print(fault, file=sys.stderr)
        return 1
    for path, text in changed.items():
        if options.check:
            print(f"{path}: out of date; run {COMMAND}", file=sys.stderr)
        else:
            (options.root / path).write_text(text, "utf-8")
            print(path)
    return 1 if options.check and changed else 0


if __name__ == "__main__":
    sys.exit(main())
