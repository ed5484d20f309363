// SPDX-License-Identifier: Apache-2.0
// Uploaders and what they do, uploads that no save will end, what lies in the store, and operations.
import * as api from "./api.js";
import {carryOut} from "./changes.js";
import {waitsFor} from "./checkpoint.js";
import {ask, facts, fill, h, link, table} from "./dom.js";
import {age, bytes, count, duration, moment, rate, seconds} from "./format.js";
import {live} from "./live.js";
import {bar} from "./shapes.js";

const SILENT_S = 30, KEYS_S = 300;
const RUNS_MOST = 60, OPEN_MOST = 12; // runs of the last activity that are asked for open saves; of these so many are looked into

export async function showNodes({signal, may, again}) {
  const body = h("div", {});
  const optional = (path, query) => api.get(path, query, signal).catch(problem => {
    if (signal.aborted || ![403, 404].includes(problem.status)) throw problem;
    return null; // a token for some projects does not see it
  });
  async function look() {
    const [nodes, uploads, gc, operations, ready, open] = await Promise.all([optional("v1/nodes", {limit: 1000}), optional("v1/uploads", {limit: 200}),
      optional("v1/gc"), optional("v1/operations", {limit: 50}), api.get("readyz", {}, signal).catch(problem => problem.said || {}), openSaves(signal)]);
    fill(body, health(ready), openTable(open), nodes ? nodeTable(nodes.items, may, again) : h("p", {class: "empty"}, "This token does not see the nodes: it is for some projects only."),
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

// Saves under way and why each is not committed yet; one that ends meanwhile is left out.
async function openSaves(signal) {
  const none = problem => { if (signal.aborted || !problem.status) throw problem; return null; };
  const runs = (await api.all("v1/runs", {}, signal)).sort((a, b) => last(b) - last(a)).slice(0, RUNS_MOST);
  const said = await Promise.all(runs.map(run => api.get(`${api.run(run.project, run.run)}/liveness`, {}, signal).catch(none)));
  const open = said.flatMap((one, i) => (one?.open || []).map(save => ({...save, project: runs[i].project, run: runs[i].run})));
  return {count: open.length, saves: (await Promise.all(open.slice(0, OPEN_MOST).map(async save => {
    const why = await api.get(`${api.checkpoint(save.project, save.run, save.version)}/why`, {}, signal).catch(none);
    return why?.open ? {...save, why} : null;
  }))).filter(Boolean)};
}

const last = run => Math.max(seconds(run.last_commit_at) || 0, seconds(run.created_at) || 0);

function openTable({count: all, saves}) {
  return h("section", {}, h("h2", {}, "Saves under way"), table(all > saves.length ? `${saves.length} of ${count(all)}` : "Not committed yet", [
    {name: "Save", of: one => link(["checkpoint", one.project, one.run, one.version], `${one.project}/${one.run} step ${one.step}`)},
    {name: "Begun", of: one => age(one.begun_at)},
    {name: "Ranks", of: one => [bar(one.ranks_sealed, one.world_size, `${one.ranks_sealed} of ${one.world_size} ranks have sealed`),
      ` ${count(one.ranks_sealed)} of ${count(one.world_size)}`]},
    {name: "What keeps it open", of: one => [...waitsFor(one.why.open), one.why.commit,
      ...one.why.nodes.filter(node => node.waited_for && (node.error || node.trouble)).map(node => `${node.node}: ${node.error || node.trouble}`)]
      .filter(Boolean).map(text => h("div", {}, text))}], saves, "None."));
}

function slabs({slab_bytes: all, slab_held_bytes: held = 0}) {
  return all ? [bar(held, all, `${bytes(held)} of ${bytes(all)}`), ` ${bytes(held)} of ${bytes(all)}`] : "–";
}

function keys({keys_end_at: end}) {
  if (!end) return "–";
  const left = seconds(end) - Date.now() / 1000;
  return left < KEYS_S ? h("span", {class: "chip late"}, left > 0 ? `▲ end in ${duration(left)}` : "▲ have ended") : `end in ${duration(left)}`;
}

function nodeTable(nodes, may, again) {
  const silent = node => !node.heard_at || Date.now() - Date.parse(node.heard_at) > SILENT_S * 1000;
  return h("section", {}, h("h2", {}, "Nodes"), table("As they were heard last", [
    {name: "Node", of: node => node.node},
    {name: "Heard", of: node => [age(node.heard_at), silent(node) ? h("span", {class: "chip late"}, "▲ silent") : null]},
    {name: "Saves", number: true, of: node => count(node.versions)},
    {name: "Sends", number: true, of: node => rate(node.uploader?.upload_bytes_per_s)},
    {name: "Queue", number: true, title: "Shards that are not whole in the store yet", of: node => count(node.uploader?.queue_depth || 0)},
    {name: "Slabs", title: "Memory into which trainers stage, and what of it saves hold", of: node => slabs(node.uploader || {})},
    {name: "Keys", title: "Of the store, where they end", of: node => keys(node.uploader || {})},
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
        carryOut(answer => answer.done ? "uploads ended" : "uploads are being ended", () => api.change("DELETE", `v1/uploads/${encodeURIComponent(one.version)}`), again);
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
