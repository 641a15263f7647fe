"use strict";

// Not a module: it runs before the first paint, so that the page does not flash in the wrong theme.
{
  const system = matchMedia("(prefers-color-scheme: dark)");
  const root = document.documentElement;
  const chosen = () => root.dataset.theme ?? (system.matches ? "dark" : "light");
  const show = () => document.getElementById("theme")?.setAttribute("aria-pressed", String(chosen() === "dark"));

  const kept = localStorage.getItem("twinpass-theme");
  if (kept === "light" || kept === "dark") root.dataset.theme = kept;

  document.addEventListener("DOMContentLoaded", () => {
    show();
    system.addEventListener("change", show);
    document.getElementById("theme").addEventListener("click", () => {
      const next = chosen() === "dark" ? "light" : "dark";
      // Choosing the system's theme means following the system again.
      if (next === (system.matches ? "dark" : "light")) {
        delete root.dataset.theme;
        localStorage.removeItem("twinpass-theme");
      } else {
        root.dataset.theme = next;
        localStorage.setItem("twinpass-theme", next);
      }
      show();
    });
  });
}
