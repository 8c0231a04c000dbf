package counterconsole

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	entsql "entgo.io/ent/dialect/sql"

	"github.com/entcounter/entcounter/ent"
	"github.com/entcounter/entcounter/ent/file"
	"github.com/entcounter/entcounter/entcounter"
	"github.com/entcounter/entcounter/internal/testdb"
)

func TestMain(m *testing.M) { os.Exit(testdb.Main(m)) }

// newClient returns a client on a database with two datasets of files.
func newClient(t *testing.T, db *testdb.Database) *ent.Client {
	t.Helper()
	ctx := t.Context()
	client := ent.NewClient(ent.Driver(entsql.OpenDB(db.Dialect, db.DB(t))))
	if err := client.Schema.Create(ctx); err != nil {
		t.Fatal(err)
	}
	for d, statuses := range [][]file.Status{
		{file.StatusNew, file.StatusNew, file.StatusNew, file.StatusCopied, file.StatusFailed},
		{file.StatusCopied, file.StatusCopied},
	} {
		id := client.Dataset.Create().SetName(fmt.Sprint("dataset ", d+1)).SaveX(ctx).ID
		var creates []*ent.FileCreate
		for i, status := range statuses {
			creates = append(creates, client.File.Create().SetDatasetID(id).SetPath(fmt.Sprint(i)).SetSize(int64(1000*(i+1))).SetStatus(status))
		}
		client.File.CreateBulk(creates...).SaveX(ctx)
	}
	return client
}

func operateAll(*http.Request) Access { return Operate }
func viewOnly(*http.Request) Access   { return View }

func newConsole(t *testing.T, counters []*entcounter.Handle, options Options) *Console {
	t.Helper()
	options.Logger = slog.New(slog.NewTextHandler(t.Output(), nil))
	console, err := New(counters, options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(console.Close)
	return console
}

// keys yields the keys of drifts; the test fails on errors elsewhere.
func keys(drifts iter.Seq2[entcounter.Drift, error]) iter.Seq[[]any] {
	return func(yield func([]any) bool) {
		for d, err := range drifts {
			if err != nil {
				panic(err)
			}
			if !yield(d.Key) {
				return
			}
		}
	}
}

// visitor is a browser without a window.
type visitor struct {
	*testing.T
	client *http.Client
	url    string
	token  string
}

var tokenTag = regexp.MustCompile(`name="token" content="([^"]+)"`)

func visit(t *testing.T, url string) *visitor {
	t.Helper()
	jar, _ := cookiejar.New(nil)
	v := &visitor{T: t, client: &http.Client{Jar: jar}, url: url}
	res, body := v.get("/")
	m := tokenTag.FindStringSubmatch(body)
	if res.StatusCode != http.StatusOK || m == nil {
		t.Fatalf("%s\n%s", res.Status, body)
	}
	v.token = m[1]
	return v
}

func (v *visitor) get(path string) (*http.Response, string) {
	v.Helper()
	res, err := v.client.Get(v.url + path)
	if err != nil {
		v.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		v.Fatal(err)
	}
	return res, string(body)
}

// post sends a request with headers beside the token's, and returns status and answer.
func (v *visitor) post(path string, body any, headers ...string) (int, map[string]any) {
	v.Helper()
	data, err := json.Marshal(body)
	if err != nil {
		v.Fatal(err)
	}
	req, err := http.NewRequestWithContext(v.Context(), http.MethodPost, v.url+path, bytes.NewReader(data))
	if err != nil {
		v.Fatal(err)
	}
	req.Header.Set(tokenHeader, v.token)
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	res, err := v.client.Do(req)
	if err != nil {
		v.Fatal(err)
	}
	defer res.Body.Close()
	var answer map[string]any
	if err := json.NewDecoder(res.Body).Decode(&answer); err != nil {
		v.Fatal(err)
	}
	return res.StatusCode, answer
}

// start starts work and returns its id.
func (v *visitor) start(body request) string {
	v.Helper()
	status, answer := v.post("/start", body)
	if status != http.StatusOK {
		v.Fatalf("%d %v", status, answer)
	}
	return answer["job"].(map[string]any)["id"].(string)
}

// stream is the events of a page.
type stream struct {
	*testing.T
	lines *bufio.Scanner
	end   context.CancelFunc
}

func (v *visitor) stream() *stream {
	v.Helper()
	ctx, cancel := context.WithCancel(v.Context())
	v.Cleanup(cancel)
	req, _ := http.NewRequestWithContext(ctx, http.MethodGet, v.url+"/events", nil)
	res, err := v.client.Do(req)
	if err != nil || res.StatusCode != http.StatusOK {
		v.Fatal(res, err)
	}
	v.Cleanup(func() { _ = res.Body.Close() })
	lines := bufio.NewScanner(res.Body)
	lines.Buffer(nil, 1<<24)
	return &stream{v.T, lines, cancel}
}

// until returns the data of the first event of a name that a condition holds for.
func until[T any](s *stream, name string, holds func(T) bool) (data T) {
	s.Helper()
	event := ""
	for s.lines.Scan() {
		line := s.lines.Text()
		if e, ok := strings.CutPrefix(line, "event: "); ok {
			event = e
		}
		if d, ok := strings.CutPrefix(line, "data: "); ok && event == name {
			var v T
			if err := json.Unmarshal([]byte(d), &v); err != nil {
				s.Fatal(err)
			}
			if holds(v) {
				return v
			}
		}
	}
	s.Fatalf("the stream ends before %s: %v", name, s.lines.Err())
	return data
}

func ended(id string) func(jobView) bool {
	return func(j jobView) bool { return j.ID == id && j.State != "running" }
}

// Drift is found, mended and gone, on all databases.
func TestRepair(t *testing.T) {
	testdb.Each(t, func(t *testing.T, db *testdb.Database) {
		client := newClient(t, db)
		server := httptest.NewServer(newConsole(t, client.Counters(), Options{Authorize: operateAll, Interval: 10 * time.Millisecond}))
		t.Cleanup(server.Close)
		v := visit(t, server.URL)
		s := v.stream()
		t.Cleanup(s.end)
		state := until(s, "state", func(stateMessage) bool { return true })
		if len(state.Counters) != 1 || state.Counters[0].Name != "File" || fmt.Sprint(state.Counters[0].Key) != "[{dataset_id [] true} {status [New Copying Copied Failed] false}]" ||
			fmt.Sprint(state.Counters[0].Measures) != "[count bytes]" {
			t.Errorf("%+v", state)
		}
		seen := until(s, "sample", func(s sampleView) bool { return s.Points[0].Journal == 4 && len(s.Hot) == 4 })
		if seen.State.Name != "well" || seen.Hot[0].Now != 1 || seen.Points[0].Oldest <= 0 {
			t.Errorf("%+v", seen)
		}

		if _, err := client.ExecContext(t.Context(), "UPDATE files SET status = 'Copied', size = 7 WHERE dataset_id = 1 AND status = 'New'"); err != nil {
			t.Fatal(err)
		}
		job := v.start(request{Action: actionVerify, Counter: "File"})
		verdict := until(s, "verdict", func(verdictView) bool { return true })
		if got := fmt.Sprint(verdict.Keys, verdict.Drift); got != "2 [{[1 Copied] [{count 1 4} {bytes 4000 4021}]} {[1 New] [{count 3 0} {bytes 6000 0}]}]" {
			t.Error(got)
		}
		if j := until(s, "job", ended(job)); j.State != "done" || j.Message != "2 keys differ from the rows." {
			t.Errorf("%+v", j)
		}

		// A scope of the last verify heals, and what else it found stays.
		job = v.start(request{Action: actionRebuild, Counter: "File", Scope: []string{"1", "New"}})
		verdict = until(s, "verdict", func(verdictView) bool { return true })
		if len(verdict.Scope) != 0 || verdict.Keys != 1 || fmt.Sprint(verdict.Drift[0].Key) != "[1 Copied]" {
			t.Errorf("%+v", verdict)
		}
		if j := until(s, "job", ended(job)); j.Message != "1 key corrected." {
			t.Errorf("%+v", j)
		}
		v.start(request{Action: actionRebuild, Counter: "File", Confirmed: true})
		until(s, "verdict", func(v verdictView) bool { return v.Keys == 0 })
		job = v.start(request{Action: actionFold, Counter: "File"})
		if j := until(s, "job", ended(job)); j.Message != "6 rows folded." || j.Done != 6 && j.Done != 0 {
			t.Errorf("%+v", j)
		}
		until(s, "sample", func(s sampleView) bool { return s.Points[0].Journal == 0 && s.LastFold != nil })
		if found := slices.Collect(keys(client.Counters()[0].Drifts(t.Context(), nil))); len(found) > 0 {
			t.Error(found)
		}

		// A page that is opened now gets all of it.
		again := v.stream()
		state = until(again, "state", func(stateMessage) bool { return true })
		if len(state.Verdicts) != 1 || state.Verdicts[0].Keys != 0 || len(state.Jobs) != 4 || len(state.Seen[0].Points) < 2 {
			t.Errorf("%+v", state)
		}

		// A count below zero is seen by looking.
		if _, err := client.ExecContext(t.Context(), "UPDATE file_counters SET count = -5 WHERE dataset_id = 2 AND status = 'Copied'"); err != nil {
			t.Fatal(err)
		}
		until(s, "sample", func(s sampleView) bool {
			return s.State.Name == "negative" && strings.Contains(s.State.Advice, "(2, Copied)")
		})
	})
}

func TestNewRefuses(t *testing.T) {
	counters := newClient(t, testdb.New(t, testdb.SQLite)).Counters()
	for want, try := range map[string]func() (*Console, error){
		"Authorize":     func() (*Console, error) { return New(counters, Options{}) },
		"no counters":   func() (*Console, error) { return New(nil, Options{Authorize: viewOnly}) },
		"negative":      func() (*Console, error) { return New(counters, Options{Authorize: viewOnly, Samples: -1}) },
		"Interval is -": func() (*Console, error) { return New(counters, Options{Authorize: viewOnly, Interval: -1}) },
	} {
		if c, err := try(); err == nil || c != nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

// Nobody gets at anything without leave, and no other site in a visitor's name.
func TestAccess(t *testing.T) {
	client := newClient(t, testdb.New(t, testdb.SQLite))
	access := Operate
	console := newConsole(t, client.Counters(), Options{Title: "<b>Files</b>", Authorize: func(*http.Request) Access { return access }})
	mux := http.NewServeMux()
	mux.Handle("/admin/counters/", http.StripPrefix("/admin/counters", console))
	mux.Handle("/admin/counters", http.StripPrefix("/admin/counters", console))
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	v := visit(t, server.URL+"/admin/counters")
	if res, body := v.get(""); res.Request.URL.Path != "/admin/counters/" || !strings.Contains(body, "&lt;b&gt;Files") {
		t.Errorf("%s\n%s", res.Request.URL, body)
	}
	verify := request{Action: actionVerify, Counter: "File"}
	for _, path := range []string{"/", "/app.js", "/app.css"} {
		res, _ := v.get(path)
		if policy := res.Header.Get("Content-Security-Policy"); !strings.Contains(policy, "default-src 'none'") || strings.Contains(policy, "unsafe") {
			t.Errorf("%s: %s", path, policy)
		}
		if res.Header.Get("X-Content-Type-Options") != "nosniff" || res.Header.Get("Cache-Control") != "no-store" {
			t.Errorf("%s: %v", path, res.Header)
		}
	}
	refused := func(what string, status int, answer map[string]any, want int) {
		t.Helper()
		if status != want || answer["error"] == "" {
			t.Errorf("%s: %d %v, want %d", what, status, answer, want)
		}
	}
	status, answer := v.post("/start", verify, "Sec-Fetch-Site", "cross-site")
	refused("another site", status, answer, http.StatusForbidden)
	status, answer = v.post("/start", verify, "Origin", "https://evil.example")
	refused("another origin", status, answer, http.StatusForbidden)
	status, answer = v.post("/start", verify, tokenHeader, "")
	refused("no token", status, answer, http.StatusForbidden)
	status, answer = v.post("/cancel", map[string]string{"id": "x"}, tokenHeader, "guessed")
	refused("another token", status, answer, http.StatusForbidden)
	stranger := &visitor{T: t, client: &http.Client{}, url: v.url, token: v.token}
	status, answer = stranger.post("/start", verify)
	refused("a token without its cookie", status, answer, http.StatusForbidden)

	for want, body := range map[int][]any{
		http.StatusNotFound:   {request{Action: actionVerify, Counter: "Directory"}},
		http.StatusConflict:   {request{Action: actionRebuild, Counter: "File"}},
		http.StatusBadRequest: {request{Action: "drop", Counter: "File"}, request{Action: actionFold, Counter: "File", Scope: []string{"1"}}, request{Action: actionVerify, Counter: "File", Scope: []string{"x"}}, request{Action: actionVerify, Counter: "File", Scope: []string{"1", "New", "3"}}, "text", map[string]int{"other": 1}},
	} {
		for _, body := range body {
			status, answer := v.post("/start", body)
			refused(fmt.Sprint(body), status, answer, want)
		}
	}
	if status, answer := v.post("/start", verify, "Sec-Fetch-Site", "same-origin"); status != http.StatusOK {
		t.Errorf("%d %v", status, answer)
	}
	if res, _ := v.get("/start"); res.StatusCode != http.StatusMethodNotAllowed {
		t.Error(res.Status)
	}

	access = View
	if res, _ := v.get("/"); res.StatusCode != http.StatusOK {
		t.Error(res.Status)
	}
	status, answer = v.post("/start", verify)
	refused("who may look", status, answer, http.StatusForbidden)
	access = None
	for _, path := range []string{"", "/", "/events", "/app.js", "/nothing"} {
		if res, body := v.get(path); res.StatusCode != http.StatusForbidden || strings.Contains(body, "File") {
			t.Errorf("%s: %s %s", path, res.Status, body)
		}
	}
}

// A second click joins the first; what waits can be cancelled, and ends with the console.
func TestSingleFlight(t *testing.T) {
	db := testdb.New(t, testdb.SQLite)
	client := newClient(t, db)
	console := newConsole(t, client.Counters(), Options{Authorize: operateAll})
	server := httptest.NewServer(console)
	t.Cleanup(server.Close)
	v := visit(t, server.URL)
	s := v.stream()

	// A writer that does not end makes a rebuild wait.
	blocker, err := db.DB(t).Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = blocker.Close() }()
	if _, err := blocker.ExecContext(t.Context(), "BEGIN IMMEDIATE"); err != nil {
		t.Fatal(err)
	}
	scope := request{Action: actionRebuild, Counter: "File", Scope: []string{"1"}}
	first := v.start(scope)
	status, answer := v.post("/start", scope)
	if status != http.StatusOK || answer["joined"] != true || answer["job"].(map[string]any)["id"] != first {
		t.Errorf("%d %v", status, answer)
	}
	other := v.start(request{Action: actionRebuild, Counter: "File", Scope: []string{"2"}})
	if other == first {
		t.Error("another scope is the same work")
	}
	for i := range maxRunning - 2 {
		v.start(request{Action: actionRebuild, Counter: "File", Scope: []string{fmt.Sprint(10 + i)}})
	}
	if status, answer := v.post("/start", request{Action: actionVerify, Counter: "File"}); status != http.StatusConflict {
		t.Errorf("%d %v", status, answer)
	}
	if status, answer := v.post("/cancel", map[string]string{"id": first}); status != http.StatusOK {
		t.Errorf("%d %v", status, answer)
	}
	if _, err := blocker.ExecContext(t.Context(), "ROLLBACK"); err != nil {
		t.Fatal(err)
	}
	if j := until(s, "job", ended(first)); j.State != "cancelled" {
		t.Errorf("%+v", j)
	}
	if status, _ := v.post("/cancel", map[string]string{"id": "unknown"}); status != http.StatusNotFound {
		t.Error(status)
	}
	console.Close()
	for s.lines.Scan() { // ends
	}
	if status, answer := v.post("/start", scope); status != http.StatusServiceUnavailable {
		t.Errorf("%d %v", status, answer)
	}
	if res, _ := v.get("/events"); res.StatusCode != http.StatusServiceUnavailable {
		t.Error(res.Status)
	}
	if err := console.Run(t.Context()); err != nil {
		t.Error(err)
	}
}

// Samples are taken while somebody looks, or all the time while Run runs, and the oldest give way.
func TestSampling(t *testing.T) {
	client := newClient(t, testdb.New(t, testdb.SQLite))
	console := newConsole(t, client.Counters(), Options{Authorize: viewOnly, Interval: time.Millisecond, Samples: 5})
	w := console.counters[0]
	points := func() []pointView { return w.sampleView(0).Points }
	if len(points()) != 0 {
		t.Error("samples although nobody looks")
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- console.Run(ctx) }()
	for range 2000 {
		if p := points(); len(p) == 5 && p[0].At > p[0].At-1 {
			break
		}
		time.Sleep(time.Millisecond)
	}
	first := points()
	client.File.Update().SetStatus(file.StatusFailed).ExecX(ctx)
	for range 2000 {
		if p := points(); p[len(p)-1].Journal > 4 && p[0].At > first[0].At {
			break
		}
		time.Sleep(time.Millisecond)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	p := points()
	if len(p) != 5 || p[4].Journal <= 4 || !slices.IsSortedFunc(p, func(a, b pointView) int { return int(a.At - b.At) }) {
		t.Errorf("%+v", p)
	}
	hot := w.sampleView(1).Hot
	if len(hot) == 0 || hot[0].Mean < 1 || hot[0].Now < 1 {
		t.Errorf("%+v", hot)
	}
	time.Sleep(20 * time.Millisecond) // what was under way
	if p := points(); p[4].At != points()[4].At {
		t.Error("samples although nobody looks any more")
	}
	console.Close()
}

func TestLoopback(t *testing.T) {
	for _, c := range []struct {
		peer, host, header string
		want               Access
	}{
		{"127.0.0.1:5", "127.0.0.1:8080", "", Operate},
		{"[::1]:5", "[::1]:8080", "", Operate},
		{"127.0.0.1:5", "localhost", "", Operate},
		{"127.0.0.1:5", "[::1]", "", Operate},
		{"10.0.0.1:5", "localhost:8080", "", None},
		{"127.0.0.1:5", "evil.example:8080", "", None},
		{"127.0.0.1:5", "", "", None},
		{"127.0.0.1:5", "localhost", "X-Forwarded-For", None},
		{"@", "localhost", "", None},
	} {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.RemoteAddr, r.Host = c.peer, c.host
		if c.header != "" {
			r.Header.Set(c.header, "10.0.0.1")
		}
		if got := Loopback(r); got != c.want {
			t.Errorf("%+v: %d", c, got)
		}
	}
}
