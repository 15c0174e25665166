"""Checks the layers: no module imports a module of a layer above its own."""

from __future__ import annotations

import ast
import sys
from typing import TYPE_CHECKING, Any

from meta.house import PACKAGE, ROOT, cargo_metadata, files, relative

if TYPE_CHECKING:
    from pathlib import Path

# The layers of python/gangline, lowest first. A module may import its own layer and lower ones.
ROOMS = (
    "_core",
    "_support",
    "errors",
    "files",
    "cluster",
    "lp",
    "trace",
    "policies",
    "hadare",
    "runs",
    "remote",
    "analysis",
    "studies",
    "plot",
    "paper",
    "testing",
    "rl",
    "doctor",
    "cli",
    "__main__",
)
MOST_ROOMS = 20
# gangline/__init__.py is a list of names and may import everything except the cli
PUBLIC_FACE = "__init__"

HEAVY_HOMES = {
    "matplotlib": {"plot", "runs"},
    "perfetto": {"analysis"},
    "highspy": {"doctor", "lp"},  # the doctor reads its version
    "gymnasium": {"rl"},
    "zmq": {"remote"},
}
NEVER = {"pandas", "scipy", "cvxpy"}
NO_PYTHON_NO_THREADS = {"pyo3", "numpy", "rayon", "arrow-array", "arrow-schema", "arrow-pyarrow"}
CRATE_MAY_USE = {
    "gangline-rng": set[str](),
    "gangline-model": set[str](),
    "gangline-network": {"gangline-model"},
    "gangline-synth": {"gangline-rng"},
    "gangline-engine": (ENGINE_MAY_USE := {"gangline-rng", "gangline-model", "gangline-network"}),
    "gangline-allocation": ENGINE_MAY_USE | {"gangline-engine"},
    # testkit as a dev-dependency only: it depends on the policies
    "gangline-policies": ENGINE_MAY_USE
    | {"gangline-engine", "gangline-allocation", "gangline-testkit"},
    "gangline-testkit": (
        TESTKIT_MAY_USE := ENGINE_MAY_USE | {"gangline-engine", "gangline-policies"}
    ),
    "gangline-python": TESTKIT_MAY_USE
    | {"gangline-synth", "gangline-allocation", "gangline-testkit"},
    "gangline-benches": TESTKIT_MAY_USE | {"gangline-testkit"},
}


def room_of(module: str) -> int | None:
    """Return the layer of a top-level module or package; None if the table lacks it."""
    return ROOMS.index(module) if module in ROOMS else None


def imports(tree: ast.Module, package: tuple[str, ...]) -> list[tuple[int, str]]:
    """Return (line, absolute module) of every import at any place, including imports by string."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += [(node.lineno, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = list(package[: len(package) - node.level + 1]) if node.level else []
            module = ".".join(base + ([node.module] if node.module else []))
            if module == "gangline":
                found += [(node.lineno, f"gangline.{alias.name}") for alias in node.names]
            else:
                found.append((node.lineno, module))
        elif isinstance(node, ast.Call) and (module := imported_by_string(node)):
            found.append((node.lineno, module))
    return found


def imported_by_string(node: ast.Call) -> str:
    """Return what `import_module("a.b")` or `import_module(f"a.{name}")` names, or nothing."""
    called = getattr(node.func, "attr", getattr(node.func, "id", ""))
    first = node.args[0] if node.args else None
    if isinstance(first, ast.JoinedStr):
        first = first.values[0]
    if called not in {"import_module", "__import__"} or not isinstance(first, ast.Constant):
        return ""
    return str(first.value).removesuffix(".")


def layer_offenders(top: str, where: str, found: list[tuple[int, str]]) -> list[str]:
    """Return the imports of a module that violate the table."""
    offenders = []
    mine = room_of(top)
    if mine is None and top != PUBLIC_FACE:
        return [f"{where}: gangline.{top} has no room; give it one in tests/meta/test_layers.py"]
    for line, module in found:
        root, _, rest = module.partition(".")
        if root in NEVER:
            offenders.append(f"{where}:{line}: {root} is never required")
        if root in HEAVY_HOMES and top not in HEAVY_HOMES[root]:
            homes = ", ".join(f"gangline.{home}" for home in sorted(HEAVY_HOMES[root]))
            offenders.append(f"{where}:{line}: {root} belongs to {homes}")
        target = rest.split(".")[0]
        if root != "gangline" or not target or target == top:
            continue
        theirs = room_of(target)
        if top == PUBLIC_FACE:
            if target == "cli":
                offenders.append(f"{where}:{line}: nobody imports gangline.cli")
        elif theirs is None:
            offenders.append(f"{where}:{line}: {module} is a name of the public face, not a room")
        elif mine is not None and theirs > mine:
            offenders.append(f"{where}:{line}: gangline.{top} may not import gangline.{target}")
    return offenders


def package_offenders(package: Path) -> list[str]:
    """Check every module of the package."""
    offenders = []
    for path in files(".py", under=package):
        parts = path.relative_to(package).with_suffix("").parts
        tree = ast.parse(path.read_text("utf-8"))
        found = imports(tree, ("gangline", *parts[:-1]))
        offenders += layer_offenders(parts[0], relative(path), found)
    return offenders


def import_graph(package: Path) -> dict[str, set[str]]:
    """Return which modules each module imports, in functions and for type checks too.

    `from folder import name` counts for the module `folder.name` where there is one. That Python
    runs the `__init__` of every folder above a module is no import of the module's own.
    """
    modules = {
        ".".join((package.name, *path.relative_to(package).with_suffix("").parts)): path
        for path in files(".py", under=package)
    }
    graph: dict[str, set[str]] = {}
    for at, path in modules.items():
        name = at.removesuffix(".__init__")
        inside = tuple(at.split(".")[:-1])
        graph[name] = set()
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Import):
                graph[name] |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                base = inside[: len(inside) - node.level + 1] if node.level else ()
                source = ".".join((*base, *([node.module] if node.module else [])))
                for alias in node.names:
                    deeper = f"{source}.{alias.name}"
                    is_module = deeper in modules or f"{deeper}.__init__" in modules
                    is_core = deeper == f"{package.name}._core"
                    graph[name].add(deeper if is_module or is_core else source)
            elif isinstance(node, ast.Call):
                graph[name].add(imported_by_string(node))
    return {name: (used & graph.keys()) - {name} for name, used in graph.items()}


def circles(graph: dict[str, set[str]]) -> list[list[str]]:
    """Return the groups of modules that import each other, directly or through others."""

    def reach(start: str) -> set[str]:
        found: set[str] = set()
        ahead = [start]
        while ahead:
            for module in graph[ahead.pop()] - found:
                found.add(module)
                ahead.append(module)
        return found

    reached = {module: reach(module) for module in graph}
    groups = {
        frozenset(other for other in reached[module] if module in reached[other])
        for module in graph
        if module in reached[module]
    }
    return sorted(sorted(group) for group in groups)


def crate_offenders(packages: list[dict[str, Any]]) -> list[str]:
    """Check the dependencies of the four crates and of the benchmarks."""
    offenders = []
    for package in packages:
        name = package["name"]
        if name not in CRATE_MAY_USE:
            offenders.append(f"{name}: unknown crate in the workspace")
            continue
        for dependency in package["dependencies"]:
            used = dependency["name"]
            ours = used.startswith("gangline-")
            if ours and used not in CRATE_MAY_USE[name]:
                offenders.append(f"{name} may not depend on {used}")
            if used in NO_PYTHON_NO_THREADS and name != "gangline-python":
                offenders.append(f"{name} may not depend on {used}")
    return offenders


def reference_offenders(folder: Path) -> list[str]:
    """Check that the oracle imports only the standard library and itself."""
    offenders = []
    for path in files(".py", under=folder):
        package = ("reference", *path.relative_to(folder).parts[:-1])
        for line, module in imports(ast.parse(path.read_text("utf-8")), package):
            root = module.partition(".")[0]
            if root not in sys.stdlib_module_names and root != "reference":
                offenders.append(f"{relative(path)}:{line}: the reference may not import {root}")
    return offenders


def test_python_follows_the_table() -> None:
    assert files(".py", under=PACKAGE), "no Python files found: the rule looks at nothing"
    assert package_offenders(PACKAGE) == []


def test_no_modules_import_each_other() -> None:
    graph = import_graph(PACKAGE)
    assert len(graph) > len(ROOMS), "no modules found: the rule looks at nothing"
    assert circles(graph) == []


def test_the_package_has_few_rooms() -> None:
    found = {
        path.relative_to(PACKAGE).parts[0].removesuffix(".py")
        for path in files(".py", under=PACKAGE)
    }
    assert found - {PUBLIC_FACE} == set(ROOMS) - {"_core"}
    assert len(found) <= MOST_ROOMS


def test_crates_follow_the_arrow() -> None:
    packages = cargo_metadata()["packages"]
    assert {package["name"] for package in packages} == set(CRATE_MAY_USE)
    assert crate_offenders(packages) == []


def test_reference_uses_the_standard_library_only() -> None:
    folder = ROOT / "tests" / "reference"
    assert files(".py", under=folder), "tests/reference is empty"
    assert reference_offenders(folder) == []


def test_an_upward_import_is_named(tmp_path: Path) -> None:
    (tmp_path / "cluster.py").write_text("from gangline.runs import Result\nimport pandas\n")
    (tmp_path / "runs.py").write_text("from . import cli\nimport perfetto\n")
    (tmp_path / "trace.py").write_text('import_module(f"gangline.studies.{name}")\n')
    (tmp_path / "lp.py").write_text("from gangline import simulate\n")
    (tmp_path / "novel.py").write_text("")
    named = "\n".join(package_offenders(tmp_path))
    assert "cluster.py:1: gangline.cluster may not import gangline.runs" in named
    assert "cluster.py:2: pandas is never required" in named
    assert "runs.py:1: gangline.runs may not import gangline.cli" in named
    assert "runs.py:2: perfetto belongs to gangline.analysis" in named
    assert "trace.py:1: gangline.trace may not import gangline.studies" in named
    assert "lp.py:1: gangline.simulate is a name of the public face" in named
    assert "gangline.novel has no room" in named


def test_a_circle_is_named(tmp_path: Path) -> None:
    package = tmp_path / "gangline"
    (package / "trace").mkdir(parents=True)
    (package / "__init__.py").write_text("from gangline.trace import read\n")
    (package / "trace" / "__init__.py").write_text("from gangline.trace.read import x\n")
    (package / "trace" / "read.py").write_text("def x():\n    from . import table\n")
    typed = "if TYPE_CHECKING:\n    from gangline.trace.read import x\n"
    (package / "trace" / "table.py").write_text(f"from gangline import _core\n{typed}")
    found = circles(import_graph(package))
    assert found == [["gangline.trace.read", "gangline.trace.table"]]


def test_a_crate_against_the_arrow_is_named() -> None:
    uses = [{"name": "gangline-policies"}, {"name": "pyo3"}]
    crate = {"name": "gangline-engine", "dependencies": uses}
    assert crate_offenders([crate]) == [
        "gangline-engine may not depend on gangline-policies",
        "gangline-engine may not depend on pyo3",
    ]


def test_a_reference_with_numpy_is_named(tmp_path: Path) -> None:
    (tmp_path / "engine.py").write_text("import math\nimport numpy as np\n")
    (offender,) = reference_offenders(tmp_path)
    assert "engine.py:2: the reference may not import numpy" in offender
