// The tab, the query, its filter and mode, in the part of the URL after #: it survives a reload and is not sent to the server.

export const TABS = ["search", "matrix", "compare", "corpus"];
export const MODES = ["dense", "keyword", "hybrid"];

export function readPlace() {
  const [tab, query = ""] = location.hash.slice(1).split("?", 2);
  const values = new URLSearchParams(query);
  const mode = values.get("by");
  return {
    tab: TABS.includes(tab) ? tab : "search",
    query: values.get("q") ?? "",
    where: values.get("where") ?? "",
    mode: MODES.includes(mode) ? mode : MODES[0],
    like: values.get("like"),
  };
}

// A step gets an entry in the browser's history; typing does not.
export function writePlace({ tab, query = "", where = "", mode = MODES[0], like = null }, { step = false } = {}) {
  const values = new URLSearchParams();
  if (query) values.set("q", query);
  if (where) values.set("where", where);
  if (mode !== MODES[0]) values.set("by", mode);
  if (like !== null) values.set("like", like);
  const address = `#${tab}${values.size ? `?${values}` : ""}`;
  if (address === location.hash) return;
  history[step ? "pushState" : "replaceState"](null, "", address);
}
