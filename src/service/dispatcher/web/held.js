// How what holds a job back is shown.

const MUCH = 0.5; // ranks that wait for this part of the time wait most of it

/** Returns {kind, text}; kind is "good", "odd" (its ranks wait) or "bad" (they wait most of the time). null:
 * the job does not run, or it is not known how long its ranks wait. */
export function heldBack({ bottleneck }) {
  if (!bottleneck) return null;
  const { kind, waited, says } = bottleneck;
  return { kind: kind === "none" ? "good" : waited < MUCH ? "odd" : "bad", text: says };
}
