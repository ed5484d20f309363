// SPDX-License-Identifier: Apache-2.0
// Who reads what, as the leases of the runs' newest checkpoints say, and where the bytes came from.
import * as api from "./api.js";
import {fill, h, link, table} from "./dom.js";
import {age, bytes, count, duration, seconds} from "./format.js";
import {live} from "./live.js";
import {bar} from "./shapes.js";

const RUNS_MOST = 40, OF_EACH = 3;

export async function showRestores({signal}) {
  const body = h("div", {});
  async function look() {
    const runs = (await api.all("v1/runs", {}, signal)).sort((a, b) =>
      (seconds(b.last_commit_at) || 0) - (seconds(a.last_commit_at) || 0)).slice(0, RUNS_MOST);
    const found = (await Promise.all(runs.map(run => ofRun(run, signal)))).flat();
    const leases = found.flatMap(one => one.leases.map(lease => ({...one, ...lease})));
    const restores = found.flatMap(one => one.restores.map(restore => ({...one, ...restore})));
    fill(body, h("p", {class: "quiet"}, `Of the newest ${OF_EACH} checkpoints of each of the ${RUNS_MOST} runs with the last activity (here ${count(runs.length)}).`),
      h("section", {}, h("h2", {}, "Who reads now"), table("Leases", [
        {name: "Checkpoint", of: named}, {name: "Job", of: row => row.job}, {name: "Since", of: row => age(row.taken_at)},
        {name: "Ends in", number: true, of: row => duration(row.expires_s)}], leases, "Nobody holds a lease of these.")),
      h("section", {}, h("h2", {}, "How nodes restored last"), table("By node", [
        {name: "Checkpoint", of: named}, {name: "Node", of: row => row.node},
        {name: "From the store", number: true, of: row => bytes(row.store_bytes)}, {name: "From other nodes", number: true, of: row => bytes(row.peer_bytes)},
        {name: "From its memory", number: true, of: row => bytes(row.memory_bytes)}, {name: "Shared by its ranks", number: true, of: row => bytes(row.shared_bytes)},
        {name: "Not from the store", of: row => bar(elsewhere(row), elsewhere(row) + row.store_bytes,
          `${bytes(elsewhere(row))} did not come from the store`)},
        {name: "How", of: row => row.choice}], restores, "No node has restored one of these, as far as this server was told.")));
  }
  await look();
  live("v1/events", look, signal);
  return [h("h1", {}, "Restores"), body];
}

const elsewhere = row => row.peer_bytes + row.shared_bytes + (row.memory_bytes || 0);
const named = row => link(["checkpoint", row.project, row.run, row.version], `${row.project}/${row.run} step ${row.step}`);

async function ofRun(run, signal) {
  const base = api.run(run.project, run.run);
  try {
    const page = await api.get(`${base}/checkpoints`, {state: "committed", limit: OF_EACH}, signal);
    return await Promise.all(page.items.map(async ({version, step}) => {
      const at = api.checkpoint(run.project, run.run, version);
      const [leases, why] = await Promise.all([api.get(`${at}/leases`, {}, signal), api.get(`${at}/why`, {}, signal)]);
      return {project: run.project, run: run.run, version, step, leases: leases.items, restores: why.restores};
    }));
  } catch (problem) {
    if (signal.aborted) throw problem;
    return []; // it went while it was looked at
  }
}
