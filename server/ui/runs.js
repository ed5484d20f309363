// SPDX-License-Identifier: Apache-2.0
// All runs: which are late, what is being saved now, where the space went.
import * as api from "./api.js";
import {facts, fill, h, link, path, table} from "./dom.js";
import {age, bytes, count, duration, seconds} from "./format.js";
import {live} from "./live.js";
import {bar, isLate, trend} from "./shapes.js";

const FAILURES_MOST = 1000, DAY_S = 86400;
const LOOKED_AT = 60; // runs of which intervals and open saves are asked for, those of the last activity

export async function showRuns({query, signal, go, may}) {
  const body = h("div", {});
  const filter = h("input", {type: "search", value: query.q || "", placeholder: "Filter: project/run or label=value", "aria-label": "Filter runs"});
  let runs = [], facts_of = new Map(), space = {projects: [], gc: null}, failed = new Map();

  function draw() {
    const wanted = filter.value.trim();
    const shown = runs.filter(run => fits(run, wanted)).sort((a, b) => lastOf(b) - lastOf(a));
    go(path([], {q: wanted}), true);
    fill(body, summary(runs, space, failed), table(`${count(shown.length)} of ${count(runs.length)} runs, the last activity first`,
      columns(facts_of, failed), shown.slice(0, 500).map(run => ({...run, tone: toneOf(run, facts_of)})),
      runs.length ? "No run fits the filter." : "There is no run yet: the first save, or cairn put, makes one."),
    shown.length > 500 ? h("p", {class: "quiet"}, "500 are shown: filter for others.") : null, ...bySpace(runs, space));
  }

  async function load() {
    runs = await api.all("v1/runs", {}, signal);
    const near = [...runs].sort((a, b) => lastOf(b) - lastOf(a)).slice(0, LOOKED_AT);
    draw();
    const found = await Promise.all(near.map(run => api.get(`${api.run(run.project, run.run)}/liveness`, {}, signal)
      .then(said => [key(run), said], () => [key(run), null])));
    facts_of = new Map(found);
    [space, failed] = await Promise.all([spaceOf(may, signal), failuresOf(signal)]);
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


// What projects take up and took up on the days before, and what else lies in the store for who may see all of it.
async function spaceOf(may, signal) {
  const [projects, gc] = await Promise.all([api.all("v1/quotas", {}, signal),
    may("read") ? api.get("v1/gc", {}, signal).catch(problem => { if (signal.aborted || !problem.code) throw problem; return null; }) : null]);
  return {projects, gc};
}

// How many saves of a run were given up in the last day, among the newest ones of all runs.
async function failuresOf(signal) {
  const page = await api.get("v1/events", {kind: "checkpoint.aborted", limit: FAILURES_MOST}, signal);
  const since = Date.now() / 1000 - DAY_S, sums = new Map();
  for (const event of page.items) if (seconds(event.at) >= since) sums.set(key(event), (sums.get(key(event)) || 0) + 1);
  return sums;
}

function toneOf(run, facts_of) {
  return isLate(facts_of.get(key(run))) ? "late" : null;
}

function columns(facts_of, failed) {
  const said = run => facts_of.get(key(run));
  return [
    {name: "Run", of: run => link(["run", run.project, run.run], key(run))},
    {name: "Newest", number: true, of: run => run.latest
      ? link(["checkpoint", run.project, run.run, run.latest.version], `step ${run.latest.step}`) : "none"},
    {name: "Committed", of: run => [age(run.last_commit_at),
      isLate(said(run)) ? h("span", {class: "chip late", title: `usually every ${duration(said(run).interval_s)}`}, "▲ late") : null]},
    {name: "Every", number: true, of: run => duration(said(run)?.interval_s)},
    {name: "Saving now", of: run => (said(run)?.open || []).slice(0, 2).map(open => saving(run, open))},
    {name: "Failed", number: true, title: "Saves that were given up in the last day", of: run => failed.get(key(run))
      ? h("span", {class: "chip late"}, `✕ ${count(failed.get(key(run)))}`) : "0"},
    {name: "Checkpoints", number: true, of: run => count(run.committed)},
    {name: "Bytes", number: true, of: run => bytes(run.bytes)},
    {name: "Labels", of: run => Object.entries(run.labels).map(([name, value]) => h("span", {class: "chip"}, `${name}=${value}`))}];
}

function saving(run, open) {
  return h("span", {class: "saving"}, link(["checkpoint", run.project, run.run, open.version], `step ${open.step}`),
    bar(open.ranks_sealed, open.world_size, `${open.ranks_sealed} of ${open.world_size} ranks sealed`));
}

function summary(runs, {projects}, failed) {
  const total = runs.reduce((sum, run) => sum + run.bytes, 0), all = runs.reduce((sum, run) => sum + run.committed, 0);
  const days = daysOf(projects);
  return facts([["Runs", count(runs.length)], ["Checkpoints", count(all)], ["Bytes of them", bytes(total)],
    ["Failed saves of a day", count([...failed.values()].reduce((sum, one) => sum + one, 0))],
    ["Bytes by day", days.length > 1 ? [trend(days.map(day => day.bytes), grown(days)), ` ${grown(days)}`] : null]]);
}

// Of all projects together: [{at, bytes}], the oldest first.
function daysOf(projects) {
  const sums = new Map();
  for (const project of projects) for (const day of project.days) sums.set(day.at, (sums.get(day.at) || 0) + day.bytes);
  return [...sums].sort().map(([at, size]) => ({at, bytes: size}));
}

function grown(days) {
  if (days.length < 2) return "";
  const more = days[days.length - 1].bytes - days[0].bytes, span = Math.round((seconds(days[days.length - 1].at) - seconds(days[0].at)) / DAY_S);
  return `${more < 0 ? "−" : "+"}${bytes(Math.abs(more))} in ${span} ${span === 1 ? "day" : "days"}`;
}

const MOST_ROWS = 20;

function bySpace(runs, {projects, gc}) {
  const all = runs.reduce((sum, run) => sum + run.bytes, 0); // the trash is among them
  const states = [["committed", gc ? Math.max(0, all - gc.trash_bytes) : all], ...gc ? [["in the trash", gc.trash_bytes],
    ["unknown to the catalog", gc.orphan_bytes], ["kept by the store after a delete", gc.not_freed_bytes]] : []];
  const labels = new Map();
  for (const run of runs) for (const [name, value] of Object.entries(run.labels))
    labels.set(`${name}=${value}`, (labels.get(`${name}=${value}`) || 0) + run.bytes);
  const byProject = projects.filter(one => one.used_bytes || one.limit_bytes).sort((a, b) => b.used_bytes - a.used_bytes);
  if (!runs.length) return [];
  return [h("h2", {}, "Where the space is"), h("div", {class: "space"},
    spaceTable("Bytes by project, all that is not gone", "Project", byProject.map(one => [one.project, one.used_bytes, one]), [
      {name: "Of its quota", of: ([, , one]) => one.limit_bytes ? [bar(one.used_bytes, one.limit_bytes,
        `${bytes(one.used_bytes)} of ${bytes(one.limit_bytes)}`), ` of ${bytes(one.limit_bytes)}`] : "no bound"},
      {name: "By day", of: ([, , one]) => one.days.length > 1 ? [trend(one.days.map(day => day.bytes), grown(one.days)),
        ` ${grown(one.days)}`] : "–"}]),
    spaceTable("Bytes by state", "State", states.sort((a, b) => b[1] - a[1])),
    labels.size ? spaceTable("Bytes by label of the run", "Label", [...labels].sort((a, b) => b[1] - a[1])) : null)];
}

function spaceTable(caption, name, rows, more = []) {
  const most = rows.reduce((found, row) => Math.max(found, row[1]), 0);
  return table(rows.length > MOST_ROWS ? `${caption}: the first ${MOST_ROWS} of ${count(rows.length)}` : caption, [
    {name, of: row => row[0]}, {name: "Bytes", number: true, of: row => bytes(row[1])},
    {name: "Share", of: row => bar(row[1], most, bytes(row[1]))}, ...more], rows.slice(0, MOST_ROWS), `${caption}: nothing.`);
}
