// Makes elements, and prints numbers. All text goes through text nodes, never through HTML: names and reasons
// come from other processes and are not trusted.

const SVG = "http://www.w3.org/2000/svg";

// Characters that are invisible or change the place or direction of other characters. They are shown as
// escapes, as the command does (src/base/text.c).
const HIDDEN = new RegExp(
  String.raw`[\u0000-\u001f\u007f-\u009f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e` +
  String.raw`\u2060-\u206f\ufeff\ufff9-\ufffb\u{e0000}-\u{e007f}]`, "gu");
const LETTERS = { "\n": "\\n", "\t": "\\t", "\r": "\\r" };

function escape(c) {
  const code = c.codePointAt(0);
  return LETTERS[c] ?? (code > 0xffff ? `\\U${code.toString(16).padStart(8, "0")}`
    : `\\u${code.toString(16).padStart(4, "0")}`);
}

function shown(child) {
  return typeof child === "string" ? child.replace(HIDDEN, escape) : child;
}

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === true) node.setAttribute(name, "");
    else if (value !== false && value !== null) node.setAttribute(name, value);
  }
  node.append(...children.map(shown));
  return node;
}

/** An element with attributes (false and null: without) and children; strings become text. */
export function element(name, attributes = {}, ...children) {
  return fill(document.createElement(name), attributes, children);
}

export function shape(name, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, name), attributes, children);
}

export function byId(id) {
  return document.getElementById(id);
}

/** Sets the text of a node, if it differs: an unchanged node is not announced by screen readers, and its text
 * stays selected. */
export function say(node, text) {
  const now = shown(text);
  if (node.textContent !== now) node.textContent = now;
}

/** Sets an attribute of a node, if it differs; null removes it. */
export function set(node, name, value) {
  if (value === null) node.removeAttribute(name);
  else if (node.getAttribute(name) !== String(value)) node.setAttribute(name, value);
}

export const NONE = "–"; // shown for unknown values

/** Prints a number with about three digits; from a million on in millions ("M"). */
export function number(value) {
  if (value === null || value === undefined || !Number.isFinite(value)) return NONE;
  const size = Math.abs(value);
  if (size >= 1e6) return `${(value / 1e6).toFixed(size >= 1e7 ? 0 : 1)} M`;
  if (size >= 100 || Number.isInteger(value)) return Math.round(value).toLocaleString("en");
  return value.toFixed(size >= 10 ? 1 : 2);
}

let currency = null; // of prices and costs; null: not named

/** Sets the currency of all prices and costs; undefined: it is not named. */
export function setCurrency(name) {
  currency = name ?? null;
}

/** Prints a price or cost, with its currency. */
export function money(value) {
  const text = number(value);
  return currency === null || text === NONE ? text : `${text} ${currency}`;
}

export function percent(part) {
  return part === null || part === undefined ? NONE
    : `${(100 * part).toFixed(part > 0 && part < 0.0995 ? 1 : 0)} %`;
}

export function bytes(value) {
  if (value === null || value === undefined) return NONE;
  const units = ["B", "KB", "MB", "GB", "TB"];
  let i = 0;
  for (; value >= 1000 && i < units.length - 1; i++) value /= 1000;
  return `${number(i === 0 ? Math.round(value) : value)} ${units[i]}`;
}

export function seconds(value) {
  if (value === null || value === undefined) return NONE;
  if (value > 0 && value < 1e-3) return `${number(value * 1e6)} µs`;
  if (value > 0 && value < 1) return `${number(value * 1e3)} ms`;
  return `${number(value)} s`;
}

const ENDLESS_S = 1e10; // 300 years: a longer time is that of a job without end

/** Prints a time in seconds as 59 s, 12 min 5 s, 3 h 2 min, or 4 d 1 h. */
export function duration(value) {
  if (value > ENDLESS_S) return "no end";
  const s = Math.max(0, Math.floor(value));
  if (s < 60) return `${s} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min ${s % 60} s`;
  if (s < 86400) return `${Math.floor(s / 3600)} h ${Math.floor(s / 60) % 60} min`;
  return `${Math.floor(s / 86400)} d ${Math.floor(s / 3600) % 24} h`;
}

/** Prints the epoch of a job, and of how many; loaders run without end, for 2^63 - 1 epochs. */
export function epochOf(job) {
  const epoch = number(job.epoch + 1);
  return job.epochs < 2 ** 53 ? `${epoch} of ${number(job.epochs)}` : `${epoch}, no end`;
}

/** Prints the local time of day, after the date if that is not today. ms: since 1970. */
export function clock(ms) {
  const two = (n) => String(n).padStart(2, "0");
  const at = new Date(ms);
  const date = at.toDateString() === new Date().toDateString() ? ""
    : `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())} `;
  return `${date}${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`;
}

/** Prints a moment that was so many seconds before `at` (ms): its time, and how long ago it was. */
export function moment(at, ago) {
  return `${clock(at - 1000 * ago)}${ago >= 4 ? `, ${duration(ago)} ago` : ""}`;
}

export function plural(n, one, many = `${one}s`) {
  return `${number(n)} ${n === 1 ? one : many}`;
}

// Each state has a sign and a word besides its colour, for readers who can't tell colours apart.
const SIGNS = { ready: "●", running: "●", waiting: "◌", draining: "◐", unattended: "◌", paused: "‖",
  done: "✓", cancelled: "✕", failed: "✕", gone: "✕",
  "in use": "●", "not used": "○", "not read": "◐" };
const KINDS = { ready: "good", running: "good", "in use": "good", done: "plain", "not used": "plain",
  failed: "bad", gone: "bad" };

/** Fills a cell with a state: its sign and its name. */
export function showState(cell, state) {
  if (!cell.firstChild) cell.append(element("span", { "aria-hidden": "true", class: "sign" }),
    document.createTextNode(""));
  say(cell.firstChild, SIGNS[state] ?? "?");
  if (cell.lastChild.data !== ` ${state}`) cell.lastChild.data = ` ${state}`;
  set(cell, "class", `state ${KINDS[state] ?? "odd"}`);
}

const HELD_SIGNS = { good: "●", odd: "▲", bad: "✕" };

/** Fills a cell with what holds a job back ({kind, text} of held.js, or null). */
export function showHeld(cell, held) {
  if (!cell.firstChild) cell.append(element("span", { "aria-hidden": "true", class: "sign" }),
    document.createTextNode(""));
  say(cell.firstChild, held ? HELD_SIGNS[held.kind] : "");
  const text = held ? ` ${held.text}` : NONE;
  if (cell.lastChild.data !== text) cell.lastChild.data = text;
  set(cell, "class", held ? `state ${held.kind}` : null);
}

/** Fills a cell with a link. current: whether it names what the page shows; label: for screen readers, if the
 * text alone does not say what it is. */
export function showLink(cell, href, text, current, label = null) {
  if (!cell.firstChild) cell.append(element("a"));
  const a = cell.firstChild;
  set(a, "href", href);
  set(a, "aria-current", current ? "true" : null);
  set(a, "aria-label", label);
  set(a, "title", text); // the cell may cut a long name short
  say(a, text);
}

/** Fills a list of facts (dl) with [name, value] pairs. */
export function showFacts(box, facts) {
  facts.forEach(([name, value], i) => {
    const pair = box.children[i] ?? box.appendChild(element("div", {}, element("dt"), element("dd")));
    say(pair.firstChild, name);
    say(pair.lastChild, value);
  });
  while (box.children.length > facts.length) box.lastChild.remove();
}

/** Fills a cell with a text and a bar. part: length of the bar, 0 to 1 of the cell; null: no bar. */
export function showPart(cell, part, text) {
  if (!cell.firstChild) cell.append(element("span", { class: "bar", "aria-hidden": "true" }),
    element("span"));
  cell.firstChild.style.setProperty("--part", Math.min(Math.max(part ?? 0, 0), 1).toFixed(3));
  say(cell.lastChild, text);
}
