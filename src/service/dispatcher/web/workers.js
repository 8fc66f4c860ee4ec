// The tables of workers, of their caches, and of the provisioners that start them.

import { link } from "./address.js";
import { NONE, byId, bytes, money, number, percent, say, showLink, showPart, showState } from "./page.js";
import { Table } from "./table.js";

/** Workers that can't serve a stream first, then draining, ready and gone ones; among equal ones the oldest
 * first. */
function byTrouble(a, b) {
  const rank = (w) => (w.unfit.length > 0 ? 0 : w.state === "draining" ? 1 : w.state === "ready" ? 2 : 3);
  return rank(a) - rank(b) || a.id - b.id;
}

/** Returns the part of all elements that the worker looked up and found in its cache; null: none were looked
 * up. */
export function found(worker) {
  const looked = worker.cache_hits + worker.cache_misses;
  return looked > 0 ? worker.cache_hits / looked : null;
}

function showWorker(cell, worker) {
  showLink(cell, link({ worker: String(worker.id) }), String(worker.id), false, `Worker ${worker.id}`);
}

const WORKER_COLUMNS = [
  { title: "Worker", show: showWorker },
  { title: "Name", show: (cell, w) => say(cell, w.name) },
  { title: "Address", show: (cell, w) => say(cell, w.address) },
  { title: "State", show: (cell, w) => showState(cell, w.state) },
  { title: "CPUs", numeric: true,
    show: (cell, w) => showPart(cell, w.cpu_budget > 0 ? w.cpus / w.cpu_budget : null,
    `${number(w.cpus)} of ${number(w.cpu_budget)}`) },
  { title: "Memory", numeric: true,
    show: (cell, w) => showPart(cell, w.memory > 0 ? w.memory_in_use / w.memory : null,
    `${bytes(w.memory_in_use)} of ${bytes(w.memory)}`) },
  { title: "Ranges", numeric: true, show: (cell, w) => say(cell, number(w.leases)) },
  { title: "Batches/s", numeric: true, show: (cell, w) => say(cell, number(w.batches_per_s)) },
  { title: "Sent", numeric: true, show: (cell, w) => say(cell, `${bytes(w.bytes_per_s)}/s`) },
  { title: "Pool", show: (cell, w) => say(cell, w.pool) },
  { title: "Why it can't serve a job", show: (cell, w) => say(cell, w.unfit.map((u) => u.why).join("; ")) },
];

const CACHE_COLUMNS = [
  { title: "Worker", show: showWorker },
  { title: "Name", show: (cell, w) => say(cell, w.name) },
  { title: "Size of cache directory", numeric: true,
    show: (cell, w) => showPart(cell, w.cache_used / w.cache_quota,
    `${bytes(w.cache_used)} of ${bytes(w.cache_quota)}`) },
  { title: "Found, last second", numeric: true,
    show: (cell, w) => showPart(cell, w.cache_part, percent(w.cache_part)) },
  { title: "Found, in total", numeric: true, show: (cell, w) => say(cell, percent(found(w))) },
  { title: "Elements read/s", numeric: true, show: (cell, w) => say(cell, number(w.cache_hits_per_s)) },
  { title: "Elements read", numeric: true, show: (cell, w) => say(cell, number(w.cache_hits)) },
  { title: "Not kept: no room", numeric: true, show: (cell, w) => say(cell, number(w.cache_refused)) },
  { title: "Not kept: disk too slow", numeric: true, show: (cell, w) => say(cell, number(w.cache_skipped)) },
  { title: "Read too late", numeric: true, show: (cell, w) => say(cell, number(w.cache_late)) },
  { title: "Damaged or missing", numeric: true, show: (cell, w) => say(cell, number(w.cache_bad)) },
];

const POOL_COLUMNS = [
  { title: "Pool", show: (cell, p) => say(cell, p.name) },
  { title: "Running", numeric: true, show: (cell, p) => say(cell, number(p.workers)) },
  { title: "Wanted", numeric: true, show: (cell, p) => say(cell, number(p.wanted)) },
  { title: "Maximum", numeric: true, show: (cell, p) => say(cell, number(p.maximum)) },
  { title: "Price per hour", numeric: true, show: (cell, p) => say(cell, money(p.price_per_h)) },
  { title: "Time to start", numeric: true,
    show: (cell, p) => say(cell, p.start_delay_s > 0 ? `${number(p.start_delay_s)} s` : NONE) },
  { title: "Why fewer run", show: (cell, p) => say(cell, p.why ?? "") },
];

export class WorkerTables {
  constructor() {
    this.workers = new Table(byId("workers"),
      { caption: "Workers", columns: WORKER_COLUMNS, key: (w) => w.id,
      text: (w) => `${w.id} ${w.name} ${w.address} ${w.state} ${w.pool}`,
      none: "There are no workers." });
    this.caches = new Table(byId("caches"),
      { caption: "Caches of workers", columns: CACHE_COLUMNS, key: (w) => w.id,
      text: (w) => `${w.id} ${w.name}`, none: "No worker has a cache." });
    this.pools = new Table(byId("pools"),
      { caption: "Provisioners", columns: POOL_COLUMNS, key: (p) => p.name, text: (p) => p.name,
      none: "There are no provisioners." });
  }

  update(workers, pools) {
    this.workers.update(workers.toSorted(byTrouble));
    const caching = workers.filter((w) => w.cache_quota > 0 && w.state !== "gone");
    this.caches.update(caching);
    byId("caches").hidden = caching.length === 0;
    this.pools.update(pools);
    byId("pools").hidden = pools.length === 0;
  }
}
