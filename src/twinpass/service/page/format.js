// Numbers for display.

export function decimal(value, digits) {
  const text = value.toFixed(digits);
  return Number(text) === 0 ? text.replace("-", "") : text.replace("-", "−");
}

export function count(value) {
  return Number(value).toLocaleString("en");
}
