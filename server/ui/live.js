// SPDX-License-Identifier: Apache-2.0
// Looks again when something has happened: after an event, and once in a while for what changes without one.
import {follow} from "./api.js";

const GATHERED_MS = 500; // events of one moment are one look
const QUIET_MS = 10000;

export function live(path, load, signal) {
  let due = null, running = false, again = false, pressed = false;
  async function look() {
    due = null;
    if (running || pressed) { again = true; return; }
    running = true;
    try {
      const focused = focus();
      if (!document.hidden) await load();
      focused();
    } catch (problem) {
      if (!signal.aborted && !problem.status && problem.name !== "TypeError") throw problem; // the state line tells of silence
    } finally {
      running = false;
    }
    if (again && !signal.aborted) { again = false; soon(); }
  }
  function soon() {
    if (!due && !signal.aborted) due = setTimeout(look, GATHERED_MS);
  }
  const timer = setInterval(soon, QUIET_MS);
  // A button is not drawn anew under a finger that is on it.
  document.addEventListener("pointerdown", () => { pressed = true; }, {signal});
  for (const end of ["pointerup", "pointercancel"])
    document.addEventListener(end, () => { pressed = false; if (again) { again = false; soon(); } }, {signal});
  document.addEventListener("visibilitychange", soon, {signal});
  signal.addEventListener("abort", () => { clearInterval(timer); clearTimeout(due); });
  follow(path, soon, signal);
}

// Who works with keys finds the focus where it was: on the element of the same kind and words at the same place.
function focus() {
  const was = document.activeElement;
  if (!was || was === document.body || !document.getElementById("main").contains(was)) return () => {};
  const alike = () => [...document.querySelectorAll(`#main ${was.tagName}`)].filter(one => one.textContent === was.textContent);
  const place = alike().indexOf(was);
  return () => { if (!was.isConnected) alike()[place]?.focus({preventScroll: true}); };
}
