"""Tests that the first value that does not fit its type is found."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangline.files.jsontext import malformed
from gangline.files.shape import misfit
from meta.house import PACKAGE, files

Rack = Annotated[int | str, msgspec.Meta(description="a rack")]


class Inner(msgspec.Struct, forbid_unknown_fields=True, rename="camel"):
    gpu_count: Annotated[int, msgspec.Meta(ge=1, le=64)]
    memory: Annotated[float, msgspec.Meta(gt=0)] | None = None
    name: Annotated[str, msgspec.Meta(min_length=1)] = "x"
    rack: Rack = 0


class Outer(msgspec.Struct):
    servers: list[Inner]
    kind: Literal["new", "old"] = "new"
    shares: dict[str, tuple[float, float]] = {}
    times: float | list[float] = 0.0
    on: bool = True


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ([], "expected a table, got []"),
        ({}, "servers: this key is required, but missing"),
        ({"servers": {}}, "servers: expected a list, got {}"),
        ({"servers": [{}]}, "servers[0].gpuCount: this key is required, but missing"),
        ({"servers": [{"gpuCount": 0}]}, "servers[0].gpuCount: expected an integer >= 1, got 0"),
        ({"servers": [{"gpuCount": 65}]}, "servers[0].gpuCount: expected an integer <= 64, got 65"),
        ({"servers": [{"gpuCount": True}]}, "servers[0].gpuCount: expected an integer, got True"),
        ({"servers": [{"gpuCount": 2, "memory": 0}]}, "memory: expected a number > 0, got 0"),
        ({"servers": [{"gpuCount": 2, "name": ""}]}, "name: expected text that is not empty, got "),
        ({"servers": [{"gpuCount": 2, "rack": []}]}, "servers[0].rack: expected a rack, got []"),
        ({"servers": [{"gpuCount": 2, "gpus": 1}]}, "unknown key; expected one of gpuCount, "),
        ({"servers": [], "kind": "x"}, "kind: expected one of new, old, got x"),
        ({"servers": [], "shares": {"a": [1, 2], "b": [1, "2"]}}, "shares.b[1]: expected a number"),
        ({"servers": [], "shares": {"a": [1]}}, "shares.a: expected a list of 2, got [1]"),
        ({"servers": [], "times": "1"}, "times: expected a number or a list, got 1"),
        ({"servers": [], "times": [1, "1"]}, "times[1]: expected a number, got 1"),
        ({"servers": [], "on": 1}, "on: expected true or false, got 1"),
    ],
)  # fmt: skip
def test_the_first_misfit_is_named_with_its_path(data: object, words: str) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(data, Outer)
    assert words in str(misfit(data, Outer))


def test_json_has_objects_arrays_and_null() -> None:
    found = misfit({"servers": [{"gpuCount": 1, "memory": []}]}, Outer, is_json=True)
    assert found is not None
    assert found.expected == "a number or null"
    assert "expected an array, got {}" in str(misfit({"servers": {}}, Outer, is_json=True))


_LEAVES = (
    st.none()
    | st.booleans()
    | st.integers(-2, 70)
    | st.floats(-2, 70)
    | st.sampled_from(["", "new", "x"])
)
_KEYS = st.sampled_from(
    ["servers", "kind", "shares", "times", "on", "gpuCount", "memory", "name", "rack", "z"]
)
_DATA = st.recursive(
    _LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_KEYS, inner, max_size=4)
)
_INNER = st.fixed_dictionaries(
    {"gpuCount": _LEAVES}, optional={"memory": _LEAVES, "name": _LEAVES, "rack": _LEAVES}
)
_OUTER = st.fixed_dictionaries(
    {"servers": st.lists(_INNER, max_size=2)},
    optional={"kind": _LEAVES, "times": _DATA, "on": st.booleans(), "shares": _DATA},
)


@given(_DATA | _OUTER)
def test_there_is_a_misfit_if_and_only_if_the_decoder_refuses(data: Any) -> None:
    try:
        msgspec.convert(data, Outer)
    except msgspec.ValidationError:
        assert misfit(data, Outer) is not None
    else:
        assert misfit(data, Outer) is None


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("", 1, "the end of the text"),
        ('{"a": [1,\n 2', 2, "the end of the text"),
        ('{"a": 1,\n "b" 2}', 2, "`2}` at column 6"),
        ("[1] 2", 1, "`2` at column 5"),
        ("[NaN]", 1, "NaN"),
        ("[" * 100_000, 1, "nested too deep"),
    ],
)
def test_where_a_text_ceases_to_be_json(text: str, line: int, words: str) -> None:
    found, got = malformed(text)
    assert found == line
    assert words in got


def test_the_words_of_the_decoder_are_read_nowhere() -> None:
    marks = ("Object missing", "Object contains", "Expected `", "- at `$", "JSON is malformed")
    assert [
        (path.name, mark)
        for path in files(".py", under=PACKAGE)
        for mark in marks
        if mark in path.read_text("utf-8")
    ] == []
