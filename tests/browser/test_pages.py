"""Opens reports, notebooks and the docs in a real browser: nothing fails, and nothing is fetched.

`make browser` (`scripts/browser.py`) finds Chromium and runs these tests; other runs skip them.
"""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from playwright.sync_api import sync_playwright

import gangline as gl
import worlds
from gangline._support.look import style_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from playwright.sync_api import Browser, Page

ROOT = Path(__file__).resolve().parents[2]
POLICIES = ["fifo", "sjf", "srtf", "las", "tiresias"]
WIDE, PHONE = {"width": 1200, "height": 900}, {"width": 390, "height": 800}
EVIL = "</script><img src=x onerror=\"owned='yes'\"><script>owned='yes'</script>'\"\u202e日本"
RANGES = """() => plots.filter((plot) => plot.linked)
    .map((plot) => [plot.svg.getAttribute("aria-label"), ...plot.view])"""


@dataclass
class Open:
    """A page, with its errors and its requests."""

    page: Page
    errors: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)
    failures: dict[str, str | None] = field(default_factory=dict)


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(
            executable_path=os.environ["GANGLINE_CHROMIUM"],
            # Chromium refuses to start in its sandbox for root, and the gate may run as root.
            chromium_sandbox=os.geteuid() != 0,
        )
        yield started
        started.close()


@pytest.fixture
def visit(browser: Browser) -> Iterator[Callable[..., Open]]:
    contexts = []

    def go(path: Path, *, scheme: str = "light", size: dict[str, int] = WIDE) -> Open:
        context = browser.new_context(viewport=size, color_scheme=scheme)
        contexts.append(context)
        found = Open(context.new_page())
        found.page.on(
            "console",
            lambda note: (
                found.errors.append(note.text) if note.type in ("error", "warning") else None
            ),
        )
        found.page.on("pageerror", lambda error: found.errors.append(str(error)))
        found.page.on("dialog", lambda dialog: found.errors.append(f"dialog {dialog.message}"))
        found.page.on("request", lambda request: found.requests.append(request.url))
        found.page.on(
            "requestfailed", lambda request: found.failures.update({request.url: request.failure})
        )
        found.page.goto(path.as_uri())
        # After two frames all requested drawing is done.
        found.page.evaluate(
            "() => new Promise((f) => requestAnimationFrame(() => requestAnimationFrame(f)))"
        )
        return found

    yield go
    for context in contexts:
        context.close()


@pytest.fixture(scope="session")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Return one page of each kind."""
    folder = tmp_path_factory.mktemp("pages")
    # The load is high enough that policies differ, because equal lines would cover each other.
    cluster = gl.Cluster.homogeneous(servers=4, gpus=4)
    trace = gl.synth.philly(jobs=600, seed=1, max_gpus=8, cluster_gpus=16, load=1.6)
    runs = [
        gl.report.digest(gl.simulate(cluster, trace, name, restart_s=60.0, segments=True))
        for name in POLICIES
    ]
    texts = {
        "one": gl.report.render(runs[:1]),
        "several": gl.report.render(runs),
        "mixed": gl.report.render(mixed_runs()),
        "nothing": gl.report.render(nothing_runs()),
        "distant": gl.report.render(distant_runs()),
        "evil": gl.report.render(evil_runs(), command=EVIL),
    }
    for name, text in texts.items():
        (folder / f"{name}.html").write_text(text, encoding="utf-8")
    return {name: folder / f"{name}.html" for name in texts}


def mixed_runs() -> list[gl.report.Digest]:
    """Return runs on two GPU types that use them differently."""
    lab = worlds.cluster("2x4 fast @0", "3x4 slow*0.5 @0", name="mixed")
    trace = gl.synth.philly(jobs=200, seed=1, max_gpus=4, cluster_gpus=20, load=0.5)
    names = ("fastest", "slowest")
    policies = [gl.policies.YarnCs(gpu_pick=name) for name in names]
    return [gl.report.digest(gl.simulate(lab, trace, policy)) for policy in policies]


def distant_runs() -> list[gl.report.Digest]:
    """Return runs on a cluster whose network costs something, with a model of any name."""
    cluster = {
        "gpu_types": [{"name": "g", "memory_gb": 16}],
        "servers": [{"count": 6, "gpu": "g", "gpus": 2, "rack": "fill:2"}],
        "network": {"levels": {EVIL: [0.9, 0.5, 0.25], "*": [1.0, 0.75, 0.5]}},
    }
    rows = {
        "job_id": [str(i) for i in range(40)],
        "arrival_s": [float(i) for i in range(40)],
        "gpus": [2, 4, 6, 1] * 10,
        "duration_s": [30.0] * 40,
        "model": [EVIL, "vgg", "bert", EVIL] * 10,
    }
    trace = gl.Trace.from_arrow(pa.table(rows))
    return [gl.report.digest(gl.simulate(cluster, trace, name)) for name in ("fifo", "srtf")]


def nothing_runs() -> list[gl.report.Digest]:
    """Return a run in which no job finished, and one that kept no time line."""
    cluster, trace = evil_cluster(), evil_trace()
    stopped = gl.simulate(cluster, trace, "fifo", until_s=1.0)
    silent = gl.simulate(cluster, trace, "sjf", timeline="off")
    return [gl.report.digest(stopped), gl.report.digest(silent)]


def evil_trace() -> gl.Trace:
    rows = {
        "job_id": [EVIL, "b"], "arrival_s": [0.0, 0.0], "gpus": [2, 1],
        "duration_s": [5000.0, 90.0], "user": [EVIL, "bob"], "model": [EVIL, "bert"],
    }  # fmt: skip
    return gl.Trace.from_arrow(pa.table(rows))


def evil_cluster() -> gl.Cluster:
    return gl.Cluster.homogeneous(servers=1, gpus=2, gpu=EVIL, name=EVIL)


def evil_runs() -> list[gl.report.Digest]:
    runs = []
    for name in ("fifo", "sjf"):
        run = gl.report.digest(gl.simulate(evil_cluster(), evil_trace(), name, segments=True))
        run.spec["policy"] |= {"label": EVIL + name, "name": EVIL, "params": {EVIL: EVIL}}
        run.spec["trace"]["path"] = EVIL
        runs.append(run)
    return runs


@pytest.mark.parametrize("name", ["one", "several", "mixed", "nothing", "distant", "evil"])
@pytest.mark.parametrize(("scheme", "size"), [("light", WIDE), ("dark", WIDE), ("light", PHONE)])
def test_nothing_fails_and_nothing_is_fetched(
    visit: Any, pages: dict[str, Path], name: str, scheme: str, size: dict[str, int]
) -> None:
    seen = visit(pages[name], scheme=scheme, size=size)
    seen.page.mouse.wheel(0, 100_000)
    assert seen.errors == []
    away = [url for url in seen.requests if not url.startswith(("data:", "blob:"))]
    assert away == [pages[name].as_uri()]
    # Wide tables scroll in their own frame; the page itself never scrolls sideways.
    assert seen.page.evaluate("document.documentElement.scrollWidth") <= size["width"]


def test_a_page_of_eight_policies_is_small_and_opens_at_once(visit: Any, tmp_path: Path) -> None:
    """The size does not grow with the jobs, because lines are thinned and tables are short."""
    trace = gl.synth.philly(jobs=3000, seed=1, max_gpus=8, cluster_gpus=32, load=1.2)
    names = [*POLICIES, "fifo-skip", "easy", "yarn-cs"]
    runs = gl.compare(gl.Cluster.homogeneous(servers=8, gpus=4), trace, names, segments=True)
    path = gl.report.write(runs, tmp_path / "page.html")
    assert path.stat().st_size < 1_000_000
    took_ms = "performance.getEntriesByType('navigation')[0].loadEventEnd"
    assert visit(path).page.evaluate(took_ms) < 1000.0


@pytest.mark.parametrize("size", [WIDE, PHONE])
def test_every_chart_is_drawn_with_every_policy(
    visit: Any, pages: dict[str, Path], size: dict[str, int]
) -> None:
    page = visit(pages["several"], size=size).page
    places = page.query_selector_all("svg.plot")
    assert len(places) >= 5
    for place in places:
        box = place.bounding_box()
        assert box["width"] > 300
        assert box["height"] > 150
        colours = [line.get_attribute("stroke") for line in place.query_selector_all(".data .line")]
        assert colours == [style_of(i)[0] for i in range(len(POLICIES))]
        for line in place.query_selector_all(".data .line"):
            inside = line.bounding_box()
            assert inside["width"] > 0.05 * box["width"]
        # the names at the ends of the lines are apart from each other, and inside the picture
        names = [place.query_selector(f":scope > .p{i} text") for i in range(len(POLICIES))]
        assert [name.text_content() for name in names] == POLICIES
        boxes = sorted((name.bounding_box() for name in names), key=lambda one: one["y"])
        assert all(a["y"] + 0.7 * a["height"] <= b["y"] for a, b in itertools.pairwise(boxes))
        assert all(one["x"] + one["width"] <= box["x"] + box["width"] + 1 for one in boxes)


def test_shares_of_time_by_gpu_type_are_bars_in_line(visit: Any, pages: dict[str, Path]) -> None:
    """Bars of a column begin at the same place and end at their share."""
    table = visit(pages["mixed"]).page.locator("table", has_text="Time on fast")
    heads = [head.strip() for head in table.locator("thead th button").all_text_contents()]
    column = heads.index("Time on slow") + 1
    cells = table.locator(f"tbody td:nth-child({column})")
    shares = [float(words.split()[0]) / 100 for words in cells.all_inner_texts()]
    bars = [bar.bounding_box() for bar in cells.locator(".bar").all()]
    filled = [bar.bounding_box() for bar in cells.locator(".bar span").all()]
    assert len(shares) == 2
    assert bars[0]["x"] == pytest.approx(bars[1]["x"], abs=0.5)
    for share, bar, inside in zip(shares, bars, filled, strict=True):
        assert inside["width"] == pytest.approx(share * bar["width"], abs=0.5)


def test_a_story_stands_below_its_job_on_a_phone(visit: Any, pages: dict[str, Path]) -> None:
    page = visit(pages["several"], size=PHONE).page
    row = page.locator("table.told:visible tbody tr").first
    story, frame = row.locator("td.words").bounding_box(), row.bounding_box()
    assert story["y"] > row.locator("th").bounding_box()["y"]
    assert story["x"] + story["width"] <= frame["x"] + frame["width"] + 1 <= PHONE["width"]


def test_values_are_shown_under_the_pointer(visit: Any, pages: dict[str, Path]) -> None:
    """The pointer is halfway down the axis, at the median of srtf, whose share is a half."""
    seen = visit(pages["several"])
    page = seen.page
    chart = page.locator("svg[aria-label='Time to finish']")
    chart.scroll_into_view_if_needed()
    at = page.evaluate(
        """() => {
            const wanted = "Time to finish";
            const plot = plots.find((one) => one.svg.getAttribute("aria-label") === wanted);
            const line = plot.lines.find((one) => plot.names[one.number] === "srtf");
            const i = line.ys.findIndex((y) => y >= plot.y.units / 2);
            const frame = plot.svg.getBoundingClientRect();
            const scale = frame.width / plot.svg.viewBox.baseVal.width;
            return [frame.left + scale * plot.pixel(line.xs[i] + 0.5), frame.top + 100 * scale];
        }"""
    )
    page.mouse.move(*at)
    shown = page.locator(".tip").inner_text().splitlines()
    assert len(shown) == 1 + len(POLICIES)
    (row,) = [line for line in shown if line.startswith("srtf")]
    assert abs(float(row.split()[1]) - 50.0) < 2.0
    values = [float(line.split()[1]) for line in shown[1:]]
    assert values == sorted(values, reverse=True)
    page.mouse.move(5, 5)
    assert not page.locator(".tip").is_visible()
    assert seen.errors == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_what_distance_cost_is_drawn(visit: Any, pages: dict[str, Path], scheme: str) -> None:
    """Bars and the matrix have a size, and numbers of the matrix are readable in their cells."""
    page = visit(pages["distant"], scheme=scheme).page
    section = page.query_selector("section[aria-labelledby=network]")
    pictures = section.query_selector_all(".chart.still svg")
    assert len(pictures) == 2
    boxes = [picture.bounding_box() for picture in pictures]
    assert all(box["width"] > 300 and box["height"] > 40 for box in boxes)
    bars, matrix = pictures
    parts = [rect.bounding_box()["width"] for rect in bars.query_selector_all("rect")]
    assert len(parts) > 2
    assert max(parts) > 100
    # a cell with a loss of three quarters is darker than one with a loss of a tenth
    cells = matrix.query_selector_all("rect")
    depths = [float(cell.get_attribute("fill-opacity")) for cell in cells]
    assert min(depths) < 0.1 < 0.5 < max(depths)
    assert page.evaluate("typeof owned") == "undefined"


def test_a_policy_is_switched_off_in_the_bars(visit: Any, pages: dict[str, Path]) -> None:
    page = visit(pages["distant"]).page
    page.click(".key button >> nth=0")
    shown = page.eval_on_selector_all(
        ".chart.still g",
        "(parts) => parts.map((part) => [part.className.baseVal, part.style.display])",
    )
    assert {display for name, display in shown if name == "p0"} == {"none"}
    assert {display for name, display in shown if name == "p1"} == {""}


def test_a_heading_sorts_up_then_down(visit: Any, pages: dict[str, Path]) -> None:
    page = visit(pages["several"]).page
    section = page.locator("section[aria-labelledby='verdict']")
    head = section.locator("thead th", has_text="Mean time to finish")

    def values() -> list[float]:
        found = section.locator("tbody tr td:nth-child(2)")
        return [float(x) for x in found.evaluate_all("(all) => all.map((c) => c.dataset.value)")]

    before = values()
    assert len(before) == len(POLICIES)
    head.locator("button").click()
    assert values() == sorted(before)
    assert head.get_attribute("aria-sort") == "ascending"
    head.locator("button").press("Enter")  # the keyboard works, too
    assert values() == sorted(before, reverse=True)
    assert head.get_attribute("aria-sort") == "descending"
    name = section.locator("thead th", has_text="Policy")
    name.locator("button").click()
    assert head.get_attribute("aria-sort") is None
    shown = section.locator("tbody th bdi").all_inner_texts()
    assert shown == sorted(POLICIES)


def drag(page: Page, chart: Any, start: float, end: float) -> None:
    chart.scroll_into_view_if_needed()
    box = chart.bounding_box()
    y = box["y"] + 0.4 * box["height"]
    page.mouse.move(box["x"] + start * box["width"], y)
    page.mouse.down()
    page.mouse.move(box["x"] + end * box["width"], y + 20, steps=5)
    page.mouse.up()


def test_charts_over_time_zoom_together(visit: Any, pages: dict[str, Path]) -> None:
    page = visit(pages["several"]).page
    before = {name: (start, end) for name, start, end in page.evaluate(RANGES)}
    assert set(before) == {"GPUs busy", "Jobs waiting"}
    chart = page.locator("svg[aria-label='GPUs busy']")
    ticks = chart.locator(".x-ticks text").all_text_contents()
    drag(page, chart, 0.4, 0.6)
    after = {name: (start, end) for name, start, end in page.evaluate(RANGES)}
    assert after["GPUs busy"] == after["Jobs waiting"]
    width = after["GPUs busy"][1] - after["GPUs busy"][0]
    assert 0 < width < 0.5 * (before["GPUs busy"][1] - before["GPUs busy"][0])
    zoomed = chart.locator(".x-ticks text").all_text_contents()
    assert zoomed != ticks
    assert [float(label) for label in zoomed] == sorted(float(label) for label in zoomed)
    chart.dblclick()
    assert {name: (start, end) for name, start, end in page.evaluate(RANGES)} == before
    assert chart.locator(".x-ticks text").all_text_contents() == ticks


def test_a_logarithmic_axis_zooms(visit: Any, pages: dict[str, Path]) -> None:
    seen = visit(pages["several"])
    chart = seen.page.locator("svg[aria-label='Time to finish']")
    drag(seen.page, chart, 0.5, 0.53)
    assert chart.locator(".x-ticks text").count() >= 2
    assert seen.errors == []


def test_a_policy_is_switched_off_everywhere(visit: Any, pages: dict[str, Path]) -> None:
    page = visit(pages["several"]).page
    button = page.locator(".key button", has_text="srtf")
    tag = button.get_attribute("data-policy")
    lines, others = page.locator(f".chart .{tag}"), page.locator(".chart .p0")
    assert lines.count() >= 10  # every chart has a line and a name
    button.click()
    assert not any(lines.nth(i).is_visible() for i in range(lines.count()))
    assert button.get_attribute("aria-pressed") == "false"
    assert others.nth(0).is_visible()
    button.click()
    assert lines.nth(0).is_visible()


def test_charts_follow_a_change_of_scheme(visit: Any, pages: dict[str, Path]) -> None:
    page = visit(pages["one"]).page
    colour = "getComputedStyle(document.querySelector('svg.plot text')).fill"
    assert page.evaluate(colour) == "rgb(27, 31, 36)"
    page.emulate_media(color_scheme="dark")
    assert page.evaluate(colour) == "rgb(230, 233, 237)"
    paper = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert paper == "rgb(20, 23, 27)"
    page.emulate_media(color_scheme="dark", media="print")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"


def test_a_page_prints(visit: Any, pages: dict[str, Path]) -> None:
    assert len(visit(pages["several"]).page.pdf()) > 20_000


def test_hostile_names_are_shown_and_do_nothing(visit: Any, pages: dict[str, Path]) -> None:
    page = visit(pages["evil"]).page
    assert page.evaluate("typeof owned") == "undefined"
    shown = page.locator("section[aria-labelledby='verdict'] tbody th bdi").all_text_contents()
    # A character that turns the direction of writing is shown as an escape.
    seen = EVIL.replace("\u202e", "\\u202e")
    assert shown == [f"{seen}fifo", f"{seen}sjf"]
    for chart in page.locator("svg.plot").all():  # the values under the pointer also have the names
        chart.hover()
        assert "</script>" in page.locator(".tip").inner_text()
    assert page.evaluate("typeof owned") == "undefined"
    bars = page.locator(".gantt title").all_text_contents()
    assert any(bar.startswith(f"job {seen} for ") for bar in bars)
    stories = page.locator("table", has_text="What happened").locator("tbody th bdi")
    assert seen in stories.all_text_contents()


def test_nothing_in_the_page_may_run_but_its_own_scripts(
    visit: Any, pages: dict[str, Path], tmp_path: Path
) -> None:
    # If a text were not escaped, the page's content policy would still stop it.
    text = pages["one"].read_text("utf-8")
    broken = tmp_path / "broken.html"
    image = "<img src='https://example.invalid/x.png' onerror=\"owned='yes'\">"
    hole = f"<script>owned='yes'</script>{image}"
    broken.write_text(text.replace("</h1>", f"</h1>{hole}", 1), "utf-8")
    seen = visit(broken)
    assert seen.page.evaluate("typeof owned") == "undefined"
    assert any("Content Security Policy" in error for error in seen.errors)
    # the request was blocked, it did not merely fail
    assert seen.failures == {"https://example.invalid/x.png": "csp"}


def test_notebooks_show_hostile_names_as_text(visit: Any, tmp_path: Path) -> None:
    cluster, trace = evil_cluster(), evil_trace()
    comparison = gl.compare(cluster, trace, ["fifo", "sjf"])
    things = [cluster, trace, comparison, comparison.results[0]]
    path = tmp_path / "notebook.html"
    body = "".join(f"<div>{thing._repr_html_()}</div>" for thing in things)
    path.write_text(f"<!doctype html><meta charset=utf-8><body>{body}", "utf-8")
    seen = visit(path)
    assert seen.errors == []
    assert seen.requests == [path.as_uri()]
    assert seen.page.evaluate("typeof owned") == "undefined"
    assert seen.page.locator("table").count() >= 5
    for i in range(4):
        box = seen.page.locator("body > div").nth(i).bounding_box()
        assert box is not None
        assert box["height"] > 50


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The documentation, with the README as one of its pages."""
    folder = tmp_path_factory.mktemp("site")
    shutil.copytree(ROOT / "docs", folder / "docs")
    shutil.copy(ROOT / "pyproject.toml", folder)
    readme = (ROOT / "README.md").read_text("utf-8").replace("(docs/", "(")
    (folder / "docs" / "readme.md").write_text(readme, "utf-8")
    command = [
        sys.executable,
        "-m",
        "sphinx",
        "-q",
        "-b",
        "html",
        "-D",
        "suppress_warnings=toc,myst",
    ]
    subprocess.run([*command, str(folder / "docs"), str(folder / "out")], check=True)
    return folder / "out"


def test_every_page_of_the_docs_fits_a_phone(browser: Browser, site: Path) -> None:
    """Only tables and code scroll sideways, in their own frames; columns are wide enough."""
    squeezed = """() => [...document.querySelectorAll("article .table-wrapper td")]
        .map((cell) => [cell, cell.getBoundingClientRect()])
        .filter(([cell, box]) => box.height > 10 * box.width && cell.textContent.length > 40)
        .map(([cell]) => cell.textContent.slice(0, 40))"""
    page = browser.new_page(viewport=PHONE)
    offenders = []
    found = [path for path in sorted(site.rglob("*.html")) if "_static" not in path.parts]
    for path in found:
        page.goto(path.as_uri())
        width = page.evaluate("document.documentElement.scrollWidth")
        narrow = page.evaluate(squeezed)
        if width > PHONE["width"] or narrow:
            offenders.append((str(path.relative_to(site)), width, narrow))
    page.close()
    assert len(found) > 100
    assert site / "readme.html" in found
    assert offenders == []
