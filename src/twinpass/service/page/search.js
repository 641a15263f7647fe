// Search as you type: only the newest query is answered, and every result can become the next query.

import { post } from "./api.js";
import { find, make } from "./dom.js";
import { indexInfo, modelName } from "./facts.js";
import { count, decimal } from "./format.js";
import { readPlace, writePlace } from "./place.js";
import { explainNoIndex, statusOf } from "./status.js";
import { debounced, latest } from "./timing.js";

const PAUSE = 150; // milliseconds without a key press before a search

const panel = find("#search");
const field = find("#query");
const list = find("#results");
const status = statusOf(panel);
const typed = debounced(PAUSE, () => search(field.value.trim()));
let invitation = "";
let shown = null; // the query whose results are in the list

export function startSearch() {
  field.addEventListener("input", typed);
  find("#k").addEventListener("change", () => search(field.value.trim(), { like: readPlace().like }));
  panel.addEventListener("keydown", moveThroughResults);
  document.addEventListener("keydown", (event) => {
    if (event.key !== "/" || panel.hidden || event.ctrlKey || event.metaKey || isTyping(event.target)) return;
    event.preventDefault();
    field.focus();
    field.select();
  });
}

// Another tab was opened: cancel the search that waits for a pause in typing.
export function leaveSearch() {
  typed.cancel();
}

// Show the query of the URL, after a reload or a step back.
export async function resumeSearch() {
  typed.cancel();
  const { query, like } = readPlace();
  const isShown = field.value.trim() === query && shown === query && list.children.length > 0;
  if (!isShown) field.value = query; // before the wait, so that what is typed during it is kept
  if (!await hasIndex() || isShown || field.value !== query) return;
  await search(query, { like });
}

async function hasIndex() {
  try {
    const info = await indexInfo();
    for (const part of ["#search-controls", "#keys"]) find(part).hidden = info === null;
    if (info === null) explainNoIndex(find(".empty", panel), await modelName());
    else invitation = `Search ${count(info.count)} texts by meaning.`;
    return info !== null;
  } catch (error) {
    status.fail(error, () => { status.say(""); resumeSearch(); });
    return false;
  }
}

const search = latest(async (signal, query, { like = null, step = false } = {}) => {
  typed.cancel(); // this search replaces one that waits for a pause in typing
  writePlace({ tab: "search", query, like }, { step });
  shown = query;
  if (!query) return show([], invitation);
  status.wait();
  try {
    const k = Number(find("#k").value);
    // One more than k, because the text itself is found first and skipped.
    const answer = await post("search", { query, k: k + (like === null ? 0 : 1) }, { signal });
    const hits = answer.results[0].filter((hit) => String(hit.id) !== like).slice(0, k);
    show(hits, summary(hits.length, like));
    if (step) find("button", list)?.focus();
  } catch (error) {
    if (signal.aborted) return;
    show([], "");
    status.fail(error, () => search(query, { like }));
  }
});

function summary(found, like) {
  if (!found) return "No results.";
  const results = found === 1 ? "1 result" : `${found} results`;
  return like === null ? `${results}, nearest first` : `${results} similar to the text above, nearest first`;
}

function show(hits, message) {
  const held = [...list.children].findIndex((item) => item.contains(document.activeElement));
  list.replaceChildren(...hits.map(result));
  status.say(message);
  // Keep the keyboard focus at the same place of the list.
  if (held >= 0) (find("button", list.children[held] ?? list) ?? field).focus();
}

function result(hit, place) {
  const name = `hit-${place}`;
  const more = make("button", {
    type: "button", class: "more", "aria-label": `More like this, result ${place + 1}`, "aria-describedby": name,
    click: () => {
      field.value = hit.text;
      search(hit.text.trim(), { like: String(hit.id), step: true });
    },
  }, "more like this");
  return make("li", {},
    make("p", { class: "text", id: name }, hit.text),
    metadata(hit.metadata),
    make("div", { class: "score" },
      make("span", { class: "number", title: "cosine similarity to the query" }, decimal(hit.score, 3)),
      make("span", { class: "track", "aria-hidden": "true" },
        make("span", { style: { width: `${100 * Math.min(1, Math.max(0, hit.score))}%` } }))),
    more);
}

function metadata(values) {
  const entries = Object.entries(values ?? {}).filter(([, value]) => value !== null && value !== "");
  if (!entries.length) return null;
  return make("dl", { class: "metadata" },
    entries.map(([name, value]) => make("div", {}, make("dt", {}, name), make("dd", {}, String(value)))));
}

function moveThroughResults(event) {
  const stops = [field, ...list.querySelectorAll("button.more")];
  const place = stops.indexOf(document.activeElement);
  if (place < 0 || event.altKey || event.ctrlKey || event.metaKey) return;
  const next = { ArrowDown: stops[place + 1], ArrowUp: stops[place - 1], Escape: place ? field : null }[event.key];
  if (!next) return;
  event.preventDefault();
  next.focus();
  next.closest("li")?.scrollIntoView({ block: "nearest" });
}

function isTyping(target) {
  return target.closest("input, textarea, select, dialog") !== null;
}
