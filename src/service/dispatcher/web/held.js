// What holds a job back, in words, from the figures that the page shows.

import { number, percent } from "./page.js";

const LITTLE = 0.05; // ranks that wait for a smaller part of the time are not held back
const MUCH = 0.5;
const FULL = 0.85; // part of the CPUs in use from which they are the limit

function sum(workers, key) {
  return workers.reduce((all, w) => all + w[key], 0);
}

function reason(job, workers) {
  const ready = workers.filter((w) => w.state === "ready");
  if (ready.length === 0 || job.workers === 0) return "no worker computes for it";
  if (job.scaling && job.scaling.running < job.scaling.wanted)
    return `too few workers: ${number(job.scaling.running)} of ${number(job.scaling.wanted)} run`;
  const part = sum(ready, "cpus") / sum(ready, "cpu_budget");
  if (!Number.isFinite(part)) return "not known yet";
  return part >= FULL ? `CPUs of workers: ${percent(part)} in use`
    : `not the CPUs of workers (${percent(part)} in use): storage, network, or functions that wait`;
}

/** Returns {kind, text}; kind is "good", "odd" (its ranks wait) or "bad" (they wait most of the time). null:
 * the job does not run, or it is not known how long its ranks wait. */
export function heldBack(job, workers) {
  const waited = job.now?.waited;
  if (job.state !== "running" || !Number.isFinite(waited)) return null;
  if (waited < LITTLE) return { kind: "good", text: "nothing" };
  return { kind: waited < MUCH ? "odd" : "bad", text: reason(job, workers) };
}
