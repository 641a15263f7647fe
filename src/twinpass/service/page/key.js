// The API key: asked for once, when the service first requires it, and kept until the tab is closed.

import { find } from "./dom.js";

const PLACE = "twinpass-key";
let asking = null;

export function storedKey() {
  return sessionStorage.getItem(PLACE);
}

// Resolves to true when there is a key to try; requests refused at the same time share one dialog.
export function askForKey({ refused }) {
  asking ??= ask(refused).finally(() => { asking = null; });
  return asking;
}

function ask(refused) {
  const dialog = find("#key-dialog");
  const field = find("#key");
  find("#key-why").textContent = refused
    ? "The key was not accepted. Check it and try again."
    : "Ask the person who runs the service for the key.";
  field.value = "";
  dialog.showModal();
  field.focus();
  return new Promise((resolve) => {
    const answers = new AbortController();
    const finish = (key) => {
      answers.abort();
      if (key) sessionStorage.setItem(PLACE, key);
      dialog.close();
      resolve(Boolean(key));
    };
    const listen = (target, event, action) => target.addEventListener(event, action, { signal: answers.signal });
    listen(find("form", dialog), "submit", (event) => {
      event.preventDefault();
      finish(field.value.trim());
    });
    listen(find("#key-cancel"), "click", () => finish(null));
    listen(dialog, "cancel", () => finish(null));
  });
}
