// The table of jobs.

import { link } from "./address.js";
import { heldBack } from "./held.js";
import { NONE, byId, epochOf, number, percent, say, showHeld, showLink, showPart,
  showState } from "./page.js";
import { Table } from "./table.js";

const OVER = new Set(["done", "cancelled", "failed"]);

/** Whether the job is over: nothing changes about it any more. */
export function isOver(job) {
  return OVER.has(job.state);
}

/** Jobs that are not over first, then by name. The order does not depend on changing values, so rows stay in
 * place. */
export function byState(a, b) {
  return isOver(a) - isOver(b) || (a.name < b.name ? -1 : a.name > b.name ? 1 : 0);
}

/** Returns the text that the search looks through: name, state, and hosts and processes of clients. */
function textOf(job) {
  const clients = job.ranks.filter((r) => r.client).map((r) => r.client);
  return `${job.name} ${job.state} ${clients.join(" ")}`;
}

function workersOf(job) {
  return job.scaling ? `${number(job.scaling.running)} of ${number(job.scaling.wanted)}`
    : number(job.workers);
}

export class JobTable {
  constructor() {
    this.shown = null; // name of the selected job
    this.table = new Table(byId("jobs"), { caption: "Jobs", columns: this.columns(), key: (j) => j.name,
      text: textOf, none: "There are no jobs.", find: "Find jobs by name, state or host" });
  }

  columns() {
    return [
      { title: "Job", show: (cell, j) =>
        showLink(cell, link({ job: j.name, worker: null }), j.name, j.name === this.shown) },
      { title: "State", show: (cell, j) => showState(cell, j.state) },
      { title: "Held back by", show: (cell, j) => showHeld(cell, heldBack(j)) },
      { title: "Epoch", numeric: true, show: (cell, j) => say(cell, epochOf(j)) },
      { title: "Ranks", numeric: true, show: (cell, j) =>
        say(cell, `${number(j.ranks.filter((r) => r.attached).length)} of ${number(j.world_size)}`) },
      { title: "Batches/s", numeric: true, show: (cell, j) => say(cell, number(j.now?.rate)) },
      { title: "Demand/s", numeric: true, show: (cell, j) => say(cell, number(j.now?.demand)) },
      { title: "Ranks waited", numeric: true,
        show: (cell, j) => showPart(cell, j.now?.waited, percent(j.now?.waited)) },
      { title: "Read from caches", numeric: true,
        show: (cell, j) => showPart(cell, j.now?.cached, percent(j.now?.cached)) },
      { title: "Workers", numeric: true, show: (cell, j) => say(cell, isOver(j) ? NONE : workersOf(j)) },
    ];
  }

  update(jobs, shown) {
    this.shown = shown;
    this.table.update(jobs.toSorted(byState));
  }
}
