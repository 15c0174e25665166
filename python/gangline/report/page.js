"use strict";
// Sorting, switching policies on and off, and the colours of charts on light and dark paper.

for (const table of document.querySelectorAll("table.sortable")) {
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => head.querySelector("button").addEventListener("click", () => {
    const down = head.getAttribute("aria-sort") === "ascending";
    heads.forEach((other) => other.removeAttribute("aria-sort"));
    head.setAttribute("aria-sort", down ? "descending" : "ascending");
    const body = table.tBodies[0];
    const key = (row) => row.cells[column].dataset.value;
    const rows = [...body.rows].sort((a, b) => {
      const x = key(a), y = key(b);
      if (x === undefined || y === undefined) return (x === undefined) - (y === undefined);
      const order = x - y;  // not a number for names
      return (Number.isNaN(order) ? x.localeCompare(y) : order) * (down ? -1 : 1);
    });
    body.append(...rows);
  }));
}

const documents = () => (window.Bokeh ? Bokeh.documents : []);

for (const button of document.querySelectorAll(".key button")) {
  button.addEventListener("click", () => {
    const shown = button.getAttribute("aria-pressed") === "false";
    button.setAttribute("aria-pressed", String(shown));
    const tag = button.dataset.policy;
    for (const drawing of documents()) {
      for (const model of drawing.all_models) {
        if (model.type === "GlyphRenderer" && model.tags.includes(tag)) model.visible = shown;
      }
    }
    for (const part of document.querySelectorAll(`.chart .${tag}`)) part.style.display = shown ? "" : "none";
  });
}

const dark = window.matchMedia("screen and (prefers-color-scheme: dark)");

function paint(isDark) {
  const ink = isDark ? "#c9d0d8" : "#3a424c";
  const rule = isDark ? "#2e343b" : "#e3e7eb";
  for (const drawing of documents()) {
    for (const model of drawing.all_models) {
      if (model.type.endsWith("Axis")) {
        model.setv({
          axis_label_text_color: ink, major_label_text_color: ink,
          axis_line_color: ink, major_tick_line_color: ink,
        });
      } else if (model.type === "Grid") {
        model.setv({ grid_line_color: model.dimension === 1 ? rule : null });
      } else if (model.type === "Title") {
        model.setv({ text_color: ink });
      }
    }
  }
}

async function draw() {
  for (const block of document.querySelectorAll("script[type='application/json'][data-chart]")) {
    const item = JSON.parse(block.textContent);
    await Bokeh.embed.embed_item(item, block.dataset.chart);
  }
  paint(dark.matches);
  dark.addEventListener("change", () => paint(dark.matches));
  window.addEventListener("beforeprint", () => paint(false));
  window.addEventListener("afterprint", () => paint(dark.matches));
  document.body.dataset.drawn = "yes";
}

if (window.Bokeh) draw();
