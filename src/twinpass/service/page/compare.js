// Two sentences, their cosine, and a rough description of it.

import { post } from "./api.js";
import { find, make } from "./dom.js";
import { analysis, indexInfo } from "./facts.js";
import { decimal } from "./format.js";
import { statusOf } from "./status.js";
import { debounced, latest } from "./timing.js";

// Rough: what a cosine means depends on the model, and the page says so.
const BANDS = [
  [0.8, "Nearly the same meaning."],
  [0.6, "Very similar."],
  [0.3, "Related."],
  [0.15, "Hardly related."],
  [-1, "Unrelated."],
];
const EXAMPLE = ["How do I read a file line by line?", "Iterate over the rows of a text document."];

const fields = [find("#first"), find("#second")];
const status = statusOf(find("#compare"));

export function startCompare() {
  for (const field of fields) field.addEventListener("input", debounced(300, compare));
  find("#compare-example").addEventListener("click", () => write(EXAMPLE));
  find("#swap").addEventListener("click", () => write(fields.map((field) => field.value).reverse()));
}

function write(sentences) {
  fields.forEach((field, place) => { field.value = sentences[place]; });
  compare();
}

const compare = latest(async (signal) => {
  const sentences = fields.map((field) => field.value.trim());
  if (sentences.includes("")) return show("", []);
  status.wait();
  try {
    const { matrix } = await post("similarity", { sentences }, { signal });
    const cosine = matrix[0][1];
    const words = inWords(cosine);
    show(`Cosine ${decimal(cosine, 3)}. ${words}`, verdict(cosine, words));
    const rank = await rankInIndex(cosine);
    if (rank && !signal.aborted) find("#rank").textContent = rank;
  } catch (error) {
    if (signal.aborted) return;
    show("", []);
    status.fail(error, compare);
  }
});

function show(message, parts) {
  status.say(message);
  find("#verdict").replaceChildren(...parts);
}

function inWords(cosine) {
  return (BANDS.find(([least]) => cosine >= least) ?? BANDS.at(-1))[1];
}

function verdict(cosine, words) {
  const degrees = Math.acos(Math.min(1, Math.max(-1, cosine))) * 180 / Math.PI;
  return [
    make("div", { class: "gauge", "aria-hidden": "true" },
      make("span", { class: "mark", style: { left: `${50 * (1 + Math.min(1, Math.max(-1, cosine)))}%` } })),
    make("div", { class: "ends", "aria-hidden": "true" }, ...["−1 opposite", "0", "1 same"].map((text) => make("span", {}, text))),
    make("p", { class: "cosine number", "aria-hidden": "true" }, decimal(cosine, 3)),
    make("p", { class: "words", "aria-hidden": "true" }, words),
    make("p", { id: "rank" }),
    make("p", { class: "hint" }, `The angle between their vectors is ${degrees.toFixed(0)}°. The description is a rule of thumb: ` +
      "what a cosine means depends on the model."),
  ];
}

// The share of random pairs of the index that are less similar; "" without an index.
async function rankInIndex(cosine) {
  try {
    if (await indexInfo() === null) return "";
    const { cosines } = await analysis();
    return sentence(shareBelow(cosine, cosines));
  } catch {
    return ""; // optional: the comparison is shown without it
  }
}

function shareBelow(cosine, { edges, counts }) {
  const total = counts.reduce((sum, count) => sum + count, 0);
  const below = counts.reduce((sum, count, place) => {
    const part = (cosine - edges[place]) / (edges[place + 1] - edges[place]);
    return sum + count * Math.min(1, Math.max(0, part));
  }, 0);
  return total ? below / total : 0;
}

function sentence(share) {
  const text = share > 0.999 ? "more than 99.9 %" : share < 0.001 ? "less than 0.1 %" : `${(100 * share).toFixed(1)} %`;
  return `More similar than ${text} of random pairs of texts of the index.`;
}
