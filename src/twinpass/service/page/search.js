// Search as you type: only the newest query is answered, and every result can become the next query.

import { post } from "./api.js";
import { find, make } from "./dom.js";
import { indexInfo, modelName } from "./facts.js";
import { filterText, offerFilter, showProblem } from "./filter.js";
import { count, decimal } from "./format.js";
import { readPlace, writePlace } from "./place.js";
import { explainNoIndex, statusOf } from "./status.js";
import { debounced, latest } from "./timing.js";

const PAUSE = 150; // milliseconds without a key press before a search
const FILTER_PAUSE = 600; // longer: half a filter is a mistake
// What a score is, by mode, and how many digits of it mean something.
const SCORES = {
  dense: { name: "cosine similarity to the query", digits: 3, order: "nearest first" },
  keyword: { name: "BM25 score of the query's words", digits: 2, order: "best match first" },
  hybrid: { name: "ranks by meaning and by words, fused", digits: 4, order: "best of both first" },
};

const panel = find("#search");
const field = find("#query");
const filter = find("#where");
const mode = find("#mode");
const list = find("#results");
const status = statusOf(panel);
const typed = debounced(PAUSE, () => search());
const filtered = debounced(FILTER_PAUSE, () => search({ like: readPlace().like }));
let invitation = "";
let idColumn = null; // the column whose values are the ids, if the index has one
let shown = null; // what the results in the list were found for

// What the page is asked for now.
export function wanted() {
  return { query: field.value.trim(), where: filterText(), mode: mode.value };
}

export function startSearch() {
  field.addEventListener("input", typed);
  filter.addEventListener("input", filtered);
  const again = () => search({ like: readPlace().like });
  for (const control of [mode, find("#k")]) control.addEventListener("change", again);
  // Enter is a change, too. So is a click elsewhere: results that are there already stay, or the click would miss them.
  filter.addEventListener("change", () => { if (key(wanted()) !== shown) again(); });
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
  filtered.cancel();
}

// Show the query of the URL, after a reload or a step back.
export async function resumeSearch() {
  leaveSearch();
  const place = readPlace();
  const isShown = shown === key(place) && key(wanted()) === shown && list.children.length > 0;
  if (!isShown) [field.value, filter.value, mode.value] = [place.query, place.where, place.mode];
  // What is typed during the wait is kept.
  const typedIn = () => field.value.trim() !== place.query || filter.value.trim() !== place.where;
  if (!await hasIndex() || isShown || typedIn()) return;
  await search({ like: place.like });
}

async function hasIndex() {
  try {
    const info = await indexInfo();
    for (const part of ["#search-controls", "#keys"]) find(part).hidden = info === null;
    offerFilter(info?.columns ?? []);
    idColumn = info?.id_column ?? null;
    if (info === null) explainNoIndex(find(".empty", panel), await modelName());
    else invitation = `Search ${count(info.rows)} texts.`;
    return info !== null;
  } catch (error) {
    status.fail(error, () => { status.say(""); resumeSearch(); });
    return false;
  }
}

const search = latest(async (signal, { like = null, step = false } = {}) => {
  leaveSearch(); // this search replaces one that waits for a pause in typing
  const asked = wanted();
  writePlace({ tab: "search", ...asked, like }, { step });
  showProblem("");
  shown = key(asked);
  if (!asked.query) return show([], invitation, asked.mode);
  status.wait();
  try {
    const k = Number(find("#k").value);
    // One more than k, because the text itself is found first and skipped.
    const body = { query: asked.query, mode: asked.mode, k: k + (like === null ? 0 : 1) };
    const answer = await post("search", asked.where ? { ...body, where: asked.where } : body, { signal });
    const hits = answer.results[0].hits.filter((hit) => String(hit.id) !== like).slice(0, k);
    show(hits, summary(hits.length, like, asked), asked.mode);
    if (step) find("button", list)?.focus();
  } catch (error) {
    if (signal.aborted) return;
    shown = null;
    if (error.param === "where") {
      // The results stay until the filter is right.
      status.say(list.children.length ? "These results were found before the filter was changed." : "");
      list.classList.add("stale");
      return showProblem(error.message);
    }
    show([], "", asked.mode);
    status.fail(error, () => search({ like }));
  }
});

function key({ query, where, mode }) {
  return JSON.stringify([query, where, mode]);
}

function summary(found, like, { where, mode }) {
  if (!found) return where ? "No results with this filter." : "No results.";
  const results = found === 1 ? "1 result" : `${found} results`;
  const { order } = SCORES[mode];
  return like === null ? `${results}, ${order}` : `${results} similar to the text above, ${order}`;
}

function show(hits, message, mode) {
  const held = [...list.children].findIndex((item) => item.contains(document.activeElement));
  const best = mode === "dense" ? 1 : Math.max(...hits.map((hit) => hit.score), 1e-9); // the end of the bars
  list.replaceChildren(...hits.map((hit, place) => result(hit, place, mode, best)));
  list.classList.remove("stale");
  status.say(message);
  // Keep the keyboard focus at the same place of the list.
  if (held >= 0) (find("button", list.children[held] ?? list) ?? field).focus();
}

function result(hit, place, mode, best) {
  const name = `hit-${place}`;
  const { name: about, digits } = SCORES[mode];
  const more = make("button", {
    type: "button", class: "more", "aria-label": `More like this, result ${place + 1}`, "aria-describedby": name,
    click: () => {
      field.value = hit.text;
      search({ like: String(hit.id), step: true });
    },
  }, "more like this");
  return make("li", {},
    make("p", { class: "text", id: name }, hit.text),
    metadata(hit),
    make("div", { class: "score" },
      make("span", { class: "number", title: about }, decimal(hit.score, digits)),
      make("span", { class: "track", "aria-hidden": "true" },
        make("span", { style: { width: `${100 * Math.min(1, Math.max(0, hit.score / best))}%` } }))),
    more);
}

function metadata({ id, metadata: values, copies = 1 }) {
  const named = idColumn === null ? values : { [idColumn]: id, ...values };
  const entries = Object.entries(named ?? {}).filter(([, value]) => value !== null && value !== "");
  if (copies > 1) entries.push(["equal texts", count(copies)]);
  if (!entries.length) return null;
  return make("dl", { class: "metadata" },
    entries.map(([name, value]) => make("div", {}, make("dt", {}, name), make("dd", {}, String(value)))));
}

function moveThroughResults(event) {
  const stops = [field, ...list.querySelectorAll("button.more")];
  // From the filter, down leads to the results as from the query.
  const place = stops.indexOf(document.activeElement === filter ? field : document.activeElement);
  if (place < 0 || event.altKey || event.ctrlKey || event.metaKey) return;
  const isQuery = document.activeElement === field;
  const next = { ArrowDown: stops[place + 1], ArrowUp: stops[place - 1], Escape: isQuery ? null : field }[event.key];
  if (!next) return;
  event.preventDefault();
  next.focus();
  next.closest("li")?.scrollIntoView({ block: "nearest" });
}

function isTyping(target) {
  return target.closest("input, textarea, select, dialog") !== null;
}
