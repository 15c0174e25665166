"""Damages small files at random for the fuzzers of the readers; a seed gives the same damage."""

from __future__ import annotations

import gzip
import lzma
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import random

PIECES = (
    *(b"", b",", b"\n", b"\r", b"\t", b";", b'"', b"'", b"-", b"+", b".", b"|", b"#", b" "),
    *(b"0", b"-1", b"1e9", b"1e308", b"1e400", b"9" * 30, b"nan", b"inf", b"-inf", b"None"),
    *(b"\0", b"\xff", b"\xef\xbb\xbf", b"\xe2\x80\xa8", b"[", b"]", b"{", b"}", b"[" * 2000),
    *(b"null", b"true", b'""', b"2017-02-30 00:00:00", b"+25:00", b"\x85", b"x" * 300),
)


def damaged(content: bytes, random_: random.Random) -> bytes:
    """Return the content with a few random edits."""
    for _ in range(random_.randint(1, 5)):
        at = random_.randrange(len(content) + 1)
        what = random_.random()
        if what < 0.45:
            content = content[:at] + random_.choice(PIECES) + content[at + random_.randint(0, 3) :]
        elif what < 0.6:
            content = content[:at] + random_.randbytes(random_.randint(1, 4)) + content[at + 1 :]
        elif what < 0.7:
            content = content[:at]
        elif what < 0.85:
            lines = content.splitlines(keepends=True) or [b""]
            i, j = random_.randrange(len(lines)), random_.randrange(len(lines))
            lines[i], lines[j] = lines[j], lines[i] * random_.randint(0, 2)
            content = b"".join(lines)
        else:
            end = at + random_.randint(0, 40)
            content = content[:end] + content[at:]
    return content


def packed(name: str, content: bytes, random_: random.Random) -> tuple[str, bytes]:
    """Compress one input in eight, and damage half of the compressed inputs."""
    if random_.random() > 0.125:
        return name, content
    suffix = random_.choice((".gz", ".xz"))
    content = gzip.compress(content, 1, mtime=0) if suffix == ".gz" else lzma.compress(content)
    return name + suffix, damaged(content, random_) if random_.random() < 0.5 else content
