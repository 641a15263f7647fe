// Two SVG charts, drawn at the given width, so that their text keeps its size.

import { draw } from "./dom.js";

const HEIGHT = 260;
const EDGE = { left: 58, right: 14, top: 12, bottom: 44 };

export function histogram({ edges, counts }, { width, label, across, up }) {
  const total = counts.reduce((sum, count) => sum + count, 0) || 1;
  const shares = counts.map((count) => count / total);
  const used = counts.flatMap((count, place) => count ? [place] : []);
  const range = used.length ? [edges[used[0]], edges[used.at(-1) + 1]] : [edges[0], edges.at(-1)];
  const plane = axes({ width, x: range, y: [0, 1.06 * Math.max(...shares)], across, up });
  const bars = used.map((place) => {
    const [left, right] = [plane.x(edges[place]), plane.x(edges[place + 1])];
    const top = plane.y(shares[place]);
    const tip = `${edges[place].toFixed(2)} to ${edges[place + 1].toFixed(2)}: ${(100 * shares[place]).toFixed(1)} %`;
    return draw("rect", { x: left, y: top, width: Math.max(1, right - left - 1), height: plane.y(0) - top, class: "column" },
      draw("title", {}, tip));
  });
  return picture(width, label, [...plane.parts, ...bars]);
}

// Values against their index, on a logarithmic scale.
export function spectrum(values, { width, label, across, up }) {
  const floor = 0.7 * values[Math.floor(0.97 * (values.length - 1))]; // the last few may be very small
  const plane = axes({ width, x: [1, Math.max(2, values.length)], y: [floor, 1.2], across, up, logarithmic: true });
  const points = values.map((value, place) => `${plane.x(place + 1).toFixed(1)},${plane.y(Math.max(value, floor)).toFixed(1)}`);
  return picture(width, label, [...plane.parts, draw("polyline", { points: points.join(" "), class: "curve" })]);
}

function picture(width, label, parts) {
  const box = `0 0 ${width} ${HEIGHT}`;
  return draw("svg", { viewBox: box, width, height: HEIGHT, role: "img", "aria-label": label, class: "chart" }, parts);
}

function axes({ width, x, y, across, up, logarithmic = false }) {
  const [right, bottom] = [width - EDGE.right, HEIGHT - EDGE.bottom];
  const toX = between(x, [EDGE.left, right], (value) => value);
  const toY = between(y, [bottom, EDGE.top], logarithmic ? Math.log : (value) => value);
  const parts = [];
  for (const value of logarithmic ? decades(...y) : ticks(...y, 5)) {
    parts.push(draw("line", { x1: EDGE.left, x2: right, y1: toY(value), y2: toY(value), class: "grid" }));
    parts.push(draw("text", { x: EDGE.left - 8, y: toY(value) + 4, "text-anchor": "end" }, short(value)));
  }
  for (const value of ticks(...x, width < 420 ? 5 : 7)) {
    parts.push(draw("text", { x: toX(value), y: bottom + 18, "text-anchor": "middle" }, short(value)));
  }
  parts.push(draw("line", { x1: EDGE.left, x2: right, y1: bottom, y2: bottom, class: "axis" }));
  parts.push(draw("text", { x: (EDGE.left + right) / 2, y: HEIGHT - 6, "text-anchor": "middle" }, across));
  const middle = (EDGE.top + bottom) / 2;
  parts.push(draw("text", { x: 14, y: middle, "text-anchor": "middle", transform: `rotate(-90 14 ${middle})` }, up));
  return { x: toX, y: toY, parts };
}

function between([low, high], [from, to], bend) {
  const span = bend(high) - bend(low) || 1;
  return (value) => from + (bend(value) - bend(low)) / span * (to - from);
}

// At most N round numbers between two values.
function ticks(low, high, most) {
  const rough = (high - low) / most || 1;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].find((factor) => factor * power >= rough) * power;
  const first = Math.ceil(low / step - 1e-9);
  return Array.from({ length: Math.max(0, Math.floor(high / step + 1e-9) - first + 1) }, (_, place) => (first + place) * step);
}

function decades(low, high) {
  const all = [-4, -3, -2, -1, 0].flatMap((power) => [1, 2, 5].map((factor) => factor * 10 ** power));
  return all.filter((value) => value >= low && value <= high);
}

function short(value) {
  return String(Number(value.toPrecision(3))).replace("-", "−");
}
