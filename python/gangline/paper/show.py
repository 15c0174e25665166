"""Writes the tables, the figure and the sentences of a paper kit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gangline._support.formatting import listed, plural, times
from gangline._support.latex import bold, escaped, tabular
from gangline._support.look import COLOURS
from gangline._support.panels import Panel, limits, ticks
from gangline._support.statistics import LEAST_SEEDS
from gangline.paper.worlds import UNCHANGED

if TYPE_CHECKING:
    import pyarrow as pa

    from gangline.paper.run import Pair, Paper, Row

__all__ = [
    "document", "figure_pgf", "figure_tex", "legend", "panels", "ratios_table", "reasons",
    "sensitivity_tex", "table", "table_tex", "terminal", "verdicts",
]  # fmt: skip

_HOUR_S = 3600.0
_COLUMN_CM, _WIDE_CM, _ROW_CM = 9.0, 4.6, 0.34  # our own choice: two columns of panels on a page
_AROUND_CM, _LEGEND_CM = 1.9, 0.4
_SHIFT = 0.15
_MARKS = ("*", "square*", "triangle*", "diamond*", "pentagon*")


def table(made: Paper) -> pa.Table:
    """Return a row per world, change and policy: the headline metric with its interval."""
    import pyarrow as pa

    rows = [
        {**_names(row), "policy": row.policy, "is_new": row.is_new, "measure": row.world.measure,
         "mean": one and one.mean, "low": one and one.low, "high": one and one.high,
         "seeds": len(row.values), "status": row.status, "reason": row.reason}
        for row in made.rows for one in [row.mean]
    ]  # fmt: skip
    text = dict.fromkeys(("world", "change", "policy", "measure", "status", "reason"), pa.string())
    kinds = {**text, "is_new": pa.bool_(), "seeds": pa.int64()}
    names = list(rows[0])
    return pa.table({n: pa.array([r[n] for r in rows], kinds.get(n, pa.float64())) for n in names})


def ratios_table(made: Paper) -> pa.Table:
    """Return a row per rival and new policy: the ratio of the metric with its interval."""
    import pyarrow as pa

    text, real = pa.string(), pa.float64()
    kinds = {
        "world": text, "change": text, "policy": text, "rival": text, "measure": text,
        "ratio": real, "low": real, "high": real, "seeds": pa.int64(), "verdict": text,
    }  # fmt: skip
    rows = [
        {**_names(one), "policy": one.policy, "rival": one.rival, "measure": one.world.measure,
         "ratio": one.times, "low": one.low, "high": one.high, "seeds": one.seeds,
         "verdict": one.verdict}
        for one in made.pairs
    ]  # fmt: skip
    return pa.table({n: pa.array([row[n] for row in rows], kind) for n, kind in kinds.items()})


def _names(one: Row | Pair) -> dict[str, str]:
    return {"world": one.world.name, "change": one.change.label}


def document(made: Paper) -> dict[str, Any]:
    """Return the runs, means, ratios and verdicts as plain values."""
    return {
        "policies": [one.label for one in made.entrants],
        "worlds": [one.name for one in made.worlds],
        "seeds": made.seeds,
        "is_quick": made.is_quick,
        "rows": table(made).to_pylist(),
        "ratios": ratios_table(made).to_pylist(),
        "reading": [*verdicts(made), *reasons(made), *made.notes],
    }


def terminal(made: Paper) -> list[tuple[str, list[str], list[list[Any]]]]:
    """Return one table for each unchanged world, as its title, column titles and cells."""
    found = []
    for place in made.worlds:
        rows = [row for row in made.rows if row.world is place and row.change is UNCHANGED]
        titles = ["policy", f"{place.words}, h", *_against(made)]
        cells = [[row.policy, _value(row), *_pairs(made, row)] for row in rows]
        found.append((place.title, titles, cells))
    return found


def table_tex(made: Paper) -> str:
    """Return the table of all policies in the unchanged worlds; new policies are in bold."""
    groups = []
    for place in made.worlds:
        rows = [row for row in made.rows if row.world is place and row.change is UNCHANGED]
        lines = []
        for number, row in enumerate(rows):
            head = f"{place.name}, {place.words} (h)" if number == 0 else ""
            name = escaped(row.policy)
            cells = [_value(row), *_pairs(made, row)]
            lines.append([escaped(head), bold(name) if row.is_new else name, *map(escaped, cells)])
        groups.append(lines)
    titles = ["world and measure", "policy", "mean (95 % interval)", *_against(made)]
    return _note(made) + tabular(titles, groups, "ll" + "r" * (len(titles) - 2))


def sensitivity_tex(made: Paper) -> str:
    """Return the table of the ratios when one setting at a time is changed."""
    groups = []
    for place in made.worlds:
        rows = [r for r in made.rows
                if r.world is place and not r.is_new and r.policy in _heroes(r)]  # fmt: skip
        lines = []
        for number, row in enumerate(rows):
            before = rows[number - 1].change if number else None
            change = "" if row.change is before else row.change.label
            cells = [place.name if number == 0 else "", change, row.policy, *_pairs(made, row)]
            lines.append([*map(escaped, cells)])
        if lines:
            groups.append(lines)
    titles = ["world", "changed alone", "rival", *_against(made)]
    columns = "lll" + "r" * (len(titles) - 3)
    return _note(made, "booktabs and longtable") + tabular(titles, groups, columns, long=True)


_VERDICTS = {
    "better": "better than", "worse": "worse than", "equal": "equal to",
    "cannot tell": "not significantly different from",
}  # fmt: skip


def legend(made: Paper) -> list[str]:
    """Return sentences that explain the tables on the terminal."""
    lines = [
        f"Ratio to {one.label}: the metric under a rival divided by the metric under {one.label}; "
        f"above 1, {one.label} is better."
        for one in made.entrants
    ]
    if any(one.verdict == "cannot tell" for one in made.pairs):
        lines.append(
            "A question mark means that the 95 % interval contains 1, so the seeds cannot tell "
            "which is better."
        )
    return lines


def verdicts(made: Paper) -> list[str]:
    """State each new policy's verdicts against its rivals in the unchanged worlds."""
    if len(made.seeds) < LEAST_SEEDS:
        return [f"{plural(len(made.seeds), 'seed')}: verdicts need five seeds or more."]
    found = []
    for entrant in made.entrants:
        for place in made.worlds:
            mine = [one for one in made.pairs if one.policy == entrant.label
                    and one.world is place and one.change is UNCHANGED]  # fmt: skip
            said = []
            for verdict, words in _VERDICTS.items():
                names = [one.rival for one in mine if one.verdict.partition(":")[0] == verdict]
                if names:
                    said.append(f"{words} {listed(names)}")
            own = next(r for r in made.rows if r.world is place and r.policy == entrant.label)
            if own.status != "finished":
                said = [f"{own.status} ({own.reason})"]
            found.append(f"{entrant.label} in the world {place.name}: {'; '.join(said)}.")
    return found


def reasons(made: Paper) -> list[str]:
    """Return the reasons why policies do not apply or failed, each reason once."""
    found: dict[tuple[str, str, str, str], list[str]] = {}
    for row in made.rows:
        if row.reason:
            key = row.policy, row.world.name, row.status, row.reason
            found.setdefault(key, []).append(row.change.label)
    lines = []
    for (policy, place, status, reason), labels in found.items():
        where = f"the world {place}"
        if UNCHANGED.label not in labels:
            where += f" with {listed(labels)}"
        lines.append(f"{policy} in {where}: {status}: {reason}.")
    return lines


def panels(made: Paper) -> list[Panel]:
    """Return the figure's data: for each new policy, the ratios to each world's own rivals.

    Examples
    --------
    >>> import gangline as gl, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     made = gl.paper.run(["las"], worlds=["tiresias"], quick=True, out=folder, workers=1)
    >>> [panel.title for panel in gl.paper.panels(made)]
    ['tiresias: mean JCT of rival / las']
    """
    found = []
    for entrant in made.entrants:
        for place in made.worlds:
            changes = list(dict.fromkeys(r.change.label for r in made.rows if r.world is place))
            series: dict[str, list[tuple[int, float, float, float]]] = {}
            for row in made.rows:
                if row.world is not place or row.is_new or row.policy not in _heroes(row):
                    continue
                for one in made.pairs_of(row):
                    if one.policy == entrant.label and one.times is not None:
                        low, high = one.interval or (one.times, one.times)
                        at = changes.index(row.change.label)
                        series.setdefault(row.policy, []).append((at, one.times, low, high))
            title = f"{place.name}: {place.words} of rival / {entrant.label}"
            found.append(Panel(title, changes, series))
    return found


def figure_pgf(made: Paper) -> str:
    """Return the figure as pgfplots code."""
    lines = ["% needs \\usepackage{pgfplots} and \\pgfplotsset{compat=1.15}",
             "\\begin{tikzpicture}"]  # fmt: skip
    lines += [rf"\definecolor{{gangline{i}}}{{HTML}}{{{colour[1:]}}}"
              for i, colour in enumerate(COLOURS)]  # fmt: skip
    drawn = panels(made)
    down = 0.0
    for start in range(0, len(drawn), 2):
        pair = drawn[start : start + 2]
        for column, panel in enumerate(pair):
            lines += _axis(panel, column * _COLUMN_CM, down)
        tallest = max(_ROW_CM * len(one.rows) + _LEGEND_CM * _legend_rows(one) for one in pair)
        down += tallest + _AROUND_CM
    return "\n".join([*lines, "\\end{tikzpicture}", ""])


def figure_tex() -> str:
    """Return a LaTeX document that contains only the figure."""
    return "\n".join(
        [
            "\\documentclass[border=2pt]{standalone}",
            "\\usepackage{pgfplots}",
            "\\pgfplotsset{compat=1.15}",
            "\\begin{document}",
            "\\input{figure.pgf}",
            "\\end{document}",
            "",
        ]
    )


def _axis(panel: Panel, right: float, down: float) -> list[str]:
    low, high = limits(panel)
    marks = ",".join(f"{mark:g}" for mark in ticks(low, high))
    names = ",".join(f"{{{escaped(name)}}}" for name in panel.rows)
    lines = [
        rf"\begin{{axis}}[at={{({right:g}cm,{-down:g}cm)}}, anchor=north west, scale only axis,",
        f"  width={_WIDE_CM:g}cm, height={_ROW_CM * len(panel.rows):.2f}cm,",
        f"  title={{{escaped(panel.title)}}}, title style={{font=\\scriptsize}},",
        f"  xmode=log, xmin={low:.6g}, xmax={high:.6g},",
        f"  xtick={{{marks}}}, xticklabels={{{marks}}},",
        f"  xminorticks=false, ymin=-0.5, ymax={len(panel.rows) - 0.5:g}, y dir=reverse,",
        f"  ytick={{{','.join(map(str, range(len(panel.rows))))}}}, yticklabels={{{names}}},",
        "  tick label style={font=\\scriptsize}, axis lines=left, xmajorgrids, ymajorgrids,",
        "  legend style={at={([yshift=-0.55cm]axis description cs:0.5,0)}, anchor=north,",
        "    draw=none, font=\\scriptsize},",
        f"  legend columns={_LEGEND}]",
        rf"\draw[black!60] (axis cs:1,-0.5) -- (axis cs:1,{len(panel.rows) - 0.5:g});",
    ]
    for number, (label, points) in enumerate(panel.series.items()):
        shift = _SHIFT * (number - (len(panel.series) - 1) / 2)
        style = f"gangline{number % len(COLOURS)}"
        lines += [
            rf"\addplot+[only marks, {style}, mark={_MARKS[number % len(_MARKS)]},",
            "  mark size=1.2pt,",
            f"  mark options={{fill={style}}}, error bars/.cd, x dir=both, x explicit]",
            "  table[x=x, y=y, x error plus=more, x error minus=less, row sep=newline] {",
            "x y more less",
            *(f"{ratio:.6g} {row + shift:.4g} {high - ratio:.6g} {ratio - low:.6g}"
              for row, ratio, low, high in points),
            "};",
            rf"\addlegendentry{{{escaped(label)}}}",
        ]  # fmt: skip
    return [*lines, r"\end{axis}"]


_LEGEND = 3  # entries per row of a legend


def _legend_rows(panel: Panel) -> int:
    return -(-len(panel.series) // _LEGEND)


def _heroes(row: Row) -> tuple[str, ...]:
    return row.world.heroes


def _against(made: Paper) -> list[str]:
    return [f"ratio to {one.label}" for one in made.entrants]


def _value(row: Row) -> str:
    one = row.mean
    if one is None:
        return row.status
    per = _HOUR_S if row.world.measure.endswith("_s") else 1.0
    if one.low is None or one.high is None:
        return _number(one.mean / per)
    low, high = _number(one.low / per), _number(one.high / per)
    return f"{_number(one.mean / per)} ({low} to {high})"


def _number(value: float) -> str:
    """Return a table value with about four digits."""
    return f"{value:.2f}" if value < 100.0 else f"{value:,.1f}" if value < 1e3 else f"{value:,.0f}"


def _pairs(made: Paper, row: Row) -> list[str]:
    """Return a rival's ratio to each new policy; inconclusive ratios are marked."""
    found = {one.policy: _pair(one) for one in made.pairs_of(row)}
    return [found.get(one.label, "–") for one in made.entrants]


def _pair(one: Pair) -> str:
    if one.times is None:
        return "–"
    if one.interval is None:
        return f"{times(one.times)}"
    low, high = map(times, one.interval)
    mark = "?" if one.verdict == "cannot tell" else ""
    return f"{times(one.times)} ({low} to {high}){mark}"


def _note(made: Paper, packages: str = "booktabs") -> str:
    words = (
        f"% needs {packages}. A ratio above 1 means that the new policy is better. "
        "A question mark means that the seeds cannot tell which is better."
    )
    if len(made.seeds) < LEAST_SEEDS:
        words += " Too few seeds for intervals: no ratio here is conclusive."
    return words + "\n"
