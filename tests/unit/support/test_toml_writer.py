from __future__ import annotations

import tomllib
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from gangline._support.toml import dumps

VALUES = st.one_of(
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False),
    st.text(st.characters(codec="utf-8", exclude_categories=["Cs"])),
)
PLAIN = st.one_of(VALUES, st.lists(VALUES, max_size=3))
TABLE = st.dictionaries(st.text(st.characters(codec="ascii"), max_size=5), PLAIN, max_size=4)


@given(
    plain=TABLE,
    tables=st.dictionaries(st.from_regex("t[0-9]", fullmatch=True), TABLE, max_size=2),
    arrays=st.dictionaries(
        st.from_regex("a[0-9]", fullmatch=True), st.lists(TABLE, min_size=1, max_size=3), max_size=2
    ),
)
def test_what_is_written_reads_back_equal(
    plain: dict[str, Any], tables: dict[str, Any], arrays: dict[str, Any]
) -> None:
    data = {**plain, **tables, **arrays}
    assert tomllib.loads(dumps(data)) == data
