// The filter on metadata: a text in the language of docs/search.md, the columns it may name, and what is wrong with it.

import { find, make } from "./dom.js";

const MOST = 12; // columns that are offered

const box = find("#filter");
const field = find("#where");
const problem = find("#where-problem");

// Offer the columns of the index; without any there is nothing to filter by.
export function offerFilter(columns) {
  box.hidden = columns.length === 0;
  if (box.hidden) return;
  field.placeholder = `such as ${quoted(columns[0])} = value, or leave empty`;
  find("#where-columns").replaceChildren("Columns: ", ...columns.slice(0, MOST).map((column) => make("button", {
    type: "button", class: "column-name", title: `Add ${column} to the filter`, click: () => insert(quoted(column)),
  }, column)), columns.length > MOST ? `and ${columns.length - MOST} more` : "");
}

export function filterText() {
  return box.hidden ? "" : field.value.trim();
}

// A mistake is shown below the filter, with a mark at its place.
export function showProblem(message) {
  problem.textContent = message;
  problem.hidden = !message;
  if (message) field.setAttribute("aria-invalid", "true");
  else field.removeAttribute("aria-invalid");
}

// Put a column where the cursor is, with the word `and` before it if a condition is there already.
function insert(column) {
  const before = field.value.slice(0, field.selectionStart).trimEnd();
  const after = field.value.slice(field.selectionEnd).trimStart();
  const joint = !before ? "" : /(^|\W)(and|or|not|\()$/i.test(before) ? " " : " and ";
  const start = `${before}${joint}${column} `;
  field.value = start + after;
  field.focus();
  field.setSelectionRange(start.length, start.length);
}

// As a filter names a column: in double quotes where its name is not a plain word.
function quoted(column) {
  const plain = /^[\p{L}_][\p{L}\p{N}_.-]*$/u.test(column) && !/^(and|or|not|in|like|is)$/i.test(column);
  return plain ? column : `"${column.replaceAll("\\", "\\\\").replaceAll('"', '\\"')}"`;
}
