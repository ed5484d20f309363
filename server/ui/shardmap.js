// SPDX-License-Identifier: Apache-2.0
// A row for each rank and a cell for each of its shards, so that a slow node or a failing one stands out as a row.
import {h, table} from "./dom.js";
import {bytes, count} from "./format.js";

const CELL = 11, ROWS_MOST = 2048, NAMES = 90;
const MARKS = {committed: "--good", registered: "--good", durable: "--good", sealed: "--busy", open: "--busy", failed: "--bad"};

export function shardMap(shards, why, version) {
  if (!shards.length) return h("p", {class: "empty"}, "No rank has described its shards yet.");
  const ranks = new Map();
  for (const shard of shards) {
    if (!ranks.has(shard.rank)) ranks.set(shard.rank, []);
    ranks.get(shard.rank).push(shard);
  }
  const rows = [...ranks].sort((a, b) => a[0] - b[0]).slice(0, ROWS_MOST);
  const widest = Math.min(200, Math.max(...rows.map(([, own]) => own.length)));
  const canvas = h("canvas", {class: "shards", role: "img", "aria-label":
    `${count(shards.length)} shards of ${count(ranks.size)} ranks; the table below has the largest`});
  const words = h("p", {class: "hover", "aria-live": "polite"});
  const nodes = new Map((why.open?.missing_ranks || []).filter(one => one.node).map(one => [one.rank, one.node]));

  function draw() {
    const ratio = devicePixelRatio || 1, style = getComputedStyle(canvas), of = name => style.getPropertyValue(name).trim();
    const width = NAMES + widest * CELL, height = rows.length * CELL + 2;
    canvas.width = width * ratio;
    canvas.height = height * ratio;
    canvas.style.width = `${width}px`;
    canvas.style.height = `${height}px`;
    const pen = canvas.getContext("2d");
    pen.scale(ratio, ratio);
    pen.font = "9px system-ui, sans-serif";
    rows.forEach(([rank, own], row) => {
      pen.fillStyle = of("--quiet");
      if (rows.length < 400 || rank % 8 === 0) pen.fillText(`rank ${rank}`, 0, row * CELL + 9);
      own.slice(0, widest).forEach((shard, place) => {
        pen.fillStyle = of(MARKS[shard.state] || "--faint");
        const x = NAMES + place * CELL, y = row * CELL;
        if (shard.state === "committed" || shard.state === "registered") pen.fillRect(x, y, CELL - 2, CELL - 2);
        else { pen.strokeStyle = pen.fillStyle; pen.strokeRect(x + 1, y + 1, CELL - 4, CELL - 4); }
      });
    });
  }
  canvas.addEventListener("pointermove", event => {
    const box = canvas.getBoundingClientRect(), row = rows[Math.floor((event.clientY - box.top) / CELL)];
    const shard = row?.[1][Math.floor((event.clientX - box.left - NAMES) / CELL)];
    words.textContent = shard ? `rank ${shard.rank}${nodes.has(shard.rank) ? ` on ${nodes.get(shard.rank)}` : ""}: ${shard.name}, ${bytes(shard.bytes)}, ${shard.state}${shard.crc32c ? `, CRC32C ${shard.crc32c}` : ""}` : "";
  });
  requestAnimationFrame(draw);
  const largest = [...shards].sort((a, b) => b.bytes - a.bytes).slice(0, 5);
  return [h("h2", {}, "Shards"), h("p", {class: "quiet"}, `${count(shards.length)}${version.shards > shards.length ? ` of ${count(version.shards)}` : ""} shards of ${count(ranks.size)} ranks. ■ in the store, □ not yet.`),
    h("div", {class: "scroll", tabindex: 0, role: "region", "aria-label": "Shards by rank"}, canvas), words,
    table("The five largest", [{name: "Shard", of: shard => shard.name}, {name: "Rank", number: true, of: shard => shard.rank},
      {name: "Bytes", number: true, of: shard => bytes(shard.bytes)}, {name: "State", of: shard => shard.state},
      {name: "CRC32C", of: shard => shard.crc32c || "–"}, {name: "Content", of: shard => shard.content || "–"}], largest, "")];
}
