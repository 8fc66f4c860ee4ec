// A time line: plots below one another on one time axis, with a numbered mark for each event. The dispatcher
// bounds how many points and events it keeps, so everything is drawn anew each time. To screen readers it is
// a picture with one label; curves.js shows its numbers for one moment below it.

import { clock, set, shape } from "./page.js";

// lengths of the time axis in seconds: the least one that shows all points is used, up to the chosen range
const SPANS_S = [60, 120, 300, 600, 900, 1800, 3600, 7200, 21600, 43200, 86400, 172800, 345600, 604800];
const DRAGGED = 8; // pixels: a pointer that moved less has clicked
const LEFT = 58, RIGHT = 14, TITLE = 26, BODY = 84, GAP = 10, AXIS = 22, LANE = 22, LANES = 3, MARK = 9;
// The scale of the demand ends at this multiple of the highest delivered rate at most: a longer scale would
// flatten the other values.
const TIMES = 4;
// The scale also ends at this quantile of the demand at most: the first steps of a client are often short,
// which makes the demand look high.
const MOST = 0.9;

/** The least round number that is not less than the value. */
function roundUp(value) {
  const unit = 10 ** Math.floor(Math.log10(value));
  return [1, 1.5, 2, 3, 4, 5, 6, 8, 10].map((x) => x * unit).find((x) => x >= value * (1 - 1e-9));
}

function largest(columns) {
  return Math.max(0, ...columns.flatMap((column) => column.filter((v) => v !== null)));
}

/** Prints a number at a grid line. It needs no more than three digits, as it is a round number or half of
 * one. */
export function tick(value) {
  return Number(value.toPrecision(3)).toLocaleString("en");
}

/** The least value that is not exceeded by this part (0 to 1) of the values; 0 if there are none. */
function quantile(column, part) {
  const values = column.filter((v) => v !== null).sort((a, b) => a - b);
  return values[Math.ceil(part * values.length) - 1] ?? 0;
}

/** Functions of a history that return where the scale of a plot ends. */
export const tops = {
  rate: (h) => {
    const rate = largest([h.rate]), demand = quantile(h.demand, MOST);
    return roundUp(Math.max(rate, rate > 0 ? Math.min(demand, TIMES * rate) : demand, 1e-3));
  },
  part: () => 1,
  most: (...keys) => (h) => roundUp(Math.max(largest(keys.map((key) => h[key])), 1e-3)),
  count: (...keys) => (h) => {
    const most = Math.max(largest(keys.map((key) => h[key])), 1);
    // up to 10 an even number, so that the grid line in the middle is a whole number
    return most <= 10 ? 2 * Math.ceil(most / 2) : roundUp(most);
  },
};

/** Prints a part of 1 at a grid line. */
export function tickPart(value) {
  return `${Math.round(100 * value)} %`;
}

export function isKnown(column) {
  return column.some((v) => v !== null);
}

/** A short line in the style of a plot's, for a legend. */
export function sample(style) {
  return shape("svg", { viewBox: "0 0 28 10", class: "sample", "aria-hidden": "true" },
    shape("path", { d: "M1 5H27", class: `line ${style}` }));
}

/** Prints how long ago a time is, in the largest unit that gives a short number. */
function ago(s) {
  if (s < 60 || s === 90) return `${s} s ago`;
  if (s < 3600) return `${s / 60} min ago`;
  return s <= 86400 ? `${s / 3600} h ago` : `${s / 86400} days ago`;
}

export class TimeLine {
  /**
   * plots: [{title, top, scale, steps, where, lines: [{key, name, style}]}]: top(history) is where the scale
   * ends, scale(value) prints a value at it. Each line differs by its dashes as well as by its colour. A plot
   * with `where` is shown where that column has values. pointed(t): called with the time at which the user
   * clicked. dragged(from, to): with the times between which the user drew. doubled(): after a double click.
   */
  constructor(box, plots, { pointed, dragged, doubled }) {
    this.svg = shape("svg", { class: "timeline", role: "img", "aria-label": "" });
    this.box = box;
    this.plots = plots;
    box.append(this.svg);
    new ResizeObserver(() => this.last && box.clientWidth !== this.drawn && this.draw(...this.last))
      .observe(box);
    this.listen(pointed, dragged, doubled);
  }

  listen(pointed, dragged, doubled) {
    const at = (e) => e.clientX - this.svg.getBoundingClientRect().left;
    let from = null; // where the pointer went down, in pixels; null: it is up
    this.svg.addEventListener("pointerdown", (e) => {
      if (!this.last || e.button !== 0) return;
      from = at(e);
      this.svg.setPointerCapture(e.pointerId);
    });
    this.svg.addEventListener("pointermove", (e) => {
      if (from === null) return;
      this.dragging = Math.abs(at(e) - from) < DRAGGED ? null : [this.time(from), this.time(at(e))];
      this.draw(...this.last);
    });
    this.svg.addEventListener("pointerup", (e) => {
      if (from === null) return;
      const began = from, range = this.dragging;
      this.forget();
      from = null;
      if (range) dragged(Math.min(...range), Math.max(...range));
      else pointed(this.time(began));
    });
    this.svg.addEventListener("pointercancel", () => {
      from = null;
      this.forget();
    });
    this.svg.addEventListener("dblclick", doubled);
  }

  /** Removes the range that the user draws. */
  forget() {
    this.dragging = null;
    this.draw(...this.last);
  }

  time(x) {
    const part = (x - LEFT) / (this.width - LEFT - RIGHT);
    return this.begin + Math.min(Math.max(part, 0), 1) * this.span;
  }

  x(t) {
    return LEFT + ((t - this.begin) / this.span) * (this.width - LEFT - RIGHT);
  }

  /** Draws the time line. history: from the dispatcher; marks: [{t, kind, number}] in order of time; moment:
   * the time to mark; range: of range.js; at: when the history came, in ms; label: the description for screen
   * readers. */
  draw(history, marks, moment, { range, at, label }) {
    this.last = [history, marks, moment, { range, at, label }];
    this.began = at - 1000 * history.uptime_s; // when the dispatcher started, in ms
    if (range.span) {
      const age = history.uptime_s - (history.t[0] ?? history.uptime_s);
      this.span = Math.min(SPANS_S.find((s) => s >= age) ?? range.span, range.span);
      this.begin = history.uptime_s - this.span;
    } else {
      this.span = range.to - range.from;
      this.begin = range.from - this.began / 1000;
    }
    this.drawn = this.box.clientWidth;
    this.width = Math.max(this.drawn, 280);
    const seen = marks.filter((m) => this.has(m.t)),
      plots = this.plots.filter((p) => !p.where || isKnown(history[p.where]));
    const lanes = this.lanes(seen), top = 4 + LANE * Math.max(1, ...lanes.map((l) => l + 1));
    const height = top + plots.length * (TITLE + BODY + GAP) + AXIS;
    set(this.svg, "viewBox", `0 0 ${this.width} ${height}`);
    set(this.svg, "height", height);
    set(this.svg, "aria-label", label);
    this.svg.replaceChildren(
      ...plots.map((plot, i) => this.plot(plot, history, top + i * (TITLE + BODY + GAP) + TITLE)),
      this.axis(height - AXIS, range),
      ...(this.dragging ? [this.selection(...this.dragging, top, height - AXIS)] : []),
      ...seen.map((m, i) => this.mark(m, 4 + LANE * lanes[i] + MARK, height - AXIS)),
      ...(moment === null || !this.has(moment) ? []
        : [shape("path", { class: "moment", d: `M${this.x(moment).toFixed(1)} ${top}V${height - AXIS}` })]),
    );
  }

  /** Whether the time is on the time axis. */
  has(t) {
    return t >= this.begin && t <= this.begin + this.span;
  }

  selection(from, to, top, bottom) {
    const [left, right] = [this.x(Math.min(from, to)), this.x(Math.max(from, to))];
    return shape("rect", { class: "selection", x: left, y: top, width: right - left, height: bottom - top });
  }

  /** Returns the lane of each mark: marks that are close together are drawn in lanes above each other. */
  lanes(marks) {
    const ends = Array(LANES).fill(-Infinity);
    return marks.map((m) => {
      const x = this.x(m.t), free = ends.findIndex((e) => e <= x);
      const lane = free < 0 ? LANES - 1 : free;
      ends[lane] = x + 2 * MARK + 4;
      return lane;
    });
  }

  plot({ title, top, scale, lines, steps }, history, y) {
    const most = top(history), at = (v) => y + BODY * (1 - Math.min(v, most) / most);
    const right = this.width - RIGHT;
    return shape("g", {},
      shape("text", { x: 0, y: y - 11, class: "title" }, title),
      ...[0, 0.5, 1].flatMap((part) => [
        shape("path", { d: `M${LEFT} ${at(part * most)}H${right}`, class: "grid" }),
        shape("text", { x: LEFT - 6, y: at(part * most) + 4, class: "scale", "text-anchor": "end" },
          scale(part * most)),
      ]),
      ...lines.toReversed()
        .map((line) => shape("path",
        { class: `line ${line.style}`, d: this.path(history, line.key, at, steps) })));
  }

  path(history, key, at, steps) {
    let d = "", open = false;
    history[key].forEach((v, i) => {
      const t = history.t[i];
      if (v === null || !this.has(t)) {
        open = false;
        return;
      }
      const x = this.x(t).toFixed(1), y = at(v).toFixed(1);
      d += !open ? `M${x} ${y}` : steps ? `H${x}V${y}` : `L${x} ${y}`;
      open = true;
    });
    return d;
  }

  axis(y, range) {
    const parts = this.width < 560 ? [0, 0.5, 1] : [0, 0.25, 0.5, 0.75, 1];
    const texts = parts.map((part) => {
      const before = this.span * (1 - part), t = this.begin + part * this.span;
      const text = !range.span ? clock(this.began + 1000 * t) : before === 0 ? "now" : ago(before);
      return shape("text",
        { x: this.x(t), y: y + 15, class: "scale",
        "text-anchor": part === 0 ? "start" : part === 1 ? "end" : "middle" }, text);
    });
    return shape("g", {}, ...texts);
  }

  /** A circle is a decision about workers, a square one about caches alone, a square on its corner a loss. */
  mark({ t, kind, number: n }, y, bottom) {
    const x = this.x(t).toFixed(1), r = MARK;
    const signs = {
      decision: () => shape("circle", { cx: x, cy: y, r }),
      cache: () => shape("path", { d: `M${x - r} ${y - r}h${2 * r}v${2 * r}h${-2 * r}Z` }),
      loss: () => shape("path",
        { d: `M${x} ${y - r - 2}l${r + 2} ${r + 2}l${-r - 2} ${r + 2}l${-r - 2} ${-r - 2}Z` }),
    };
    const sign = signs[kind]();
    return shape("g", { class: `mark ${kind}` }, shape("path", { class: "stem", d: `M${x} ${y}V${bottom}` }),
      sign, shape("text", { x, y: y + 4, "text-anchor": "middle" }, String(n)));
  }
}
