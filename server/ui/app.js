// SPDX-License-Identifier: Apache-2.0
// Which view is shown: what stands behind the # of the address, all of it, so that an address can be sent to others.
import * as api from "./api.js";
import {fill, h, link, tell} from "./dom.js";
import {duration} from "./format.js";
import {showCheckpoint} from "./checkpoint.js";
import {showCompare} from "./compare.js";
import {showNodes} from "./nodes.js";
import {showRestores} from "./restores.js";
import {showRetention} from "./retention.js";
import {showRun} from "./run.js";
import {showRuns} from "./runs.js";

const VIEWS = {
  "": [showRuns, "Runs"], run: [showRun, "Run"], checkpoint: [showCheckpoint, "Checkpoint"],
  compare: [showCompare, "Compare"], retention: [showRetention, "Retention"], nodes: [showNodes, "Nodes and uploads"],
  restores: [showRestores, "Restores"]};
const STALE_S = 20; // so long nothing came from the server, not even the comment of a stream of events
const main = document.getElementById("main"), bar = document.getElementById("bar"), state = document.getElementById("state");
let leave = null, me = null;

function place() {
  const [steps, query] = location.hash.replace(/^#\/?/, "").split("?");
  const [name, ...parts] = steps.split("/").map(decodeURIComponent);
  return {name: name || "", parts, query: Object.fromEntries(new URLSearchParams(query || ""))};
}

function drawBar(at) {
  const items = [["", "Runs"], ["nodes", "Nodes and uploads"], ["restores", "Restores"]];
  fill(bar, h("a", {class: "brand", href: "#/"}, "Cairn"),
    h("nav", {"aria-label": "Views"}, items.map(([name, text]) =>
      link(name ? [name] : [], text, {"aria-current": at.name === name ? "page" : undefined}))),
    me?.tokens_needed ? h("button", {type: "button", onclick: () => { api.setToken(null); me = null; show(); }},
      `Sign out ${me.actor || ""}`) : null);
}

function askToken(problem) {
  const field = h("input", {type: "password", name: "token", autocomplete: "off", required: true, id: "token"});
  fill(main, h("form", {class: "sign-in", onsubmit: event => {
    event.preventDefault();
    api.setToken(field.value.trim());
    show();
  }}, h("h1", {}, "This server asks for a token"),
  problem ? h("p", {class: "problem", role: "alert"}, problem.message) : null,
  h("label", {for: "token"}, "A token of cairn token create, or DATA_DIR/admin.token"), field,
  h("button", {class: "main", type: "submit"}, "Sign in"),
  h("p", {class: "quiet"}, "It stays in this tab until the tab is closed.")));
  field.focus();
}

function problemBox(problem) {
  return h("section", {class: "problem", role: "alert"}, h("h1", {}, problem.code ? `${problem.code}` : "No answer"),
    h("p", {}, problem.message), problem.hint ? h("p", {}, problem.hint) : null,
    problem.id ? h("p", {class: "quiet"}, `trace ${problem.id}`) : null,
    h("button", {type: "button", onclick: show}, "Try again"));
}

// Whether the caller may do that, so that no button is shown that would be refused.
function may(scope, project) {
  if (!me) return false;
  return me.scopes.includes(scope) && (me.project === "*" || !project || fits(me.project, project));
}

// As cairn_project_pattern_fits has it: * is any text, ? one character.
function fits(pattern, project) {
  return new RegExp(`^${pattern.replace(/[.+^${}()|[\]\\]/g, "\\$&").replaceAll("*", ".*").replaceAll("?", ".")}$`).test(project);
}

async function show() {
  leave?.abort();
  const own = leave = new AbortController(), at = place(), [view, title] = VIEWS[at.name] || [null, "No such page"];
  document.title = `${[title, ...at.parts].join(" · ")} – Cairn`;
  drawBar(at);
  const waits = setTimeout(() => fill(main, h("p", {class: "loading", role: "status"}, "Loading …")), 300);
  try {
    me ??= await api.get("v1/whoami", {}, own.signal);
    drawBar(at);
    if (!view) throw Object.assign(new Error(`There is no page ${location.hash}.`), {code: "not-found"});
    const content = await view({parts: at.parts, query: at.query, signal: own.signal, may, go, again: show});
    if (own.signal.aborted) return;
    clearTimeout(waits);
    fill(main, content);
  } catch (problem) {
    clearTimeout(waits);
    if (own.signal.aborted || problem.name === "AbortError") return;
    if (problem.status === 401) { me = null; askToken(sessionStorage.getItem("cairn-token") ? problem : null); return; }
    fill(main, problemBox(problem));
  }
}

// To another address; replace: the way back does not lead here.
function go(href, replace) {
  if (href === location.hash) return;
  if (replace) history.replaceState(null, "", href);
  else location.hash = href;
}

function stale() {
  const since = api.heard.since();
  fill(state, since > STALE_S ? `No data for ${duration(since)}: the server does not answer, or the network is away.` : null);
}

addEventListener("hashchange", () => { show(); main.focus(); });
addEventListener("keydown", event => {
  if (event.target.matches("input, textarea, select") || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "/") { document.querySelector("input[type=search]")?.focus(); event.preventDefault(); }
  if (event.key === "r") go("#/");
  if (event.key === "n") go("#/nodes");
});
addEventListener("unhandledrejection", event => {
  if (event.reason?.name !== "AbortError") tell(event.reason?.message || String(event.reason), true);
});
setInterval(stale, 1000);
show();
