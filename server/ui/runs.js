// SPDX-License-Identifier: Apache-2.0
// All runs: which are late, what is being saved now, where the space went.
import * as api from "./api.js";
import {facts, fill, h, link, path, table} from "./dom.js";
import {age, bytes, count, duration, seconds} from "./format.js";
import {live} from "./live.js";
import {bar, isLate} from "./shapes.js";

const LOOKED_AT = 60; // runs of which intervals and open saves are asked for, those of the last activity

export async function showRuns({query, signal, go}) {
  const body = h("div", {});
  const filter = h("input", {type: "search", value: query.q || "", placeholder: "Filter: project/run or label=value", "aria-label": "Filter runs"});
  let runs = [], facts_of = new Map();

  function draw() {
    const wanted = filter.value.trim();
    const shown = runs.filter(run => fits(run, wanted)).sort((a, b) => lastOf(b) - lastOf(a));
    go(path([], {q: wanted}), true);
    fill(body, summary(runs), table(`${count(shown.length)} of ${count(runs.length)} runs, the last activity first`,
      columns(facts_of), shown.slice(0, 500).map(run => ({...run, tone: toneOf(run, facts_of)})),
      runs.length ? "No run fits the filter." : "There is no run yet: the first save, or cairn put, makes one."),
    shown.length > 500 ? h("p", {class: "quiet"}, "500 are shown: filter for others.") : null, bySpace(runs));
  }

  async function load() {
    runs = await api.all("v1/runs", {}, signal);
    const near = [...runs].sort((a, b) => lastOf(b) - lastOf(a)).slice(0, LOOKED_AT);
    draw();
    const found = await Promise.all(near.map(run => api.get(`${api.run(run.project, run.run)}/liveness`, {}, signal)
      .then(said => [key(run), said], () => [key(run), null])));
    facts_of = new Map(found);
    draw();
  }

  filter.addEventListener("input", draw);
  await load();
  live("v1/events", load, signal);
  return [h("h1", {}, "Runs"), h("div", {class: "tools"}, filter), body];
}

const key = run => `${run.project}/${run.run}`;
const lastOf = run => seconds(run.last_commit_at) || seconds(run.created_at) || 0;

function fits(run, wanted) {
  return wanted.split(/\s+/).every(word => {
    const at = word.indexOf("=");
    return at > 0 ? run.labels[word.slice(0, at)] === word.slice(at + 1) : key(run).includes(word);
  });
}


function toneOf(run, facts_of) {
  return isLate(facts_of.get(key(run))) ? "late" : null;
}

function columns(facts_of) {
  const said = run => facts_of.get(key(run));
  return [
    {name: "Run", of: run => link(["run", run.project, run.run], key(run))},
    {name: "Newest", number: true, of: run => run.latest
      ? link(["checkpoint", run.project, run.run, run.latest.version], `step ${run.latest.step}`) : "none"},
    {name: "Committed", of: run => [age(run.last_commit_at),
      isLate(said(run)) ? h("span", {class: "chip late", title: `usually every ${duration(said(run).interval_s)}`}, "▲ late") : null]},
    {name: "Every", number: true, of: run => duration(said(run)?.interval_s)},
    {name: "Saving now", of: run => (said(run)?.open || []).slice(0, 2).map(open => saving(run, open))},
    {name: "Checkpoints", number: true, of: run => count(run.committed)},
    {name: "Bytes", number: true, of: run => bytes(run.bytes)},
    {name: "Labels", of: run => Object.entries(run.labels).map(([name, value]) => h("span", {class: "chip"}, `${name}=${value}`))}];
}

function saving(run, open) {
  return h("span", {class: "saving"}, link(["checkpoint", run.project, run.run, open.version], `step ${open.step}`),
    bar(open.ranks_sealed, open.world_size, `${open.ranks_sealed} of ${open.world_size} ranks sealed`));
}

function summary(runs) {
  const total = runs.reduce((sum, run) => sum + run.bytes, 0), all = runs.reduce((sum, run) => sum + run.committed, 0);
  return facts([["Runs", count(runs.length)], ["Checkpoints", count(all)], ["Bytes of them", bytes(total)]]);
}

function bySpace(runs) {
  const sums = new Map();
  for (const run of runs) sums.set(run.project, (sums.get(run.project) || 0) + run.bytes);
  const rows = [...sums].sort((a, b) => b[1] - a[1]).slice(0, 20), most = rows.length ? rows[0][1] : 0;
  return rows.length ? h("section", {}, h("h2", {}, "Where the space is"), table("Bytes by project", [
    {name: "Project", of: row => row[0]}, {name: "Bytes", number: true, of: row => bytes(row[1])},
    {name: "", of: row => bar(row[1], most, bytes(row[1]))}], rows, "")) : null;
}
