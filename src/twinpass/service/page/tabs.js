// The tabs: click, or arrow keys with Home and End, as a tablist is used.

import { find } from "./dom.js";
import { TABS } from "./place.js";

const tabOf = (name) => find(`#tab-${name}`);

export function showTab(name) {
  for (const each of TABS) {
    const chosen = each === name;
    tabOf(each).setAttribute("aria-selected", String(chosen));
    tabOf(each).tabIndex = chosen ? 0 : -1;
    find(`#${each}`).hidden = !chosen;
  }
}

export function startTabs(choose) {
  const moves = { ArrowRight: 1, ArrowLeft: -1, Home: -Infinity, End: Infinity };
  TABS.forEach((name, place) => {
    tabOf(name).addEventListener("click", () => choose(name));
    tabOf(name).addEventListener("keydown", (event) => {
      if (!(event.key in moves)) return;
      event.preventDefault();
      const next = neighbour(place, moves[event.key]);
      choose(next);
      tabOf(next).focus();
    });
  });
}

function neighbour(place, move) {
  const last = TABS.length - 1;
  if (!Number.isFinite(move)) return TABS[move < 0 ? 0 : last];
  return TABS[(place + move + TABS.length) % TABS.length];
}
