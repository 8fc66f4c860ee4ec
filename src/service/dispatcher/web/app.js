// The page as a whole: facts about the service, and the view that the address names.

import { link, view } from "./address.js";
import { Announcer } from "./announce.js";
import { heldBack } from "./held.js";
import { JobView } from "./job.js";
import { JobTable, byState, isOver } from "./jobs.js";
import { listen } from "./keys.js";
import { byId, clock, duration, number, plural, say, set, setCurrency, showFacts } from "./page.js";
import { queryOf, rangeOf, zoomOut } from "./range.js";
import { Service } from "./service.js";
import { WorkerView } from "./worker.js";
import { WorkerTables } from "./workers.js";

// ---- which view ----

let chosen = null; // name of the job that the page selected, while the address names none

function chooseJob(jobs) {
  const { job } = view();
  if (job !== null) return job;
  if (!jobs.some((j) => j.name === chosen && !isOver(j)))
    chosen = jobs.toSorted(byState)[0]?.name ?? null;
  return chosen;
}

let requested; // the view whose pages were requested, with the name of its job

function pages({ jobs, status }) {
  const { worker } = view(), name = worker === null ? chooseJob(jobs) : null, range = rangeOf(view().range);
  const query = queryOf(range, status.uptime_s, Date.now());
  requested = { ...view(), name, range };
  if (worker !== null) return { workerHistory: `workers/${encodeURIComponent(worker)}/history${query}` };
  if (name === null) return {};
  const job = `jobs/${encodeURIComponent(name)}`;
  return { history: `${job}/history${query}`, decisions: `${job}/decisions` };
}

// ---- the service ----

function counts(rows, states) {
  const found = states.map((s) => [s, rows.filter((r) => r.state === s).length]).filter(([, n]) => n > 0);
  return found.map(([state, n]) => `${number(n)} ${state}`).join(", ") || "none";
}

function facts({ status, jobs, workers }) {
  return [
    ["Jobs", counts(jobs, ["running", "waiting", "unattended", "paused", "done", "cancelled", "failed"])],
    ["Held back", plural(jobs.filter((j) => heldBack(j)?.kind === "bad").length, "job")],
    ["Workers", counts(workers, ["ready", "draining", "gone"])],
    ["Policy", status.policy ?? "none: all workers serve all jobs"],
    ["Ranges",
      `${number(status.completed)} done, ${number(status.late)} late, ${number(status.moved)} moved`],
    ["Journal", status.journal],
    ["Running for", duration(status.uptime_s)],
  ];
}

function showConnection(since) {
  const lost = since !== null;
  say(byId("connection"),
    lost ? `No answer from the dispatcher since ${clock(since)}; the page tries again each second.` : "Live");
  set(byId("connection"), "class", lost ? "problem" : "live");
  document.body.classList.toggle("stale", lost);
}

function title({ jobs, status }, { job, worker }) {
  if (worker !== null) return `Cachew: worker ${worker}`;
  if (job !== null) return `Cachew: job ${job}`;
  const running = plural(jobs.filter((j) => j.state === "running").length, "job");
  return `Cachew: ${running}, ${plural(status.workers, "worker")}`;
}

// ---- the view ----

const announcer = new Announcer();
const jobTable = new JobTable(), workerTables = new WorkerTables();
const jobView = new JobView(), workerView = new WorkerView();
let at = view(); // the view that is shown

/** Shows the worker's page, or the page with everything else. */
function showView(worker) {
  for (const section of document.querySelectorAll("main > section"))
    section.classList.toggle("elsewhere", (section.id === "worker") !== (worker !== null));
  byId("worker").hidden = worker === null;
}

/** Moves the focus after a link has changed the view: its element is not shown any more. */
function moveFocus(from, to) {
  if (from.worker === to.worker) return;
  const back = from.worker !== null && to.worker === null &&
    document.querySelector(`#workers a[aria-label="Worker ${CSS.escape(from.worker)}"]`);
  (to.worker !== null ? byId("worker") : back || byId("jobs")).focus();
}

function answered(all) {
  const now = requested, { name, range } = now;
  showConnection(null);
  setCurrency(all.status.currency);
  say(byId("dispatcher"), all.status.name);
  document.title = title(all, now);
  showView(now.worker);
  announcer.update(all);
  showFacts(byId("facts"), facts(all));
  jobTable.update(all.jobs, name);
  workerTables.update(all.workers, all.pools);
  byId("job").hidden = name === null;
  if (now.worker !== null) workerView.update(all, now.worker, range);
  else jobView.update(all, name, range);
  set(byId("worker-back"), "href", link({ worker: null }));
  moveFocus(at, now);
  at = now;
}

/** Ends a zoom, or leaves the worker's page, or the job that the address names. */
function close() {
  const now = view();
  if (!rangeOf(now.range).span) {
    zoomOut();
    return;
  }
  const closed = link(now.worker !== null ? { worker: null } : { job: null });
  if (closed !== link({})) location.hash = closed;
}

/** Zooms the curves that are shown. */
function nearer() {
  const { curves } = at.worker === null ? jobView : workerView;
  if (curves.history) curves.nearer();
}

listen(close, { "+": nearer, "-": () => !rangeOf(view().range).span && zoomOut() });
const service = new Service({ more: pages, answered, lost: showConnection });
window.addEventListener("hashchange", () => service.now());
document.querySelector(".skip").addEventListener("click", (e) => {
  e.preventDefault(); // the address stays that of the view
  byId(at.worker === null ? "jobs" : "worker").focus();
});
service.now();
