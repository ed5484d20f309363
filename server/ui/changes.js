// SPDX-License-Identifier: Apache-2.0
// What may be changed from here: each asks once, and shows what the server answered. Buttons are there for those
// alone who may press them.
import * as api from "./api.js";
import {ask, h, tell} from "./dom.js";

// what: in words, or what makes them out of the answer.
export async function carryOut(what, call, again) {
  try {
    const answer = await call();
    if (typeof what === "function") what = what(answer);
    tell(`Done: ${what}.`);
    again?.();
  } catch (problem) {
    tell(`Not done${typeof what === "function" ? "" : `: ${what}`}. ${problem.message}${problem.hint ? ` ${problem.hint}` : ""}`, true);
  }
}

function button(text, onclick, title) {
  return h("button", {type: "button", class: "small", onclick, title}, text);
}

export function actions(project, run, version, may, again) {
  const at = api.checkpoint(project, run, version.version), name = `step ${version.step}`;
  const found = [];
  if (may("write", project) && version.state === "committed" && !version.trashed)
    found.push(button(version.pinned ? "Unpin" : "Pin", async () => {
      const what = `${version.pinned ? "take the pin off" : "pin"} ${name}`;
      if (await ask(`${version.pinned ? "Take the pin off" : "Pin"} ${name}?`,
        {detail: version.pinned ? "It may be removed by policies and people again." : "Nobody removes it while it is pinned."}) !== null)
        carryOut(what, () => api.change("PATCH", at, {pinned: !version.pinned}, {match: "*"}), again);
    }));
  if (may("retain", project) && version.state === "committed" && !version.trashed)
    found.push(button("To the trash", async () => {
      if (await ask(`Put ${name} into the trash?`, {detail: "It can be brought back until the trash's grace is over.", button: "To the trash"}) !== null)
        carryOut(`${name} to the trash`, () => api.change("DELETE", at), again);
    }));
  if (may("retain", project) && version.trashed)
    found.push(button("Bring back", async () => {
      if (await ask(`Bring ${name} back out of the trash?`) !== null)
        carryOut(`${name} brought back`, () => api.change("POST", `${at}/undelete`), again);
    }));
  if (may("write", project) && version.state === "open")
    found.push(button("Give up", async () => {
      const reason = await ask(`Give the open save of ${name} up?`, {input: "", detail: "Why, for the others. Its bytes are removed.", button: "Give up"});
      if (reason !== null) carryOut(`${name} given up`, () => api.change("POST", `${at}/abort`, {reason: reason || "by hand"}), again);
    }));
  return found;
}

export function labelForm(project, run, version, may, again) {
  if (!may("write", project)) return null;
  const name = h("input", {type: "text", placeholder: "label", "aria-label": "Label", required: true, maxlength: 128});
  const value = h("input", {type: "text", placeholder: "value", "aria-label": "Value", maxlength: 512});
  return h("form", {class: "inline", onsubmit: event => {
    event.preventDefault();
    carryOut(`label ${name.value}`, () => api.change("PATCH", api.checkpoint(project, run, version.version),
      {labels: {[name.value]: value.value}}, {match: "*"}), again);
  }}, name, value, h("button", {type: "submit", class: "small"}, "Set label"));
}
