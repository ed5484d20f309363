// SPDX-License-Identifier: Apache-2.0
// One run: its checkpoints in a line, figures below it, and the newest of them as a table to act on.
import * as api from "./api.js";
import {drawCharts, dropCharts, metricsOf} from "./charts.js";
import {facts, fill, h, link, path, table} from "./dom.js";
import {age, bytes, count, duration, median, moment} from "./format.js";
import {live} from "./live.js";
import {actions} from "./changes.js";
import {reasonsOf} from "./retention.js";
import {bar, chip, isLate, stateOf} from "./shapes.js";
import {checkpointPath, LEFT, pointsOf, timeline} from "./timeline.js";

const SHOWN = 50, USUAL_OF = 20, KEPT_MOST = 5000; // of longer runs the view of retention says why each is kept

export async function showRun({parts: [project, name], query, signal, may, go, again}) {
  const base = api.run(project, name);
  const [run, first, {policy}] = await Promise.all([api.get(base, {}, signal), api.get(`${base}/checkpoints`, {limit: 200}, signal),
    api.get(`${base}/retention`, {}, signal)]);
  const state = {versions: first.items, by: query.x === "step" ? "step" : "time", metric: query.metric || ""};
  const head = h("div", {}), figures = h("section", {class: "charts", "aria-label": "Figures over time"}), list = h("div", {});
  const line = timeline({points: [], by: state.by, left: LEFT, signal,
    pick: point => go(checkpointPath(project, name, point))});
  const metrics = h("select", {"aria-label": "Metric", onchange: event => { state.metric = event.target.value; say(); charts(); }});
  const drawn = h("p", {class: "quiet"});
  let kept = new Map(), keptAt = null, points = [], whole = !first.next_cursor, marked = false;
  signal.addEventListener("abort", () => dropCharts(figures));

  function say() {
    go(path(["run", project, name], {x: state.by === "step" ? "step" : "", metric: state.metric}), true);
  }
  function charts() { drawCharts(figures, points, {by: state.by, metric: state.metric, order: orderOf(policy, state.metric)}); }
  function draw() {
    points = pointsOf(state.versions);
    for (const point of points) if (kept.has(point.version)) point.said = [point.said, kept.get(point.version)].filter(Boolean).join("; ");
    const committed = points.filter(point => point.state === "committed" || point.state === "superseded");
    const steps = committed.slice(-USUAL_OF - 1).map((point, i, all) => i ? point.at - all[i - 1].at : null).filter(Boolean);
    line.set({points, by: state.by, median: median(steps)});
    const names = metricsOf(points);
    fill(metrics, h("option", {value: ""}, "no metric"), names.map(one => h("option", {value: one, selected: one === state.metric}, one)));
    charts();
    fill(drawn, `${count(points.length)} checkpoints are in the line${whole ? "" : ", older ones are being fetched"}.`);
    if (!marked) performance.mark("cairn-drawn"); // for who measures: the first time
    marked = true;
    fill(list, versionsTable(project, name, [...state.versions].slice(0, SHOWN), kept, may, again));
  }

  // By the policy that holds, what becomes of each with the next commit, and why.
  async function keptBy(now) {
    const rules = Object.values(policy.keep || {}).some(Boolean);
    if (!rules || now.committed > KEPT_MOST) return new Map();
    const plan = await api.change("POST", `${base}/retention/preview`, {policy}).catch(problem => {
      if (signal.aborted || !problem.status) throw problem;
      return {versions: []};
    });
    return new Map(plan.versions.filter(one => one.version && one.fate !== "skip").map(one =>
      [one.version, one.fate === "keep" ? `kept by ${reasonsOf(one)}` : reasonsOf(one)]));
  }

  async function look() {
    const [now, page, said] = await Promise.all([api.get(base, {}, signal), api.get(`${base}/checkpoints`, {limit: 200}, signal),
      api.get(`${base}/liveness`, {}, signal)]);
    const known = new Map(state.versions.map(version => [version.version, version]));
    for (const version of page.items) known.set(version.version, version);
    state.versions = [...known.values()].sort((a, b) => b.attempt - a.attempt || b.step - a.step || b.n - a.n);
    fill(head, headOf(now, said, may, project, name));
    if (now.latest?.version !== keptAt) kept = await keptBy(now);
    keptAt = now.latest?.version;
    draw();
  }

  // The older ones come page by page behind what is drawn already.
  async function fetchAll() {
    const versions = new Map(state.versions.map(version => [version.version, version]));
    let drawnOf = versions.size; // each time that there are twice as many: a look costs what it draws
    for await (const page of api.pages(`${base}/checkpoints`, {}, signal)) {
      for (const version of page) versions.set(version.version, lean(version));
      if (versions.size > 2 * drawnOf) { state.versions = [...versions.values()]; draw(); drawnOf = versions.size; }
    }
    whole = true;
    state.versions = [...versions.values()].sort((a, b) => b.attempt - a.attempt || b.step - a.step || b.n - a.n);
    draw();
  }

  fill(head, headOf(run, null, may, project, name));
  requestAnimationFrame(() => {
    draw();
    look().then(() => first.next_cursor ? fetchAll() : null).catch(problem => { if (!signal.aborted) throw problem; });
  });
  live(`${base}/events`, look, signal);
  return [h("h1", {}, `${project}/${name}`), head,
    h("div", {class: "tools"},
      h("button", {type: "button", "aria-pressed": state.by === "step", onclick: event => {
        state.by = state.by === "step" ? "time" : "step";
        event.target.setAttribute("aria-pressed", state.by === "step");
        line.set({by: state.by});
        charts();
        say();
      }}, "By step"), metrics, link(["retention", project, name], "Retention"), link(["restores"], "Restores")),
    line.element, drawn, figures, list];
}

// Which value of a metric is the best, as the run's policy has it; without a word of it the least.
function orderOf(policy, metric) {
  return policy.keep?.best?.find(one => one.metric === metric)?.order === "max" ? "max" : "min";
}

// What the line and the table need of a version: of a hundred thousand all else would be much.
function lean({version, step, n, attempt, state, superseded, trashed, latest, aliases, bytes: size, created_at, committed_at, pinned,
  metrics, reason, world_size, labels, staged_at, durable_at, stall_ms}) {
  return {version, step, n, attempt, state, superseded, trashed, latest, aliases, bytes: size, created_at, committed_at, pinned,
    metrics, reason, world_size, labels, staged_at, durable_at, stall_ms};
}

function headOf(run, said, may, project, name) {
  return [facts([
    ["Newest", run.latest ? link(["checkpoint", project, name, run.latest.version], `step ${run.latest.step}`) : "none yet"],
    ["Committed", age(run.last_commit_at)], ["Usually every", said ? duration(said.interval_s) : null],
    ["Late", isLate(said) ? h("span", {class: "chip late"}, `▲ ${duration(said.last_commit_age_s)} since the last commit`) : null],
    ["Checkpoints", count(run.committed)], ["Bytes", bytes(run.bytes)], ["Attempt", run.attempt || null], ["Note", run.note],
    ["Began from", run.from ? link(["checkpoint", run.from.project, run.from.run, run.from.version],
      `${run.from.project}/${run.from.run} step ${run.from.step}`) : null],
    ["Labels", Object.keys(run.labels).length ? Object.entries(run.labels).map(([label, value]) => h("span", {class: "chip"}, `${label}=${value}`)) : null]]),
  (said?.open || []).map(open => h("section", {class: "open"}, h("h2", {}, "Being saved: ",
    link(["checkpoint", project, name, open.version], `step ${open.step}`)),
  bar(open.ranks_sealed, open.world_size, `${open.ranks_sealed} of ${open.world_size} ranks`),
  h("p", {}, `${open.ranks_sealed} of ${open.world_size} ranks have sealed, ${open.shards_registered} of ${open.shards} shards are in the store, ${bytes(open.bytes)}, begun ${age(open.begun_at)}`)))];
}

function versionsTable(project, name, versions, kept, may, again) {
  return table(`The newest ${versions.length}`, [
    {name: "Step", number: true, of: version => link(["checkpoint", project, name, version.version], version.step)},
    {name: "State", of: version => [chip(stateOf(version), version.reason), version.latest ? h("span", {class: "chip"}, "latest") : null,
      version.pinned ? h("span", {class: "chip"}, "⚑ pinned") : null, version.aliases.map(alias => h("span", {class: "chip"}, alias))]},
    {name: "Attempt", number: true, of: version => version.attempt},
    {name: "Bytes", number: true, of: version => bytes(version.bytes)},
    {name: "Begun", of: version => moment(version.created_at)},
    {name: "Took", number: true, of: version => version.committed_at
      ? duration((Date.parse(version.committed_at) - Date.parse(version.created_at)) / 1000) : "–"},
    {name: "Stall", number: true, title: "How long the training of the slowest rank stood still",
      of: version => duration(version.stall_ms === null ? null : version.stall_ms / 1000)},
    {name: "Ranks", number: true, of: version => version.world_size},
    ...kept.size ? [{name: "With the policy", of: version => kept.get(version.version) || ""}] : [],
    {name: "", of: version => actions(project, name, version, may, again)}], versions, "No checkpoint yet.");
}
