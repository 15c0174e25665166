"""Keeps commands from loading pandas, which no command uses."""

from __future__ import annotations

import sys
from importlib.abc import MetaPathFinder

__all__ = ["leave_out"]


class _Hidden(MetaPathFinder):
    """An import hook that hides pandas."""

    def find_spec(self, fullname: str, *_: object) -> None:
        if fullname == "pandas":
            raise ModuleNotFoundError("pandas is temporarily hidden", name=fullname)


def leave_out() -> None:
    """Keep pyarrow from loading pandas, which takes longer than most runs.

    To recognise pandas objects, pyarrow looks for pandas when it first makes an array from Python
    objects or from numpy. If pandas is hidden at that time, pyarrow does not load it. Later,
    pyarrow's conversions to pandas still load it when they are called, and so does any code that
    imports it.
    """
    if "pandas" in sys.modules:
        return
    import pyarrow as pa

    hidden = _Hidden()
    sys.meta_path.insert(0, hidden)
    try:
        pa.array([None], type=pa.int8()).to_numpy(zero_copy_only=False)
    finally:
        sys.meta_path.remove(hidden)
