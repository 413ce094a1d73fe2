// Elements as values, and the smallest change of the page to them: focus, selection and scroll stay.
// Text becomes text nodes only, so nothing that a topic or client is named can be markup.

const SVG = "http://www.w3.org/2000/svg";
const SVG_TAGS = new Set(["svg", "path", "line"]);
const made = new WeakMap();

export function h(tag, props, ...children) {
  return { tag, props: props ?? {}, children: children.flat(Infinity).filter(isShown).map(asNode) };
}

function isShown(child) {
  return child !== null && child !== undefined && child !== false && child !== "";
}

function asNode(child) {
  return typeof child === "object" ? child : { text: String(child) };
}

export function render(parent, nodes) {
  const wanted = [nodes].flat(Infinity).filter(isShown).map(asNode);
  const keys = new Set(wanted.map((node) => node.props?.key).filter((key) => key !== undefined));
  const keyed = new Map();
  for (const child of [...parent.childNodes]) {
    const key = keyOf(child);
    if (key === undefined) continue;
    if (keys.has(key)) keyed.set(key, child);
    else child.remove();
  }
  wanted.forEach((node, at) => {
    const present = parent.childNodes[at] ?? null;
    const known = keyed.get(node.props?.key);
    keyed.delete(node.props?.key);
    if (present && isSame(present, node)) {
      update(present, node);
      return;
    }
    const isKnown = known !== undefined && isSame(known, node);
    if (isKnown) update(known, node);
    const element = isKnown ? known : create(node);
    // One that comes later stays in the page: it may have the focus.
    if (present && keyOf(present) === undefined) parent.replaceChild(element, present);
    else parent.insertBefore(element, present);
  });
  while (parent.childNodes.length > wanted.length) parent.lastChild.remove();
}

function keyOf(child) {
  return made.get(child)?.props.key;
}

function isSame(present, node) {
  if (node.text !== undefined) return present.nodeType === Node.TEXT_NODE;
  const before = made.get(present);
  return before !== undefined && before.tag === node.tag && before.props.key === node.props.key;
}

function create(node) {
  if (node.text !== undefined) return document.createTextNode(node.text);
  const element = SVG_TAGS.has(node.tag)
    ? document.createElementNS(SVG, node.tag)
    : document.createElement(node.tag);
  made.set(element, { tag: node.tag, props: {} });
  update(element, node);
  return element;
}

function update(present, node) {
  if (node.text !== undefined) {
    if (present.nodeValue !== node.text) present.nodeValue = node.text;
    return;
  }
  const before = made.get(present).props;
  for (const name of Object.keys(before)) if (!(name in node.props)) set(present, name, null, before[name]);
  for (const [name, value] of Object.entries(node.props)) {
    if (before[name] !== value || name === "style") set(present, name, value, before[name]);
  }
  made.set(present, { tag: node.tag, props: { ...node.props, key: node.props.key } });
  render(present, node.children);
}

function set(element, name, value, before) {
  if (name === "key") return;
  if (name.startsWith("on")) {
    const event = name.slice(2);
    if (before) element.removeEventListener(event, before);
    if (value) element.addEventListener(event, value);
  } else if (name === "style") {
    for (const property of Object.keys(before ?? {})) {
      if (!value || !(property in value)) element.style.removeProperty(property);
    }
    for (const [property, text] of Object.entries(value ?? {})) {
      if (element.style.getPropertyValue(property) !== text) element.style.setProperty(property, text);
    }
  } else if (name === "value") {
    if (document.activeElement !== element) element.value = value ?? "";
  } else if (value === null || value === undefined || value === false) {
    element.removeAttribute(name);
  } else {
    if (name === "href" && !String(value).startsWith("#")) return;
    element.setAttribute(name, value === true ? "" : String(value));
  }
}
