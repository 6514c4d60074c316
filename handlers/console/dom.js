// Elements, made and kept up to date. Text goes in as text; nothing here reads markup.

const SVG = 'http://www.w3.org/2000/svg';

export const byId = (id) => document.getElementById(id);

export const el = (name, attributes = {}, ...children) => give(document.createElement(name), attributes, children);

export const shape = (name, attributes = {}, ...children) => (
  give(document.createElementNS(SVG, name), attributes, children));

function give(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) setAttribute(node, name, value);
  node.append(...children);
  return node;
}

// null takes an attribute away; what is the same is left alone
export function setAttribute(node, name, value) {
  if (value === null) node.removeAttribute(name);
  else if (node.getAttribute(name) !== String(value)) node.setAttribute(name, value);
}

// text that is the same is left alone, so that a selection stays and nothing is announced twice
export function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

export const show = (node, isShown) => { node.hidden = !isShown; };

// Makes the children those of the items, in their order. One whose key stays is kept, with the focus it has.
export function fill(parent, items, toKey, make, update) {
  const known = new Map([...parent.children].map((node) => [node.dataset.key, node]));
  let place = parent.firstElementChild;
  for (const item of items) {
    const key = String(toKey(item));
    const node = known.get(key) ?? make(item);
    known.delete(key);
    node.dataset.key = key;
    update(node, item);
    if (node !== place) place = put(parent, node, place);
    if (node === place) place = place.nextElementSibling;
  }
  for (const node of known.values()) takeAway(parent, node);
}

// An element that is moved loses the focus, so what stands before it is moved behind it instead.
function put(parent, node, place) {
  if (!node.contains(document.activeElement)) {
    parent.insertBefore(node, place);
    return place;
  }
  let before = place;
  while (before !== node) {
    const next = before.nextElementSibling;
    parent.append(before);
    before = next;
  }
  return node;
}

// If the focus is in what goes, it goes to what is beside that.
function takeAway(parent, node) {
  const hadFocus = node.contains(document.activeElement);
  const near = node.previousElementSibling ?? node.nextElementSibling;
  node.remove();
  if (hadFocus) (near?.querySelector('a, button') ?? parent.closest('section').querySelector('h1')).focus();
}
