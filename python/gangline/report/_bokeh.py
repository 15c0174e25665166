"""Charts drawn by bokeh: zoom, linked spans, values under the pointer. The only user of bokeh."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Literal

from bokeh.embed import json_item
from bokeh.layouts import column
from bokeh.models import (
    BoxZoomTool,
    ColumnDataSource,
    CrosshairTool,
    DataRange1d,
    FixedTicker,
    HoverTool,
    NumeralTickFormatter,
    Range1d,
    ResetTool,
    SaveTool,
    WheelZoomTool,
)
from bokeh.plotting import figure
from bokeh.resources import Resources

from gangline.report.charts import style_of, ticks_s, width_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gangline.report.charts import Chart, Line

__all__ = ["items", "library"]

_HEIGHT = 300
_FONT = "system-ui, sans-serif"


def library() -> str:
    """Return the script of the library, without what these charts do not need."""
    return "\n".join(Resources(mode="inline", components=["bokeh"], minified=True).js_raw)


def items(charts: Mapping[str, Chart]) -> dict[str, str]:
    """Return one JSON document per chart, or per set of linked charts under their common word.

    The documents are safe inside a script element: no `<` is left in them.
    """
    sets: dict[str, list[Chart]] = {}
    for chart in charts.values():
        sets.setdefault(chart.linked or chart.key, []).append(chart)
    documents = {}
    for key, members in sets.items():
        figures = [_figure(chart) for chart in members]
        for other in figures[1:]:
            other.x_range = figures[0].x_range
        root = figures[0] if len(figures) == 1 else column(*figures, sizing_mode="stretch_width")
        documents[key] = json.dumps(json_item(root)).replace("<", "\\u003c")
    return documents


def _figure(chart: Chart) -> Any:
    kinds: dict[str, Any] = {"x_axis_type": "linear", "y_axis_type": "linear"}
    if chart.x_scale in ("seconds", "ratio"):
        kinds["x_axis_type"] = "log"
    if chart.y_scale == "seconds":
        kinds["y_axis_type"] = "log"
    if chart.x_scale == "names":
        kinds["x_range"] = Range1d(start=-0.5, end=len(chart.names) - 0.5)
    if chart.x_limit is not None:
        kinds["x_range"] = Range1d(start=0.0, end=chart.x_limit)
    if chart.y_scale == "share":
        kinds["y_range"] = Range1d(start=0.0, end=1.02)
    if chart.y_scale == "count":
        kinds["y_range"] = DataRange1d(start=0)
    drawn = figure(
        height=_HEIGHT,
        sizing_mode="stretch_width",
        tools=[],
        toolbar_location="above",
        title=chart.title if chart.linked else None,
        x_axis_label=chart.x_title,
        y_axis_label=chart.y_title,
        **kinds,
    )
    _tools(drawn, chart)
    _axes(drawn, chart)
    for line in chart.lines:
        _line(drawn, chart, line)
    return drawn


def _tools(drawn: Any, chart: Chart) -> None:
    dimensions: Literal["width", "both"] = "width" if chart.linked else "both"
    zoom = BoxZoomTool(dimensions=dimensions)
    wheel = WheelZoomTool(dimensions=dimensions, modifiers="ctrl")
    drawn.add_tools(zoom, wheel, ResetTool(), SaveTool())
    if chart.linked:
        drawn.add_tools(CrosshairTool(dimensions="height", line_alpha=0.3))
    drawn.toolbar.active_drag = zoom
    drawn.toolbar.active_scroll = wheel
    drawn.toolbar.logo = None
    drawn.toolbar.autohide = True


def _axes(drawn: Any, chart: Chart) -> None:
    drawn.background_fill_color = drawn.border_fill_color = None
    drawn.outline_line_color = None
    if drawn.title is not None:
        drawn.title.text_font = _FONT
    drawn.xgrid.grid_line_color = None
    for axis in drawn.axis:
        axis.axis_label_text_font = axis.major_label_text_font = _FONT
        axis.axis_label_text_font_style = "normal"
        axis.minor_tick_line_color = None
        axis.major_tick_in = 0
        axis.major_tick_out = 4
    x_axis, y_axis = drawn.xaxis[0], drawn.yaxis[0]
    if chart.x_scale == "names":
        x_axis.ticker = FixedTicker(ticks=list(range(len(chart.names))))
        x_axis.major_label_overrides = dict(enumerate(chart.names))
    if chart.x_scale == "ratio":
        x_axis.formatter = NumeralTickFormatter(format="0,0.[000]")
    for axis, scale in ((x_axis, chart.x_scale), (y_axis, chart.y_scale)):
        if scale == "seconds":
            ticks = _ticks(chart, x=axis is x_axis)
            axis.ticker = FixedTicker(ticks=list(ticks))
            axis.major_label_overrides = dict(ticks)
        elif scale == "share":
            axis.formatter = NumeralTickFormatter(format="0 %")
        elif scale == "count":
            axis.ticker.min_interval = 1
            axis.formatter = NumeralTickFormatter(format="0,0")


def _ticks(chart: Chart, *, x: bool) -> dict[float, str]:
    values = [line.x if x else line.y for line in chart.lines]
    known = [value for value in values if len(value)]
    if not known:
        return ticks_s(1.0, 86400.0)
    return ticks_s(min(v.min() for v in known) * 0.9, max(v.max() for v in known) * 1.1)


def _line(drawn: Any, chart: Chart, line: Line) -> None:
    colour, dash = style_of(line.number)
    data = {"x": line.x, "y": line.y.astype("float32")}
    if line.low is not None and line.high is not None:
        data |= {"low": line.low.astype("float32"), "high": line.high.astype("float32")}
    source = ColumnDataSource(data)
    common = {"source": source, "name": line.label}
    parts = []
    if "low" in data:
        shade = {"fill_color": colour, "fill_alpha": 0.13}
        parts.append(drawn.varea_step("x", "low", "high", step_mode="after", **shade, **common))
    look = {"line_color": colour, "line_width": width_of(line.number), "line_dash": list(dash)}
    if chart.is_step:
        parts.append(drawn.step("x", "y", mode="after", **look, **common))
    else:
        parts.append(drawn.line("x", "y", **look, **common))
    if chart.x_scale == "names" or len(line.x) < 3:
        parts.append(drawn.scatter("x", "y", size=8, color=colour, **common))
    for part in parts:
        part.tags = [f"p{line.number}"]  # by which the page finds all parts of a policy
    tips = [("", "$name"), (chart.y_title, _shown(chart, "y")), (_short(chart), _shown(chart, "x"))]
    if chart.x_scale == "names":
        tips = tips[:2]
    drawn.add_tools(HoverTool(renderers=parts[-1:], tooltips=tips, visible=False, mode="mouse"))


def _short(chart: Chart) -> str:
    return {"seconds": "seconds", "ratio": "ratio", "names": ""}.get(
        chart.x_scale, chart.x_title.partition(" ")[0]
    )


def _shown(chart: Chart, name: str) -> str:
    scale = chart.x_scale if name == "x" else chart.y_scale
    if scale == "seconds":
        return f"@{name}{{00:00:00}}"
    if scale == "share":
        return f"@{name}{{0.0 %}}"
    return f"@{name}{{0,0.[00]}}"
