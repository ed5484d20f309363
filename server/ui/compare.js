// SPDX-License-Identifier: Apache-2.0
// Two checkpoints of a run: which tensors and shards are in one alone, which have another shape or type, and which
// shards have other bytes, by their checksums. `cairn diff` compares the values.
import * as api from "./api.js";
import {h, link, table} from "./dom.js";
import {bytes, count, moment, number} from "./format.js";

const MOST = 20000;

export async function showCompare({parts: [project, run, one, other], signal}) {
  const at = [one, other].map(ref => api.checkpoint(project, run, ref));
  const versions = await Promise.all(at.map(path => api.get(path, {}, signal)));
  const [shards, tensors] = await Promise.all(["shards", "tensors"].map(what =>
    Promise.all(at.map(path => api.all(`${path}/${what}`, {}, signal, MOST).catch(problem => {
      if (signal.aborted) throw problem;
      return [];
    })))));
  const named = versions.map(version => link(["checkpoint", project, run, version.version], `step ${version.step}`));
  return [h("h1", {}, link(["run", project, run], `${project}/${run}`), ": ", named[0], " and ", named[1]),
    h("p", {class: "quiet"}, "Shards are compared by their checksums. Values are compared by ", h("code", {},
      `cairn diff ${project}/${run}@${versions[0].step} ${project}/${run}@${versions[1].step}`)),
    table("Facts", [{name: "", of: row => row[0]}, {name: `step ${versions[0].step}`, of: row => row[1]},
      {name: `step ${versions[1].step}`, of: row => row[2]}], factRows(versions), ""),
    differences("Tensors", tensors, tensor => `${tensor.dtype} ${tensor.shape.join(" × ")} ${tensor.kind}`),
    differences("Shards", shards, shard => `${bytes(shard.bytes)} ${shard.crc32c || "no checksum yet"}`)];
}

function factRows(versions) {
  const of = read => versions.map(read);
  const metrics = [...new Set(versions.flatMap(version => Object.keys(version.metrics)))].sort();
  return [["Bytes", ...of(version => bytes(version.bytes))], ["Ranks", ...of(version => count(version.world_size))],
    ["Attempt", ...of(version => version.attempt)], ["Committed", ...of(version => moment(version.committed_at))],
    ["Format", ...of(version => version.format || "–")],
    ["Commit of the code", ...of(version => version.meta?.origin?.git_commit || "–")],
    ...metrics.map(name => [name, ...of(version => number(version.metrics[name]))])];
}

function differences(what, [first, second], describe) {
  const theirs = new Map(second.map(item => [item.name, item])), rows = [];
  let same = 0;
  for (const item of first) {
    const there = theirs.get(item.name);
    theirs.delete(item.name);
    if (there && describe(there) === describe(item)) same++;
    else rows.push({name: item.name, first: describe(item), second: there ? describe(there) : "not there"});
  }
  for (const item of theirs.values()) rows.push({name: item.name, first: "not there", second: describe(item)});
  if (!same && !rows.length) return h("section", {}, h("h2", {}, what), h("p", {class: "empty"}, "Of neither any is described."));
  return h("section", {}, h("h2", {}, what), h("p", {}, `${count(same)} alike, ${count(rows.length)} not.`),
    rows.length ? table(`${what} that are not alike${rows.length > 500 ? ": the first 500" : ""}`, [{name: "Name", of: row => row.name},
      {name: "First", of: row => row.first}, {name: "Second", of: row => row.second}], rows.slice(0, 500), "") : null);
}
