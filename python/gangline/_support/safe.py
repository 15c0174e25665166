"""Makes untrusted text safe for terminals and messages."""

from __future__ import annotations

import re

__all__ = ["LONGEST", "safe", "visible"]

# The maximum number of characters of a line; our own choice, so that a message fits a screen.
LONGEST = 1200


def safe(text: object, longest: int = LONGEST) -> str:
    r"""Return text on one line that can neither control a terminal nor flood it.

    Characters that are not printable are shown as escapes, as in Python's `repr`: control
    characters, line breaks, marks that change the writing direction, unpaired surrogates. Long text
    is shortened in the middle.

    Examples
    --------
    >>> print(safe("job\x1b[2J\nb"))
    job\x1b[2J\nb
    >>> safe("x" * 50, 20)
    'xxxxxxxxxxx ... xxxx'
    """
    shown = _cut(str(text), longest)
    if shown.isprintable():
        return shown
    escaped = (c if c.isprintable() else c.encode("unicode_escape").decode() for c in shown)
    return _cut("".join(escaped), longest)


_STEERS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
"""Control characters except tab and line break, and marks that change the writing direction."""


def visible(text: str) -> str:
    r"""Return text with escapes for characters that control a terminal or change the direction.

    Examples
    --------
    >>> print(visible("a\u202eb"))
    a\u202eb
    """
    return _STEERS.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def _cut(text: str, longest: int) -> str:
    if len(text) <= longest:
        return text
    end = longest // 4 - 1
    return f"{text[: longest - end - 5]} ... {text[-end:]}"
