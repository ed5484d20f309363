// SPDX-License-Identifier: Apache-2.0
// A row for each rank and a cell for each of its shards, so that a slow node or a failing one stands out as a row. Many
// ranks of few shards stand in columns beside each other.
import {h, table} from "./dom.js";
import {bytes, count} from "./format.js";

const CELLS_MOST = 200, APART = 18, LOW_ROWS = 32, MANY_RANKS = 512, INSIDE = 26; // pixels, rows of a column at least, from there on smaller
const MARKS = {committed: "--good", registered: "--good", durable: "--good", sealed: "--busy", open: "--busy", failed: "--bad"};

// Where the rows lie in so many pixels: in how many columns, and what a row and a column take.
function layout(ranks, widest, pixels) {
  const cell = ranks > MANY_RANKS ? 8 : 12, names = 58, column = names + widest * cell + APART;
  const columns = Math.max(1, Math.min(Math.floor((pixels + APART) / column), Math.ceil(ranks / LOW_ROWS)));
  const rows = Math.ceil(ranks / columns);
  return {cell, names, column, rows, width: Math.ceil(ranks / rows) * column - APART, height: rows * cell};
}

export function shardMap(shards, why, version) {
  if (!shards.length) return h("p", {class: "empty"}, "No rank has described its shards yet.");
  const byRank = new Map();
  for (const shard of shards) {
    if (!byRank.has(shard.rank)) byRank.set(shard.rank, []);
    byRank.get(shard.rank).push(shard);
  }
  const rows = [...byRank].sort((a, b) => a[0] - b[0]), widest = Math.min(CELLS_MOST, Math.max(...rows.map(([, own]) => own.length)));
  const canvas = h("canvas", {class: "shards", role: "img", "aria-label":
    `${count(shards.length)} shards of ${count(rows.length)} ranks; the table below has the largest`});
  const words = h("p", {class: "hover", "aria-live": "polite"});
  const nodes = new Map((why.open?.missing_ranks || []).filter(one => one.node).map(one => [one.rank, one.node]));
  const troubled = new Set(why.nodes.filter(node => node.waited_for && (node.error || node.trouble)).map(node => node.node));
  const box = h("div", {class: "scroll map", tabindex: 0, role: "region", "aria-label": "Shards by rank"}, canvas);
  let at = null;

  function draw() {
    const next = layout(rows.length, widest, (box.parentElement?.clientWidth || 700) - INSIDE), ratio = devicePixelRatio || 1;
    if (at && at.width === next.width && at.ratio === ratio) return;
    at = {...next, ratio};
    const style = getComputedStyle(canvas), colours = new Map(), gap = at.cell > 8 ? 2 : 1;
    const of = name => colours.get(name) || colours.set(name, style.getPropertyValue(name).trim()).get(name);
    canvas.width = at.width * ratio;
    canvas.height = at.height * ratio;
    canvas.style.width = `${at.width}px`;
    canvas.style.height = `${at.height}px`;
    const pen = canvas.getContext("2d");
    pen.scale(ratio, ratio);
    pen.font = "10px system-ui, sans-serif";
    pen.textBaseline = "middle";
    rows.forEach(([rank, own], index) => {
      const row = index % at.rows, left = Math.floor(index / at.rows) * at.column, y = row * at.cell, ill = troubled.has(nodes.get(rank));
      if (at.cell > 8 || row % 4 === 0 || ill) {
        pen.fillStyle = of(ill ? "--bad" : "--quiet");
        pen.fillText(`${ill ? "▲ " : ""}rank ${rank}`, left, y + at.cell / 2);
      }
      own.slice(0, widest).forEach((shard, place) => {
        const x = left + at.names + place * at.cell, size = at.cell - gap;
        pen.fillStyle = pen.strokeStyle = of(ill ? "--bad" : MARKS[shard.state] || "--faint");
        if (shard.state === "committed" || shard.state === "registered") pen.fillRect(x, y, size, size);
        else pen.strokeRect(x + .5, y + .5, size - 1, size - 1);
      });
    });
  }

  function under(event) {
    const where = canvas.getBoundingClientRect(), x = event.clientX - where.left, y = event.clientY - where.top;
    const column = Math.floor(x / at.column), place = Math.floor((x - column * at.column - at.names) / at.cell);
    return rows[column * at.rows + Math.floor(y / at.cell)]?.[1][place];
  }
  canvas.addEventListener("pointermove", event => {
    const shard = under(event);
    words.textContent = shard ? `rank ${shard.rank}${nodes.has(shard.rank) ? ` on ${nodes.get(shard.rank)}` : ""}: ${shard.name}, ${bytes(shard.bytes)}, ${shard.state}${shard.crc32c ? `, CRC32C ${shard.crc32c}` : ""}` : "";
  });
  new ResizeObserver(draw).observe(box); // at once, too; it ends with its element, as nothing else holds it
  const largest = [...shards].sort((a, b) => b.bytes - a.bytes).slice(0, 5);
  return [h("h2", {}, "Shards"), h("p", {class: "quiet"}, `${count(shards.length)}${version.shards > shards.length ? ` of ${count(version.shards)}` : ""} shards of ${count(rows.length)} ranks${version.world_size > rows.length ? ` of ${count(version.world_size)}` : ""}. ■ in the store, □ not yet${troubled.size ? ", ▲ of a node with trouble" : ""}.`),
    box, words,
    table("The five largest", [{name: "Shard", of: shard => shard.name}, {name: "Rank", number: true, of: shard => shard.rank},
      {name: "Bytes", number: true, of: shard => bytes(shard.bytes)}, {name: "State", of: shard => shard.state},
      {name: "CRC32C", of: shard => shard.crc32c || "–"}, {name: "Content", of: shard => shard.content || "–"}], largest, "")];
}
