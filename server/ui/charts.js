// SPDX-License-Identifier: Apache-2.0
// Figures of a run, below its line and along the same axis, with one cursor: how long the training stood still, how a
// save went from its begin over staged and durable to committed, what share of the time that was, how fast the bytes
// went, and a metric of the checkpoints with its best one marked. Drawn by uPlot.
import {fill, h} from "./dom.js";
import {bytes, count, duration, moment, number} from "./format.js";
import {EDGE, extent, LEFT, placesOf} from "./timeline.js";

const SYNC = "cairn-run";
const POWERS = Array.from({length: 60}, (_, i) => 2 ** i); // round numbers of bytes
const percent = value => value === null || value === undefined ? "–" : `${number(value)} %`;
const speedText = value => value === null || value === undefined ? "–" : `${bytes(value)}/s`;

function series(points, by) {
  const committed = points.filter(point => point.state !== "open" && point.state !== "aborted" && point.state !== "aborting");
  const found = {x: [], stall: [], staged: [], durable: [], took: [], share: [], stalled: [], speed: [], every: []};
  if (by === "step") committed.sort((a, b) => a.step - b.step || a.at - b.at);
  const before = new Map([...committed].sort((a, b) => a.at - b.at).map((point, i, all) => [point, i ? all[i - 1] : null]));
  for (const point of committed) {
    const seconds = Math.max(0.001, point.at - point.began), last = before.get(point), since = last ? point.at - last.at : null;
    found.x.push(by === "step" ? point.step : point.at);
    found.stall.push(point.stall);
    found.staged.push(point.staged === null ? null : Math.max(0, point.staged - point.began));
    found.durable.push(point.durable === null ? null : Math.max(0, point.durable - point.began));
    found.took.push(seconds);
    found.every.push(since);
    found.share.push(since ? Math.min(100, 100 * seconds / since) : null);
    found.stalled.push(since && point.stall !== null ? Math.min(100, 100 * point.stall / since) : null);
    found.speed.push(point.bytes / seconds);
  }
  return {committed, ...found};
}

// A plot is known to the group of its cursor until it is destroyed.
const plots = new WeakMap();
export function dropCharts(element) {
  for (const plot of plots.get(element) || []) plot.destroy();
  plots.delete(element);
}

// stacked: what is below one line is the time until that; areas lie over each other, the longest behind.
function chart({title, words, x, columns, format, width, by, range, stacked, drawn}) {
  const style = getComputedStyle(document.body), of = name => style.getPropertyValue(name).trim();
  const box = h("figure", {class: "chart", tabindex: 0}, h("figcaption", {}, title)); // by keys it is scrolled, too
  const holder = h("div", {role: "img", "aria-label": words});
  box.append(holder);
  const inks = [of("--good"), of("--busy"), of("--old")], dashes = [undefined, [6, 3], [2, 3]];
  const axis = {stroke: of("--quiet"), font: "12px system-ui, sans-serif", grid: {stroke: of("--line"), width: 1}, ticks: {stroke: of("--line"), width: 1}};
  const places = placesOf(...range, width - LEFT - EDGE, by); // those of the line above
  const below = {...axis, splits: () => places.map(([at]) => at), values: () => places.map(([, text]) => text)};
  const named = by === "step" ? count : at => moment(1000 * at);
  drawn.push(new window.uPlot({
    width, height: 150, cursor: {sync: {key: SYNC}}, legend: {live: true}, padding: [8, EDGE, 0, 0],
    scales: {x: {time: by !== "step", range}, y: {range: (_, low, high) => [Math.min(0, low), high || 1]}},
    axes: [below, {...axis, size: LEFT, incrs: format === speedText ? POWERS : undefined, values: (_, values) => values.map(format)}],
    series: [{label: by === "step" ? "step" : "time", value: (_, at) => at === null || at === undefined ? "–" : named(at)}, ...columns.map(([label, , mark], i) => ({label, stroke: inks[i], width: 1.5, dash: dashes[i],
      fill: stacked ? `${inks[i]}44` : undefined, points: mark ? {show: true, size: 11, width: 2, fill: of("--card")} : {show: x.length < 200, size: 4}, value: (_, value) => format(value)}))]},
  [x, ...columns.map(([, values]) => values)], holder));
  return box;
}

// Draws them all into the element, anew. order: whether the least or the greatest of the metric is the best.
export function drawCharts(element, points, {by, metric, order}) {
  const {committed, x, stall, staged, durable, took, share, stalled, speed, every} = series(points, by), drawn = [];
  dropCharts(element);
  plots.set(element, drawn);
  if (x.length < 2) {
    fill(element, h("p", {class: "empty"}, "Figures are drawn from two checkpoints on."));
    return;
  }
  const [low, high] = extent(points, by), range = [low, Math.max(low + 1, high)];
  const common = {x, by, range, drawn, width: Math.max(280, element.clientWidth || 700)}, last = values => values[values.length - 1];
  const charts = [
    stall.some(value => value !== null) ? chart({...common, title: "How long the training stood still (of the slowest rank)",
      words: `For the last save ${duration(last(stall))}`, columns: [["stall", stall]], format: duration}) : null,
    chart({...common, title: "From the begin of a save until it was staged, durable, committed", stacked: true,
      words: `The last save was committed after ${duration(last(took))}`, format: duration,
      columns: [["committed", took], ["durable", durable], ["staged", staged]]}),
    chart({...common, title: "From commit to commit", words: `The last interval: ${duration(last(every))}`,
      columns: [["interval", every]], format: duration}),
    chart({...common, title: "Share of the time in which a save was under way, and in which the training stood still",
      words: `The last: ${number(last(share))} per cent`, columns: [["under way", share], ["stood still", stalled]], format: percent}),
    chart({...common, title: "Bytes a second, from begin to commit", words: `The last: ${bytes(last(speed))} a second`,
      columns: [["speed", speed]], format: speedText})];
  if (metric) charts.push(metricChart(common, committed, metric, order));
  fill(element, charts);
}

function metricChart(common, committed, metric, order) {
  const values = committed.map(point => point.metrics?.[metric] ?? null);
  let best = null;
  for (const value of values)
    if (value !== null && (best === null || (order === "max" ? value > best : value < best))) best = value;
  if (best === null) return h("p", {class: "empty"}, `No checkpoint has the metric ${metric}.`);
  const step = committed[values.indexOf(best)].step, word = order === "max" ? "the greatest" : "the least";
  return chart({...common, title: `${metric}: the best (${word}) is step ${step}`, words: `The best of ${metric} is ${number(best)}`,
    columns: [[metric, values], ["best", values.map(value => value === best ? value : null), true]], format: number});
}

export function metricsOf(points) {
  const names = new Set();
  for (const point of points) for (const name of Object.keys(point.metrics || {})) names.add(name);
  return [...names].sort();
}
