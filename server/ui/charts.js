// SPDX-License-Identifier: Apache-2.0
// Figures of a run over time, one below the other with one cursor: how long a save took, what share of the time that
// was, how fast the bytes went, and a metric of the checkpoints with its best one marked. Drawn by uPlot.
import {fill, h} from "./dom.js";
import {bytes, duration, number} from "./format.js";

const SYNC = "cairn-run";

function series(points) {
  const committed = points.filter(point => point.state !== "open" && point.state !== "aborted" && point.state !== "aborting");
  const x = [], took = [], share = [], speed = [], every = [];
  committed.forEach((point, i) => {
    const seconds = Math.max(0.001, point.at - point.began), since = i ? point.at - committed[i - 1].at : null;
    x.push(point.at);
    took.push(seconds);
    every.push(since);
    share.push(since ? Math.min(100, 100 * seconds / since) : null);
    speed.push(point.bytes / seconds);
  });
  return {committed, x, took, share, speed, every};
}

function chart(title, words, x, columns, format, width) {
  const style = getComputedStyle(document.body), of = name => style.getPropertyValue(name).trim();
  const box = h("figure", {class: "chart"}, h("figcaption", {}, title));
  const holder = h("div", {role: "img", "aria-label": words});
  box.append(holder);
  const inks = [of("--good"), of("--busy"), of("--old")];
  const axis = {stroke: of("--quiet"), grid: {stroke: of("--line")}, ticks: {stroke: of("--line")}};
  new window.uPlot({
    width, height: 150, cursor: {sync: {key: SYNC}}, legend: {live: true},
    scales: {x: {time: true}, y: {range: (_, low, high) => [Math.min(0, low), high || 1]}},
    axes: [axis, {...axis, size: 78, values: (_, values) => values.map(format)}],
    series: [{}, ...columns.map(([label], i) => ({label, stroke: inks[i], width: 1.5, points: {show: x.length < 200, size: 4},
      value: (_, value) => format(value)}))]}, [x, ...columns.map(([, values]) => values)], holder);
  return box;
}

// Draws them all into the element, anew.
export function drawCharts(element, points, metric) {
  const {committed, x, took, share, speed, every} = series(points);
  if (x.length < 2) {
    fill(element, h("p", {class: "empty"}, "Figures are drawn from two checkpoints on."));
    return;
  }
  const width = Math.max(280, element.clientWidth || 700), last = values => values[values.length - 1];
  const charts = [
    chart("From begin to commit, and from commit to commit",
      `The last save took ${duration(last(took))}`, x, [["save", took], ["interval", every]], duration, width),
    chart("Share of the time in which a save was under way", `The last: ${number(last(share))} per cent`, x,
      [["share", share]], value => value === null ? "–" : `${number(value)} %`, width),
    chart("Bytes a second, from begin to commit", `The last: ${bytes(last(speed))} a second`, x, [["speed", speed]],
      value => value === null ? "–" : `${bytes(value)}/s`, width)];
  if (metric) charts.push(metricChart(committed, metric, width));
  fill(element, charts);
}

function metricChart(committed, metric, width) {
  const values = committed.map(point => point.metrics?.[metric] ?? null);
  const known = values.filter(value => value !== null);
  if (!known.length) return h("p", {class: "empty"}, `No checkpoint has the metric ${metric}.`);
  const least = Math.min(...known), best = values.map(value => value === least ? value : null);
  return chart(`${metric}: the least is step ${committed[values.indexOf(least)].step}`, `The least of ${metric} is ${number(least)}`,
    committed.map(point => point.at), [[metric, values], ["least", best]], number, width);
}

export function metricsOf(points) {
  const names = new Set();
  for (const point of points) for (const name of Object.keys(point.metrics || {})) names.add(name);
  return [...names].sort();
}
