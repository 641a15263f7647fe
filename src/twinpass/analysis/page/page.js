"use strict";

// Tables: a column's button sorts by it, ascending first, then descending.
for (const table of document.querySelectorAll("table.sortable")) {
  const body = table.tBodies[0];
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, place) => head.querySelector("button").addEventListener("click", () => {
    const rising = head.getAttribute("aria-sort") !== "ascending";
    heads.forEach((other) => other.setAttribute("aria-sort", "none"));
    head.setAttribute("aria-sort", rising ? "ascending" : "descending");
    body.append(...[...body.rows].sort((a, b) => compare(a.cells[place], b.cells[place], rising)));
  }));
}

function compare(a, b, rising) {
  const [left, right] = [a, b].map((cell) => "value" in cell.dataset ? Number(cell.dataset.value) : null);
  if (left !== null && right !== null) return rising ? left - right : right - left;
  // Cells without a value are last in either order.
  const [noLeft, noRight] = [a, b].map((cell) => cell.textContent === "–");
  if (noLeft || noRight) return noLeft - noRight;
  const order = a.textContent.localeCompare(b.textContent, "en", { numeric: true });
  return rising ? order : -order;
}

// Figures: a point shows its value on hover.
const tip = document.getElementById("tip");
document.addEventListener("pointerover", (event) => {
  const point = event.target.closest("[data-tip]");
  tip.hidden = !point;
  if (!point) return;
  tip.textContent = point.dataset.tip;
  const box = tip.getBoundingClientRect();
  tip.style.left = `${Math.max(4, Math.min(event.clientX + 12, innerWidth - box.width - 4))}px`;
  tip.style.top = `${event.clientY + 16 + box.height > innerHeight ? event.clientY - box.height - 8 : event.clientY + 16}px`;
});
