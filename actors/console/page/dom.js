// Elements without markup: everything that comes from outside becomes a text node or an attribute, never HTML.

// Characters that would not be seen, or would turn the text around, are shown as their code.
const HIDDEN = /[\u0000-\u001f\u007f-\u009f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ufff9-\ufffb]|[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]/g;

/** Make hidden characters of a text visible: a line feed becomes ‹U+000A›. */
export function clean(text) {
  return String(text).replace(HIDDEN, (c) => `‹U+${c.charCodeAt(0).toString(16).toUpperCase().padStart(4, "0")}›`);
}

const SVG = new Set(["svg", "g", "path", "circle", "rect", "line", "text", "title", "polygon", "defs", "marker", "tspan"]);

/** Build an element: h("a", { href, class, onclick, dataset }, child, ...). Strings are cleaned; null and false are left out. */
export function h(tag, props, ...children) {
  const element = SVG.has(tag) ? document.createElementNS("http://www.w3.org/2000/svg", tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(props || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "dataset") Object.assign(element.dataset, value);
    else if (name === "style") for (const [key, each] of Object.entries(value)) element.style.setProperty(key, each);
    else if (name === "value") element.value = value;
    else element.setAttribute(name, value === true ? "" : name === "title" || name === "aria-label" ? clean(value) : value);
  }
  fill(element, ...children);
  return element;
}

/** Append children: elements, text, or lists of them. */
export function fill(element, ...children) {
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    element.append(child instanceof Node ? child : clean(child));
  }
  return element;
}

/** Replace the children of an element. */
export function replace(element, ...children) {
  element.replaceChildren();
  return fill(element, ...children);
}

/** Set the text of an element if it has changed: an unchanged cell keeps its selection. */
export function setText(element, text) {
  const shown = clean(text);
  if (element.textContent !== shown) element.textContent = shown;
}
