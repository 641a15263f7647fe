// Requests to the service: JSON over HTTP, from the same origin.

import { askForKey, storedKey } from "./key.js";

export class ServiceError extends Error {
  constructor(message, status, param = null) {
    super(message);
    this.status = status;
    this.param = param; // the field of the request that was wrong
  }
}

export function get(path, { signal } = {}) {
  return call(path, { signal });
}

export function post(path, body, { signal } = {}) {
  const headers = { "content-type": "application/json" };
  return call(path, { method: "POST", body: JSON.stringify(body), headers, signal });
}

async function call(path, options) {
  const key = storedKey();
  const headers = { ...options.headers, ...(key && { authorization: `Bearer ${key}` }) };
  const response = await reach(path, { ...options, headers });
  if (response.status === 401 && await anotherKey(key)) return call(path, options);
  const answer = await response.json().catch(() => null);
  if (response.ok && answer !== null) return answer;
  const { message = `The service returned status ${response.status}.`, param } = answer?.error ?? {};
  throw new ServiceError(message, response.status, param);
}

async function reach(path, options) {
  try {
    return await fetch(path, options);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ServiceError("The service does not answer. Is twinpass serve still running?", 0);
  }
}

async function anotherKey(sent) {
  // Another request may have asked for a key in the meantime.
  return storedKey() !== sent || askForKey({ refused: sent !== null });
}
