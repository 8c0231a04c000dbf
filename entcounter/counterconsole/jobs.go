package counterconsole

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/entcounter/entcounter/entcounter"
)

// The work that can be asked for.
const (
	actionFold    = "fold"
	actionVerify  = "verify"
	actionRebuild = "rebuild"
)

const (
	maxRunning = 8   // pieces of work at once
	keptJobs   = 4   // of those that have ended, of each counter
	keptDrifts = 200 // keys that a verify lists
)

// job is a piece of work, which goes on when the page that asked for it is closed.
type job struct {
	id      string
	action  string
	counter *watched
	scope   []any
	cancel  context.CancelFunc

	mu       sync.Mutex
	phase    string
	done     int64
	total    int64 // -1 if it is not known
	message  string
	err      error
	started  time.Time
	ended    time.Time
	lastShow time.Time
}

type jobView struct {
	ID      string    `json:"id"`
	Action  string    `json:"action"`
	Counter string    `json:"counter"`
	Scope   []string  `json:"scope"`
	Phase   string    `json:"phase"`
	Done    int64     `json:"done"`
	Total   int64     `json:"total"`
	Message string    `json:"message"`
	State   string    `json:"state"` // running, done, failed or cancelled
	Started time.Time `json:"started"`
	Seconds float64   `json:"seconds"`
}

func (j *job) view() jobView {
	j.mu.Lock()
	defer j.mu.Unlock()
	v := jobView{ID: j.id, Action: j.action, Counter: j.counter.Name(), Scope: texts(j.scope), Phase: j.phase, Done: j.done, Total: j.total,
		Message: j.message, State: "running", Started: j.started, Seconds: time.Since(j.started).Seconds()}
	if !j.ended.IsZero() {
		v.State, v.Seconds = "done", j.ended.Sub(j.started).Seconds()
	}
	switch {
	case errors.Is(j.err, context.Canceled):
		v.State, v.Message = "cancelled", "Cancelled: what it had not committed is undone."
	case j.err != nil:
		v.State, v.Message = "failed", j.err.Error()
	}
	return v
}

func (j *job) running() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.ended.IsZero()
}

// same reports whether another request asks for the same work.
func (j *job) same(action string, w *watched, scope []any) bool {
	return j.action == action && j.counter == w && entcounter.CompareKeys(j.scope, scope) == 0
}

// request is what the page sends.
type request struct {
	Action    string   `json:"action"`
	Counter   string   `json:"counter"`
	Scope     []string `json:"scope"` // values of the first key columns
	Confirmed bool     `json:"confirmed"`
}

// serveStart starts work, or joins the same that is under way.
func (c *Console) serveStart(r *http.Request) (any, error) {
	var q request
	if err := decode(r, &q); err != nil {
		return nil, err
	}
	i := slices.IndexFunc(c.counters, func(w *watched) bool { return w.Name() == q.Counter })
	if i < 0 {
		return nil, refuse(http.StatusNotFound, "there is no counter %q", q.Counter)
	}
	w := c.counters[i]
	if !slices.Contains([]string{actionFold, actionVerify, actionRebuild}, q.Action) {
		return nil, refuse(http.StatusBadRequest, "there is no action %q", q.Action)
	}
	var pairs []string
	for i, text := range q.Scope {
		if i >= len(w.Definition().Key) {
			return nil, refuse(http.StatusBadRequest, "a scope of %d values, and the key has %d columns", len(q.Scope), i)
		}
		pairs = append(pairs, w.Definition().Key[i].Name+"="+text)
	}
	scope, err := w.Definition().ParseScope(pairs...)
	if err != nil {
		return nil, refuse(http.StatusBadRequest, "%w", err)
	}
	switch {
	case q.Action == actionFold && len(scope) > 0:
		return nil, refuse(http.StatusBadRequest, "a fold has no scope: it takes the oldest rows of the journal, whatever their keys")
	case q.Action == actionRebuild && len(scope) == 0 && !q.Confirmed:
		return nil, refuse(http.StatusConflict, "a rebuild of a whole counter must be confirmed")
	}
	j, joined, err := c.start(q.Action, w, scope)
	if err != nil {
		return nil, err
	}
	c.options.Logger.InfoContext(r.Context(), "console", "action", q.Action, "counter", w.Name(), "scope", texts(scope), "joined", joined, "from", r.RemoteAddr)
	return map[string]any{"job": j.view(), "joined": joined}, nil
}

// serveCancel ends work.
func (c *Console) serveCancel(r *http.Request) (any, error) {
	var q struct {
		ID string `json:"id"`
	}
	if err := decode(r, &q); err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, j := range c.jobs {
		if j.id == q.ID {
			j.cancel()
			return map[string]any{"job": j.view()}, nil
		}
	}
	return nil, refuse(http.StatusNotFound, "there is no such work any more")
}

func decode(r *http.Request, v any) error {
	d := json.NewDecoder(r.Body)
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return refuse(http.StatusBadRequest, "the request cannot be read: %w", err)
	}
	return nil
}

// start starts work in a goroutine that [Console.Close] waits for, or returns the same
// that is running.
func (c *Console) start(action string, w *watched, scope []any) (j *job, joined bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, false, refuse(http.StatusServiceUnavailable, "the console is closing")
	}
	running := 0
	for _, j := range c.jobs {
		if !j.running() {
			continue
		}
		if running++; j.same(action, w, scope) {
			return j, true, nil
		}
	}
	if running >= maxRunning {
		return nil, false, refuse(http.StatusConflict, "%d pieces of work are under way: wait for one, or cancel it", running)
	}
	ctx, cancel := context.WithCancel(c.ctx)
	j = &job{id: rand.Text(), action: action, counter: w, scope: scope, cancel: cancel, total: -1, started: time.Now()}
	c.jobs = append(c.jobs, j)
	c.forget(w)
	c.work.Go(func() {
		defer cancel()
		c.run(ctx, j)
	})
	return j, false, nil
}

// forget drops the oldest work of a counter that has ended.
func (c *Console) forget(w *watched) {
	ended := 0
	for i := len(c.jobs) - 1; i >= 0; i-- {
		if j := c.jobs[i]; j.counter == w && !j.running() {
			if ended++; ended > keptJobs {
				c.jobs = slices.Delete(c.jobs, i, i+1)
			}
		}
	}
}

func (c *Console) run(ctx context.Context, j *job) {
	c.broadcast("job", j.view())
	message, err := "", error(nil)
	switch j.action {
	case actionFold:
		message, err = c.fold(ctx, j)
	case actionVerify:
		message, err = c.verify(ctx, j)
	case actionRebuild:
		message, err = c.rebuild(ctx, j)
	}
	if ctx.Err() != nil {
		err = context.Canceled
	}
	j.mu.Lock()
	j.message, j.err, j.ended, j.phase = message, err, time.Now(), ""
	j.mu.Unlock()
	if err != nil && ctx.Err() == nil {
		c.options.Logger.WarnContext(ctx, "console", "action", j.action, "counter", j.counter.Name(), "error", err)
	}
	c.broadcast("job", j.view())
	if ctx.Err() == nil {
		c.look(ctx, j.counter)
	}
}

// show tells how far a job is, at most some times a second.
func (c *Console) show(j *job, phase string, done, total int64) {
	j.mu.Lock()
	changed := j.phase != phase
	j.phase, j.done, j.total = phase, done, total
	due := changed || time.Since(j.lastShow) > 100*time.Millisecond
	if due {
		j.lastShow = time.Now()
	}
	j.mu.Unlock()
	if due {
		c.broadcast("job", j.view())
	}
}

func (c *Console) fold(ctx context.Context, j *job) (string, error) {
	backlog, err := j.counter.Backlog(ctx)
	if err != nil {
		return "", err
	}
	for rows := int64(0); ; {
		c.show(j, "folding", rows, max(backlog.Rows, rows))
		folded, err := j.counter.Fold(ctx)
		if err != nil {
			return "", err
		}
		rows += int64(folded.Rows)
		if !folded.Full {
			return plural(rows, "row", "rows") + " folded.", nil
		}
	}
}

// verdict is what the last verify of a counter has found.
type verdict struct {
	scope  []any
	at     time.Time
	keys   int64 // that differ
	drifts []entcounter.Drift
}

type verdictView struct {
	Counter string      `json:"counter"`
	Scope   []string    `json:"scope"`
	At      time.Time   `json:"at"`
	Keys    int64       `json:"keys"`
	Drift   []driftView `json:"drift"`
}

type driftView struct {
	Key      []string      `json:"key"`
	Measures []measureView `json:"measures"` // that differ
}

type measureView struct {
	Name   string `json:"name"`
	Stored string `json:"stored"`
	Actual string `json:"actual"`
}

func (c *Console) verify(ctx context.Context, j *job) (string, error) {
	v, err := c.compare(ctx, j, "verifying")
	if err != nil {
		return "", err
	}
	c.judge(j.counter, v)
	if v.keys == 0 {
		return "Exact: no key differs from the rows.", nil
	}
	return plural(v.keys, "key differs", "keys differ") + " from the rows.", nil
}

// compare recounts the scope of a job.
func (c *Console) compare(ctx context.Context, j *job, phase string) (*verdict, error) {
	v := &verdict{scope: j.scope}
	c.show(j, phase, 0, -1)
	for drift, err := range j.counter.Drifts(ctx, j.scope) {
		if err != nil {
			return nil, err
		}
		if v.keys++; len(v.drifts) < keptDrifts {
			v.drifts = append(v.drifts, drift)
		}
		c.show(j, phase, v.keys, -1)
	}
	v.at = time.Now()
	v.sort()
	return v, nil
}

func (v *verdict) sort() {
	slices.SortFunc(v.drifts, func(a, b entcounter.Drift) int { return entcounter.CompareKeys(a.Key, b.Key) })
}

// covers reports whether a scope includes another.
func covers(scope, other []any) bool {
	return len(scope) <= len(other) && entcounter.CompareKeys(scope, other[:len(scope)]) == 0
}

// rebuild rebuilds a scope and then compares it again. What the last verify had found in
// this scope gives way to that.
func (c *Console) rebuild(ctx context.Context, j *job) (string, error) {
	c.show(j, "rebuilding", 0, -1)
	rebuilt, err := j.counter.Rebuild(ctx, j.scope)
	if err != nil {
		return "", err
	}
	message := plural(int64(rebuilt.Keys), "key", "keys") + " corrected."
	v, err := c.compare(ctx, j, "verifying")
	if err != nil {
		return "", fmt.Errorf("%s Verifying then failed: %w", message, err)
	}
	j.counter.mu.Lock()
	last := j.counter.verdict
	j.counter.mu.Unlock()
	if last != nil && last.keys == int64(len(last.drifts)) && covers(last.scope, j.scope) {
		for _, drift := range last.drifts {
			if !covers(j.scope, drift.Key) && len(v.drifts) < keptDrifts {
				v.drifts = append(v.drifts, drift)
				v.keys++
			}
		}
		v.scope = last.scope
		v.sort()
	}
	c.judge(j.counter, v)
	return message, nil
}

// judge keeps and shows what a verify has found.
func (c *Console) judge(w *watched, v *verdict) {
	w.mu.Lock()
	w.verdict = v
	w.mu.Unlock()
	c.broadcast("verdict", w.verdictView())
}

func (w *watched) verdictView() *verdictView {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.verdict == nil {
		return nil
	}
	v := &verdictView{Counter: w.Name(), Scope: texts(w.verdict.scope), At: w.verdict.at, Keys: w.verdict.keys, Drift: []driftView{}}
	for _, d := range w.verdict.drifts {
		drift := driftView{Key: texts(d.Key)}
		for i, m := range w.Definition().Measures {
			if d.Stored[i] != d.Actual[i] {
				drift.Measures = append(drift.Measures, measureView{m.Name, strconv.FormatInt(d.Stored[i], 10), strconv.FormatInt(d.Actual[i], 10)})
			}
		}
		v.Drift = append(v.Drift, drift)
	}
	return v
}

func plural(n int64, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return strconv.FormatInt(n, 10) + " " + many
}
