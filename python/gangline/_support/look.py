"""Defines the style of figures that show runs: colours, dashes, line widths and time ticks."""

from __future__ import annotations

__all__ = ["COLOURS", "DASHES", "WIDTHS", "stroke_of", "style_of", "ticks_s", "width_of"]

# The first four are colours of Okabe and Ito for colour-blind readers (jfly.uni-koeln.de/color);
# they are the ones that stand out on both white and black. The other four are our own choice. Lines
# are drawn in this order. The first line is solid and wide. Later lines are narrower and have gaps,
# so that the lines below them stay visible.
COLOURS = (
    "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#B58A00", "#3B9FD6", "#7A4FBF", "#80868F",
)  # fmt: skip
DASHES: tuple[tuple[int, ...], ...] = (
    (), (9, 4), (3, 3), (12, 3, 3, 3), (6, 6), (2, 5), (9, 3, 3, 3, 3, 3), (14, 6),
)  # fmt: skip
WIDTHS = (3.2, 2.4, 2.0, 1.8)  # the last width also applies to all further lines


_NARROW = 100.0  # a time axis whose ends have a larger ratio has only the main ticks
_TICKS_S = (
    (1.0, "1 s", True), (2.0, "2 s", False), (5.0, "5 s", False), (10.0, "10 s", True),
    (30.0, "30 s", False), (60.0, "1 min", True), (120.0, "2 min", False),
    (300.0, "5 min", False), (600.0, "10 min", True), (1800.0, "30 min", False),
    (3600.0, "1 h", True), (7200.0, "2 h", False), (10800.0, "3 h", False),
    (21600.0, "6 h", True), (43200.0, "12 h", False), (86400.0, "1 d", True),
    (172800.0, "2 d", False), (345600.0, "4 d", False), (604800.0, "7 d", True),
    (1209600.0, "14 d", False), (2592000.0, "30 d", True), (7776000.0, "90 d", False),
    (31536000.0, "1 yr", True),
)  # fmt: skip


def ticks_s(low: float, high: float) -> dict[float, str]:
    """Return the ticks of a logarithmic time axis: few for a wide range, more for a narrow one.

    Examples
    --------
    >>> list(ticks_s(20.0, 100.0).values())
    ['30 s', '1 min']
    """
    wide = high / max(low, 1e-9) > _NARROW
    return {
        value: label
        for value, label, is_main in _TICKS_S
        if low <= value <= high and (is_main or not wide)
    }


def style_of(number: int) -> tuple[str, tuple[int, ...]]:
    """Return the colour and the dash pattern of a policy, given its position in the report.

    Examples
    --------
    >>> style_of(0), style_of(1)
    (('#0072B2', ()), ('#D55E00', (9, 4)))
    """
    return COLOURS[number % len(COLOURS)], DASHES[number % len(DASHES)]


def stroke_of(number: int, scale: float = 1.0) -> str:
    """Return the style of a policy's line as SVG attributes."""
    colour, dash = style_of(number)
    pattern = f' stroke-dasharray="{" ".join(map(str, dash))}"' if dash else ""
    return f'stroke="{colour}" stroke-width="{scale * width_of(number):.4g}"{pattern}'


def width_of(number: int) -> float:
    """Return the width of a policy's line in pixels."""
    return WIDTHS[min(number, len(WIDTHS) - 1)]
