// The states that all panels share: waiting, an answer, nothing to show, a failure with a retry.

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

// How to build an index: shown instead of a panel that needs one.
export function explainNoIndex(place, name) {
  place.replaceChildren(
    make("h2", {}, "No index"),
    make("p", {}, "The service was started without an index. Build one from your own texts " +
      "(one per line, or CSV, JSONL or Parquet), and start the service with it:"),
    make("pre", {}, "twinpass index build texts.txt -m MODEL -o my-index\ntwinpass serve MODEL --index my-index"),
    make("p", {}, `MODEL is the model of this service, ${name}, or its folder. If you have no texts, use `,
      make("code", {}, "docs:"), " instead of texts.txt: the documentation of the installed Python packages."),
    make("p", {}, "Matrix and Compare work without an index."),
  );
  place.hidden = false;
}
