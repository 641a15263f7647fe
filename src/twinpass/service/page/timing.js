// Debouncing, and cancelling outdated requests.

export function debounced(milliseconds, action) {
  let timer;
  const call = (...values) => {
    clearTimeout(timer);
    timer = setTimeout(() => action(...values), milliseconds);
  };
  call.cancel = () => clearTimeout(timer);
  return call;
}

// Only the newest call counts: it cancels the previous one, whose answer is not shown.
export function latest(action) {
  let running = new AbortController();
  return async (...values) => {
    running.abort();
    running = new AbortController();
    const { signal } = running;
    try {
      await action(signal, ...values);
    } catch (error) {
      if (!signal.aborted) throw error;
    }
  };
}
