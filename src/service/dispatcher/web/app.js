// The page as a whole: facts about the service, its jobs, workers and provisioners. The address of the page
// names the selected job, so that a user can bookmark or send it.

import { heldBack } from "./held.js";
import { JobView } from "./job.js";
import { NONE, byId, bytes, clock, duration, element, epochOf, number, percent, plural, say, set, showHeld,
  showPart, showState } from "./page.js";
import { Service } from "./service.js";
import { Table } from "./table.js";

const OVER = new Set(["done", "cancelled", "failed"]);

/** Jobs that are not over first, then by name. The order does not depend on changing values, so rows stay in
 * place. */
function byState(a, b) {
  return OVER.has(a.state) - OVER.has(b.state) || (a.name < b.name ? -1 : a.name > b.name ? 1 : 0);
}

/** Workers that can't serve a stream first, then draining, ready and gone ones; among equal ones the oldest
 * first. */
function byTrouble(a, b) {
  const rank = (w) => (w.unfit.length > 0 ? 0 : w.state === "draining" ? 1 : w.state === "ready" ? 2 : 3);
  return rank(a) - rank(b) || a.id - b.id;
}

// ---- which job ----

const PREFIX = "#job=";
let chosen = null; // name of the job that the page selected, while the address names none

function named() {
  if (!location.hash.startsWith(PREFIX)) return null;
  try {
    return decodeURIComponent(location.hash.slice(PREFIX.length));
  } catch {
    return null; // badly encoded: this page did not make the address
  }
}

function choose(jobs) {
  const name = named();
  if (name !== null) return name;
  if (!jobs.some((j) => j.name === chosen && !OVER.has(j.state)))
    chosen = jobs.toSorted(byState)[0]?.name ?? null;
  return chosen;
}

// ---- columns ----

let shown = null; // name of the selected job
let workers = []; // as the dispatcher last answered

function showName(cell, job) {
  if (!cell.firstChild) cell.append(element("a"));
  const link = cell.firstChild;
  set(link, "href", PREFIX + encodeURIComponent(job.name));
  set(link, "aria-current", job.name === shown ? "true" : null);
  set(link, "title", job.name); // the cell may cut a long name short
  say(link, job.name);
}

function workersOf(job) {
  return job.scaling ? `${number(job.scaling.running)} of ${number(job.scaling.wanted)}`
    : number(job.workers);
}

const JOB_COLUMNS = [
  { title: "Job", show: showName },
  { title: "State", show: (cell, j) => showState(cell, j.state) },
  { title: "Held back by", show: (cell, j) => showHeld(cell, heldBack(j, workers)) },
  { title: "Epoch", numeric: true,
    show: (cell, j) => say(cell, epochOf(j)) },
  { title: "Ranks", numeric: true,
    show: (cell, j) => say(cell,
    `${number(j.ranks.filter((r) => r.attached).length)} of ${number(j.world_size)}`) },
  { title: "Batches/s", numeric: true, show: (cell, j) => say(cell, number(j.now?.rate)) },
  { title: "Demand/s", numeric: true, show: (cell, j) => say(cell, number(j.now?.demand)) },
  { title: "Ranks waited", numeric: true,
    show: (cell, j) => showPart(cell, j.now?.waited, percent(j.now?.waited)) },
  { title: "Read from caches", numeric: true,
    show: (cell, j) => showPart(cell, j.now?.cached, percent(j.now?.cached)) },
  { title: "Workers", numeric: true, show: (cell, j) => say(cell, OVER.has(j.state) ? NONE : workersOf(j)) },
];

function found(worker) {
  const looked = worker.cache_hits + worker.cache_misses;
  return looked > 0 ? worker.cache_hits / looked : null;
}

const WORKER_COLUMNS = [
  { title: "Worker", show: (cell, w) => say(cell, String(w.id)) },
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
  { title: "Worker", show: (cell, w) => say(cell, String(w.id)) },
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
  { title: "Price per hour", numeric: true, show: (cell, p) => say(cell, number(p.price_per_h)) },
  { title: "Time to start", numeric: true,
    show: (cell, p) => say(cell, p.start_delay_s > 0 ? `${number(p.start_delay_s)} s` : NONE) },
  { title: "Why fewer run", show: (cell, p) => say(cell, p.why ?? "") },
];

// ---- the service ----

function counts(rows, states) {
  const found = states.map((s) => [s, rows.filter((r) => r.state === s).length]).filter(([, n]) => n > 0);
  return found.map(([state, n]) => `${number(n)} ${state}`).join(", ") || "none";
}

function facts({ status, jobs, workers }) {
  return [
    ["Jobs", counts(jobs, ["running", "waiting", "unattended", "paused", "done", "cancelled", "failed"])],
    ["Held back", plural(jobs.filter((j) => heldBack(j, workers)?.kind === "bad").length, "job")],
    ["Workers", counts(workers, ["ready", "draining", "gone"])],
    ["Policy", status.policy ?? "none: all workers serve all jobs"],
    ["Ranges",
      `${number(status.completed)} done, ${number(status.late)} late, ${number(status.moved)} moved`],
    ["Journal", status.journal],
    ["Running for", duration(status.uptime_s)],
  ];
}

function showFacts(all) {
  const box = byId("facts");
  facts(all).forEach(([name, value], i) => {
    const pair = box.children[i] ?? box.appendChild(element("div", {}, element("dt"), element("dd")));
    say(pair.firstChild, name);
    say(pair.lastChild, value);
  });
}

function showConnection(since) {
  const lost = since !== null;
  say(byId("connection"),
    lost ? `No answer from the dispatcher since ${clock(since)}; the page tries again each second.` : "Live");
  set(byId("connection"), "class", lost ? "problem" : "live");
  document.body.classList.toggle("stale", lost);
}

const tables = {
  jobs: new Table(byId("jobs"),
    { caption: "Jobs", columns: JOB_COLUMNS, key: (j) => j.name, text: (j) => `${j.name} ${j.state}`,
    none: "There are no jobs." }),
  workers: new Table(byId("workers"),
    { caption: "Workers", columns: WORKER_COLUMNS, key: (w) => w.id,
    text: (w) => `${w.id} ${w.name} ${w.address} ${w.state} ${w.pool}`,
    none: "There are no workers." }),
  caches: new Table(byId("caches"),
    { caption: "Caches of workers", columns: CACHE_COLUMNS, key: (w) => w.id,
    text: (w) => `${w.id} ${w.name}`, none: "No worker has a cache." }),
  pools: new Table(byId("pools"),
    { caption: "Provisioners", columns: POOL_COLUMNS, key: (p) => p.name, text: (p) => p.name,
    none: "There are no provisioners." }),
};
const view = new JobView();

function answered(all) {
  shown = all.name;
  workers = all.workers;
  showConnection(null);
  say(byId("dispatcher"), all.status.name);
  const running = plural(all.jobs.filter((j) => j.state === "running").length, "job");
  document.title = `Cachew: ${running}, ${plural(all.status.workers, "worker")}`;
  showFacts(all);
  tables.jobs.update(all.jobs.toSorted(byState));
  tables.workers.update(all.workers.toSorted(byTrouble));
  const caching = all.workers.filter((w) => w.cache_quota > 0 && w.state !== "gone");
  tables.caches.update(caching);
  byId("caches").hidden = caching.length === 0;
  tables.pools.update(all.pools);
  byId("pools").hidden = all.pools.length === 0;
  view.update(all);
}

const service = new Service({ choose, answered, lost: showConnection });
window.addEventListener("hashchange", () => service.now());
service.now();
