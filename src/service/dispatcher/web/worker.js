// The page of one worker: its state, its measurements over time, and the last lines of its log.

import { tick, tickPart, tops } from "./chart.js";
import { Curves } from "./curves.js";
import { NONE, byId, bytes, clock, moment, number, percent, say, set, showFacts, showState } from "./page.js";
import { Table } from "./table.js";
import { found } from "./workers.js";

const PLOTS = [
  { title: "CPUs", top: tops.most("cpus"), scale: tick,
    lines: [{ key: "cpus", name: "in use", style: "main" }] },
  { title: "Memory", top: tops.most("memory_in_use"), scale: bytes,
    lines: [{ key: "memory_in_use", name: "in use for batches", style: "main" }] },
  { title: "Elements per second", top: tops.most("elements_per_s"), scale: tick,
    lines: [{ key: "elements_per_s", name: "computed or read from caches", style: "main" }] },
  { title: "Part of the elements found in the cache", top: tops.part, scale: tickPart, where: "cache_part",
    lines: [{ key: "cache_part", name: "found", style: "main" }] },
  { title: "Cache directory", top: tops.most("cache_used"), scale: bytes, where: "cache_used",
    lines: [{ key: "cache_used", name: "size", style: "main" }] },
];

function facts(w) {
  const all = [
    ["Address", w.address || NONE],
    ["Pages", w.http || "none: the worker has no option --http"],
    ["Process", `${w.pid}, named ${w.name || NONE}`],
    ["Pool", w.pool || NONE],
    ["CPUs in use", `${number(w.cpus)} of ${number(w.cpu_budget)}`],
    ["Memory in use", `${bytes(w.memory_in_use)} of ${bytes(w.memory)}`],
    ["Ranges leased", number(w.leases)],
    ["Sent", `${number(w.batches_per_s)} batches/s, ${bytes(w.bytes_per_s)}/s`],
  ];
  if (!(w.cache_quota > 0)) return all;
  return [...all, ["Cache directory", `${bytes(w.cache_used)} of ${bytes(w.cache_quota)}`],
    ["Found in the cache, in total", percent(found(w))]];
}

export class WorkerView {
  constructor() {
    this.id = null;
    this.log = new Table(byId("worker-log"),
      { caption: "Log", columns: this.logColumns(), key: (l) => l.number, text: (l) => l.text,
      none: "The dispatcher has got no lines of its log." });
    this.curves = new Curves(byId("worker-curves"),
      { prefix: "worker-", plots: PLOTS, sentence: (h, i) => this.sentence(h, i) });
  }

  logColumns() {
    return [
      { title: "Time", show: (cell, l) =>
        say(cell, clock(this.at - 1000 * (this.curves.history.uptime_s - l.t))) },
      { title: "Text", show: (cell, l) => {
        set(cell, "class", "log");
        say(cell, l.text);
      } },
    ];
  }

  /** all: the object that service.js passes to `answered`; id: of the worker, as text; range: of range.js. */
  update(all, id, range) {
    const { workerHistory: history } = all, worker = all.workers.find((w) => String(w.id) === id);
    say(byId("worker-id"), id);
    byId("worker-facts").hidden = !worker;
    say(byId("worker-problem"), !worker
      ? "The dispatcher does not know this worker. Workers are removed ten minutes after they are gone."
      : worker.unfit.map((u) => u.why).join("; "));
    byId("worker-problem").hidden = byId("worker-problem").textContent === "";
    byId("worker-state").hidden = !worker;
    byId("worker-curves").hidden = !history;
    if (this.id !== id) this.curves.begin();
    this.id = id;
    this.at = all.at;
    byId("worker-log").hidden = !history;
    if (history) {
      this.curves.update(history, [], all.at, range);
      this.log.update(history.log.map((line, number) => ({ ...line, number })).reverse());
    }
    if (!worker) return;
    showState(byId("worker-state"), worker.state);
    showFacts(byId("worker-facts"), facts(worker));
  }

  /** The values of point i of the history in words. */
  sentence(h, i) {
    return `${moment(this.at, h.uptime_s - h.t[i])}: ` +
      `${number(h.cpus[i])} CPUs and ${bytes(h.memory_in_use[i])} of memory in use; ` +
      `${number(h.elements_per_s[i])} elements per second` +
      `${h.cache_part[i] === null ? "" : `, ${percent(h.cache_part[i])} found in the cache`}.`;
  }
}
