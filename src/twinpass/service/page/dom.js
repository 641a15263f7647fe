// All elements are created here. Text becomes text nodes, so markup in a document is displayed and never executed.

const SVG = "http://www.w3.org/2000/svg";

export function make(name, attributes = {}, ...children) {
  return fill(document.createElement(name), attributes, children);
}

export function draw(name, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, name), attributes, children);
}

export function find(selector, within = document) {
  return within.querySelector(selector);
}

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") element.addEventListener(name, value);
    else if (name === "style") Object.entries(value).forEach(([key, each]) => element.style.setProperty(key, each));
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value != null) element.setAttribute(name, value);
  }
  element.append(...children.flat().filter((child) => child != null));
  return element;
}
