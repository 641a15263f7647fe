// The embedding space of the index: uniformity, alignment, singular values, cosines of random pairs.

import { histogram, spectrum } from "./chart.js";
import { find, make } from "./dom.js";
import { analysis, indexInfo, modelName } from "./facts.js";
import { count, decimal } from "./format.js";
import { explainNoIndex, statusOf } from "./status.js";
import { latest } from "./timing.js";

const panel = find("#corpus");
const portrait = find("#portrait");
const status = statusOf(panel);
let measured = null;

export function startCorpus() {
  let width = 0;
  new ResizeObserver(() => {
    if (!measured || portrait.clientWidth === width) return;
    width = portrait.clientWidth;
    drawCharts();
  }).observe(portrait);
}

export const showCorpus = latest(async (signal) => {
  if (measured) return;
  status.wait();
  try {
    const info = await indexInfo();
    if (info === null) {
      status.say("");
      return explainNoIndex(find(".empty", panel), await modelName());
    }
    const found = await analysis();
    if (signal.aborted) return;
    measured = found;
    show(info);
    status.say(`Measured on ${count(found.sample)} of ${count(info.rows)} texts.`);
  } catch (error) {
    if (!signal.aborted) status.fail(error, showCorpus);
  }
});

function show(info) {
  const distinct = info.distinct === null ? "" : `${count(info.distinct)} distinct, `; // Milvus does not count them
  portrait.replaceChildren(
    make("dl", { class: "tiles" },
      tile("Texts", count(info.rows), `${distinct}${info.dimensions} dimensions each`),
      tile("Uniformity", decimal(measured.uniformity, 3), "how evenly the vectors cover the sphere; lower is better"),
      tile("Alignment", measured.alignment === null ? "–" : decimal(measured.alignment, 3),
        measured.alignment === null ? "needs pairs with the same meaning" : "how close texts with the same meaning are; lower is better"),
      tile("Effective rank", measured.effective_rank.toFixed(0), `of ${count(measured.singular_values.length)} dimensions`)),
    make("div", { class: "figures" },
      figure("cosines", "Cosines of random pairs", "How similar two random texts of this corpus are. The further a search score lies to the right " +
        "of this distribution, the more it means."),
      figure("spectrum", "Singular values", "Singular values of the matrix of unit vectors, divided by the largest. A flatter curve means that " +
        "the vectors use more dimensions.")));
  drawCharts();
}

function drawCharts() {
  const across = (name) => find(`#figure-${name} .drawing`);
  const place = (name, chart) => {
    const box = across(name);
    if (box?.clientWidth) box.replaceChildren(chart(box.clientWidth));
  };
  const mean = meanCosine(measured.cosines);
  place("cosines", (width) => histogram(measured.cosines, {
    width, across: "cosine", up: "share of pairs", label: `Histogram of the cosines of random pairs; their mean is ${decimal(mean, 2)}`,
  }));
  const values = relative(measured.singular_values);
  place("spectrum", (width) => spectrum(values, {
    width, across: "index", up: "value ÷ largest", label: `${values.length} singular values, falling from 1 to ${values.at(-1).toPrecision(2)} of the largest`,
  }));
}

function tile(name, value, note) {
  return make("div", {}, make("dt", {}, name), make("dd", { class: "number" }, value), make("dd", { class: "hint" }, note));
}

function figure(name, title, caption) {
  const heading = make("h2", {}, title);
  return make("figure", { id: `figure-${name}` }, heading, make("div", { class: "drawing" }), make("figcaption", {}, caption));
}

function relative(values) {
  return values.filter((value) => value > 0).map((value) => value / values[0]);
}

function meanCosine({ edges, counts }) {
  const total = counts.reduce((sum, each) => sum + each, 0) || 1;
  return counts.reduce((sum, each, place) => sum + each * (edges[place] + edges[place + 1]) / 2, 0) / total;
}
