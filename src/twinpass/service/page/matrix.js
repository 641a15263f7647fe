// The cosine of each pair of pasted sentences.

import { post } from "./api.js";
import { find } from "./dom.js";
import { decimal } from "./format.js";
import { heatMap, pairs } from "./heat.js";
import { alikeTogether } from "./order.js";
import { statusOf } from "./status.js";
import { debounced, latest } from "./timing.js";

const MOST = 50; // more do not fit on a screen
const MOST_NUMBERS = 24; // above it the cells are small, and numbers are off by default
const EXAMPLE = [
  "A man is playing a guitar.",
  "Someone plays an instrument.",
  "A musician is on the stage.",
  "The cat sleeps in the sun.",
  "A kitten is napping on the window sill.",
  "The dog chased the cat.",
  "Interest rates rose again this spring.",
  "The central bank made borrowing more expensive.",
];

const panel = find("#matrix");
const field = find("#sentences");
const status = statusOf(panel);
let shown = null;

export function startMatrix() {
  field.addEventListener("input", debounced(400, measure));
  for (const name of ["#order", "#scale", "#values"]) find(name).addEventListener("change", redraw);
  find("#matrix-example").addEventListener("click", () => {
    field.value = EXAMPLE.join("\n");
    measure();
  });
  measure();
}

const measure = latest(async (signal) => {
  const lines = field.value.split("\n").map((line) => line.trim()).filter(Boolean);
  const sentences = lines.slice(0, MOST);
  if (sentences.length < 2) return clear(sentences.length ? "Add one more sentence." : "");
  status.wait();
  try {
    const { matrix } = await post("similarity", { sentences }, { signal });
    shown = { sentences, matrix };
    find("#values").checked = sentences.length <= MOST_NUMBERS;
    redraw();
    status.say(summary(shown, lines.length - sentences.length));
  } catch (error) {
    if (signal.aborted) return;
    clear("");
    status.fail(error, measure);
  }
});

function clear(message) {
  shown = null;
  find("#heat").replaceChildren();
  status.say(message);
}

function redraw() {
  if (!shown) return;
  const order = find("#order").value === "alike" ? alikeTogether(shown.matrix) : shown.sentences.map((_, place) => place);
  const options = { scale: find("#scale").value, numbers: find("#values").checked };
  find("#heat").replaceChildren(...heatMap({ ...shown, order, ...options }));
}

function summary({ sentences, matrix }, left) {
  const { most, least } = pairs(matrix);
  const cut = left ? ` The last ${left} of ${sentences.length + left} sentences are skipped.` : "";
  const name = ({ first, second, value }) => `${first + 1} and ${second + 1} (${decimal(value, 2)})`;
  if (sentences.length === 2) return `Cosine ${decimal(most.value, 2)}.`;
  return `Most similar: ${name(most)}. Least similar: ${name(least)}.${cut}`;
}
