// Tells screen readers when a job or a worker changes its state.

import { byId, plural, say } from "./page.js";

const MOST = 3; // changes that are told one by one; more of them are counted

/** Returns a text for each row that is new, or whose state differs from that in `states`. */
function changes(rows, states, name) {
  return rows.filter((row) => states.get(name(row)) !== row.state).map((row) => `${name(row)}: ${row.state}`);
}

export class Announcer {
  constructor() {
    this.states = null; // of all jobs and workers, by name; null: nothing was shown yet
  }

  update({ jobs, workers }) {
    const ofJob = (job) => `Job ${job.name}`, ofWorker = (worker) => `Worker ${worker.id}`;
    if (this.states !== null) {
      const all = [...changes(jobs, this.states, ofJob), ...changes(workers, this.states, ofWorker)];
      if (all.length > 0)
        say(byId("changes"), all.length <= MOST ? `${all.join(". ")}.`
          : `${plural(all.length, "job or worker", "jobs and workers")} changed state.`);
    }
    this.states = new Map([...jobs.map((j) => [ofJob(j), j.state]),
      ...workers.map((w) => [ofWorker(w), w.state])]);
  }
}
