// The time line of a job: plots below one another on one time axis, with a numbered mark for each event. The
// dispatcher bounds how many points and events it keeps, so everything is drawn anew each time. To screen
// readers it is a picture with one label; job.js shows its numbers for one moment below it.

import { set, shape } from "./page.js";

const SPANS_S = [60, 120, 300, 600]; // lengths of the time axis, in seconds
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

/** Prints the value at a grid line. It needs no more than three digits, as it is a round number or half of
 * one. */
function tick(value) {
  return Number(value.toPrecision(3)).toLocaleString("en");
}

/** The least value that is not exceeded by this part (0 to 1) of the values; 0 if there are none. */
function quantile(column, part) {
  const values = column.filter((v) => v !== null).sort((a, b) => a - b);
  return values[Math.ceil(part * values.length) - 1] ?? 0;
}

const tops = {
  rate: (h) => {
    const rate = largest([h.rate]), demand = quantile(h.demand, MOST);
    return roundUp(Math.max(rate, rate > 0 ? Math.min(demand, TIMES * rate) : demand, 1e-3));
  },
  part: () => 1,
  count: (h) => {
    const most = Math.max(largest([h.workers, h.wanted]), 1);
    // up to 10 an even number, so that the grid line in the middle is a whole number
    return most <= 10 ? 2 * Math.ceil(most / 2) : roundUp(most);
  },
};

// Each line differs by its dashes as well as by its colour. A plot with `where` is shown where that column
// has values.
export const PLOTS = [
  { title: "Batches per second", top: tops.rate, scale: tick,
    lines: [{ key: "rate", name: "delivered", style: "main" },
    { key: "demand", name: "demand", style: "other" }] },
  { title: "Part of the time that ranks waited", top: tops.part, scale: (v) => `${Math.round(100 * v)} %`,
    lines: [{ key: "waited", name: "on average", style: "main" },
      { key: "waited_most", name: "the rank that waited most", style: "other" }] },
  { title: "Part of the elements read from caches", top: tops.part, scale: (v) => `${Math.round(100 * v)} %`,
    where: "cached", lines: [{ key: "cached", name: "read", style: "main" }] },
  { title: "Workers", top: tops.count, scale: tick, steps: true,
    lines: [{ key: "workers", name: "computing", style: "main" },
    { key: "wanted", name: "wanted", style: "other" }] },
];

export function isKnown(column) {
  return column.some((v) => v !== null);
}

/** A short line in the style of a plot's, for a legend. */
export function sample(style) {
  return shape("svg", { viewBox: "0 0 28 10", class: "sample", "aria-hidden": "true" },
    shape("path", { d: "M1 5H27", class: `line ${style}` }));
}

export class TimeLine {
  /** pointed(t): called with the time at which the user clicked. */
  constructor(box, pointed) {
    this.svg = shape("svg", { class: "timeline", role: "img", "aria-label": "" });
    this.box = box;
    this.pointed = pointed;
    box.append(this.svg);
    new ResizeObserver(() => this.last && box.clientWidth !== this.drawn && this.draw(...this.last))
      .observe(box);
    this.svg.addEventListener("click", (e) => {
      if (this.last) pointed(this.time(e.clientX - this.svg.getBoundingClientRect().left));
    });
  }

  time(x) {
    return this.begin + ((x - LEFT) / (this.width - LEFT - RIGHT)) * this.span;
  }

  x(t) {
    return LEFT + ((t - this.begin) / this.span) * (this.width - LEFT - RIGHT);
  }

  /** Draws the time line. history: from the dispatcher; marks: [{t, kind, number}] in order of time; moment:
   * the time to mark; label: the description for screen readers. */
  draw(history, marks, moment, label) {
    this.last = [history, marks, moment, label];
    const end = history.uptime_s, age = end - (history.t[0] ?? end);
    this.span = SPANS_S.find((s) => s >= age) ?? SPANS_S.at(-1);
    this.begin = end - this.span;
    this.drawn = this.box.clientWidth;
    this.width = Math.max(this.drawn, 280);
    const seen = marks.filter((m) => m.t >= this.begin),
      plots = PLOTS.filter((p) => !p.where || isKnown(history[p.where]));
    const lanes = this.lanes(seen), top = 4 + LANE * Math.max(1, ...lanes.map((l) => l + 1));
    const height = top + plots.length * (TITLE + BODY + GAP) + AXIS;
    set(this.svg, "viewBox", `0 0 ${this.width} ${height}`);
    set(this.svg, "height", height);
    set(this.svg, "aria-label", label);
    this.svg.replaceChildren(
      ...plots.map((plot, i) => this.plot(plot, history, top + i * (TITLE + BODY + GAP) + TITLE)),
      this.axis(height - AXIS),
      ...seen.map((m, i) => this.mark(m, 4 + LANE * lanes[i] + MARK, height - AXIS)),
      ...(moment === null || moment < this.begin ? []
        : [shape("path", { class: "moment", d: `M${this.x(moment).toFixed(1)} ${top}V${height - AXIS}` })]),
    );
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
      if (v === null || t < this.begin) {
        open = false;
        return;
      }
      const x = this.x(t).toFixed(1), y = at(v).toFixed(1);
      d += !open ? `M${x} ${y}` : steps ? `H${x}V${y}` : `L${x} ${y}`;
      open = true;
    });
    return d;
  }

  axis(y) {
    const parts = this.width < 560 ? [0, 0.5, 1] : [0, 0.25, 0.5, 0.75, 1];
    const texts = parts.map((part) => {
      const ago = this.span * (1 - part);
      const text = ago === 0 ? "now" : ago < 60 || ago === 90 ? `${ago} s ago` : `${ago / 60} min ago`;
      return shape("text",
        { x: this.x(this.begin + part * this.span), y: y + 15, class: "scale",
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
