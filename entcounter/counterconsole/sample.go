package counterconsole

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/entcounter/entcounter/entcounter"
)

// watched is a counter with what was seen of it.
type watched struct {
	*entcounter.Handle

	sampling sync.Mutex // one sample at a time

	mu      sync.Mutex
	samples []sample // the newest last
	health  entcounter.Health
	err     error // of the last sample
	verdict *verdict
}

// sample is what was seen of a counter at one moment.
type sample struct {
	at      time.Time
	journal int64
	oldest  time.Duration
	folded  int64 // by all folds so far
	hot     []entcounter.KeyDepth
}

// What is kept of each sample, and shown.
const (
	hotKept  = 20
	hotShown = 8
)

// retain starts sampling, or keeps it going. It reports false when the console is closed.
func (c *Console) retain() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return false
	}
	if c.samplers++; c.samplers == 1 {
		ctx, stop := context.WithCancel(c.ctx)
		c.stop = stop
		c.work.Go(func() { c.sample(ctx) })
	}
	return true
}

func (c *Console) release() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.samplers--; c.samplers == 0 {
		c.stop()
	}
}

// sample looks at all counters until the context ends.
func (c *Console) sample(ctx context.Context) {
	for {
		started := time.Now()
		for _, w := range c.counters {
			c.look(ctx, w)
		}
		pause := max(c.options.Interval, 20*time.Since(started))
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return
		}
	}
}

// look takes a sample of a counter and shows it.
func (c *Console) look(ctx context.Context, w *watched) {
	w.sampling.Lock()
	defer w.sampling.Unlock()
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	health, err := w.Health(ctx)
	var hot []entcounter.KeyDepth
	if err == nil && health.Journal > 0 && health.Journal < entcounter.HealthJournalRows {
		hot, err = w.DeepestKeys(ctx, hotKept)
	}
	if errors.Is(ctx.Err(), context.Canceled) {
		return
	}
	w.mu.Lock()
	if w.err = err; err == nil {
		w.health = health
		w.samples = append(w.samples, sample{time.Now(), health.Journal, health.Oldest, health.Folded, hot})
		if n := len(w.samples) - c.options.Samples; n > 0 {
			w.samples = slices.Delete(w.samples, 0, n)
		}
	}
	w.mu.Unlock()
	if err != nil {
		c.options.Logger.WarnContext(ctx, "console cannot look at a counter", "counter", w.Name(), "error", err)
	}
	c.broadcast("sample", w.sampleView(1))
}

// The views are what the page is told, in JSON. Counts are texts: those of JavaScript are
// exact up to 2^53 only.

type counterView struct {
	Name     string       `json:"name"`
	Key      []columnView `json:"key"`
	Measures []string     `json:"measures"`
}

type columnView struct {
	Name   string   `json:"name"`
	Values []string `json:"values"` // of an enum
	Number bool     `json:"number"`
}

type sampleView struct {
	Counter  string      `json:"counter"`
	Error    string      `json:"error,omitempty"`
	State    stateView   `json:"state"`
	Keys     int64       `json:"keys"`
	AllKeys  bool        `json:"allKeys"` // false if there are more than were counted
	Deepest  int64       `json:"deepest"`
	LastFold *time.Time  `json:"lastFold"`
	Speed    float64     `json:"speed"`
	Built    *time.Time  `json:"built"`
	Garbage  *int64      `json:"garbage"`
	History  bool        `json:"history"` // garbage is InnoDB's history list length
	Points   []pointView `json:"points"`
	Hot      []hotView   `json:"hot"`
}

// stateView is one word, and what follows from it.
type stateView struct {
	Name   string `json:"name"`
	Level  string `json:"level"` // good, note, warn or bad
	Advice string `json:"advice"`
}

type pointView struct {
	At      int64   `json:"at"` // milliseconds
	Journal int64   `json:"journal"`
	Oldest  float64 `json:"oldest"` // seconds
	In      float64 `json:"in"`     // rows a second, since the point before
	Out     float64 `json:"out"`
}

type hotView struct {
	Key  []string `json:"key"`
	Now  int64    `json:"now"`
	Mean float64  `json:"mean"`
}

func (w *watched) view() counterView {
	d := w.Definition()
	v := counterView{Name: w.Name()}
	for _, k := range d.Key {
		v.Key = append(v.Key, columnView{k.Name, k.Values, k.Type.Integer()})
	}
	for _, m := range d.Measures {
		v.Measures = append(v.Measures, m.Name)
	}
	return v
}

// sampleView shows the last n samples; 0 are all.
func (w *watched) sampleView(n int) sampleView {
	w.mu.Lock()
	defer w.mu.Unlock()
	h := w.health
	v := sampleView{Counter: w.Name(), State: stateOf(h), Keys: h.Keys, AllKeys: h.Keys < entcounter.HealthKeys, Deepest: h.Deepest,
		Speed: h.FoldedPerSecond, Points: []pointView{}, Hot: w.hottest()}
	if w.err != nil {
		v.Error = w.err.Error()
		v.State = stateView{"not seen", "bad", "The database does not answer: " + w.err.Error()}
	}
	if !h.LastFold.IsZero() {
		v.LastFold = &h.LastFold
	}
	if !h.LastBuild.IsZero() {
		v.Built = &h.LastBuild
	}
	switch {
	case h.HistoryLength >= 0:
		v.Garbage, v.History = &h.HistoryLength, true
	case h.DeadRows >= 0:
		v.Garbage = &h.DeadRows
	}
	first := 0
	if n > 0 {
		first = max(len(w.samples)-n, 0)
	}
	for i := first; i < len(w.samples); i++ {
		s := w.samples[i]
		p := pointView{At: s.at.UnixMilli(), Journal: s.journal, Oldest: s.oldest.Seconds()}
		if i > 0 {
			before := w.samples[i-1]
			if seconds := s.at.Sub(before.at).Seconds(); seconds > 0 {
				p.Out = max(float64(s.folded-before.folded), 0) / seconds
				p.In = max(float64(s.folded-before.folded+s.journal-before.journal), 0) / seconds
			}
		}
		v.Points = append(v.Points, p)
	}
	return v
}

// hottest returns the keys that had most journal rows over the samples that are kept. It
// is what a read of the key had to add, on average.
func (w *watched) hottest() []hotView {
	byKey := make(map[string]*hotView)
	for i, s := range w.samples {
		for _, depth := range s.hot {
			id := ""
			for _, v := range depth.Key {
				text := entcounter.FormatValue(v)
				id += strconv.Itoa(len(text)) + ":" + text
			}
			hot := byKey[id]
			if hot == nil {
				hot = &hotView{Key: texts(depth.Key)}
				byKey[id] = hot
			}
			hot.Mean += float64(depth.Rows) / float64(len(w.samples))
			if i == len(w.samples)-1 {
				hot.Now = depth.Rows
			}
		}
	}
	hottest := make([]hotView, 0, len(byKey))
	for _, hot := range byKey {
		hottest = append(hottest, *hot)
	}
	slices.SortFunc(hottest, func(a, b hotView) int {
		return cmp.Or(cmp.Compare(b.Mean, a.Mean), slices.Compare(a.Key, b.Key))
	})
	return hottest[:min(len(hottest), hotShown)]
}

// texts writes the values of a key as they are entered.
func texts(key []any) []string {
	texts := make([]string, len(key))
	for i, v := range key {
		texts[i] = entcounter.FormatValue(v)
	}
	return texts
}

func stateOf(h entcounter.Health) stateView {
	switch {
	case errors.Is(h.Built, entcounter.ErrDeclarationChanged):
		return stateView{"redeclared", "bad", "It was built by another declaration, and reads refuse it. If this program is the newer one, rebuild the whole counter."}
	case h.Built != nil:
		return stateView{"not built", "bad", "Its rows were there first, and reads refuse it. Rebuild the whole counter once."}
	case h.Negative > 0:
		return stateView{"negative", "bad", fmt.Sprintf("The count of (%s) is below zero, which no count can be. Verify finds what else is wrong, and rebuild mends it.",
			strings.Join(texts(h.NegativeKey), ", "))}
	case h.Paused:
		return stateView{"paused", "note", "Workers leave it alone until it is resumed. Reads stay exact, and get slower as the journal grows."}
	}
	return stateView{"well", "good", ""}
}
