package testbrowser

import (
	"flag"
	"os"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"
)

// Update is the flag -update: tests write pictures of pages to docs/pictures. Their packages are two folders below the
// root.
var Update = flag.Bool("update", false, "write docs/pictures")

// WritePicture writes what the browser shows to docs/pictures, once an expression holds, if the flag -update asks for
// it.
func WritePicture(t *testing.T, b *Browser, name, when string) {
	t.Helper()
	if !*Update {
		return
	}
	b.Do(t, Until(when), Settled)
	SavePicture(t, name, Picture(t, b))
}

// Picture returns what the browser shows, as a PNG.
func Picture(t *testing.T, b *Browser) []byte {
	t.Helper()
	picture, err := chromedp.Run(b.Ctx, chromedp.CaptureScreenshot())
	require.NoError(t, err)
	return picture
}

// SavePicture writes a picture to docs/pictures.
func SavePicture(t *testing.T, name string, picture []byte) {
	t.Helper()
	require.NoError(t, os.MkdirAll("../../docs/pictures", 0o755))
	require.NoError(t, os.WriteFile("../../docs/pictures/"+name, picture, 0o644))
}
