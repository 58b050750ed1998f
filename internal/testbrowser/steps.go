package testbrowser

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	cdppage "github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"
)

// Until waits until an expression in JavaScript is true. One that fails is tried again: during a
// navigation the page it was meant for may not be there yet.
func Until(expression string) Step {
	return func(ctx context.Context, page *chromedp.Target) (chromedp.Void, error) {
		for {
			held, err := chromedp.Evaluate[bool]("Boolean("+expression+")")(ctx, page)
			if err == nil && held {
				return chromedp.Void{}, nil
			}
			select {
			case <-ctx.Done():
				return chromedp.Void{}, fmt.Errorf("until %s: %w", expression, errors.Join(ctx.Err(), err))
			case <-time.After(20 * time.Millisecond):
			}
		}
	}
}

// Evaluate returns the value of an expression in JavaScript.
func Evaluate[T any](t *testing.T, b *Browser, expression string) T {
	t.Helper()
	value, err := chromedp.Run(b.Ctx, chromedp.Evaluate[T](expression))
	require.NoError(t, err, expression)
	return value
}

// measuring has functions that measure a page.
//
//go:embed testdata/measuring.js
var measuring string

// Measure returns what an expression with the functions of testdata/measuring.js says of the page.
func Measure[T any](t *testing.T, b *Browser, expression string) T {
	t.Helper()
	return Evaluate[T](t, b, fmt.Sprintf("(() => { %s; return %s })()", measuring, expression))
}

// PrefersScheme has the browser ask for a colour scheme, "dark" or "light".
func PrefersScheme(scheme string) Step {
	return func(ctx context.Context, _ *chromedp.Target) (chromedp.Void, error) {
		_, err := chromedp.Call(ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
			Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}},
		})
		return chromedp.Void{}, err
	}
}

// Settled waits until colours have changed.
var Settled = Until(`document.getAnimations().every(a => a.playState != "running")`)

// WithScript runs a script before those of each page that the browser opens from now on.
func (b *Browser) WithScript(t *testing.T, script string) {
	t.Helper()
	b.Do(t, func(ctx context.Context, _ *chromedp.Target) (chromedp.Void, error) {
		_, err := chromedp.Call(ctx, cdppage.AddScriptToEvaluateOnNewDocument,
			cdppage.AddScriptToEvaluateOnNewDocumentParams{Source: script})
		return chromedp.Void{}, err
	})
}

// PageClock replaces the page's clocks by ones that the test moves. The clock of the user's computer is an hour wrong.
const PageClock = `
let passed = 0, wrong = 3_600_000
const [now, wall] = [performance.now.bind(performance), Date.now]
performance.now = () => now() + passed
Date.now = () => wall() + passed + wrong
`
