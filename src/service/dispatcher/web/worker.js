// The page of one worker: its state.

import { NONE, byId, bytes, number, percent, say, showFacts, showState } from "./page.js";
import { found } from "./workers.js";

function facts(w) {
  const all = [
    ["Address", w.address || NONE],
    ["Pages", w.http || "none: the worker has no option --http"],
    ["Process", `${w.pid} on ${w.name || "an unknown machine"}; its log is on its stderr`],
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
  /** all: the object that service.js passes to `answered`; id: of the worker, as text. */
  update(all, id) {
    const worker = all.workers.find((w) => String(w.id) === id);
    say(byId("worker-id"), id);
    byId("worker-facts").hidden = !worker;
    say(byId("worker-problem"), !worker
      ? "The dispatcher does not know this worker. Workers are removed ten minutes after they are gone."
      : worker.unfit.map((u) => u.why).join("; "));
    byId("worker-problem").hidden = byId("worker-problem").textContent === "";
    byId("worker-state").hidden = !worker;
    if (!worker) return;
    showState(byId("worker-state"), worker.state);
    showFacts(byId("worker-facts"), facts(worker));
  }
}
