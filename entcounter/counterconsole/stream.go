package counterconsole

import (
	"encoding/json"
	"fmt"
	"net/http"
	"time"
)

// viewer is an open page.
type viewer struct {
	// events waits for what is to be sent. A page that does not keep up is dropped: the
	// browser connects again, and gets everything.
	events chan []byte
}

// viewerBuffer is how many events a page may lag behind.
const viewerBuffer = 256

// heartbeat is how often a stream is sent something, and its viewer authorised again.
const heartbeat = 15 * time.Second

type stateMessage struct {
	Interval int64          `json:"interval"` // milliseconds
	Samples  int            `json:"samples"`
	Counters []counterView  `json:"counters"`
	Seen     []sampleView   `json:"seen"`
	Verdicts []*verdictView `json:"verdicts"`
	Jobs     []jobView      `json:"jobs"`
}

// serveEvents streams what happens: first everything that is known, then each change.
func (c *Console) serveEvents(w http.ResponseWriter, r *http.Request) {
	stream := http.NewResponseController(w)
	send := func(event []byte) bool {
		// A server's write timeout is for answers that end. Where deadlines cannot be set,
		// there are none.
		_ = stream.SetWriteDeadline(time.Now().Add(heartbeat))
		_, err := w.Write(event)
		return err == nil && stream.Flush() == nil
	}
	v, state, err := c.join()
	if err != nil {
		fail(w, http.StatusServiceUnavailable, err)
		return
	}
	defer c.leave(v)
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no")
	if !send(state) {
		return
	}
	beat := time.NewTicker(heartbeat)
	defer beat.Stop()
	for {
		event := []byte(": still here\n\n")
		select {
		case <-r.Context().Done():
			return
		case <-c.ctx.Done():
			return
		case <-beat.C:
			if c.options.Authorize(r) < View {
				return
			}
		case e, ok := <-v.events:
			if !ok {
				return
			}
			event = e
		}
		if !send(event) {
			return
		}
	}
}

// join opens a page: it returns what is known now, and from then on sends each change.
func (c *Console) join() (*viewer, []byte, error) {
	if !c.retain() {
		return nil, nil, fmt.Errorf("the console is closing")
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.viewers) >= maxViewers {
		c.samplers-- // another viewer keeps sampling going
		return nil, nil, fmt.Errorf("%d pages are open: close one", maxViewers)
	}
	message := stateMessage{Interval: c.options.Interval.Milliseconds(), Samples: c.options.Samples, Verdicts: []*verdictView{}, Jobs: []jobView{}}
	for _, w := range c.counters {
		message.Counters = append(message.Counters, w.view())
		message.Seen = append(message.Seen, w.sampleView(0))
		if verdict := w.verdictView(); verdict != nil {
			message.Verdicts = append(message.Verdicts, verdict)
		}
	}
	for _, j := range c.jobs {
		message.Jobs = append(message.Jobs, j.view())
	}
	v := &viewer{events: make(chan []byte, viewerBuffer)}
	c.viewers[v] = struct{}{}
	return v, encode("state", message), nil
}

func (c *Console) leave(v *viewer) {
	c.mu.Lock()
	delete(c.viewers, v)
	c.mu.Unlock()
	c.release()
}

// broadcast sends an event to all pages.
func (c *Console) broadcast(name string, message any) {
	event := encode(name, message)
	c.mu.Lock()
	defer c.mu.Unlock()
	for v := range c.viewers {
		select {
		case v.events <- event:
		default:
			delete(c.viewers, v)
			close(v.events)
		}
	}
}

// encode writes an event. JSON has no line breaks of its own.
func encode(name string, message any) []byte {
	data, err := json.Marshal(message)
	if err != nil {
		panic(fmt.Sprintf("counterconsole: %s: %v", name, err)) // strings and finite numbers cannot fail
	}
	return fmt.Appendf(nil, "event: %s\ndata: %s\n\n", name, data)
}
