// The keys of the page, besides those of the browser; the dialog in index.html lists them.

import { byId } from "./page.js";

/** Whether keys write text into this element. */
function takesText(node) {
  return node.matches("input[type=search], input[type=text], textarea, select");
}

/** Empties the search, or leaves it if it is empty. */
function closeSearch(field) {
  if (field.value === "") {
    field.blur();
    return;
  }
  field.value = "";
  field.dispatchEvent(new Event("input"));
}

/** close(): closes what the page shows besides the overview; it is called for Escape. keys: {key: action} of
 * further keys. */
export function listen(close, keys = {}) {
  const help = byId("keys"), search = byId("jobs-find");
  const all = {
    "/": () => {
      if (search.checkVisibility()) search.focus();
    },
    "?": () => help.showModal(),
    Escape: close,
    ...keys,
  };
  byId("keys-open").addEventListener("click", () => help.showModal());
  document.addEventListener("keydown", (e) => { // an open dialog has its own keys
    if (e.ctrlKey || e.altKey || e.metaKey || e.isComposing || help.open) return;
    if (takesText(e.target)) {
      if (e.key !== "Escape" || e.target.type !== "search") return;
      closeSearch(e.target);
    } else if (Object.hasOwn(all, e.key)) all[e.key]();
    else return;
    e.preventDefault();
  });
}
