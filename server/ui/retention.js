// SPDX-License-Identifier: Apache-2.0
// What a policy keeps and removes, before it is carried out: the run's line is coloured by it, with the reason of
// each, what it frees, and what would become of the saves of the next thirty days.
import * as api from "./api.js";
import {carryOut} from "./changes.js";
import {ask, facts, fill, h, link, table} from "./dom.js";
import {bytes, count, duration, moment} from "./format.js";
import {timeline} from "./timeline.js";

const AHEAD_DAYS = 30, ASSUMED_MOST = 1000;
const COUNTS = [["last", "the newest"], ["first", "the oldest"], ["every_steps", "every step that this divides"], ["hourly", "of hours"],
  ["daily", "of days"], ["weekly", "of weeks"], ["monthly", "of months"]];

export async function showRetention({parts: [project, run], signal, may, again}) {
  const base = api.run(project, run);
  const [now, said] = await Promise.all([api.get(`${base}/retention`, {}, signal), api.get(`${base}/liveness`, {}, signal)]);
  const result = h("div", {"aria-live": "polite"}), form = policyForm(now.policy), line = timeline({points: [], by: "time", signal, pick: () => {}});
  let plan = null, turn = 0;

  async function look(ahead) {
    const own = ++turn;
    try {
      const body = {policy: form.policy()};
      if (ahead) body.assume = assumed(plan, said.interval_s);
      const found = await api.change("POST", `${base}/retention/preview`, body);
      if (own !== turn || signal.aborted) return;
      if (!ahead) plan = found;
      draw(found, ahead);
    } catch (problem) {
      if (own === turn && !signal.aborted) fill(result, h("p", {class: "problem", role: "alert"}, problem.message));
    }
  }

  function draw(found, ahead) {
    const start = Date.now() / 1000;
    const points = found.versions.map((version, i) => ({
      at: version.committed_at ? Date.parse(version.committed_at) / 1000 : start + (found.versions.length - i), time: version.committed_at,
      step: version.step, bytes: version.bytes || 1, state: version.fate, attempt: version.attempt, said: reasonsOf(version),
      version: version.version})).sort((a, b) => a.at - b.at || a.step - b.step);
    line.set({points, by: ahead ? "step" : "time", tone: point => point.state});
    const may_apply = !ahead && may("retain", project) && found.remove > 0;
    fill(result, facts([["Policy", found.text], ["Keeps", `${count(found.keep)}, ${bytes(found.keep_bytes)}`],
      ["Removes", `${count(found.remove)}, ${bytes(found.remove_bytes)}`], ["In flight", found.skip || null],
      ["Can be brought back for", duration(found.trash_grace_ms / 1000)],
      ["Assumed", ahead ? `saves of the next ${AHEAD_DAYS} days` : null]]),
    h("div", {class: "tools"},
      h("button", {type: "button", onclick: () => look(!ahead), disabled: !ahead && !(said.interval_s > 0),
        title: said.interval_s ? null : "The run has no interval yet: two commits are needed"}, ahead ? "Back to what is there" : `Look ${AHEAD_DAYS} days ahead`),
      may_apply ? h("button", {type: "button", class: "main", onclick: apply}, `Remove these ${found.remove} now`) : null,
      !ahead && may("retain", project) ? h("button", {type: "button", onclick: keep}, "Make this the run's policy") : null),
    table("Each checkpoint and why", [{name: "Step", number: true, of: version => version.version
      ? link(["checkpoint", project, run, version.version], version.step) : version.step},
    {name: "Fate", of: version => h("span", {class: `chip state ${version.fate}`}, {keep: "● keep", remove: "✕ remove", skip: "◐ in flight"}[version.fate])},
    {name: "Why", of: version => reasonsOf(version)}, {name: "Bytes", number: true, of: version => bytes(version.bytes)},
    {name: "Committed", of: version => version.version ? moment(version.committed_at) : "to come"}],
    found.versions.slice(0, 300), "The run has no checkpoint."),
    found.versions.length > 300 ? h("p", {class: "quiet"}, `300 of ${count(found.versions.length)} are listed; the line has all.`) : null);
  }

  async function apply() {
    if (await ask(`Put ${plan.remove} checkpoints (${bytes(plan.remove_bytes)}) into the trash?`,
      {button: "Remove", detail: `They can be brought back for ${duration(plan.trash_grace_ms / 1000)}. What happened since this preview stops it.`}) === null) return;
    carryOut(`${plan.remove} checkpoints removed`, () => api.change("POST", `${base}/retention/apply`,
      {plan_etag: plan.plan_etag, policy: form.policy()}), () => look());
  }
  async function keep() {
    if (await ask(`Carry this policy out after each commit of ${project}/${run}?`, {detail: plan.text}) === null) return;
    carryOut("the run has this policy", () => api.change("PUT", `${base}/retention`, form.policy()), again);
  }

  form.changed(() => look());
  await look();
  return [h("h1", {}, "Retention of ", link(["run", project, run], `${project}/${run}`)),
    h("p", {class: "quiet"}, now.from ? `Now the policy of the ${now.from} holds: ${now.text}` : "No policy holds: nothing is removed."),
    form.element, line.element, result];
}

export function reasonsOf(version) {
  return version.reasons.map(reason => [reason.rule, reason.place ? `${reason.place} of ${reason.of}` : null, reason.metric,
    reason.labels].filter(Boolean).join(" ")).join("; ") || "no rule keeps it";
}

// Saves as the run makes them, of its newest size; of very many each stands for some.
function assumed(plan, interval) {
  const known = plan.versions.filter(version => version.committed_at), newest = known[0], before = known[1];
  const steps = newest && before ? Math.max(1, newest.step - before.step) : 1, span = AHEAD_DAYS * 86400;
  const times = Math.min(ASSUMED_MOST, Math.floor(span / interval)), stride = Math.max(1, Math.floor(span / interval / Math.max(1, times)));
  return Array.from({length: times}, (_, i) => ({step: (newest?.step || 0) + steps * stride * (i + 1),
    after_s: Math.round(interval * stride), bytes: newest?.bytes || 0}));
}

function field(id, name, words, controls, wide) {
  return h("p", {class: wide ? "wide" : null}, h("label", {for: id}, `${name} `, h("span", {class: "quiet"}, words)),
    h("span", {class: "controls"}, controls));
}

function policyForm(policy) {
  const keep = policy.keep || {};
  const counts = COUNTS.map(([name, words]) => [name, h("input", {type: "number", min: 1, value: keep[name] ?? "", id: `keep-${name}`}), words]);
  const within = h("input", {type: "number", min: 0, step: "any", value: keep.within_s ? keep.within_s / 3600 : "", id: "keep-within"});
  const metric = h("input", {type: "text", value: keep.best?.[0]?.metric || "", id: "keep-metric", maxlength: 128, "aria-label": "Metric"});
  const best = h("input", {type: "number", min: 1, value: keep.best?.[0]?.count ?? "", id: "keep-best"});
  const order = h("select", {"aria-label": "Which is the best"}, ["min", "max"].map(one =>
    h("option", {value: one, selected: keep.best?.[0]?.order === one}, one === "min" ? "least" : "greatest")));
  const labels = h("input", {type: "text", value: (keep.labels || []).join(" | "), id: "keep-labels"});
  const element = h("form", {class: "policy", onsubmit: event => event.preventDefault()},
    counts.map(([name, input, words]) => field(`keep-${name}`, name.replace("_", " "), words, [input])),
    field("keep-within", "within", "hours before the newest", [within]),
    field("keep-best", "best", "how many, by which metric", [best, metric, order], true),
    field("keep-labels", "labels", "as team=nlp,tier!=tmp; more of them with | between", [labels], true));
  return {element,
    changed(take) {
      let due = null;
      element.addEventListener("input", () => { clearTimeout(due); due = setTimeout(take, 300); });
    },
    policy() {
      const found = {};
      for (const [name, input] of counts) if (input.value) found[name] = Math.floor(+input.value);
      if (+within.value > 0) found.within_s = Math.round(within.value * 3600);
      const first = metric.value.trim() && +best.value > 0 ? [{count: Math.floor(+best.value), metric: metric.value.trim(), order: order.value}] : [];
      const bests = [...first, ...(keep.best || []).slice(1)];
      if (bests.length) found.best = bests;
      const chosen = labels.value.split("|").map(one => one.trim()).filter(Boolean);
      if (chosen.length) found.labels = chosen;
      if (keep.unmeasured_grace_s !== undefined) found.unmeasured_grace_s = keep.unmeasured_grace_s;
      return {...policy, keep: found};
    }};
}
