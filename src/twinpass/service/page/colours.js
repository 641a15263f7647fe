// A perceptually uniform colour scale, also for colour-blind readers.

// Viridis at eleven equal steps.
const STOPS = [
  [68, 1, 84], [72, 36, 117], [65, 68, 135], [53, 95, 141], [42, 120, 142], [33, 145, 140],
  [34, 168, 132], [68, 191, 112], [122, 209, 81], [189, 223, 38], [253, 231, 37],
];

// The colour at a position between 0 and 1 of the scale, and the text colour that is easiest to read on it.
export function shade(share) {
  const place = Math.min(1, Math.max(0, share)) * (STOPS.length - 1);
  const below = Math.min(Math.floor(place), STOPS.length - 2);
  const colour = STOPS[below].map((value, channel) =>
    Math.round(value + (place - below) * (STOPS[below + 1][channel] - value)));
  return { paper: css(colour), ink: contrast(colour, [255, 255, 255]) >= contrast(colour, [0, 0, 0]) ? "#fff" : "#000" };
}

export function gradient() {
  return `linear-gradient(to right, ${STOPS.map(css).join(", ")})`;
}

function css(colour) {
  return `rgb(${colour.join(" ")})`;
}

// The contrast ratio of WCAG 2: the better of black and white always has at least 4.5.
function contrast(one, other) {
  const [dark, light] = [luminance(one), luminance(other)].sort((a, b) => a - b);
  return (light + 0.05) / (dark + 0.05);
}

function luminance(colour) {
  const [red, green, blue] = colour.map((value) => value / 255)
    .map((value) => value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4);
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
}
