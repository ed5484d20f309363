// SPDX-License-Identifier: Apache-2.0
// One checkpoint: what it is, how far its ranks are, what is in it, what happened to it, and how to get it.
import * as api from "./api.js";
import {actions, labelForm} from "./changes.js";
import {facts, fill, h, link, path, table, tell} from "./dom.js";
import {age, bytes, count, duration, moment, number, rate} from "./format.js";
import {live} from "./live.js";
import {bar, chip, stateOf} from "./shapes.js";
import {shardMap} from "./shardmap.js";

const SHARDS_MOST = 20000, TENSORS_MOST = 200, NAMED = 8;
const MANY_SHARDS = 2000, MAP_MS = 10000; // a map of so many is not fetched anew more often while a save is under way

export async function showCheckpoint({parts: [project, run, ref], query, signal, may, go, again}) {
  const at = api.checkpoint(project, run, ref);
  const body = h("div", {}), after = h("div", {}), map = h("section", {"aria-label": "Shards"}), tensors = tensorList(at, signal);
  let version = await api.get(at, {}, signal), mapped = "", mappedAt = 0;

  async function look() {
    const isCommitted = version.state === "committed"; // what is not is read by nobody, and has no tensors
    const [now, why, events, leases] = await Promise.all([api.get(at, {}, signal), api.get(`${at}/why`, {}, signal),
      api.get(`${at}/events`, {limit: 100}, signal), isCommitted ? api.get(`${at}/leases`, {}, signal) : {items: []}]);
    version = now;
    tensors.look(version);
    fill(body, factsOf(version, project, run, may, again), progressOf(why, version));
    fill(after, restoresOf(why), leasesOf(leases.items), eventsOf(events.items));
    const key = `${version.state} ${version.shards_registered} ${version.ranks_sealed}`;
    const soon = version.state === "open" && version.shards > MANY_SHARDS && performance.now() - mappedAt < MAP_MS;
    if (key === mapped || (mapped && soon)) return;
    mapped = key;
    mappedAt = performance.now();
    // What is wrong with its record in the store is said in the map's place: all else of it is to be seen then, too.
    fill(map, await api.all(`${at}/shards`, {}, signal, SHARDS_MOST).then(shards => shardMap(shards, why, version), problem => {
      if (signal.aborted || !problem.code) throw problem;
      return [h("h2", {}, "Shards"), h("p", {class: "problem", role: "alert"}, `${problem.code}: ${problem.message}`)];
    }));
  }

  await look();
  live(`${at}/events`, look, signal);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { mapped = ""; look(); }, {signal});
  const compare = h("form", {class: "inline", onsubmit: event => {
    event.preventDefault();
    go(path(["compare", project, run, ref, event.target.elements.other.value.trim()]));
  }}, h("input", {name: "other", type: "text", required: true, placeholder: "step, latest or version", "aria-label": "Compare with"}),
  h("button", {type: "submit", class: "small"}, "Compare"));
  return [h("h1", {}, link(["run", project, run], `${project}/${run}`), ` step ${version.step}`), body, labelForm(project, run, version, may, again), map, after,
    h("section", {}, h("h2", {}, "How to get it"), commands(project, run, version)),
    h("section", {}, h("h2", {}, "Compare with another"), compare), tensors.element];
}

function factsOf(version, project, run, may, again) {
  const origin = version.meta?.origin || {};
  const took = version.committed_at ? (Date.parse(version.committed_at) - Date.parse(version.created_at)) / 1000 : null;
  return h("section", {}, facts([
    ["State", [chip(stateOf(version)), version.latest ? h("span", {class: "chip"}, "latest") : null,
      version.pinned ? h("span", {class: "chip"}, "⚑ pinned") : null]],
    ["Why", version.reason], ["Version", h("code", {}, version.version)], ["Attempt", `${version.attempt}, save ${version.n} of its step`],
    ["Bytes", bytes(version.bytes)], ["Shards", `${count(version.shards_registered)} of ${count(version.shards)}`],
    ["Ranks", `${count(version.ranks_sealed)} of ${count(version.world_size)} sealed`],
    ["Begun", `${moment(version.created_at)} (${age(version.created_at)})`],
    ["Training stood still", version.stall_ms === null ? null : duration(version.stall_ms / 1000)],
    ["Staged", version.staged_at ? `after ${duration(since(version, version.staged_at))}` : null],
    ["Durable", version.durable_at ? `after ${duration(since(version, version.durable_at))}` : null],
    ["Committed", version.committed_at ? `${moment(version.committed_at)}, after ${duration(took)}, ${rate(took ? version.bytes / took : null)}` : null],
    ["Format", version.format], ["Note", version.note], ["Aliases", version.aliases.length ? version.aliases.join(", ") : null],
    ["Labels", Object.entries(version.labels).map(([name, value]) => h("span", {class: "chip"}, `${name}=${value}`))],
    ["Metrics", Object.entries(version.metrics).map(([name, value]) => h("span", {class: "chip"}, `${name} ${number(value)}`))],
    ["Made by", [origin.user, origin.host].filter(Boolean).join("@")], ["Commit of the code", origin.git_commit],
    ["Copies", version.copies.map(copy => h("span", {class: copy.damage ? "chip late" : "chip"},
      `${copy.store}: ${copy.state}${copy.damage ? `, ${copy.damage.objects} objects damaged or missing` : ""}`))],
    ["Warnings", version.warnings.length ? version.warnings.join("; ") : null]]),
  h("div", {class: "tools"}, actions(project, run, version, may, again)));
}

function since(version, time) {
  return Math.max(0, Date.parse(time) - Date.parse(version.created_at)) / 1000;
}

function progressOf(why, version) {
  if (!why.open && !why.commit && version.state !== "open") return null;
  const open = why.open;
  return h("section", {class: "open"}, h("h2", {}, "What it waits for"),
    why.commit ? h("p", {class: "problem"}, why.commit) : null,
    open ? [bar(open.ranks_sealed, open.world_size, `${open.ranks_sealed} of ${open.world_size} ranks`),
      waitsFor(open).map(text => h("p", {}, text))] : null,
    table("Nodes of this save", [
      {name: "Node", of: node => node.node}, {name: "Waited for", of: node => node.waited_for ? "▲ yes" : "no"},
      {name: "Sent", of: node => [bar(node.done_bytes || 0, node.total_bytes || 0, `${bytes(node.done_bytes)} of ${bytes(node.total_bytes)}`),
        ` ${bytes(node.done_bytes)} of ${bytes(node.total_bytes)}`]},
      {name: "Silent", number: true, of: node => node.silent_ms === null ? "never heard" : duration(node.silent_ms / 1000)},
      {name: "Trouble", of: node => [node.trouble, node.error, ...node.errors.map(one =>
        `${one.shard}${one.part === null ? "" : ` part ${one.part}`}: ${one.error} (${one.tries} tries)`)].filter(Boolean).join("; ")}],
    why.nodes.map(node => ({...node, tone: node.waited_for && (node.error || node.trouble) ? "late" : null})), "No node works on it."));
}

// Which ranks and shards keep a save open, in words.
export function waitsFor(open) {
  const some = (what, all, names) => all ? `${what}: ${names.slice(0, NAMED).join(", ")}${all > NAMED ? ` and ${count(all - Math.min(NAMED, names.length))} more` : ""}` : null;
  return [some("Not sealed", open.missing_rank_count, open.missing_ranks.map(one => `rank ${one.rank} ${one.node ? `on ${one.node}` : "(never came)"}`)),
    some("Not in the store", open.missing_shard_count, open.missing_shards.map(one => one.shard))].filter(Boolean);
}

function restoresOf(why) {
  return why.restores.length ? h("section", {}, h("h2", {}, "How it was restored last"), table("By node", [
    {name: "Node", of: one => one.node}, {name: "From the store", number: true, of: one => bytes(one.store_bytes)},
    {name: "From other nodes", number: true, of: one => bytes(one.peer_bytes)}, {name: "From its memory", number: true, of: one => bytes(one.memory_bytes)},
    {name: "Shared by its ranks", number: true, of: one => bytes(one.shared_bytes)},
    {name: "How", of: one => one.choice}], why.restores, "")) : null;
}

function leasesOf(leases) {
  return leases.length ? h("section", {}, h("h2", {}, "Who reads it"), table("Leases", [
    {name: "Job", of: one => one.job}, {name: "Since", of: one => age(one.taken_at)},
    {name: "Ends in", number: true, of: one => duration(one.expires_s)}], leases, "")) : null;
}

function eventsOf(events) {
  return h("section", {}, h("h2", {}, "What happened"), table("Events", [
    {name: "When", of: event => moment(event.at)}, {name: "What", of: event => event.event},
    {name: "By", of: event => [event.actor, event.address].filter(Boolean).join(" from ")},
    {name: "Why", of: event => [event.reason, event.code, event.alias, event.store].filter(Boolean).join(", ")}],
  [...events].reverse(), "No event of it is kept any more."));
}

function commands(project, run, version) {
  const name = `${project}/${run}@${version.step}`, url = api.address(api.checkpoint(project, run, version.version));
  return [["Shell", `cairn get '${quoted(name)}' -d ./out`], ["curl", `curl -s '${url}'`],
    ["Python", `cairn.open(${JSON.stringify(`${project}/${run}`)}).at(${version.step})`]].map(([label, text]) =>
    h("p", {class: "command"}, h("span", {}, label), h("code", {}, text), h("button", {type: "button", class: "small", onclick: async () => {
      try { await navigator.clipboard.writeText(text); tell(`Copied: ${text}`); } catch { tell("This browser lets no page copy over plain http: select the line instead.", true); }
    }}, "Copy")));
}

const quoted = text => text.replaceAll("'", "'\\''");

function tensorList(at, signal) {
  const found = h("div", {}), search = h("input", {type: "search", placeholder: "Part of a tensor's name", "aria-label": "Search tensors"});
  let due = null, shown = "";
  async function look() {
    try {
      const page = await api.get(`${at}/tensors`, {q: search.value, limit: TENSORS_MOST}, signal);
      fill(found, table(`${page.items.length}${page.next_cursor ? " and more" : ""} tensors`, [
        {name: "Name", of: tensor => tensor.name}, {name: "Type", of: tensor => tensor.dtype},
        {name: "Shape", of: tensor => tensor.shape.join(" × ")}, {name: "Kind", of: tensor => tensor.alias_of ? `alias of ${tensor.alias_of}` : tensor.kind},
        {name: "Pieces", number: true, of: tensor => count(tensor.fragments)}, {name: "Bytes", number: true, of: tensor => bytes(tensor.bytes)}],
      page.items, "No tensor of that name."));
    } catch (problem) {
      if (!signal.aborted) fill(found, h("p", {class: "empty"}, problem.message));
    }
  }
  search.addEventListener("input", () => { clearTimeout(due); due = setTimeout(look, 200); });
  return {element: h("section", {}, h("h2", {}, "Tensors"), search, found), look(version) {
    if (version.state === shown) return; // they are for good once it is committed
    shown = version.state;
    search.disabled = shown !== "committed";
    if (search.disabled) fill(found, h("p", {class: "empty"}, "They can be seen once it is committed."));
    else look();
  }};
}
