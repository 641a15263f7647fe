// The page: four tabs that use one service.

import { startCompare } from "./compare.js";
import { showCorpus, startCorpus } from "./corpus.js";
import { find } from "./dom.js";
import { indexInfo, modelName } from "./facts.js";
import { count } from "./format.js";
import { startMatrix } from "./matrix.js";
import { readPlace, writePlace } from "./place.js";
import { leaveSearch, resumeSearch, startSearch, wanted } from "./search.js";
import { showTab, startTabs } from "./tabs.js";

const OPENED = { search: resumeSearch, corpus: showCorpus };

startTabs((tab) => {
  writePlace({ tab, ...(tab === "search" && wanted()) }, { step: true });
  open();
});
startSearch();
startMatrix();
startCompare();
startCorpus();
addEventListener("popstate", open);
open();
introduce();

function open() {
  const { tab } = readPlace();
  showTab(tab);
  if (tab !== "search") leaveSearch();
  OPENED[tab]?.();
}

async function introduce() {
  const line = find("#served");
  try {
    const [name, info] = [await modelName(), await indexInfo()];
    line.textContent = info === null ? `${name} · no index` : `${name} · ${count(info.rows)} texts`;
    document.title = `twinpass: ${name}`;
  } catch {
    line.textContent = "not connected"; // the visible panel shows the error
  }
}
