"use strict";
// Tables that sort, policies to switch off, and charts that show values and zoom.

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

const off = new Set();

for (const button of document.querySelectorAll(".key button")) {
  button.addEventListener("click", () => {
    const shown = button.getAttribute("aria-pressed") === "false";
    button.setAttribute("aria-pressed", String(shown));
    const tag = button.dataset.policy;
    if (shown) off.delete(tag); else off.add(tag);
    for (const part of document.querySelectorAll(`.chart .${tag}`)) part.style.display = shown ? "" : "none";
  });
}

// A length of time in two units, as the tables write it.
function duration(seconds) {
  if (seconds < 10) return `${+seconds.toPrecision(3)} s`;
  for (const [size, word, below, small] of [[86400, "d", 3600, "h"], [3600, "h", 60, "min"], [60, "min", 1, "s"]]) {
    if (seconds >= size) {
      let whole = Math.floor(seconds / size), rest = Math.round((seconds % size) / below);
      if (rest === Math.round(size / below)) [whole, rest] = [whole + 1, 0];
      return rest ? `${whole} ${word} ${rest} ${small}` : `${whole} ${word}`;
    }
  }
  return `${Math.round(seconds)} s`;
}

const shown = {
  seconds: duration,
  share: (part) => `${(100 * part).toFixed(1)} %`,
  count: (count) => count.toLocaleString("en", {maximumFractionDigits: 1}),
  ratio: (ratio) => `${+ratio.toPrecision(3)}`,
  time: (time) => time.toLocaleString("en", {maximumSignificantDigits: 4}),
};

function element(parent, name, attributes, words = "") {
  const made = document.createElementNS(parent.namespaceURI, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.textContent = words;
  parent.append(made);
  return made;
}

// The corners of a path: an absolute start, then relative moves.
function corners(path) {
  const xs = [], ys = [];
  let x = 0, y = 0;
  for (const [, kind, a, b] of path.matchAll(/([Mlhv])(-?[\d.]+)(?: (-?[\d.]+))?/g)) {
    if (kind === "M") [x, y] = [+a, +b];
    else if (kind === "l") [x, y] = [x + +a, y + +b];
    else if (kind === "h") x += +a;
    else y += +a;
    if (xs.length && xs.at(-1) === x && kind === "v") ys[ys.length - 1] = y;
    else if (kind !== "h") { xs.push(x); ys.push(y); }
  }
  return {xs, ys};
}

const value = (axis, units) => {
  const part = units / axis.units;
  return axis.log ? axis.low * (axis.high / axis.low) ** part : axis.low + part * (axis.high - axis.low);
};

class Plot {
  constructor(svg) {
    this.svg = svg;
    Object.assign(this, JSON.parse(svg.dataset.chart));
    [this.left, this.top, this.width, this.height] = this.box;
    this.data = svg.querySelector(".data");
    this.scale = this.data.transform.baseVal[0].matrix.d;
    this.lines = [...svg.querySelectorAll(".data .line")].map((line) => ({...corners(line.getAttribute("d")),
      number: this.numbers.findIndex((number) => line.parentNode.classList.contains(`p${number}`))}));
    this.view = [0, this.x.units];
    this.guide = element(svg, "path", {class: "guide"});
    this.chosen = element(svg, "rect", {class: "chosen", y: this.top, height: this.height});
    this.canZoom = this.x.scale !== "names";
    for (const kind of ["pointermove", "pointerdown", "pointerup", "pointerleave"]) {
      svg.addEventListener(kind, (event) => this[kind](event));
    }
    svg.addEventListener("dblclick", () => this.zoomAll([0, this.x.units]));
  }

  // Where the pointer is, in units of the x axis.
  units(event) {
    const frame = this.svg.getBoundingClientRect(), [low, high] = this.view;
    const px = (event.clientX - frame.left) / frame.width * this.svg.viewBox.baseVal.width;
    const part = Math.min(Math.max((px - this.left) / this.width, 0), 1);
    return low + part * (high - low);
  }

  pixel(units) {
    return this.left + (units - this.view[0]) / (this.view[1] - this.view[0]) * this.width;
  }

  pointerdown(event) {
    if (!this.canZoom || event.pointerType === "touch" || event.button) return;
    this.from = this.units(event);
    this.svg.setPointerCapture(event.pointerId);
  }

  pointermove(event) {
    let at = this.units(event);
    if (this.from !== undefined) {
      const [a, b] = [this.pixel(this.from), this.pixel(at)];
      this.chosen.setAttribute("x", Math.min(a, b));
      this.chosen.setAttribute("width", Math.abs(a - b));
    }
    if (this.x.scale === "names") {
      const step = this.x.units / this.x.names.length;
      at = (Math.min(Math.floor(at / step), this.x.names.length - 1) + 0.5) * step;
    }
    this.guide.setAttribute("d", `M${this.pixel(at)} ${this.top}v${this.height}`);
    this.tell(at, event);
  }

  pointerup(event) {
    if (this.from === undefined) return;
    const [low, high] = [this.from, this.units(event)].sort((a, b) => a - b);
    this.from = undefined;
    this.chosen.setAttribute("width", 0);
    if (high - low > 0.02 * (this.view[1] - this.view[0])) this.zoomAll([low, high]);
  }

  pointerleave() {
    this.guide.setAttribute("d", "");
    tip.hidden = true;
  }

  // The value of each line at a place, the greatest first.
  tell(at, event) {
    const rows = [];
    for (const {xs, ys, number} of this.lines) {
      if (off.has(`p${this.numbers[number]}`)) continue;
      const near = this.x.scale === "names";
      let i = xs.findLastIndex((x) => x <= at + (near ? 1 : 0));
      if (near && Math.abs(xs[i] - at) > 1) i = -1;
      if (i >= 0) rows.push([ys[i], this.names[number], this.colours[number]]);
    }
    rows.sort((a, b) => b[0] - a[0]);
    const where = value(this.x, at), word = this.x.title.split(" ")[0];
    const head = this.x.scale === "names" ? this.x.names[Math.round(where)].replace("\n", ", jobs: ")
      : this.x.scale === "time" ? `${shown.time(where)} ${word}` : shown[this.x.scale](where);
    tip.replaceChildren(head);
    for (const [units, name, colour] of rows) {
      const row = document.createElement("div"), mark = document.createElement("i"), label = document.createElement("bdi");
      mark.style.background = colour;
      label.textContent = name.length > 40 ? `${name.slice(0, 40)}…` : name;
      row.append(mark, label, ` ${shown[this.y.scale](value(this.y, units))}`);
      tip.append(row);
    }
    tip.hidden = false;
    const wide = tip.offsetWidth, right = event.pageX + 14 + wide < document.documentElement.clientWidth;
    tip.style.left = `${Math.max(right ? event.pageX + 14 : event.pageX - 14 - wide, 0)}px`;
    tip.style.top = `${event.pageY + 14}px`;
  }

  zoomAll(view) {
    for (const plot of plots) if (plot === this || (this.linked && plot.linked === this.linked)) plot.zoom(view);
  }

  zoom(view) {
    this.view = view;
    const scale = this.width / (view[1] - view[0]);
    this.data.setAttribute("transform",
      `matrix(${scale} 0 0 ${this.scale} ${this.left - scale * view[0]} ${this.top + this.height})`);
    const group = this.svg.querySelector(".x-ticks");
    group.replaceChildren();
    let end = -Infinity;
    for (const [units, label] of this.marks()) {
      const x = this.pixel(units), half = 3.2 * label.length + 3;
      if (x - half <= end) continue;
      end = x + half;
      element(group, "path", {d: `M${x} ${this.top + this.height}v4`, stroke: "#888"});
      element(group, "text", {x, y: this.top + this.height + 17, "text-anchor": "middle"}, label);
    }
  }

  // Round values of the part that is shown; its ends if a logarithmic axis has none.
  marks() {
    const [low, high] = this.view;
    if (this.ticks) {
      const inside = this.ticks.filter(([units]) => units >= low && units <= high);
      return inside.length > 1 ? inside : [low, (low + high) / 2, high].map((u) => [u, shown[this.x.scale](value(this.x, u))]);
    }
    const [from, to] = [value(this.x, low), value(this.x, high)], raw = (to - from) / 5;
    const unit = 10 ** Math.floor(Math.log10(raw)), size = unit * [1, 2, 5, 10].find((m) => m * unit >= raw * 0.999);
    const found = [];
    for (let i = Math.ceil(from / size - 1e-9) + 0; i * size <= to; i++) {
      found.push([(i * size - this.x.low) / (this.x.high - this.x.low) * this.x.units, shown.time(i * size)]);
    }
    return found;
  }
}

const tip = document.createElement("div");
tip.className = "tip";
tip.hidden = true;
document.body.append(tip);
const plots = [...document.querySelectorAll("svg.plot")].map((svg) => new Plot(svg));
