// The range of time of curves: a span up to now, or a part of the past. The address has its text: 1h, or
// FROM-TO in seconds since 1970.

import { link } from "./address.js";

export const SPANS = [
  { text: null, title: "15 minutes", span: 900 }, // the one of an address without a range
  { text: "1h", title: "hour", span: 3600 },
  { text: "1d", title: "day", span: 86400 },
  { text: "7d", title: "7 days", span: 7 * 86400 },
];
const LEAST_S = 10; // a shorter range has too few points

/** Returns the range that a text of the address names: {text, span} or {text, from, to}. */
export function rangeOf(text) {
  const [, from, to] = /^(\d{1,12}(?:\.\d)?)-(\d{1,12}(?:\.\d)?)$/.exec(text ?? "") ?? [];
  if (from !== undefined && to - from >= LEAST_S) return { text, from: Number(from), to: Number(to) };
  return SPANS.find((s) => s.text === text) ?? SPANS[0];
}

/** Returns the query for a page of history. uptime: of the dispatcher, in seconds; at: the time, in ms. */
export function queryOf(range, uptime, at) {
  if (range.span) return `?from=${(uptime - range.span).toFixed(1)}`;
  const began = at / 1000 - uptime;
  return `?from=${(range.from - began).toFixed(1)}&to=${(range.to - began).toFixed(1)}`;
}

/** Goes to the range from..to, in seconds since 1970. Back, a double click and Escape return. */
export function zoomIn(from, to) {
  const middle = (from + to) / 2, half = Math.max(to - from, LEAST_S) / 2 + 0.1;
  location.hash = link({ range: `${Math.max(middle - half, 0).toFixed(1)}-${(middle + half).toFixed(1)}` });
  history.replaceState({ zoomed: true }, "");
}

/** Returns to the range before zoomIn, or to the first one if the address was opened with a range. */
export function zoomOut() {
  if (history.state?.zoomed) history.back();
  else location.hash = link({ range: null });
}
