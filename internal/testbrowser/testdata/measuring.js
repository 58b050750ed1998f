// Functions that find what a reader of a page would complain about. Each returns a list of elements.
const visible = e => e.checkVisibility() && e.getBoundingClientRect().width > 0
const called = e => e.tagName + "." + e.className + " " + (e.innerText || e.value || "").trim().slice(0, 40)
const withText = () => [...document.body.querySelectorAll("*")].filter(e => visible(e) &&
	[...e.childNodes].some(n => n.nodeType == Node.TEXT_NODE && n.data.trim()) || e.matches("input, select, textarea") && visible(e))
const scrolls = e => e && (/auto|scroll/.test(getComputedStyle(e).overflowX) || scrolls(e.parentElement))

// shortens is whether a control has less room than the longest of its options, or than its placeholder.
const shortens = e => {
	const style = getComputedStyle(e)
	if (e.matches("select")) {
		const roomy = e.parentElement.appendChild(e.cloneNode(true))
		roomy.style = "position: absolute; inline-size: max-content; min-inline-size: 0"
		const wanted = roomy.offsetWidth
		roomy.remove()
		return wanted > e.offsetWidth + 1
	}
	if (!e.placeholder) return false
	const canvas = document.createElement("canvas").getContext("2d")
	canvas.font = style.font
	const room = e.clientWidth - parseFloat(style.paddingLeft) - parseFloat(style.paddingRight)
	return canvas.measureText(e.placeholder).width > room + 1
}

// cutOff are the elements with text that is beyond the sides of the window or of what clips it.
const cutOff = () => withText().filter(e => {
	const box = e.getBoundingClientRect(), style = getComputedStyle(e)
	const clipped = /hidden|clip/.test(style.overflowX) && e.scrollWidth > e.clientWidth + 1
	const outside = box.left < -1 || box.right > document.documentElement.clientWidth + 1
	return !scrolls(e) && (outside || clipped || shortens(e))
}).map(called)

const rgba = color => (color.match(/[\d.]+/g) ?? [0, 0, 0, 0]).map(Number).concat(1).slice(0, 4)
const over = ([r, g, b, a], under) => [r, g, b].map((c, i) => c * a + under[i] * (1 - a))
const paintedOn = e => e ? over(rgba(getComputedStyle(e).backgroundColor), paintedOn(e.parentElement)) : [255, 255, 255]
const luminance = rgb => rgb.map(c => c / 255).map(c => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)
	.reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0)
const background = () => luminance(paintedOn(document.body))

// faint are the elements whose text has a contrast, by WCAG, of less than the least.
const faint = least => withText().flatMap(e => {
	const ground = paintedOn(e), text = over(rgba(getComputedStyle(e).color), ground)
	const [dark, light] = [luminance(ground), luminance(text)].sort((a, b) => a - b)
	const contrast = (light + 0.05) / (dark + 0.05)
	return contrast < least ? [contrast.toFixed(1) + " " + called(e)] : []
})
