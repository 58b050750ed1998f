// find returns the element of an ID, which the page has.
export const find = id => document.getElementById(id)

// make returns an element with attributes, listeners (names that begin with "on") and children. Names of users and
// namespaces are hostile: they become text or attributes, and never HTML.
export function make(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children)
}

// draw is make for SVG.
export function draw(tag, attributes = {}, ...children) {
  return fill(document.createElementNS('http://www.w3.org/2000/svg', tag), attributes, children)
}

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith('on')) element.addEventListener(name.slice(2), value)
    else if (typeof value === 'boolean') element.toggleAttribute(name, value)
    else if (value !== undefined) element.setAttribute(name, value)
  }
  element.append(...children.filter(child => child !== undefined))
  return element
}

// say sets the text of an element, and hides the element while it has none.
export function say(element, text) {
  if (element.textContent !== text) element.textContent = text
  element.hidden = text === ''
}

// arrange makes elements the children of a parent, in this order. The element with the focus keeps it.
export function arrange(parent, elements) {
  const focused = document.activeElement
  for (const child of [...parent.children]) if (!elements.includes(child)) child.remove()
  elements.forEach((element, i) => {
    if (parent.children[i] !== element) parent.insertBefore(element, parent.children[i] ?? null)
  })
  if (focused !== document.activeElement && parent.contains(focused)) focused.focus({ preventScroll: true })
}
