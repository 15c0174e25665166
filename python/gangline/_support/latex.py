"""Writes LaTeX: text with its special characters escaped, and tables in the style of booktabs."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = ["bold", "escaped", "tabular"]

_SPECIAL = str.maketrans(
    {
        **{sign: f"\\{sign}" for sign in "&%$#_{}"},
        "\\": r"\textbackslash{}",
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        # the old font encoding has other characters at these codes
        "<": r"\textless{}",
        ">": r"\textgreater{}",
        "|": r"\textbar{}",
        "–": "--",
        **dict.fromkeys("\n\r\t", " "),  # an empty line would end the cell
    }
)


def bold(text: str) -> str:
    """Return LaTeX in bold type."""
    return rf"\textbf{{{text}}}"


def escaped(text: str) -> str:
    r"""Return a text as LaTeX.

    Examples
    --------
    >>> print(escaped("las_2 & 5 %"))
    las\_2 \& 5 \%
    """
    return text.translate(_SPECIAL)


def tabular(
    titles: Sequence[str],
    groups: Iterable[Iterable[Sequence[str]]],
    columns: str = "",
    *,
    long: bool = False,
) -> str:
    r"""Return a table with a rule between groups of lines; cells are LaTeX, titles are plain text.

    A long table uses the package longtable, so that it can span several pages.

    Examples
    --------
    >>> print(tabular(["policy", "jobs"], [[["fifo", "7"]]]), end="")
    \begin{tabular}{lr}
    \toprule
    policy & jobs \\
    \midrule
    fifo & 7 \\
    \bottomrule
    \end{tabular}
    """
    columns = columns or "l" + "r" * (len(titles) - 1)
    kind = "longtable" if long else "tabular"
    lines = [rf"\begin{{{kind}}}{{{columns}}}", r"\toprule"]
    lines.append(" & ".join(map(escaped, titles)) + r" \\")
    for number, group in enumerate(groups):
        lines.append(r"\midrule\endhead" if long and number == 0 else r"\midrule")
        lines += [" & ".join(cells) + r" \\" for cells in group]
    return "\n".join([*lines, r"\bottomrule", rf"\end{{{kind}}}", ""])
