// Package testbrowser gives tests a headless Chromium.
//
// It is never skipped: where there is none, the test fails and says what to install.
package testbrowser

import (
	"context"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
)

// EnvChromium names the environment variable with the browser's program, where it is not
// found by its name.
const EnvChromium = "ENTCOUNTER_CHROMIUM"

// names of the program, as distributions have them.
var names = []string{"chromium", "chromium-browser", "google-chrome", "google-chrome-stable"}

// New returns the context of a tab in a browser of the test's own, which ends with the
// test, or after the given time at the latest.
func New(tb testing.TB, timeout time.Duration) context.Context {
	tb.Helper()
	options := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(program(tb)),
		chromedp.NoSandbox, // which needs rights that containers lack; the pages are the test's own
		chromedp.DisableGPU,
		chromedp.Flag("disable-dev-shm-usage", true),
		chromedp.UserDataDir(tb.TempDir()),
	)
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	tb.Cleanup(cancel)
	ctx, endBrowser := chromedp.NewExecAllocator(ctx, options...)
	tb.Cleanup(endBrowser)
	ctx, closeTab := chromedp.NewContext(ctx)
	tb.Cleanup(closeTab)
	if err := chromedp.Do(ctx); err != nil {
		tb.Fatalf("testbrowser: starting %s: %v", program(tb), err)
	}
	return ctx
}

func program(tb testing.TB) string {
	tb.Helper()
	if path := os.Getenv(EnvChromium); path != "" {
		return path
	}
	for _, name := range names {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	tb.Fatalf("testbrowser: no Chromium: run `make install`, install Chromium or Google Chrome, or set %s to its program", EnvChromium)
	return ""
}
