"""Files and folders that appear whole or not at all."""

from __future__ import annotations

import errno
import os
import shutil
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["whole"]


@contextmanager
def whole(path: Path) -> Iterator[Path]:
    """Lend a name beside `path` to write to; it takes the place of `path` when all went well.

    Parameters
    ----------
    path : Path
        A file or folder to be; its folder is made if need be.

    Raises
    ------
    OSError
        Naming `path`, if something cannot be written; what was begun is gone then.
    """
    if not path.name:  # "." and "/"
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    part = path.with_name(f".{path.name}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _remove(part)
        yield part
        part.replace(path)
    except OSError as error:
        if error.errno is None or error.filename not in (None, str(part)):
            raise
        raise OSError(error.errno, os.strerror(error.errno), str(path)) from None
    finally:
        _remove(part)


def _remove(part: Path) -> None:
    if part.is_dir():
        shutil.rmtree(part, ignore_errors=True)
    else:
        part.unlink(missing_ok=True)
