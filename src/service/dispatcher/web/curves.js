// Curves over time with all that belongs to them: the choice of the range, the legend, the time line, and the
// values at one moment in words.

import { link } from "./address.js";
import { TimeLine, isKnown, sample } from "./chart.js";
import { byId, clock, element, say, set } from "./page.js";
import { SPANS, zoomIn, zoomOut } from "./range.js";

export class Curves {
  /**
   * Appends itself to `box`. prefix: of the ids of its elements; plots: as in chart.js; sentence(history, i):
   * the values of point i in words.
   */
  constructor(box, { prefix, plots, sentence }) {
    this.sentence = sentence;
    this.held = null; // the time that the user selected; null: the latest
    const id = (name) => `${prefix}${name}`;
    this.ranges = element("nav", { id: id("ranges"), class: "ranges", "aria-label": "Range of time" });
    this.legend = element("ul", { id: id("legend"), class: "legend" });
    const line = element("div", { id: id("timeline") });
    this.moment = element("input", { id: id("moment"), type: "range", min: 0, max: 0, step: 1, value: 0 });
    this.text = element("output", { id: id("moment-text"), for: id("moment") });
    this.note = element("p", { id: id("timeline-note"), class: "note" });
    box.append(this.ranges, this.legend, line,
      element("div", { class: "moment-line" }, element("label", { for: id("moment") }, "Moment"), this.moment,
        this.text), this.note);
    this.lines = plots.flatMap((plot) => this.entry(plot));
    this.timeline = new TimeLine(line, plots, {
      pointed: (t) => this.point(t),
      dragged: (from, to) => zoomIn(this.began + from, this.began + to),
      doubled: zoomOut,
    });
    this.moment.addEventListener("input", () => this.moved());
  }

  /** Adds an entry for a plot to the legend. Returns [{key, item}]: the column and the element of each line.
   */
  entry(plot) {
    const lines = plot.lines.map((line) =>
      ({ key: line.key, item: element("span", {}, sample(line.style), line.name) }));
    this.legend.append(element("li", {}, `${plot.title}: `, ...lines.map((line) => line.item)));
    return lines;
  }

  /** Forgets the selected moment: something else is shown. */
  begin() {
    this.held = null;
  }

  /** history: from the dispatcher; events: [{t, kind, number}]; at: when the history came, in ms; range: of
   * range.js. */
  update(history, events, at, range) {
    Object.assign(this, { history, events, at, range });
    this.began = at / 1000 - history.uptime_s; // when the dispatcher started, in seconds since 1970
    for (const { item, key } of this.lines) item.hidden = !isKnown(history[key]);
    for (const entry of this.legend.children)
      entry.hidden = [...entry.children].every((item) => item.hidden);
    this.showRanges();
    this.showNote();
    this.follow();
  }

  showRanges() {
    const all = SPANS.map((s) => [s.text, s.title]);
    if (!this.range.span)
      all.push([this.range.text, `${clock(1000 * this.range.from)} to ${clock(1000 * this.range.to)}`]);
    all.forEach(([text, title], i) => {
      const a = this.ranges.children[i] ?? this.ranges.appendChild(element("a"));
      set(a, "href", link({ range: text }));
      set(a, "aria-current", text === this.range.text ? "true" : null);
      say(a, title);
    });
    while (this.ranges.children.length > all.length) this.ranges.lastChild.remove();
  }

  showNote() {
    const { uptime_s: uptime, interval_s: interval } = this.history, words = [];
    const from = this.range.span ? this.at / 1000 - this.range.span : this.range.from;
    if (from < this.began)
      words.push(`The dispatcher started at ${clock(this.at - 1000 * uptime)}; nothing earlier is known.`);
    if (interval > 2) words.push(`Each point is the mean of ${interval} s.`);
    say(this.note, words.join(" "));
  }

  // ---- the moment ----

  follow() {
    const { t } = this.history;
    let i = this.held === null ? -1 : t.findIndex((x) => x >= this.held - 1e-6);
    if (i < 0) { // no time is selected, or it is out of the range
      i = t.length - 1;
      this.held = null;
    }
    set(this.moment, "max", Math.max(t.length - 1, 0));
    this.moment.value = i;
    this.moment.disabled = t.length === 0;
    this.tell();
  }

  moved() {
    const i = Number(this.moment.value);
    this.held = i === this.history.t.length - 1 ? null : this.history.t[i];
    this.tell();
  }

  /** Selects time t. */
  point(t) {
    const after = this.history.t.findIndex((x) => x >= t);
    this.moment.value = after < 0 ? this.history.t.length - 1 : after;
    this.moved();
  }

  tell() {
    const h = this.history, none = "Nothing was measured yet.";
    const words = (i) => (h.t.length === 0 ? none : this.sentence(h, i));
    const text = words(Number(this.moment.value));
    say(this.text, text);
    set(this.moment, "aria-valuetext", text);
    this.timeline.draw(h, this.events, this.held,
      { range: this.range, at: this.at, label: `Time line. ${words(h.t.length - 1)}` });
  }

  /** Shows half of the range, around the selected moment. */
  nearer() {
    const { begin, span } = this.timeline;
    const middle = this.held ?? begin + (this.range.span ? 0.75 : 0.5) * span;
    zoomIn(this.began + middle - span / 4, this.began + middle + span / 4);
  }
}
