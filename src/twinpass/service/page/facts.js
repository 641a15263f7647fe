// What the service says of itself, asked once each; a failure is not remembered, so that it can be asked again.

import { get } from "./api.js";

export const modelName = once(async () => (await get("v1/models")).data[0].id);

// What is known of the index; null where the service has none.
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
