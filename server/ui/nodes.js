// SPDX-License-Identifier: Apache-2.0
// Uploaders and what they do, uploads that no save will end, what lies in the store, and operations.
import * as api from "./api.js";
import {carryOut} from "./changes.js";
import {ask, facts, fill, h, link, table} from "./dom.js";
import {age, bytes, count, moment, rate} from "./format.js";
import {live} from "./live.js";
import {bar} from "./shapes.js";

const SILENT_S = 30;

export async function showNodes({signal, may, again}) {
  const body = h("div", {});
  const optional = (path, query) => api.get(path, query, signal).catch(problem => {
    if (signal.aborted || ![403, 404].includes(problem.status)) throw problem;
    return null; // a token for some projects does not see it
  });
  async function look() {
    const [nodes, uploads, gc, operations, ready] = await Promise.all([optional("v1/nodes", {limit: 1000}), optional("v1/uploads", {limit: 200}),
      optional("v1/gc"), optional("v1/operations", {limit: 50}), api.get("readyz", {}, signal).catch(problem => problem.said || {})]);
    fill(body, health(ready), nodes ? nodeTable(nodes.items, may, again) : h("p", {class: "empty"}, "This token does not see the nodes: it is for some projects only."),
      uploads ? uploadTable(uploads.items, may, again) : null, gc ? store(gc) : null,
      operations ? operationTable(operations.items, may, again) : null);
  }
  await look();
  live("v1/events", look, signal);
  return [h("h1", {}, "Nodes and uploads"), body];
}

function health(ready) {
  const wrong = Object.entries(ready.checks || {}).filter(([, text]) => text !== "ok");
  return wrong.length ? h("section", {class: "problem", role: "alert"}, h("h2", {}, "The server is not well"),
    wrong.map(([name, text]) => h("p", {}, `${name}: ${text}`))) : h("p", {class: "fine"}, "● The server, its catalog and its store answer.");
}

function nodeTable(nodes, may, again) {
  const silent = node => !node.heard_at || Date.now() - Date.parse(node.heard_at) > SILENT_S * 1000;
  return h("section", {}, h("h2", {}, "Nodes"), table(`${count(nodes.length)} nodes`, [
    {name: "Node", of: node => node.node},
    {name: "Heard", of: node => [age(node.heard_at), silent(node) ? h("span", {class: "chip late"}, "▲ silent") : null]},
    {name: "Saves", number: true, of: node => count(node.versions)},
    {name: "Sends", number: true, of: node => rate(node.uploader?.upload_bytes_per_s)},
    {name: "In memory", number: true, title: "Bytes that restores on this node need not fetch", of: node => bytes(node.uploader?.kept_bytes)},
    {name: "Version", of: node => [node.uploader?.version || "–", node.uploader?.draining ? h("span", {class: "chip"}, "◐ draining") : null]},
    {name: "Trouble", of: node => [node.trouble, node.uploader?.store_waits, node.uploader?.journal].filter(Boolean).join("; ")},
    {name: "", of: node => may("admin") && silent(node) && !node.versions ? h("button", {type: "button", class: "small", onclick: async () => {
      if (await ask(`Forget the node ${node.node}?`, {detail: "It comes back by itself when it is heard again."}) !== null)
        carryOut(`${node.node} forgotten`, () => api.change("DELETE", `v1/nodes/${encodeURIComponent(node.node)}`), again);
    }}, "Forget") : null}],
  nodes.map(node => ({...node, tone: node.trouble || silent(node) ? "late" : null})), "No uploader has been heard yet."));
}

function uploadTable(uploads, may, again) {
  const versions = new Map();
  for (const upload of uploads) {
    const known = versions.get(upload.version) || {...upload, keys: 0, bytes: 0};
    versions.set(upload.version, {...known, keys: known.keys + 1, bytes: known.bytes + upload.bytes});
  }
  return h("section", {}, h("h2", {}, "Uploads that no save will end"), table("By checkpoint", [
    {name: "Run", of: one => link(["run", one.project, one.run], `${one.project}/${one.run}`)}, {name: "Version", of: one => one.version},
    {name: "State", of: one => one.state}, {name: "Uploads", number: true, of: one => count(one.keys)},
    {name: "Bytes", number: true, of: one => bytes(one.bytes)}, {name: "Begun", of: one => age(one.begun_at)},
    {name: "", of: one => may("admin") ? h("button", {type: "button", class: "small", onclick: async () => {
      if (await ask(`End the ${one.keys} uploads of ${one.version}?`, {detail: "Their parts are freed. No save needs them.", button: "End them"}) !== null)
        carryOut("uploads ended", () => api.change("DELETE", `v1/uploads/${encodeURIComponent(one.version)}`), again);
    }}, "End") : null}], [...versions.values()], "None: no part of an upload is left behind."));
}

function store(gc) {
  return h("section", {}, h("h2", {}, "The store"), facts([["Objects", count(gc.objects)], ["Bytes", bytes(gc.bytes)],
    ["Looked at", gc.looked_at ? moment(gc.looked_at) : "not yet"], ["In the trash", `${count(gc.trash)}, ${bytes(gc.trash_bytes)}`],
    ["Being deleted", count(gc.ended)], ["Unknown to the catalog", `${count(gc.orphans)}, ${bytes(gc.orphan_bytes)}`],
    ["Kept by the store all the same", gc.not_freed ? `${count(gc.not_freed)}, ${bytes(gc.not_freed_bytes)}` : null], ["Trouble", gc.trouble]]));
}

function operationTable(operations, may, again) {
  return h("section", {}, h("h2", {}, "Operations"), table("The newest", [
    {name: "Kind", of: one => one.kind}, {name: "Run", of: one => link(["run", one.project, one.run], `${one.project}/${one.run}`)},
    {name: "State", of: one => one.state},
    {name: "Progress", of: one => [bar(one.progress.done, one.progress.total, `${one.progress.done} of ${one.progress.total} ${one.progress.unit}`),
      ` ${one.progress.unit === "bytes" ? `${bytes(one.progress.done)} of ${bytes(one.progress.total)}` : `${one.progress.done} of ${one.progress.total}`}`]},
    {name: "Asked for", of: one => `${age(one.created_at)}${one.actor ? ` by ${one.actor}` : ""}`},
    {name: "Problem", of: one => one.problem?.detail || ""},
    {name: "", of: one => !one.ended_at && may("write", one.project) ? h("button", {type: "button", class: "small", onclick: async () => {
      if (await ask(`End this ${one.kind}?`) !== null)
        carryOut(`${one.kind} is to end`, () => api.change("DELETE", `v1/operations/${encodeURIComponent(one.id)}`), again);
    }}, "End") : null}], operations, "No operation yet."));
}
