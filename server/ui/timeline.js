// SPDX-License-Identifier: Apache-2.0
// The line of a run's checkpoints: where each lies in time or by its step, how large it is, how it ended, where one
// is missing and where the job began anew. Drawn on a canvas, a dot for each pixel and state at most, so that a
// hundred thousand are as smooth as a hundred.
import {h, path} from "./dom.js";
import {bytes, count, duration, moment, ticks, tickTimes} from "./format.js";
import {stateOf} from "./shapes.js";

const HEIGHT = 150, MIDDLE = 70, GAP = 2, APART = 24, LINES = 4, TICK = 110; // pixels; GAP in median intervals
const PREEMPTED = "cairn.preempted"; // the label of a save after the signal that announces the end of the job
const SMALLEST = 2.5, LARGEST = 9; // pixels of a dot, from its middle

function colours(element) {
  const style = getComputedStyle(element), of = name => style.getPropertyValue(name).trim();
  return {committed: of("--good"), open: of("--busy"), aborting: of("--bad"), aborted: of("--bad"), trashed: of("--faint"),
    superseded: of("--old"), deleting: of("--faint"), gone: of("--faint"), keep: of("--good"), remove: of("--bad"),
    skip: of("--busy"), ink: of("--ink"), bad: of("--bad"), quiet: of("--quiet"), gap: of("--gap"), line: of("--line")};
}

export const LEFT = 78, EDGE = 12; // pixels beside the drawing, here and in charts.js

// From which to which time (or step) the points reach.
export function extent(points, by) {
  if (!points.length) return [0, 1];
  if (by !== "step") return [points[0].at, points[points.length - 1].at];
  let low = Infinity, high = -Infinity;
  for (const point of points) { low = Math.min(low, point.step); high = Math.max(high, point.step); }
  return [low, high];
}

// Round places on so many pixels of the axis, and their words.
export function placesOf(low, high, pixels, by) {
  const most = Math.max(1, Math.floor(pixels / TICK));
  return by === "step" ? ticks(low, high, most) : tickTimes(low, high, most);
}

// points: [{at, step, bytes, state, attempt, version, said}] in the order of `at`. pick(point): it was chosen.
export function timeline({points, by, tone, pick, median, signal, left = EDGE}) {
  const canvas = h("canvas", {class: "timeline", tabindex: 0, role: "application", height: HEIGHT,
    "aria-label": "Checkpoints in time. Left and right move from one to the next, Enter opens it."});
  const words = h("p", {class: "hover", "aria-live": "polite"});
  let drawn = points, chosen = -1, mode = by, toneOf = tone, usual = median;
  const xOf = point => mode === "step" ? point.step : point.at;

  function scale() {
    const width = canvas.clientWidth || 600, [low, high] = extent(drawn, mode), span = Math.max(1, high - low);
    return {width, x: point => left + (width - left - EDGE) * (xOf(point) - low) / span};
  }

  function draw() {
    const {width, x} = scale(), ratio = devicePixelRatio || 1, colour = colours(canvas);
    canvas.width = width * ratio;
    canvas.height = HEIGHT * ratio;
    const pen = canvas.getContext("2d");
    pen.scale(ratio, ratio);
    pen.clearRect(0, 0, width, HEIGHT);
    pen.strokeStyle = colour.line;
    pen.beginPath();
    pen.moveTo(left, MIDDLE);
    pen.lineTo(width - EDGE, MIDDLE);
    pen.stroke();
    if (drawn.length) drawAxis(pen, colour, width);
    let most = 1;
    for (const point of drawn) most = Math.max(most, point.bytes);
    // Where they are many they are smaller, so that each stays one.
    const room = Math.max(SMALLEST, Math.min(LARGEST, 0.6 * (width - left - EDGE) / Math.max(1, drawn.length)));
    drawBetween(pen, colour, x, width);
    const taken = new Set();
    for (let i = 0; i < drawn.length; i++) {
      const point = drawn[i], state = toneOf ? toneOf(point) : point.state, at = x(point);
      const place = `${Math.round(at)} ${state}`;
      if (drawn.length > 2000 && taken.has(place)) continue;
      taken.add(place);
      dot(pen, at, state, Math.max(SMALLEST, room * (1 + 2 * Math.sqrt(point.bytes / most)) / 3), colour[state] || colour.quiet, i === chosen, colour.ink);
      if (point.preempted) flag(pen, at, colour.bad, colour.ink);
    }
  }

  function drawAxis(pen, colour, width) {
    const [low, high] = extent(drawn, mode), to = width - EDGE, places = placesOf(low, high, to - left, mode);
    pen.font = "11px system-ui, sans-serif";
    pen.strokeStyle = colour.line;
    for (const [value, text] of places) {
      const at = left + (to - left) * (value - low) / Math.max(1, high - low), half = pen.measureText(text).width / 2;
      pen.beginPath();
      pen.moveTo(at, HEIGHT - 27);
      pen.lineTo(at, HEIGHT - 22);
      pen.stroke();
      pen.fillStyle = colour.quiet;
      pen.fillText(text, Math.max(2, Math.min(width - 2 * half - 2, at - half)), HEIGHT - 9);
    }
  }

  function drawBetween(pen, colour, x, right) {
    let named = 0, lined = -LINES;
    for (let i = 1; i < drawn.length; i++) {
      const before = drawn[i - 1], point = drawn[i];
      if (mode !== "step" && usual && point.at - before.at > GAP * usual) {
        pen.fillStyle = colour.gap;
        pen.fillRect(x(before), MIDDLE - 26, x(point) - x(before), 52);
      }
      const at = (x(before) + x(point)) / 2;
      if (point.attempt !== before.attempt && at - lined > LINES) {
        lined = at;
        pen.strokeStyle = colour.quiet;
        pen.setLineDash([3, 3]);
        pen.beginPath();
        pen.moveTo(at, 20);
        pen.lineTo(at, HEIGHT - 30);
        pen.stroke();
        pen.setLineDash([]);
        pen.fillStyle = colour.quiet;
        pen.font = "11px system-ui, sans-serif";
        const text = `attempt ${point.attempt}${before.preempted ? " after a preemption" : ""}`, size = pen.measureText(text).width;
        const from = at + 3 + size < right ? at + 3 : at - 3 - size;
        if (from > named) {
          pen.fillText(text, from, 16);
          named = from + size + APART;
        }
      }
    }
  }

  function choose(index) {
    if (index < 0 || index >= drawn.length) return;
    chosen = index;
    draw();
    words.replaceChildren(describe(drawn[index], drawn[index - 1]));
  }

  function nearest(event) {
    const {x} = scale(), at = event.clientX - canvas.getBoundingClientRect().left;
    let best = -1, far = Infinity;
    for (let i = 0; i < drawn.length; i++) {
      const away = Math.abs(x(drawn[i]) - at);
      if (away < far) { far = away; best = i; }
    }
    return best;
  }

  canvas.addEventListener("pointermove", event => choose(nearest(event)));
  canvas.addEventListener("click", event => { const at = nearest(event); if (at >= 0) pick(drawn[at]); });
  canvas.addEventListener("keydown", event => {
    const step = {ArrowRight: 1, ArrowLeft: -1, PageDown: 10, PageUp: -10}[event.key];
    if (step) choose(Math.max(0, Math.min(drawn.length - 1, chosen < 0 ? drawn.length - 1 : chosen + step)));
    else if (event.key === "Home") choose(0);
    else if (event.key === "End") choose(drawn.length - 1);
    else if (event.key === "Enter" && chosen >= 0) pick(drawn[chosen]);
    else return;
    event.preventDefault();
  });
  new ResizeObserver(draw).observe(canvas);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw, {signal});
  return {
    element: h("div", {class: "timeline-box"}, canvas, words),
    set({points: newer, by: nextMode, tone: nextTone, median: nextMedian}) {
      if (newer) { drawn = newer; chosen = -1; }
      mode = nextMode ?? mode;
      toneOf = nextTone === undefined ? toneOf : nextTone;
      usual = nextMedian ?? usual;
      draw();
    }};
}

// A preemption: a flag on a pole over the save that it caused.
function flag(pen, x, colour, ink) {
  pen.strokeStyle = ink;
  pen.lineWidth = 1;
  pen.beginPath();
  pen.moveTo(x, MIDDLE - 12);
  pen.lineTo(x, MIDDLE - 34);
  pen.stroke();
  pen.fillStyle = colour;
  pen.beginPath();
  pen.moveTo(x, MIDDLE - 34);
  pen.lineTo(x + 11, MIDDLE - 30);
  pen.lineTo(x, MIDDLE - 25);
  pen.closePath();
  pen.fill();
}

// Each state has a form of its own beside its colour.
function dot(pen, x, state, size, colour, chosen, ink) {
  pen.fillStyle = pen.strokeStyle = colour;
  pen.lineWidth = 2;
  pen.beginPath();
  if (state === "aborted" || state === "aborting" || state === "remove") {
    pen.moveTo(x - size, MIDDLE - size); pen.lineTo(x + size, MIDDLE + size);
    pen.moveTo(x + size, MIDDLE - size); pen.lineTo(x - size, MIDDLE + size);
    pen.stroke();
  } else if (state === "superseded") {
    pen.moveTo(x, MIDDLE - size); pen.lineTo(x + size, MIDDLE); pen.lineTo(x, MIDDLE + size); pen.lineTo(x - size, MIDDLE);
    pen.closePath();
    pen.stroke();
  } else if (state === "trashed" || state === "deleting" || state === "gone") {
    pen.moveTo(x - size, MIDDLE - size); pen.lineTo(x + size, MIDDLE - size); pen.lineTo(x, MIDDLE + size);
    pen.closePath();
    pen.stroke();
  } else {
    pen.arc(x, MIDDLE, size, 0, 2 * Math.PI);
    if (state === "open" || state === "skip") pen.stroke(); else pen.fill();
  }
  if (!chosen) return;
  pen.strokeStyle = ink;
  pen.beginPath();
  pen.arc(x, MIDDLE, size + 4, 0, 2 * Math.PI);
  pen.stroke();
}

function describe(point, before) {
  return h("span", {}, `step ${point.step}, ${point.state}, attempt ${point.attempt}, ${bytes(point.bytes)}, ${moment(point.time)}`,
    before ? `, ${duration(point.at - before.at)} after the one before` : "", point.said ? ` – ${point.said}` : "");
}

export function pointsOf(versions) {
  return versions.map(version => ({
    at: Date.parse(version.committed_at || version.created_at) / 1000, time: version.committed_at || version.created_at,
    began: Date.parse(version.created_at) / 1000, step: version.step, bytes: version.bytes, state: stateOf(version),
    attempt: version.attempt, preempted: version.labels?.[PREEMPTED] || null, version: version.version, metrics: version.metrics, latest: version.latest,
    staged: secondsOf(version.staged_at), durable: secondsOf(version.durable_at), stall: version.stall_ms === null ||
      version.stall_ms === undefined ? null : version.stall_ms / 1000,
    said: [version.labels?.[PREEMPTED] ? `saved after ${version.labels[PREEMPTED]}, before the job was preempted` : null,
      version.latest ? "latest" : null, version.pinned ? "pinned" : null, ...version.aliases, version.reason]
      .filter(Boolean).join(", ")})).sort((a, b) => a.at - b.at);
}

function secondsOf(time) {
  return time ? Date.parse(time) / 1000 : null;
}

export const checkpointPath = (project, run, point) => path(["checkpoint", project, run, point.version]);
