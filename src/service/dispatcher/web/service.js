// Requests the dispatcher's pages in intervals, and reports whether it answers.

const EVERY_MS = 2000;     // between requests: the dispatcher takes a point of each job as often
const AGAIN_MS = 1000;     // between requests while the dispatcher does not answer
const PATIENCE_MS = 10000; // for one answer
const SHARE = 10;          // requests take at most 1/SHARE of the time

export class Service {
  /**
   * more(all): {key: page} of the pages to request for the view. answered(all): {at, status, jobs, workers,
   * pools, streams} and the answers of `more` by their keys, null if there is no such page. lost(since): the
   * dispatcher has not answered since then, in ms.
   */
  constructor({ more, answered, lost }) {
    Object.assign(this, { more, answered, lost, since: null, timer: null, asking: false, again: false });
    document.addEventListener("visibilitychange", () => this.now());
  }

  /** Requests all pages at once, unless the page is hidden. */
  async now() {
    if (this.asking) {
      this.again = true;
      return;
    }
    clearTimeout(this.timer);
    if (document.hidden) return;
    this.asking = true;
    const began = performance.now();
    let wait = AGAIN_MS;
    try {
      const all = await this.all();
      wait = Math.max(EVERY_MS, SHARE * (performance.now() - began));
      this.since = null;
      this.answered(all);
    } catch (e) {
      if (!(e instanceof NoAnswer)) throw e;
      this.since ??= Date.now();
      this.lost(this.since);
    } finally {
      this.asking = false;
      this.timer = setTimeout(() => this.now(), this.again ? 0 : wait);
      this.again = false;
    }
  }

  /** Requests the pages one after the other: the dispatcher accepts few connections at a time. */
  async all() {
    const all = {};
    for (const what of ["status", "jobs", "workers", "pools", "streams"]) all[what] = await ask(what);
    for (const [key, page] of Object.entries(this.more(all))) all[key] = await ask(page, true);
    all.at = Date.now();
    return all;
  }
}

class NoAnswer extends Error {}

/** Returns the JSON of page `what`; null: there is no such page (404), if mayBeGone allows that. Throws
 * NoAnswer. */
async function ask(what, mayBeGone = false) {
  let answer;
  try {
    answer = await fetch(`api/v1/${what}`, { cache: "no-store", signal: AbortSignal.timeout(PATIENCE_MS) });
    if (answer.ok) return await answer.json();
  } catch {
    throw new NoAnswer();
  }
  await answer.text(); // so that the connection can be used again
  if (answer.status === 404 && mayBeGone) return null;
  throw new NoAnswer();
}
