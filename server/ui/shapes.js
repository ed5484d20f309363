// SPDX-License-Identifier: Apache-2.0
// Small drawings. A state is always a shape and a word as well as a colour.
import {h} from "./dom.js";

export const STATES = {
  committed: {mark: "●", word: "committed"}, open: {mark: "◐", word: "open"}, aborting: {mark: "✕", word: "aborting"},
  aborted: {mark: "✕", word: "aborted"}, deleting: {mark: "▽", word: "deleting"}, gone: {mark: "▽", word: "gone"},
  trashed: {mark: "▽", word: "in the trash"}, superseded: {mark: "◇", word: "superseded"}};

const LATE = 2, LATE_FROM_S = 30; // times the run's own median interval; a moment is never late

export function isLate(said) {
  return Boolean(said?.interval_s) && said.last_commit_age_s > Math.max(LATE_FROM_S, LATE * said.interval_s);
}

export function stateOf(version) {
  if (version.trashed) return "trashed";
  if (version.superseded && version.state === "committed") return "superseded";
  return version.state;
}

export function chip(state, title) {
  const known = STATES[state] || {mark: "○", word: state};
  return h("span", {class: `chip state ${state}`, title}, `${known.mark} ${known.word}`);
}

export function bar(done, total, words) {
  const share = total > 0 ? Math.min(1, done / total) : 0;
  return h("svg", {class: "bar", viewBox: "0 0 100 8", role: "img", "aria-label": words, preserveAspectRatio: "none"},
    h("rect", {class: "back", width: 100, height: 8}), h("rect", {class: "front", width: (100 * share).toFixed(1), height: 8}));
}

// A small line of numbers, from the first to the last.
export function trend(values, words) {
  const most = Math.max(...values), least = Math.min(...values, 0), span = Math.max(1, most - least);
  const points = values.map((value, i) => `${(100 * i / Math.max(1, values.length - 1)).toFixed(1)},${(19 - 18 * (value - least) / span).toFixed(1)}`);
  return h("svg", {class: "trend", viewBox: "0 0 100 20", role: "img", "aria-label": words, preserveAspectRatio: "none"},
    h("polyline", {points: points.join(" "), fill: "none"}));
}
