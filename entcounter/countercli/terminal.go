package countercli

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/schollz/progressbar/v3"
	"github.com/spf13/cobra"
	"golang.org/x/term"
)

// isTerminal reports whether a stream is a terminal. Tests replace it.
var isTerminal = func(stream any) bool {
	f, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(f.Fd())) && os.Getenv("TERM") != "dumb"
}

// windowSize returns the size of a terminal in characters.
func windowSize(stream any) (width, height int) {
	if f, ok := stream.(*os.File); ok {
		if w, h, err := term.GetSize(int(f.Fd())); err == nil {
			return w, h
		}
	}
	return 80, 24
}

// confirm asks before something that cannot be undone. --yes answers; without a
// terminal there is nobody to ask.
func (a *app) confirm(cmd *cobra.Command, question string) error {
	if a.yes {
		return nil
	}
	if !isTerminal(cmd.InOrStdin()) {
		return usage("%s\nThere is no terminal to answer on: say --yes if that is meant", question)
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "%s [y/N] ", question)
	answer := make(chan string, 1)
	go func() {
		line, _ := bufio.NewReader(cmd.InOrStdin()).ReadString('\n')
		answer <- strings.ToLower(strings.TrimSpace(line))
	}()
	select {
	case line := <-answer:
		if line == "y" || line == "yes" {
			return nil
		}
		return fmt.Errorf("not confirmed, nothing was done")
	case <-cmd.Context().Done():
		fmt.Fprintln(cmd.ErrOrStderr())
		return cmd.Context().Err()
	}
}

// withYes adds the flag --yes to a command.
func (a *app) withYes(cmd *cobra.Command) *cobra.Command {
	cmd.Flags().BoolVar(&a.yes, "yes", false, "do not ask for confirmation")
	return cmd
}

// progress is a line on a terminal that tells how far a command is. Elsewhere it is
// nothing.
type progress struct {
	bar  *progressbar.ProgressBar
	stop context.CancelFunc
	done chan struct{}
}

// startProgress shows a bar up to a total, or where that is not known (-1) what is done and
// the time that it takes.
func startProgress(cmd *cobra.Command, what string, total int64) *progress {
	p := &progress{done: make(chan struct{})}
	if !isTerminal(cmd.ErrOrStderr()) {
		close(p.done)
		return p
	}
	options := []progressbar.Option{
		progressbar.OptionSetWriter(cmd.ErrOrStderr()),
		progressbar.OptionSetDescription(what),
		progressbar.OptionClearOnFinish(),
		progressbar.OptionThrottle(50 * time.Millisecond),
		progressbar.OptionSetWidth(30),
		progressbar.OptionSetElapsedTime(true),
		progressbar.OptionSetRenderBlankState(true),
		progressbar.OptionSpinnerType(14),
	}
	if total >= 0 {
		options = append(options, progressbar.OptionShowCount(), progressbar.OptionShowIts(), progressbar.OptionSetPredictTime(true))
	}
	p.bar = progressbar.NewOptions64(total, options...)
	ctx, stop := context.WithCancel(cmd.Context())
	p.stop = stop
	go func() { // a spinner turns and the clock runs while a statement does
		defer close(p.done)
		ticker := time.NewTicker(100 * time.Millisecond)
		defer ticker.Stop()
		for {
			select {
			case <-ticker.C:
				_ = p.bar.RenderBlank()
			case <-ctx.Done():
				return
			}
		}
	}()
	return p
}

// add tells that more is done.
func (p *progress) add(n int64) {
	if p.bar != nil {
		_ = p.bar.Add64(n)
	}
}

// describe changes the text beside the bar.
func (p *progress) describe(format string, args ...any) {
	if p.bar != nil {
		p.bar.Describe(fmt.Sprintf(format, args...))
	}
}

// end takes the line away.
func (p *progress) end() {
	if p.bar == nil {
		return
	}
	p.stop()
	<-p.done
	_ = p.bar.Clear()
	p.bar = nil
}
