// A matrix of cosines as a heat map: a table with headers, values and coloured cells.

import { gradient, shade } from "./colours.js";
import { make } from "./dom.js";
import { decimal } from "./format.js";

const ROOMY = 12; // up to this many sentences, large cells fit on a laptop
const DOMAIN = { fixed: () => [0, 1], stretched: extremes };

export function heatMap({ sentences, matrix, order, scale, numbers }) {
  const [low, high] = DOMAIN[scale](matrix);
  const share = (value) => (value - low) / Math.max(high - low, 1e-9);
  // Many columns leave no room for the leading zero.
  const written = order.length <= ROOMY ? (value) => decimal(value, 2) : (value) => decimal(value, 2).replace(/^(−?)0/, "$1");
  const readout = make("p", { class: "readout" }, "Point at a cell, or move with the arrow keys.");
  const rows = order.map((row) => make("tr", {},
    make("th", { scope: "row", title: sentences[row] },
      make("span", { class: "place" }, String(row + 1)), make("span", { class: "text" }, sentences[row])),
    order.map((column) => cell(matrix[row][column], row === column, share, written))));
  const heads = order.map((column) =>
    make("th", { scope: "col", "aria-label": `${column + 1}: ${sentences[column]}`, title: sentences[column] }, String(column + 1)));
  const table = make("table", { class: `heat ${size(order.length)} ${numbers ? "numbers" : "bare"}` },
    make("caption", { class: "unseen" }, `Cosine similarity of ${order.length} sentences`),
    make("thead", {}, make("tr", {}, make("td", {}), heads)), make("tbody", {}, rows));
  explore(table, (row, column) => tell(readout, sentences, matrix, order[row], order[column]));
  return [make("div", { class: "scroll" }, table), make("div", { class: "below" }, legend(low, high, scale), readout)];
}

// The most and the least similar pair of different sentences.
export function pairs(matrix) {
  const all = matrix.flatMap((row, first) => row.slice(first + 1).map((value, step) => ({ value, first, second: first + 1 + step })));
  return { most: all.reduce((a, b) => b.value > a.value ? b : a), least: all.reduce((a, b) => b.value < a.value ? b : a) };
}

function extremes(matrix) {
  const { most, least } = pairs(matrix);
  return [least.value, most.value];
}

function size(count) {
  if (count <= ROOMY) return "roomy";
  return count <= 24 ? "close" : "dense";
}

function cell(value, self, share, written) {
  const text = make("span", {}, written(value));
  if (self) return make("td", { class: "self", tabindex: -1 }, text);
  const { paper, ink } = shade(share(value));
  return make("td", { tabindex: -1, style: { "background-color": paper, color: ink } }, text);
}

function legend(low, high, scale) {
  const ends = scale === "fixed" ? ["0 or less", "1"] : [decimal(low, 2), decimal(high, 2)];
  return make("p", { class: "legend" }, make("span", {}, ends[0]),
    make("span", { class: "ramp", "aria-hidden": "true", style: { background: gradient() } }), make("span", {}, ends[1]));
}

function tell(readout, sentences, matrix, row, column) {
  const value = make("b", { class: "number" }, decimal(matrix[row][column], 3));
  readout.replaceChildren(value, make("span", {}, `${row + 1}. ${sentences[row]}`),
    row === column ? make("span", {}, "with itself") : make("span", {}, `${column + 1}. ${sentences[column]}`));
}

// One cell is in the tab order at a time; the arrow keys move it.
function explore(table, visit) {
  const body = table.tBodies[0];
  const at = (row, column) => body.rows[row]?.cells[column + 1];
  const moves = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };
  let current = at(0, 0);
  current.tabIndex = 0;
  const places = (element) => [element.parentElement.sectionRowIndex, element.cellIndex - 1];
  const enter = (event) => {
    const target = event.target.closest("tbody td");
    if (!target) return;
    visit(...places(target));
    if (event.type !== "focusin") return;
    current.tabIndex = -1;
    current = target;
    current.tabIndex = 0;
  };
  table.addEventListener("pointerover", enter);
  table.addEventListener("focusin", enter);
  table.addEventListener("keydown", (event) => {
    const [row, column] = places(current);
    const [down, right] = moves[event.key] ?? [0, 0];
    const next = event.key in moves && column + right >= 0 ? at(row + down, column + right) : null;
    if (!next) return;
    event.preventDefault();
    next.focus();
  });
}
