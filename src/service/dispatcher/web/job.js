// The section of the selected job: its time line, the policy's decisions and lost connections, how long its
// ranks waited, and its computing time by operator.

import { tick, tickPart, tops } from "./chart.js";
import { Curves } from "./curves.js";
import { heldBack } from "./held.js";
import { NONE, byId, bytes, clock, duration, element, epochOf, moment, money, number, percent, plural, say,
  seconds, set, showHeld, showPart, showState } from "./page.js";
import { Table } from "./table.js";

const PLOTS = [
  { title: "Batches per second", top: tops.rate, scale: tick,
    lines: [{ key: "rate", name: "delivered", style: "main" },
      { key: "demand", name: "demand", style: "other" }] },
  { title: "Part of the time that ranks waited", top: tops.part, scale: tickPart,
    lines: [{ key: "waited", name: "on average", style: "main" },
      { key: "waited_most", name: "the rank that waited most", style: "other" }] },
  { title: "Part of the elements read from caches", top: tops.part, scale: tickPart, where: "cached",
    lines: [{ key: "cached", name: "read", style: "main" }] },
  { title: "Workers", top: tops.count("workers", "wanted"), scale: tick, steps: true,
    lines: [{ key: "workers", name: "computing", style: "main" },
      { key: "wanted", name: "wanted", style: "other" }] },
];

function rankState(rank) {
  return rank.finished ? "done" : rank.attached ? "running" : "gone";
}

const RANK_COLUMNS = [
  { title: "Rank", show: (cell, r) => say(cell, String(r.rank)) },
  { title: "State", show: (cell, r) => showState(cell, rankState(r)) },
  { title: "Client", show: (cell, r) => say(cell, r.client ?? NONE) },
  { title: "Waited, last 2 s", numeric: true,
    show: (cell, r) => showPart(cell, r.waited, percent(r.waited)) },
  { title: "Waited, in total", numeric: true,
    show: (cell, r) => say(cell, r.wait_s < 60 ? seconds(r.wait_s) : duration(r.wait_s)) },
  { title: "Step", numeric: true, show: (cell, r) => say(cell, seconds(r.step_s)) },
  { title: "Batches", numeric: true, show: (cell, r) => say(cell, number(r.batches)) },
  { title: "Late batches", numeric: true, show: (cell, r) => say(cell, number(r.late)) },
];

const OPERATOR_COLUMNS = [
  { title: "Operator", show: (cell, o) => say(cell, o.name) },
  { title: "Part of all time", numeric: true, show: (cell, o) => showPart(cell, o.part, percent(o.part)) },
  { title: "Time of all threads", numeric: true, show: (cell, o) => say(cell, seconds(o.compute_s)) },
  { title: "Elements", numeric: true, show: (cell, o) => say(cell, number(o.elements)) },
  { title: "Time per element", numeric: true,
    show: (cell, o) => say(cell, o.elements > 0 ? seconds(o.compute_s / o.elements) : NONE) },
];

const CACHE_POINT_COLUMNS = [
  { title: "Cached after", show: (cell, m) => say(cell, m.name) },
  { title: "State", show: (cell, m) =>
    showState(cell, !m.in_use ? "not used" : m.unread ? "not read" : "in use") },
  { title: "Part of an epoch", numeric: true,
    show: (cell, m) => showPart(cell, m.cached, percent(m.cached)) },
  { title: "Bytes", numeric: true,
    show: (cell, m) => say(cell,
    m.all === null ? `${bytes(m.bytes)} per element` : `${bytes(m.cached * m.all)} of ${bytes(m.all)}`) },
  { title: "Time to compute an element", numeric: true, show: (cell, m) => say(cell, seconds(m.compute_s)) },
  { title: "Time to read an element", numeric: true, show: (cell, m) => say(cell, seconds(m.read_s)) },
  { title: "Storage time per element", numeric: true, show: (cell, m) => say(cell, seconds(m.store_s)) },
];

const SEEN = [["step_s", "Step of the client", seconds], ["wait_s", "Waited per batch", seconds],
  ["compute_s", "Computing per batch", seconds], ["busy", "Workers busy", percent],
  ["cache", "Cached after", (v) => v ?? "nothing"], ["cached", "Part of the epoch cached", percent],
    ["error", "Uncertainty", percent], ["doubt", "Assumed slower by", percent],
    ["limit", "Limited by", (v) => v]];
function ofPools(n, { pools }) {
  if (!pools) return number(n);
  const used = Object.entries(pools).filter(([, k]) => k > 0);
  return `${number(n)} (${used.map(([name, k]) => `${number(k)} of ${name}`).join(", ")})`;
}
const ALTERNATIVES = [["workers", "Workers", ofPools], ["cache", "Cached after", (v) => v ?? "nothing"],
  ["batch_s", "Time per batch", seconds], ["time_s", "Rest of the job", duration],
  ["cost", "Cost of the rest", money], ["held_s", "Until the next decision", duration],
    ["held_cost", "Cost until then", money]];

// ---- what happened ----

function ofDecision(decision, uptime) {
  const { what, why, before, chosen } = decision.record;
  const sum = (workers) => Object.values(workers).reduce((s, x) => s + x, 0);
  const caches = before.cache !== chosen.cache && sum(before.workers) === sum(chosen.workers);
  return { key: `decision ${decision.t}`, t: uptime - decision.ago_s, kind: caches ? "cache" : "decision",
    record: decision.record, what, why };
}

function ofLoss(event) {
  const what = event.kind === "worker-gone" ? `Worker ${event.worker} is gone`
    : `The client of rank ${event.rank} is gone`;
  const why = event.kind === "worker-gone"
    ? "The connection of this worker broke. Other workers compute its ranges."
    : "The connection of this client broke. The client may connect again.";
  return { key: `${event.kind} ${event.t}`, t: event.t, kind: "loss", what, why };
}

/** All known decisions and losses in order of time, numbered from 1. */
function happened(decisions, history) {
  const all = [...(decisions ?? []).map((d) => ofDecision(d, history.uptime_s)),
    ...history.events.map(ofLoss)].sort((a, b) => a.t - b.t);
  all.forEach((event, i) => { event.number = i + 1; });
  return all;
}

function details(record) {
  if (record.alternatives.length === 0 && !(record.seen.interval_s > 0)) return [];
  const rows = record.alternatives.map((a) =>
    element("tr", {}, ...ALTERNATIVES.map(([key, , format]) =>
    element("td", { class: "numeric" }, format(a[key], a)))));
  return [element("details", {},
    element("summary", {}, "Measurements and alternatives"),
    element("dl", { class: "seen" },
      ...SEEN.map(([key, title, format]) =>
      element("div", {}, element("dt", {}, title), element("dd", {}, format(record.seen[key]))))),
    element("div", { class: "scroll", role: "region", "aria-label": "Alternatives", tabindex: "0" },
      element("table", {},
        element("thead", {},
        element("tr", {}, ...ALTERNATIVES.map(([, title]) =>
        element("th", { scope: "col", class: "numeric" }, title)))),
        element("tbody", {}, ...rows))))];
}

// ---- the section ----

export class JobView {
  constructor() {
    this.curves = new Curves(byId("job-curves"),
      { prefix: "", plots: PLOTS, sentence: (h, i) => this.sentence(h, i) });
    this.ranks = new Table(byId("ranks"),
      { caption: "Ranks", columns: RANK_COLUMNS, key: (r) => r.rank,
      text: (r) => `${r.rank} ${rankState(r)} ${r.client ?? ""}`,
      none: "No rank was ever attached." });
    this.operators = new Table(byId("operators"),
      { caption: "Operators", columns: OPERATOR_COLUMNS, key: (o) => o.name, text: (o) => o.name,
      none: "No computing times: workers have not reported any yet, or no longer compute for this job." });
    this.cache_points = new Table(byId("cache_points"),
      { caption: "Cache points", columns: CACHE_POINT_COLUMNS, key: (m) => m.name, text: (m) => m.name,
      none: "" });
    this.name = null;
  }

  /** all: the object that service.js passes to `answered`; name: of the job; range: of range.js. */
  update(all, name, range) {
    const { history = null } = all, job = all.jobs.find((j) => j.name === name);
    byId("job-known").hidden = !job || !history;
    if (this.name !== name) this.begin(name);
    say(byId("job-name"), name ?? "");
    say(byId("job-state"), job ? this.state(job)
      : "The dispatcher does not know this job. Jobs are removed an hour after their end.");
    say(byId("job-problem"), job?.why ?? job?.held ?? "");
    byId("job-problem").hidden = !job?.why && !job?.held;
    const held = job && heldBack(job);
    byId("job-held").hidden = !held || held.kind === "good";
    if (held) showHeld(byId("job-held"), { ...held,
      text: `Ranks wait ${percent(job.bottleneck.waited)} of the time; held back by: ${held.text}. ` +
        `What to do: ${job.bottleneck.remedy}.` });
    if (!job || !history) return;
    this.history = history;
    this.at = all.at;
    this.events = happened(all.decisions, history);
    this.curves.update(history, this.events, all.at, range);
    this.list();
    this.ranks.update(job.ranks);
    const stream = all.streams.find((s) => s.stream === job.stream);
    this.operators.update(operators(stream));
    this.showMarkers(stream);
  }

  /** Shows the cache points of the job's stream. */
  showMarkers(stream) {
    const cache_points = stream?.caching?.cache_points ?? [];
    byId("cache_points").hidden = cache_points.length === 0;
    this.cache_points.update(cache_points.map((m) =>
      ({ ...m, all: stream.positions === null ? null : m.bytes * stream.positions })));
    if (!stream || cache_points.length === 0) return;
    const { positions, cached_positions: read } = stream.computing;
    say(byId("cache_points-note"),
      positions > 0 ? `In total, ${percent(read / positions)} of the job's elements were read from caches.`
        : "");
  }

  begin(name) {
    this.name = name;
    this.curves.begin();
    this.listed = new Map();
    this.news = false;
    byId("events").replaceChildren();
    say(byId("news"), "");
  }

  state(job) {
    const words = [`${job.state[0].toUpperCase()}${job.state.slice(1)}`,
      `epoch ${epochOf(job)}`, `order ${job.order}`, job.guarantee];
    if (job.scaling) {
      const { phase, objective, client_price_per_h: price, weight, priority, quota } = job.scaling;
      words.push(`policy: ${phase}`, `objective: ${objective}, the ranks cost ${money(price)} per hour`);
      words.push(`weight ${number(weight)}, priority ${priority}, ${quota ? `quota ${quota}` : "no quota"}`);
    }
    if (Number.isFinite(job.now?.cpus)) {
      words.push(`${number(job.now.cpus)} threads of workers busy with this job`);
    }
    return `${words.join("; ")}.`;
  }

  /** The values of point i of the history in words. */
  sentence(h, i) {
    return `${moment(this.at, h.uptime_s - h.t[i])}: ` +
      `${number(h.rate[i])} batches per second, demand ${number(h.demand[i])}; ` +
      `ranks waited ${percent(h.waited[i])} of the time on average, ` +
      `the one that waited longest ${percent(h.waited_most[i])}; ` +
      `${plural(h.workers[i] ?? 0, "worker")}` +
      `${h.wanted[i] === null ? "" : ` of ${number(h.wanted[i])} wanted`}` +
      `${h.cached[i] === null ? "" : `; ${percent(h.cached[i])} of the elements read from caches`}.`;
  }

  // ---- the list ----

  list() {
    const box = byId("events"), kept = new Map();
    byId("events-none").hidden = this.events.length > 0;
    let fresh = null;
    for (const event of this.events) { // the newest comes first
      let item = this.listed.get(event.key);
      if (!item) {
        item = this.item(event);
        box.prepend(item);
        fresh = event;
      }
      set(item, "value", event.number);
      kept.set(event.key, item);
    }
    for (const [key, item] of this.listed) {
      if (!kept.has(key)) item.remove();
    }
    this.listed = kept;
    if (fresh && this.news) say(byId("news"), `${fresh.what}. ${fresh.why}`);
    this.news = true;
  }

  item(event) {
    const show = element("button", { type: "button" }, "Show",
      element("span", { class: "unseen" }, ` on the time line: ${event.what}`));
    show.addEventListener("click", () => this.curves.point(event.t));
    const when = clock(this.at - 1000 * (this.history.uptime_s - event.t));
    return element("li", { class: event.kind },
      element("p", {}, element("strong", {}, event.what), " ", element("span", { class: "when" }, when), " ",
        show),
      element("p", {}, event.why), ...(event.record ? details(event.record) : []));
  }
}

/** The operators of a stream, and the reading of files as one more; the costliest first. */
function operators(stream) {
  if (!stream) return [];
  const { operators: list, read_s, read_bytes } = stream.computing;
  const all = list.map((o) => ({ ...o }));
  if (read_bytes > 0) all.push({ name: `reading files, ${bytes(read_bytes)}`, compute_s: read_s,
    elements: 0 });
  const sum = all.reduce((s, o) => s + o.compute_s, 0);
  for (const o of all) o.part = sum > 0 ? o.compute_s / sum : null;
  return all.sort((a, b) => b.compute_s - a.compute_s);
}
