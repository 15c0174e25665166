"""Checks that every public object is in the index of the docs and has an example that runs."""

from __future__ import annotations

import inspect
import subprocess
import sys
import zlib
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pytest

import gangline as gl
from docs.test_docs import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator


def modules() -> Iterator[tuple[str, ModuleType]]:
    """Yield the public modules by their public names."""
    for name in gl.__all__:
        value = getattr(gl, name)
        if isinstance(value, ModuleType):
            yield f"gangline.{name}", value


def public() -> dict[str, Any]:
    """Return every public object by its public name, which is that in `gl` if it is there."""
    found: dict[str, Any] = {}
    for name in gl.__all__:
        value = getattr(gl, name)
        if not isinstance(value, ModuleType) and name != "__version__":
            found[f"gangline.{name}"] = value
    at_top = set(map(id, found.values()))
    for module_name, module in modules():
        for name in module.__all__:
            value = getattr(module, name)
            if not isinstance(value, ModuleType) and id(value) not in at_top:
                found[f"{module_name}.{name}"] = value
    return found


@pytest.fixture(scope="module")
def indexed(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """Return the names in the inventory of the site; pages without objects are left out."""
    folder = tmp_path_factory.mktemp("site")
    settings = ["exclude_patterns=policies/*,guides/*,concepts/*,index.md"]
    settings += ["root_doc=reference/python", "suppress_warnings=toc,myst"]
    options = [part for setting in settings for part in ("-D", setting)]
    command = [sys.executable, "-m", "sphinx", "-q", "-b", "html", *options]
    command += ["-d", str(folder / "trees"), str(ROOT / "docs"), str(folder / "out")]
    subprocess.run(command, check=True, capture_output=True)
    _, _, packed = (folder / "out" / "objects.inv").read_bytes().partition(b"using zlib.\n")
    lines = zlib.decompress(packed).decode().splitlines()
    return {line.split()[0] for line in lines if " py:" in line}


def test_every_public_object_is_in_the_index(indexed: set[str]) -> None:
    assert sorted(set(public()) - indexed) == []


def test_every_policy_is_in_the_index(indexed: set[str]) -> None:
    kinds = {f"gangline.policies.{kind.__name__}" for kind in gl.policies.registry.values()}
    assert len(kinds) > 30
    assert kinds <= indexed


def test_a_name_that_is_not_public_is_not_in_the_index(indexed: set[str]) -> None:
    assert "gangline.simulate" in indexed
    assert "gangline.simulator" not in indexed


def test_every_public_class_and_function_has_an_example() -> None:
    bare = {
        name
        for name, value in public().items()
        if (inspect.isclass(value) or inspect.isfunction(value))
        and ">>> " not in (value.__doc__ or "")
        and not (inspect.isclass(value) and issubclass(value, Exception))
    }
    assert bare == set()
