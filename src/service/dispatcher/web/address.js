// The view that the address of the page names: a job or a worker, and a range of time. The fragment holds it,
// so that a link, a bookmark, Back, Forward and reload restore the view.

function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return null; // badly encoded: this page did not make the address
  }
}

/** Returns the view {job, worker, range} of the address: each a text, or null if the address lacks it. */
export function view() {
  const view = { job: null, worker: null, range: null };
  for (const pair of location.hash.slice(1).split("&")) {
    const [name, value] = pair.split("=", 2);
    if (name in view && value) view[name] = decoded(value);
  }
  return view;
}

/** Returns the link to the present view with these changes, as {worker: null, job: "name"}. */
export function link(changes) {
  const named = Object.entries({ ...view(), ...changes }).filter(([, value]) => value !== null);
  return `#${named.map(([name, value]) => `${name}=${encodeURIComponent(value)}`).join("&")}`;
}
