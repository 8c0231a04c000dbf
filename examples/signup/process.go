package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/entcounter/entcounter/entcounter"
	"github.com/entcounter/entcounter/examples/signup/ent"
	"github.com/entcounter/entcounter/examples/signup/ent/user"
	"github.com/entcounter/entcounter/examples/signup/ent/usercounters"
)

// old is how many users sign up before there is a counter.
const old = 25

// signedUpBefore inserts users as a program does that knows nothing of counters, as far as they are not there,
// and returns how many users there are. The counter does not count them until it is initialised.
func signedUpBefore(ctx context.Context, client *ent.Client) (int, error) {
	there, err := client.User.Query().Select(user.FieldEmail).Strings(ctx)
	if err != nil {
		return 0, err
	}
	has := make(map[string]bool, len(there))
	for _, email := range there {
		has[email] = true
	}
	var values []string
	for i := range old {
		if email := fmt.Sprintf("old%d@example.com", i); !has[email] {
			values = append(values, fmt.Sprintf("('%s', '%s', %d)", email, user.PlanFree, i%3))
		}
	}
	if len(values) > 0 {
		query := fmt.Sprintf("INSERT INTO %s (%s, %s, %s) VALUES ", user.Table, user.FieldEmail, user.FieldPlan, user.FieldChanges)
		if _, err := client.ExecContext(ctx, query+strings.Join(values, ", ")); err != nil {
			return 0, err
		}
	}
	return len(there) + len(values), nil
}

// done is how many operations did something, and how many found that there was nothing to do.
type done struct {
	Inserted, Present int
	Changed, Absent   int
	Deleted, Gone     int
	Renamed, Kept     int
	Retried           int // transactions that lost against others and were run again
	Initialised       int // keys that the initialisation of the counter had to correct
}

func (d *done) add(o done) {
	d.Inserted += o.Inserted
	d.Present += o.Present
	d.Changed += o.Changed
	d.Absent += o.Absent
	d.Deleted += o.Deleted
	d.Gone += o.Gone
	d.Renamed += o.Renamed
	d.Kept += o.Kept
	d.Retried += o.Retried
	d.Initialised += o.Initialised
}

func (d done) String() string {
	return fmt.Sprintf(`initialise %d keys corrected, by whichever process came first
insert     %d users, %d were present
change     %d users, %d were absent
delete     %d users, %d were absent
rename     %d users, %d were absent or the new address was taken
retry      %d transactions that lost against others
`, d.Initialised, d.Inserted, d.Present, d.Changed, d.Absent, d.Deleted, d.Gone, d.Renamed, d.Kept, d.Retried)
}

// startProcesses starts the program several times, lets all processes go at once, and adds up what they say that
// they have done.
func startProcesses(ctx context.Context, opts options, args []string, stderr io.Writer) (done, error) {
	path, err := os.Executable()
	if err != nil {
		return done{}, err
	}
	type started struct {
		*exec.Cmd
		in  io.WriteCloser
		out *bufio.Reader
	}
	// A process that is not to start after all reads that there is nothing more to read.
	var all []started
	defer func() {
		for _, p := range all {
			_ = p.in.Close()
		}
	}()
	for i := range opts.processes {
		cmd := exec.CommandContext(ctx, path, append([]string{"-process", strconv.Itoa(i + 1)}, args...)...)
		cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
		cmd.WaitDelay = 30 * time.Second
		cmd.Stderr = stderr
		p := started{Cmd: cmd}
		if p.in, err = cmd.StdinPipe(); err != nil {
			return done{}, err
		}
		out, err := cmd.StdoutPipe()
		if err != nil {
			return done{}, err
		}
		p.out = bufio.NewReader(out)
		if err := cmd.Start(); err != nil {
			return done{}, err
		}
		all = append(all, p)
	}
	errs := make([]error, len(all))
	for i, p := range all {
		if _, err := p.out.ReadString('\n'); err != nil {
			errs[i] = fmt.Errorf("process %d did not get ready", i+1)
		}
	}
	if errors.Join(errs...) == nil {
		for _, p := range all {
			_, _ = io.WriteString(p.in, "go\n")
		}
	} else {
		for _, p := range all {
			_ = p.in.Close()
		}
	}
	var sum done
	for i, p := range all {
		var d done
		rerr := json.NewDecoder(p.out).Decode(&d)
		if err := p.Wait(); err != nil {
			errs[i] = errors.Join(errs[i], fmt.Errorf("process %d: %w", i+1, err))
		} else if rerr != nil {
			errs[i] = errors.Join(errs[i], fmt.Errorf("process %d has not said what it has done: %w", i+1, rerr))
		}
		sum.add(d)
	}
	return sum, errors.Join(errs...)
}

// process is one of the processes.
type process struct {
	options
	client *ent.Client
}

// run says that it is ready, waits for the word, initialises the counter, works, and says what it has done.
func (p *process) run(ctx context.Context, stdin io.Reader, stdout io.Writer) error {
	if _, err := fmt.Fprintln(stdout, "ready"); err != nil {
		return err
	}
	if _, err := bufio.NewReader(stdin).ReadString('\n'); err != nil {
		return errors.New("not told to go")
	}

	folding, stopFolding := context.WithCancel(context.WithoutCancel(ctx))
	folded := make(chan error, 1)
	worker := entcounter.NewWorker(p.client.Counters(), entcounter.WorkerOptions{MaxInterval: 50 * time.Millisecond, MinInterval: 50 * time.Millisecond})
	go func() { folded <- worker.Run(folding) }()

	// All processes do this at once, and while others work already: users are counted once.
	rebuilt, err := p.client.UserCounters.Rebuild(ctx, usercounters.Scope{})
	var sum done
	if err == nil {
		sum.Initialised = int(rebuilt.Keys)
		err = p.work(ctx, &sum)
	}
	stopFolding()
	if err = errors.Join(err, <-folded); err != nil && ctx.Err() == nil {
		return err
	}
	return json.NewEncoder(stdout).Encode(sum)
}

// work runs the workers. An error of one ends the others.
func (p *process) work(ctx context.Context, sum *done) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var (
		wg sync.WaitGroup
		mu sync.Mutex
	)
	for range p.workers {
		wg.Go(func() {
			w := &worker{process: p}
			for range p.operations {
				if ctx.Err() != nil {
					break
				}
				if err := w.operation(ctx); err != nil {
					cancel(err)
				}
			}
			mu.Lock()
			defer mu.Unlock()
			sum.add(w.done)
		})
	}
	wg.Wait()
	return context.Cause(ctx)
}

// worker does one operation after the other.
type worker struct {
	*process
	done
}

func (w *worker) email() string { return fmt.Sprintf("user%d@example.com", rand.IntN(w.emails)) }

// operation does something random.
func (w *worker) operation(ctx context.Context) error {
	switch n := rand.IntN(20); {
	case n < 9:
		return w.insert(ctx, w.email())
	case n < 14:
		return w.change(ctx, w.email())
	case n < 18:
		return w.delete(ctx, w.email())
	default:
		return w.rename(ctx, w.email(), w.email())
	}
}

// insert signs a user up, only if absent.
func (w *worker) insert(ctx context.Context, email string) error {
	err := w.retry(ctx, func() error { return w.client.User.Create().SetEmail(email).Exec(ctx) })
	if ent.IsConstraintError(err) {
		w.Present++
		return nil
	}
	if err == nil {
		w.Inserted++
	}
	return err
}

// change changes a user, only if present.
func (w *worker) change(ctx context.Context, email string) error {
	plan := []user.Plan{user.PlanFree, user.PlanPaid}[rand.IntN(2)]
	var n int
	err := w.retry(ctx, func() (err error) {
		n, err = w.client.User.Update().Where(user.Email(email)).SetPlan(plan).AddChanges(1).Save(ctx)
		return err
	})
	if err == nil {
		w.Changed, w.Absent = w.Changed+n, w.Absent+1-n
	}
	return err
}

// delete deletes a user, only if present.
func (w *worker) delete(ctx context.Context, email string) error {
	var n int
	err := w.retry(ctx, func() (err error) {
		n, err = w.client.User.Delete().Where(user.Email(email)).Exec(ctx)
		return err
	})
	if err == nil {
		w.Deleted, w.Gone = w.Deleted+n, w.Gone+1-n
	}
	return err
}

// errKept rolls a renaming back.
var errKept = errors.New("kept")

// rename replaces a user by one with another address, only if the one is present and the other absent: both
// happen, or neither.
func (w *worker) rename(ctx context.Context, from, to string) error {
	err := w.retry(ctx, func() error {
		tx, err := w.client.Tx(ctx)
		if err != nil {
			return err
		}
		err = func() error {
			switch n, err := tx.User.Delete().Where(user.Email(from)).Exec(ctx); {
			case err != nil:
				return err
			case n == 0:
				return errKept
			}
			err := tx.User.Create().SetEmail(to).SetPlan(user.PlanPaid).Exec(ctx)
			if ent.IsConstraintError(err) {
				return errKept
			}
			return err
		}()
		if err != nil {
			return errors.Join(err, tx.Rollback())
		}
		return tx.Commit()
	})
	if errors.Is(err, errKept) {
		w.Kept++
		return nil
	}
	if err == nil {
		w.Renamed++
	}
	return err
}

// attempts at one transaction.
const attempts = 50

// retry runs a transaction again as a whole while it loses against others.
func (w *worker) retry(ctx context.Context, transaction func() error) error {
	for n := 1; ; n++ {
		err := transaction()
		if !entcounter.Retryable(err) || n == attempts || ctx.Err() != nil {
			return err
		}
		w.Retried++
		select {
		case <-time.After(rand.N(time.Duration(n) * 2 * time.Millisecond)):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
