// The states every panel shares: waiting, an answer, nothing to show, a failure that can be tried again.

import { find, make } from "./dom.js";

export function statusOf(panel) {
  const line = find("[role=status]", panel);
  const trouble = find("[role=alert]", panel);
  const settle = (text) => {
    panel.removeAttribute("aria-busy");
    trouble.replaceChildren();
    line.textContent = text;
  };
  return {
    wait: () => panel.setAttribute("aria-busy", "true"),
    say: settle,
    fail(error, again) {
      settle("");
      const button = make("button", { type: "button", click: again }, "Try again");
      trouble.append(make("div", { class: "trouble" }, make("p", {}, error.message), button));
    },
  };
}

// How to make what is missing: shown instead of a panel that could do nothing.
export function explainNoIndex(place, name) {
  place.replaceChildren(
    make("h2", {}, "There is no index yet"),
    make("p", {}, "The service was started without one, so there is nothing to search. Build one from your own texts, " +
      "one per line or as CSV, JSONL or Parquet, and start the service with it:"),
    make("pre", {}, "twinpass index build MODEL texts.txt -o my-index\ntwinpass serve MODEL --index my-index"),
    make("p", {}, `MODEL is what this service was started with: ${name}, or its folder. No texts at hand? `,
      make("code", {}, "docs:"), " in place of texts.txt uses the documentation of the installed Python packages."),
    make("p", {}, "Matrix and Compare work without an index."),
  );
  place.hidden = false;
}
