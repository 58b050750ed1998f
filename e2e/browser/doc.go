// Package browser tests pages and scripts: what lastseen.js, the dashboard, the API reference and the other pages of a
// server do in a real browser.
//
// Its tests start the program as users do. See internal/testserver.
package browser
