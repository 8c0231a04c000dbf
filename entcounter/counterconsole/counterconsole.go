// Package counterconsole is a web page for the counters of a program: how they do over
// time, which keys are hot, what differs from the rows, and buttons to fold, verify and
// rebuild. It is an [http.Handler], and serves all that it needs itself:
//
//	console, err := counterconsole.New(client.Counters(), counterconsole.Options{Authorize: …})
//	…
//	mux.Handle("/counters/", http.StripPrefix("/counters", console))
//
// Each process has a console of its own: plots, the last verify and work that is under
// way are those of the process that serves the page.
package counterconsole

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"html/template"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"path"
	"strings"
	"sync"
	"time"

	"github.com/entcounter/entcounter/entcounter"
)

// Access is what somebody may do on the console.
type Access int

// The levels of access. Each includes those before it.
const (
	// None: not even see the page.
	None Access = iota
	// View: see the page, with keys and counts.
	View
	// Operate: fold, verify and rebuild too. A verify or rebuild reads all rows of its scope.
	Operate
)

// Options of a [Console].
type Options struct {
	// Authorize tells what the sender of a request may do. It is called for every
	// request, and again and again while one streams. Required: there is no default that
	// would be safe. See [Loopback] for a program on one's own machine.
	Authorize func(*http.Request) Access
	// Title of the page. Default: "Counters".
	Title string
	// Interval between samples, at the least: sampling never takes more than a
	// twentieth of the time. Default: two seconds.
	Interval time.Duration
	// Samples that are kept of each counter, the newest. Default: 300, which are ten
	// minutes at the default interval.
	Samples int
	// Logger gets what was done by whom, and what failed. Default: slog.Default().
	Logger *slog.Logger
}

// Console serves the page. Samples are taken while somebody looks at it, or [Console.Run]
// runs.
type Console struct {
	options  Options
	counters []*watched
	handler  http.Handler

	// What runs on behalf of the console ends with it.
	ctx    context.Context
	cancel context.CancelFunc
	work   sync.WaitGroup

	mu       sync.Mutex
	closed   bool
	viewers  map[*viewer]struct{}
	samplers int
	stop     context.CancelFunc // of the sampling
	jobs     []*job             // the running ones, and the last ones of each counter that have ended
}

// maxViewers is how many pages may be open at once.
const maxViewers = 100

//go:embed web
var web embed.FS

var pageTemplate = template.Must(template.ParseFS(web, "web/index.html"))

// New returns a console of counters. It fails without Options.Authorize. Call
// [Console.Close] when the server shuts down.
func New(counters []*entcounter.Handle, options Options) (*Console, error) {
	switch {
	case options.Authorize == nil:
		return nil, errors.New("entcounter: the console has no Options.Authorize: give a function that tells who may see keys and counts, and who may repair them")
	case len(counters) == 0:
		return nil, errors.New("entcounter: the console has no counters: give those of a client, client.Counters()")
	case options.Interval < 0 || options.Samples < 0:
		return nil, fmt.Errorf("entcounter: the console's Interval is %s and Samples %d: neither may be negative", options.Interval, options.Samples)
	}
	if options.Title == "" {
		options.Title = "Counters"
	}
	if options.Interval == 0 {
		options.Interval = 2 * time.Second
	}
	if options.Samples == 0 {
		options.Samples = 300
	}
	if options.Logger == nil {
		options.Logger = slog.Default()
	}
	c := &Console{options: options, viewers: make(map[*viewer]struct{})}
	for _, h := range counters {
		c.counters = append(c.counters, &watched{Handle: h})
	}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	c.handler = c.routes()
	return c, nil
}

// Run takes samples until the context ends, whether or not somebody looks, so that a page
// that is opened shows what was before. It returns nil.
func (c *Console) Run(ctx context.Context) error {
	if !c.retain() {
		return nil
	}
	defer c.release()
	select {
	case <-ctx.Done():
	case <-c.ctx.Done():
	}
	return nil
}

// Close ends open streams and running work, and waits for them. A fold or rebuild that is
// under way is rolled back, which loses nothing. A server waits for open streams when it
// shuts down: register it there.
//
//	server.RegisterOnShutdown(console.Close)
func (c *Console) Close() {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.cancel()
	c.work.Wait()
}

// ServeHTTP serves the page and what it asks for.
func (c *Console) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Security-Policy", "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "+
		"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
	if c.options.Authorize(r) < View {
		http.Error(w, "You may not see this page.", http.StatusForbidden)
		return
	}
	c.handler.ServeHTTP(w, r)
}

func (c *Console) routes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", c.servePage)
	mux.HandleFunc("GET /events", c.serveEvents)
	for _, name := range []string{"app.js", "app.css"} {
		mux.HandleFunc("GET /"+name, func(w http.ResponseWriter, r *http.Request) {
			http.ServeFileFS(w, r, web, "web/"+name)
		})
	}
	mux.Handle("POST /start", c.operate(c.serveStart))
	mux.Handle("POST /cancel", c.operate(c.serveCancel))

	// A browser that sends no Sec-Fetch-Site or Origin has no token either.
	sameOrigin := http.NewCrossOriginProtection()
	sameOrigin.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fail(w, http.StatusForbidden, errors.New("the request comes from another site"))
	}))
	protected := sameOrigin.Handler(mux)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "" { // the prefix alone, without a slash: relative links need it
			u, _ := url.Parse(r.RequestURI)
			w.Header().Set("Location", "./"+url.PathEscape(path.Base(u.Path))+"/")
			w.WriteHeader(http.StatusMovedPermanently)
			return
		}
		protected.ServeHTTP(w, r)
	})
}

const (
	cookieName  = "counterconsole"
	tokenHeader = "X-Counterconsole-Token"
)

// servePage serves the page, with a token that its requests repeat. The token is the
// visitor's cookie, which another site can neither read nor, in a header, send.
func (c *Console) servePage(w http.ResponseWriter, r *http.Request) {
	token := ""
	if cookie, err := r.Cookie(cookieName); err == nil && len(cookie.Value) >= 20 {
		token = cookie.Value
	} else {
		token = rand.Text()
		http.SetCookie(w, &http.Cookie{Name: cookieName, Value: token, HttpOnly: true, Secure: r.TLS != nil, SameSite: http.SameSiteStrictMode})
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	err := pageTemplate.Execute(w, struct {
		Title, Token string
		Operate      bool
	}{c.options.Title, token, c.options.Authorize(r) >= Operate})
	if err != nil {
		c.options.Logger.WarnContext(r.Context(), "console page failed", "error", err)
	}
}

// operate guards what changes something, or costs much.
func (c *Console) operate(serve func(r *http.Request) (any, error)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if c.options.Authorize(r) < Operate {
			fail(w, http.StatusForbidden, errors.New("you may look, and not repair"))
			return
		}
		cookie, err := r.Cookie(cookieName)
		if err != nil || subtle.ConstantTimeCompare([]byte(cookie.Value), []byte(r.Header.Get(tokenHeader))) != 1 {
			fail(w, http.StatusForbidden, errors.New("the page is out of date: load it again"))
			return
		}
		r.Body = http.MaxBytesReader(w, r.Body, 1<<20)
		answer, err := serve(r)
		var refused refusal
		switch {
		case errors.As(err, &refused):
			fail(w, refused.status, err)
		case err != nil:
			fail(w, http.StatusInternalServerError, err)
		default:
			w.Header().Set("Content-Type", "application/json")
			_ = json.NewEncoder(w).Encode(answer)
		}
	})
}

// refusal is an error of a request.
type refusal struct {
	error
	status int
}

func (r refusal) Unwrap() error { return r.error }

func refuse(status int, format string, args ...any) error {
	return refusal{fmt.Errorf(format, args...), status}
}

func fail(w http.ResponseWriter, status int, err error) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]string{"error": err.Error()})
}

// Loopback lets whoever sits at the machine operate, and nobody else: the request comes
// from a loopback address, for a loopback name, and through no proxy that says so. Other
// users of the machine are let in too.
func Loopback(r *http.Request) Access {
	peer, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil || !isLoopback(peer) {
		return None
	}
	// A name that leads here from elsewhere is a page of somebody else's (DNS rebinding).
	host := r.Host
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	if host != "localhost" && !isLoopback(strings.Trim(host, "[]")) {
		return None
	}
	for _, name := range []string{"Forwarded", "X-Forwarded-For", "X-Real-Ip"} {
		if r.Header.Get(name) != "" {
			return None
		}
	}
	return Operate
}

func isLoopback(address string) bool {
	ip := net.ParseIP(address)
	return ip != nil && ip.IsLoopback()
}
