// What the service reports about itself. Each answer is requested once; a failed request can be repeated.

import { get } from "./api.js";

export const modelName = once(async () => (await get("v1/models")).data[0].id);

// The index; null if the service has none.
export const indexInfo = once(async () => {
  try {
    return await get("index");
  } catch (error) {
    if (error.status === 404) return null;
    throw error;
  }
});

export const analysis = once(() => get("analysis"));

function once(ask) {
  let answer = null;
  return () => {
    answer ??= ask().catch((error) => {
      answer = null;
      throw error;
    });
    return answer;
  };
}
