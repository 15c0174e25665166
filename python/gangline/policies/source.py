"""Finds the code of a policy in Python, that is, the files that must be equal for equal runs.

A run names a policy in Python by `module:Class`, which says nothing about the content of the
module. Therefore, the spec of a run also contains a hash of the code. Folders that other people
rerun (paper kits and bench rows) list the policy's files with their SHA-256.
"""

from __future__ import annotations

import ast
import hashlib
import sys
from contextlib import contextmanager
from functools import cache, lru_cache
from importlib.metadata import packages_distributions, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from gangline.errors import PolicyError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from gangline.policies.choice import PolicyLike
    from gangline.policies.protocol import Policy

__all__ = ["Source", "code_of", "digest_of", "importing", "load_policy", "source_of"]

# The number of modules whose imports are cached; our own choice, for tests with many runs.
_TEXTS = 64


class Source(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The code of a policy in Python.

    Attributes
    ----------
    files : dict of str to str
        Mapping from file names to SHA-256. For a single module, it contains the module's file and
        the files next to it that it imports; for a class in a package, it contains only the file of
        the class.
    requirement : str
        The pip requirement, such as `mypackage==1.2`; empty for a single module.
    """

    files: dict[str, str]
    requirement: str = ""

    @property
    def digest(self) -> str:
        """The SHA-256 of the names and hashes of the files."""
        lines = [f"{name} {sha256}" for name, sha256 in sorted(self.files.items())]
        return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def source_of(kind: type[Policy]) -> tuple[Source, list[Path]]:
    """Return the source of a class, with its files if they can be copied to another folder.

    Raises
    ------
    PolicyError
        If the class is not defined in a file.
    """
    path = _file_of(kind.__module__)
    if kind.__module__ == "__main__" or path is None:
        message = f"{kind.__name__}: the class must be in a file that others can import"
        raise PolicyError(message, policy=kind.__name__)
    return _source(kind.__module__, path)


def code_of(python: str) -> dict[str, str]:
    """Return the `module:Class` of an imported policy and a hash of its code, for a spec.

    The result is empty for a registered policy, and for a class that was typed into an interactive
    session.
    """
    module = python.partition(":")[0]
    path = _file_of(module) if python else None
    return {} if path is None else {python: _source(module, path)[0].digest}


def _file_of(module: str) -> Path | None:
    file = getattr(sys.modules.get(module), "__file__", None)
    return Path(file) if file is not None and Path(file).is_file() else None


def _source(name: str, path: Path) -> tuple[Source, list[Path]]:
    distributions = _distributions().get(name.partition(".")[0], [])
    if (name == "__main__" or path.name == f"{name}.py") and not distributions:
        found = list(_imported(path))
        return Source(files={one.name: digest_of(one) for one in found}), found
    requirement = f"{distributions[0]}=={version(distributions[0])}" if distributions else ""
    place = (
        "/".join(name.split(".")) + ".py" if path.name != "__init__.py" else f"{name}/__init__.py"
    )
    return Source(files={place: digest_of(path)}, requirement=requirement), []


@cache
def _distributions() -> Mapping[str, list[str]]:
    return packages_distributions()


def digest_of(path: Path) -> str:
    """Return the SHA-256 of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


@contextmanager
def importing(folder: Path) -> Iterator[None]:
    """Inside the block, import modules from a folder first, also in processes started inside it."""
    names = {path.stem for path in folder.glob("*.py")}
    aside = {name: sys.modules.pop(name) for name in names & sys.modules.keys()}
    sys.path.insert(0, str(folder.absolute()))
    try:
        yield
    finally:
        sys.path.remove(str(folder.absolute()))
        for name in names:
            sys.modules.pop(name, None)
        sys.modules.update(aside)


def load_policy(
    name: str, params: dict[str, Any], files: dict[str, str], requirement: str, where: Path
) -> PolicyLike:
    """Return the policy that a file names, after checking the files of its class.

    Raises
    ------
    PolicyError
        If a file does not exist or differs from the recorded one.
    """
    from gangline.policies.choice import resolve_policy
    from gangline.policies.own import load

    if not files:
        return resolve_policy(name, params or None).reference.build()
    if not requirement:
        for file, sha256 in files.items():
            _check_file(where.parent / Path(file).name, sha256, where)
    try:
        source, _ = source_of(load(name))
    except PolicyError as error:
        if requirement:
            error.args = (f"{error.args[0]}; pip install {requirement}",)
        raise
    if source.files != files:
        other = sorted({one for one, _ in source.files.items() ^ files.items()})
        message = f"{where}: {other[0]} of {name} is not the file that was run"
        wanted = f"; the file that was run is from {requirement}" if requirement else ""
        raise PolicyError(message + wanted, policy=name)
    return resolve_policy(name, params or None).own or name


def _check_file(path: Path, sha256: str, where: Path) -> None:
    if not path.is_file():
        raise PolicyError(f"{where}: {path.name} is missing next to it", value=path.name)
    if digest_of(path) != sha256:
        message = f"{where}: {path.name} is not the file that was run: its sha256 differs"
        raise PolicyError(message, value=path.name)


def _imported(path: Path) -> Iterator[Path]:
    """Yield a module's file and the files next to it that it imports, directly or indirectly."""
    found, rest = {path}, [path]
    while rest:
        one = rest.pop()
        yield one
        for name in _names(one.read_bytes()):
            near = path.parent / f"{name.partition('.')[0]}.py"
            if near.is_file() and near not in found:
                found.add(near)
                rest.append(near)


@lru_cache(_TEXTS)
def _names(text: bytes) -> list[str]:
    """Return the modules that a module imports."""
    names = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.append(node.module)
    return names
