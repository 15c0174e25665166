"""Files and folders that appear whole or not at all."""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["whole"]


@contextmanager
def whole(path: Path) -> Iterator[Path]:
    """Lend a name beside `path` to write to; it takes the place of `path` when all went well.

    A link stays a link: what it points to is replaced. A device or a pipe is never replaced:
    the bytes go into it, once they are complete.

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
    if path.exists() and not path.is_file() and not path.is_dir():
        with _poured(path) as part:
            yield part
        return
    if path.is_symlink():
        path = path.resolve()
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


@contextmanager
def _poured(path: Path) -> Iterator[Path]:
    """Lend a name elsewhere; what was written goes into the device or pipe `path`."""
    with tempfile.TemporaryDirectory() as folder:
        part = Path(folder) / path.name
        yield part
        try:
            with part.open("rb") as source, path.open("wb") as sink:
                shutil.copyfileobj(source, sink)
        except OSError as error:
            code = errno.ENOTDIR if error.errno == errno.EISDIR else error.errno or errno.EIO
            raise OSError(code, os.strerror(code), str(path)) from None


def _remove(part: Path) -> None:
    if part.is_dir():
        shutil.rmtree(part, ignore_errors=True)
    else:
        part.unlink(missing_ok=True)
