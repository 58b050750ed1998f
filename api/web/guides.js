// The search of the guides. Their text is loaded when the user first types.
const [field, found, results] = ['query', 'found', 'results'].map(id => document.getElementById(id))
const maxResults = 20
let loading

// load returns all sections of all guides.
async function load() {
  const response = await fetch('search.json')
  if (!response.ok) throw new Error(`search.json: ${response.status}`)
  const guides = await response.json()
  return guides.flatMap(({ page, title, sections }) =>
    sections.map(([id, heading, start, words]) => ({ url: `${page}#${id}`, title, heading, start, words })))
}

// matches returns the sections that have all words, at the beginning of a word each. Words in headings count most.
function matches(sections, words) {
  const patterns = words.map(word =>
    new RegExp(String.raw`(?<![\p{L}\p{N}])${word.replace(/[\\^$.*+?()[\]{}|]/g, String.raw`\$&`)}`, 'iu'))
  const weigh = ({ title, heading, start, words: others }) => patterns
    .map(p => p.test(heading) ? 9 : p.test(title) ? 3 : p.test(start) || p.test(others) ? 1 : -Infinity)
    .reduce((a, b) => a + b)
  return sections
    .map(section => ({ ...section, weight: weigh(section) }))
    .filter(({ weight }) => weight > 0)
    .sort((a, b) => b.weight - a.weight)
}

// entry returns a result: a link, and the beginning of the section.
function entry({ url, title, heading, start, words }) {
  const [item, link, excerpt] = ['li', 'a', 'p'].map(tag => document.createElement(tag))
  link.href = url
  link.textContent = heading === title ? title : `${title}: ${heading}`
  excerpt.textContent = start + (words && ' …')
  item.append(link, excerpt)
  return item
}

// search shows the results for what the field has when they are ready.
async function search() {
  try {
    const sections = field.value.trim() && await (loading ??= load())
    const words = field.value.split(/\s+/).filter(Boolean)
    const all = words.length > 0 ? matches(sections, words) : []
    found.textContent = words.length > 0 ? `${all.length || 'No'} ${all.length === 1 ? 'result' : 'results'}` : ''
    results.replaceChildren(...all.slice(0, maxResults).map(entry))
  } catch {
    loading = undefined
    found.textContent = 'The search could not be loaded. Type again to retry.'
  }
}

document.querySelector('search').hidden = false
field.addEventListener('input', search)
field.addEventListener('keydown', event => {
  if (event.key === 'Enter') results.querySelector('a')?.click()
})
addEventListener('pageshow', search) // the browser may have kept what was typed
