// A stand-in for the part of React that examples/react uses: one component, two hooks, elements without children.
// The tests use it because they do not download packages. It is stricter than React where React warns.
let hooks = [], next = 0, renders = 0

const same = (a, b) => a.length === b.length && a.every((value, i) => Object.is(value, b[i]))

function useCallback(callback, needs) {
  const i = next++
  if (!hooks[i] || !same(hooks[i].needs, needs)) hooks[i] = { callback, needs }
  return hooks[i].callback
}

function useSyncExternalStore(subscribe, snapshot) {
  const i = next++
  const value = snapshot()
  if (!Object.is(value, snapshot())) throw Error('The result of getSnapshot should be cached')
  hooks[i] = { ...hooks[i], value, snapshot, wanted: subscribe }
  return value
}

function createElement(name, { className, ...attributes }) {
  const element = document.createElement(name)
  element.className = className
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value)
  return element
}

// render shows a component with properties, and again when a store that it uses has changed. It unmounts what was there.
function render(component, properties) {
  renders++
  next = 0
  document.getElementById('root').replaceChildren(component(properties))
  for (const hook of hooks.filter(hook => hook.wanted)) {
    const changed = () => { if (!Object.is(hook.snapshot(), hook.value)) render(component, properties) }
    hook.changed = changed
    if (hook.subscribed === hook.wanted) continue
    hook.unsubscribe?.()
    hook.subscribed = hook.wanted
    hook.unsubscribe = hook.wanted(() => hook.changed())
    changed() // what has changed before the subscription
  }
}

function unmount() {
  hooks.forEach(hook => hook.unsubscribe?.())
  hooks = []
}
