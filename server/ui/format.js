// SPDX-License-Identifier: Apache-2.0
// Numbers and times as people read them. Every one of these has null for what is not known: "–".

const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];

export function bytes(value) {
  if (value === null || value === undefined) return "–";
  let unit = 0, left = value;
  while (left >= 1024 && unit < UNITS.length - 1) { left /= 1024; unit++; }
  return `${unit && left < 10 ? left.toFixed(1) : Math.round(left)} ${UNITS[unit]}`;
}

export function rate(bytesPerSecond) {
  return bytesPerSecond === null || bytesPerSecond === undefined ? "–" : `${bytes(bytesPerSecond)}/s`;
}

export function duration(seconds) {
  if (seconds === null || seconds === undefined || Number.isNaN(seconds)) return "–";
  if (seconds && seconds < .01) return `${+(1000 * seconds).toFixed(1)} ms`;
  if (seconds < 1) return `${Math.round(seconds * 1000)} ms`;
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  if (seconds < 120) return `${Math.round(seconds)} s`;
  if (seconds < 7200) return `${Math.round(seconds / 60)} min`;
  if (seconds < 172800) return `${Math.round(seconds / 3600)} h`;
  return `${Math.round(seconds / 86400)} d`;
}

export function seconds(time) {
  return time ? Date.parse(time) / 1000 : null;
}

export function age(time, now = Date.now() / 1000) {
  return time ? `${duration(Math.max(0, now - seconds(time)))} ago` : "never";
}

export function moment(time) {
  if (!time) return "–";
  const date = new Date(time);
  return `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())} ${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}`;
}

// Round places between two numbers, so many at most: [[place, words]].
export function ticks(low, high, most) {
  const rough = Math.max(1, (high - low) / most), unit = 10 ** Math.floor(Math.log10(rough));
  const step = unit * [1, 2, 5, 10].find(one => one * unit >= rough), found = [];
  for (let at = Math.ceil(low / step) * step; at <= high; at += step) found.push([at, count(at)]);
  return found;
}

const SPANS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400, 172800, 604800, 1209600,
  2592000, 5184000, 7776000, 15552000, 31536000];

// The same in seconds of time.
export function tickTimes(low, high, most) {
  const step = SPANS.find(one => one * most >= high - low) || 31536000 * Math.ceil((high - low) / most / 31536000);
  const away = 60 * new Date(1000 * low).getTimezoneOffset(), places = [];
  for (let at = Math.ceil((low - away) / step) * step + away; at <= high; at += step) places.push(at);
  const words = timesOf(places, step);
  return places.map((at, i) => [at, words[i]]);
}

// With the day where it is another one than that before.
function timesOf(places, step) {
  let before = "";
  return places.map(at => {
    const [day, time] = moment(1000 * at).split(" "), isNew = day !== before;
    before = day;
    if (step >= 86400) return day;
    return `${isNew ? `${day.slice(5)} ` : ""}${step < 60 ? time : time.slice(0, 5)}`;
  });
}

function two(number) {
  return String(number).padStart(2, "0");
}

export function count(value) {
  return value === null || value === undefined ? "–" : value.toLocaleString("en-US");
}

export function number(value) {
  return value === null || value === undefined ? "–" : String(+value.toPrecision(6));
}

export function median(values) {
  if (!values.length) return null;
  const sorted = [...values].sort((a, b) => a - b), middle = sorted.length >> 1;
  return sorted.length % 2 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
}
