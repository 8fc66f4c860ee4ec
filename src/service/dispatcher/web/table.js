// A table of rows that have keys. Only changed cells are touched, so the focus and the selection stay. It
// shows a page of rows at a time, so thousands of rows are no more work than 50.

import { element, number, say } from "./page.js";

const SIZE = 50;

export class Table {
  /**
   * Appends itself to `section`. columns: [{title, numeric, show(cell, row)}], the first one names the row.
   * key(row): differs from row to row. text(row): the text that the search looks through. none: the text
   * shown when there are no rows. find: the label of the search; such a table has it even if it is short.
   */
  constructor(section, { caption, columns, key, text, none, find = null }) {
    Object.assign(this,
      { columns, key, text, none, always: find !== null, rows: [], made: new Map(), from: 0 });
    const name = section.id;
    this.find = element("input",
      { type: "search", id: `${name}-find`, autocomplete: "off", spellcheck: "false" });
    this.back = element("button", { type: "button", id: `${name}-back` }, "Previous");
    this.on = element("button", { type: "button", id: `${name}-next` }, "Next");
    this.range = element("span", { class: "range", role: "status" });
    this.pager = element("div",
      { class: "pager", role: "group", "aria-label": `${caption}: find and turn pages` },
      element("label", { for: `${name}-find` }, find ?? "Find"), this.find, this.back, this.on, this.range);
    const head = element("tr", {},
      ...columns.map((c) => element("th", { scope: "col", class: c.numeric ? "numeric" : null }, c.title)));
    this.body = element("tbody");
    this.table = element("table", {}, element("caption", { class: "unseen" }, caption),
      element("thead", {}, head), this.body);
    this.empty = element("p", { class: "note" });
    // A region that scrolls must be reachable by keyboard.
    this.scroll = element("div", { class: "scroll", role: "region", "aria-label": caption, tabindex: "0" },
      this.table);
    section.append(this.pager, this.scroll, this.empty);
    this.find.addEventListener("input", () => this.turn(0));
    this.find.addEventListener("keydown", (e) => {
      const first = e.key === "Enter" && !e.isComposing && this.body.querySelector("a");
      if (first) first.click();
    });
    this.back.addEventListener("click", () => this.turn(this.from - SIZE));
    this.on.addEventListener("click", () => this.turn(this.from + SIZE));
    this.pager.hidden = this.scroll.hidden = true;
  }

  update(rows) {
    this.rows = rows;
    this.draw();
  }

  turn(from) {
    this.from = from;
    this.draw();
  }

  draw() {
    const words = this.find.value.toLowerCase().split(/\s+/).filter((word) => word !== "");
    const found = words.length === 0 ? this.rows : this.rows.filter((row) => {
      const text = this.text(row).toLowerCase();
      return words.every((word) => text.includes(word));
    });
    this.from = Math.max(0, Math.min(this.from, Math.floor(Math.max(found.length - 1, 0) / SIZE) * SIZE));
    const shown = found.slice(this.from, this.from + SIZE);
    const long = this.rows.length > SIZE;
    this.pager.hidden = !(long || words.length > 0 || (this.always && this.rows.length > 0));
    this.back.hidden = this.on.hidden = !long;
    this.scroll.hidden = this.rows.length === 0;
    this.empty.hidden = found.length > 0;
    say(this.empty, this.rows.length === 0 ? this.none : "No row contains all of these words.");
    const first = shown.length ? this.from + 1 : 0, last = this.from + shown.length;
    say(this.range, `${number(first)}–${number(last)} of ${number(found.length)}`);
    // A button that can't be used is not disabled, but marked: a disabled button would lose the keyboard
    // focus.
    this.back.setAttribute("aria-disabled", String(this.from === 0));
    this.on.setAttribute("aria-disabled", String(this.from + SIZE >= found.length));
    this.place(shown);
  }

  place(shown) {
    const kept = new Map(), keys = new Set(shown.map(this.key));
    // Lines of rows that are gone are removed first, so that most other lines need not move: a moved line
    // loses the focus.
    for (const [key, line] of this.made) {
      if (!keys.has(key)) line.remove();
    }
    let at = this.body.firstElementChild;
    for (const row of shown) {
      const key = this.key(row);
      const line = kept.get(key) ?? this.made.get(key) ?? this.make();
      this.columns.forEach((column, i) => column.show(line.cells[i], row));
      kept.set(key, line);
      if (line === at) at = at.nextElementSibling;
      else this.body.insertBefore(line, at);
    }
    this.made = kept;
  }

  make() {
    const cells = this.columns.map((c, i) =>
      (i === 0 ? element("th", { scope: "row" }) : element("td", { class: c.numeric ? "numeric" : null })));
    return element("tr", {}, ...cells);
  }
}
