"""Reports and notebooks in a real browser: nothing fails, nothing is fetched, everything works.

Run by `make browser` (`scripts/browser.py`), which finds Chromium; other runs do not collect it.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from playwright.sync_api import sync_playwright

import gangline as gl
from gangline.report.charts import style_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from playwright.sync_api import Browser, Page

POLICIES = ["fifo", "sjf", "srtf", "las", "tiresias"]
WIDE, PHONE = {"width": 1200, "height": 900}, {"width": 390, "height": 800}
EVIL = "</script><img src=x onerror=\"owned='yes'\"><script>owned='yes'</script>'\"\u202e日本"
# Canvases of the library lie in shadow trees; this finds them all below an element.
CANVASES = """(place) => {
    const found = [];
    const walk = (node) => {
        if (node.tagName === "CANVAS") found.push(node);
        if (node.shadowRoot) walk(node.shadowRoot);
        for (const child of node.children || []) walk(child);
    };
    walk(place);
    return found.map((canvas) => {
        const box = canvas.getBoundingClientRect();
        const pixels = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
        const colours = new Set();
        for (let i = 0; i < pixels.length; i += 4) {
            if (pixels[i + 3] > 200) {
                colours.add((pixels[i] << 16) | (pixels[i + 1] << 8) | pixels[i + 2]);
            }
        }
        return {width: box.width, height: box.height, colours: [...colours]};
    });
}"""
RANGES = """() => Bokeh.documents.flatMap((drawing) => [...drawing.all_models])
    .filter((model) => model.type === "Figure" && model.title && model.title.text)
    .map((model) => [model.title.text, model.x_range.start, model.x_range.end])"""
VISIBLE = """(tag) => Bokeh.documents.flatMap((drawing) => [...drawing.all_models])
    .filter((model) => model.type === "GlyphRenderer" && model.tags.includes(tag))
    .map((model) => model.visible)"""


@dataclass
class Open:
    """A page and everything it complained about or asked for."""

    page: Page
    errors: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)
    failures: dict[str, str | None] = field(default_factory=dict)


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(
            executable_path=os.environ["GANGLINE_CHROMIUM"],
            # As root, which a gate may be, Chromium refuses to start in its sandbox.
            chromium_sandbox=os.geteuid() != 0,
        )
        yield started
        started.close()


def wait_until_drawn(page: Page) -> None:
    """Ask again and again: `wait_for_function` may compile text, which the page forbids."""
    for _ in range(300):
        if page.evaluate("() => !window.Bokeh || document.body.dataset.drawn === 'yes'"):
            return
        page.wait_for_timeout(100)
    raise AssertionError("the charts are not drawn after 30 s")


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
        if "Bokeh" in path.read_text("utf-8"):
            wait_until_drawn(found.page)
        # Two frames, so that all that was asked to be drawn is drawn.
        found.page.evaluate(
            "() => new Promise((f) => requestAnimationFrame(() => requestAnimationFrame(f)))"
        )
        return found

    yield go
    for context in contexts:
        context.close()


@pytest.fixture(scope="session")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """One page of each kind."""
    folder = tmp_path_factory.mktemp("pages")
    # Loaded enough that no two policies fare alike, or their lines would cover each other.
    cluster = gl.Cluster.homogeneous(servers=4, gpus=4)
    trace = gl.synth.philly(jobs=600, seed=1, max_gpus=8, cluster_gpus=16, load=1.6)
    runs = [
        gl.report.digest(gl.simulate(cluster, trace, name, restart_s=60.0)) for name in POLICIES
    ]
    texts = {
        "one": gl.report.render(runs[:1], zooming=True),
        "several": gl.report.render(runs, zooming=True),
        "still": gl.report.render(runs, zooming=False),
        "mixed": gl.report.render(mixed_runs(), zooming=True),
        "nothing": gl.report.render(nothing_runs(), zooming=True),
        "distant": gl.report.render(distant_runs(), zooming=True),
        "distant-still": gl.report.render(distant_runs()[:1], zooming=False),
        "evil": gl.report.render(evil_runs(), command=EVIL, zooming=True),
        "evil-still": gl.report.render(evil_runs(), command=EVIL, zooming=False),
    }
    for name, text in texts.items():
        (folder / f"{name}.html").write_text(text, encoding="utf-8")
    return {name: folder / f"{name}.html" for name in texts}


def mixed_runs() -> list[gl.report.Digest]:
    """Return runs on two GPU types that use them differently."""
    lab = gl.Cluster.from_dict(
        {
            "name": "mixed",
            "gpu_types": [
                {"name": "fast", "memory_gb": 16},
                {"name": "slow", "memory_gb": 16, "speed": 0.5},
            ],
            "servers": [
                {"count": 2, "gpu": "fast", "gpus": 4, "rack": 0},
                {"count": 3, "gpu": "slow", "gpus": 4, "rack": 0},
            ],
        }
    )
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
        run = gl.report.digest(gl.simulate(evil_cluster(), evil_trace(), name))
        run.spec["policy"] |= {"label": EVIL + name, "name": EVIL, "params": {EVIL: EVIL}}
        run.spec["trace"]["path"] = EVIL
        runs.append(run)
    return runs


@pytest.mark.parametrize(
    "name",
    [
        "one", "several", "mixed", "still", "nothing", "distant", "distant-still",
        "evil", "evil-still",
    ],
)  # fmt: skip
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


def near(colour: int, wanted: str) -> bool:
    channels = [int(wanted[i : i + 2], 16) for i in (1, 3, 5)]
    return all(
        abs((colour >> shift & 255) - channel) <= 3
        for shift, channel in zip((16, 8, 0), channels, strict=True)
    )


def missing_in(place: Any, name: str) -> list[str]:
    """Return what a chart does not show yet."""
    canvases = [canvas for canvas in place.evaluate(CANVASES) if canvas["colours"]]
    if len(canvases) < (2 if name == "chart-time" else 1):
        return ["a drawing"]
    if not all(canvas["width"] > 300 and canvas["height"] > 200 for canvas in canvases):
        return ["a size"]
    if name in ("chart-ftf", "chart-queue_s"):
        return []  # lines may cover each other completely where most jobs fare alike
    colours = [colour for canvas in canvases for colour in canvas["colours"]]
    styles = {policy: style_of(i)[0] for i, policy in enumerate(POLICIES)}
    return [
        policy for policy, wanted in styles.items() if not any(near(c, wanted) for c in colours)
    ]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_chart_is_drawn_with_every_policy(
    visit: Any, pages: dict[str, Path], scheme: str
) -> None:
    page = visit(pages["several"], scheme=scheme).page
    places = page.query_selector_all("div[id^='chart-']")
    assert len(places) == 6
    for place in places:
        name = place.get_attribute("id")
        for _ in range(50):  # the library paints when it has time
            missing = missing_in(place, name)
            if not missing:
                break
            page.wait_for_timeout(100)
        assert missing == [], name


def test_time_by_gpu_type_is_drawn(visit: Any, pages: dict[str, Path]) -> None:
    page = visit(pages["mixed"]).page
    place = page.query_selector("#chart-gpu_types")
    wanted = [style_of(i)[0] for i in range(2)]
    for _ in range(50):  # the library paints when it has time
        drawn = [canvas for canvas in place.evaluate(CANVASES) if canvas["colours"]]
        colours = [colour for canvas in drawn for colour in canvas["colours"]]
        missing = [one for one in wanted if not any(near(colour, one) for colour in colours)]
        if not missing:
            break
        page.wait_for_timeout(100)
    assert missing == []
    heads = page.locator("table", has_text="Time on fast").locator("thead th")
    assert "Time on slow" in " ".join(heads.all_text_contents())


def test_still_pictures_have_a_size(visit: Any, pages: dict[str, Path]) -> None:
    page = visit(pages["still"], size=PHONE).page
    boxes = [svg.bounding_box() for svg in page.query_selector_all(".chart svg")]
    assert len(boxes) == 7
    assert all(box is not None and box["width"] > 300 and box["height"] > 150 for box in boxes)


@pytest.mark.parametrize("name", ["distant", "distant-still"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_what_distance_cost_is_drawn(
    visit: Any, pages: dict[str, Path], name: str, scheme: str
) -> None:
    """Bars and matrix have a size, numbers of the matrix stand out from their cells."""
    page = visit(pages[name], scheme=scheme).page
    section = page.query_selector("section[aria-labelledby=network]")
    pictures = section.query_selector_all(".chart.still svg")
    assert len(pictures) == 2
    boxes = [picture.bounding_box() for picture in pictures]
    assert all(box["width"] > 300 and box["height"] > 40 for box in boxes)
    bars, matrix = pictures
    parts = [rect.bounding_box()["width"] for rect in bars.query_selector_all("rect")]
    assert len(parts) > 2
    assert max(parts) > 100
    # a cell where three quarters are lost is painted more than one where a tenth is
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
    head.locator("button").press("Enter")  # by keyboard as well
    assert values() == sorted(before, reverse=True)
    assert head.get_attribute("aria-sort") == "descending"
    name = section.locator("thead th", has_text="Policy")
    name.locator("button").click()
    assert head.get_attribute("aria-sort") is None
    shown = section.locator("tbody th bdi").all_inner_texts()
    assert shown == sorted(POLICIES)


def test_charts_over_time_zoom_together(visit: Any, pages: dict[str, Path]) -> None:
    page = visit(pages["several"]).page
    before = {name: (start, end) for name, start, end in page.evaluate(RANGES)}
    assert set(before) == {"GPUs busy", "Jobs waiting"}
    place = page.locator("#chart-time")
    place.scroll_into_view_if_needed()
    box = place.bounding_box()
    assert box is not None
    y = box["y"] + 150
    page.mouse.move(box["x"] + 0.4 * box["width"], y)
    page.mouse.down()
    page.mouse.move(box["x"] + 0.5 * box["width"], y + 20, steps=5)
    page.mouse.move(box["x"] + 0.6 * box["width"], y + 40, steps=5)
    page.mouse.up()
    page.wait_for_timeout(200)
    after = {name: (start, end) for name, start, end in page.evaluate(RANGES)}
    assert after["GPUs busy"] == after["Jobs waiting"]
    width = after["GPUs busy"][1] - after["GPUs busy"][0]
    assert 0 < width < 0.5 * (before["GPUs busy"][1] - before["GPUs busy"][0])


def test_a_policy_is_switched_off_everywhere(visit: Any, pages: dict[str, Path]) -> None:
    page = visit(pages["several"]).page
    button = page.locator(".key button", has_text="srtf")
    tag = button.get_attribute("data-policy")
    assert page.evaluate(VISIBLE, tag).count(True) >= 6  # a line in every chart
    button.click()
    assert set(page.evaluate(VISIBLE, tag)) == {False}
    assert button.get_attribute("aria-pressed") == "false"
    assert set(page.evaluate(VISIBLE, "p0")) == {True}
    button.click()
    assert set(page.evaluate(VISIBLE, tag)) == {True}
    still = visit(pages["still"]).page
    lines = still.locator(f".chart .{tag}")
    assert lines.count() == 7
    still.locator(".key button", has_text="srtf").click()
    assert not any(lines.nth(i).is_visible() for i in range(7))


def test_charts_follow_a_change_of_scheme(visit: Any, pages: dict[str, Path]) -> None:
    page = visit(pages["one"]).page
    colour = """() => Bokeh.documents.flatMap((drawing) => [...drawing.all_models])
        .find((model) => model.type === "LogAxis").major_label_text_color"""
    light = page.evaluate(colour)
    page.emulate_media(color_scheme="dark")
    for _ in range(50):  # the page hears of it when it has time
        if page.evaluate(colour) != light:
            break
        page.wait_for_timeout(100)
    assert page.evaluate(colour) != light
    paper = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert paper == "rgb(20, 23, 27)"
    page.emulate_media(color_scheme="dark", media="print")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"


def test_a_page_prints(visit: Any, pages: dict[str, Path]) -> None:
    assert len(visit(pages["several"]).page.pdf()) > 20_000


@pytest.mark.parametrize("name", ["evil", "evil-still"])
def test_hostile_names_are_shown_and_do_nothing(
    visit: Any, pages: dict[str, Path], name: str
) -> None:
    page = visit(pages[name]).page
    assert page.evaluate("typeof owned") == "undefined"
    shown = page.locator("section[aria-labelledby='verdict'] tbody th bdi").all_text_contents()
    assert shown == [EVIL + "fifo", EVIL + "sjf"]
    # The text under the pointer comes from the library; it must be text there, too.
    if name == "evil":
        place = page.locator("#chart-gangs")
        place.scroll_into_view_if_needed()
        box = place.bounding_box()
        assert box is not None
        for step in range(0, 100, 3):
            page.mouse.move(box["x"] + box["width"] * step / 100, box["y"] + 60)
        assert page.evaluate("typeof owned") == "undefined"


def test_nothing_in_the_page_may_run_but_its_own_scripts(
    visit: Any, pages: dict[str, Path], tmp_path: Path
) -> None:
    # Even if a text did get through, the page's policy stops it: two lines of defence.
    text = pages["one"].read_text("utf-8")
    broken = tmp_path / "broken.html"
    image = "<img src='https://example.invalid/x.png' onerror=\"owned='yes'\">"
    hole = f"<script>owned='yes'</script>{image}"
    broken.write_text(text.replace("</h1>", f"</h1>{hole}", 1), "utf-8")
    seen = visit(broken)
    assert seen.page.evaluate("typeof owned") == "undefined"
    assert any("Content Security Policy" in error for error in seen.errors)
    assert seen.failures == {"https://example.invalid/x.png": "csp"}  # stopped, not merely lost


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
