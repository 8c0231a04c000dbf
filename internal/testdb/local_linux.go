package testdb

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// A program is an installed server that can be started throwaway.
type program struct {
	// credential is the user to run as, nil for the process's own.
	credential *syscall.Credential
	// install returns the command that fills dir, which exists and is empty.
	install func(dir string) []string
	// serve returns the command of a server on dir that listens on the port of 127.0.0.1.
	serve func(dir string, port int) []string
	// dsn returns the administrator's DSN.
	dsn func(port int) string
	// quit ends the server for good and at once. Nothing in its files is needed any more.
	quit syscall.Signal
}

func openLocal(ctx context.Context, kind Kind) (*Server, error) {
	var (
		p   *program
		err error
	)
	switch kind {
	case MariaDB:
		p, err = mariadb()
	case MySQL:
		p, err = oracleMySQL(ctx)
	case Postgres:
		p, err = postgres()
	}
	if err != nil {
		return nil, err
	}
	return p.start(ctx, kind)
}

func (p *program) start(ctx context.Context, kind Kind) (_ *Server, err error) {
	root, err := newDir()
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			root.remove()
		}
	}()
	dir := filepath.Join(root.path, string(kind))
	for _, path := range []string{dir, root.tmp()} {
		if err := os.Mkdir(path, 0o700); err != nil {
			return nil, err
		}
		if p.credential != nil {
			if err := os.Chown(path, int(p.credential.Uid), int(p.credential.Gid)); err != nil {
				return nil, err
			}
		}
	}
	install, err := p.spawn(root, "install.log", p.install(dir))
	if err != nil {
		return nil, err
	}
	if err := install.wait(ctx, 2*time.Minute); err != nil {
		return nil, fmt.Errorf("%w\n%s", err, install.tail())
	}
	// Between the choice of a port and its use another process may take it: then choose again.
	for try := 1; ; try++ {
		port, err := freePort()
		if err != nil {
			return nil, err
		}
		serve, err := p.spawn(root, "server.log", p.serve(dir, port))
		if err != nil {
			return nil, err
		}
		dsn := p.dsn(port)
		err = serve.answers(ctx, kind, dsn)
		if err == nil {
			return &Server{DSN: dsn, stop: func() {
				serve.stop(p.quit)
				root.remove()
			}}, nil
		}
		serve.stop(p.quit)
		text := serve.tail()
		if try == 3 || !strings.Contains(strings.ToLower(text), "address already in use") {
			return nil, fmt.Errorf("%w\n%s", err, text)
		}
	}
}

func mariadb() (*program, error) {
	server, err1 := lookPath("mariadbd")
	install, err2 := lookPath("mariadb-install-db")
	if err := firstError(err1, err2); err != nil {
		return nil, absent("%v", err)
	}
	return &program{
		install: func(dir string) []string {
			return append([]string{install, "--no-defaults", "--datadir=" + dir, "--skip-test-db",
				"--auth-root-authentication-method=normal"}, asRoot()...)
		},
		serve: func(dir string, port int) []string {
			return append([]string{server, "--no-defaults", "--skip-log-bin"}, mysqlFlags(dir, port)...)
		},
		dsn:  mysqlDSN,
		quit: syscall.SIGKILL,
	}, nil
}

// oracleMySQL finds Oracle's server, on the PATH or where install.sh has unpacked it.
func oracleMySQL(ctx context.Context) (*program, error) {
	server, err := lookPath("mysqld")
	if err == nil {
		// Debian's MariaDB brings a mysqld of its own.
		version, err := exec.CommandContext(ctx, server, "--no-defaults", "--version").Output()
		if err != nil || strings.Contains(string(version), "MariaDB") {
			server = ""
		}
	}
	if server == "" {
		cache := os.Getenv("ENTCOUNTER_CACHE")
		if cache == "" {
			home, err := os.UserHomeDir()
			if err != nil {
				return nil, absent("%v", err)
			}
			cache = filepath.Join(home, ".cache", "entcounter")
		}
		unpacked := filepath.Join(cache, "mysql", "mysqld")
		if _, err := os.Stat(unpacked); err != nil {
			return nil, absent("no mysqld of Oracle's in PATH, nor %s", unpacked)
		}
		server = unpacked
	}
	return &program{
		install: func(dir string) []string {
			return append([]string{server, "--no-defaults", "--initialize-insecure", "--datadir=" + dir,
				"--secure-file-priv=", "--mysqlx=OFF"}, asRoot()...)
		},
		serve: func(dir string, port int) []string {
			return append([]string{server, "--no-defaults", "--disable-log-bin", "--mysqlx=OFF",
				// Tests read its lock waits. It has no need to remember many statements.
				"--performance-schema=ON", "--performance-schema-digests-size=200",
				"--performance-schema-events-statements-history-long-size=100",
			}, mysqlFlags(dir, port)...)
		},
		dsn:  mysqlDSN,
		quit: syscall.SIGKILL,
	}, nil
}

func mysqlDSN(port int) string { return fmt.Sprintf("root@tcp(127.0.0.1:%d)/", port) }

// mysqlFlags returns the options that MariaDB and MySQL share. Isolation levels and the
// auto-increment mode stay at each server's defaults: they are what is tested.
func mysqlFlags(dir string, port int) []string {
	flags := append([]string{
		"--datadir=" + dir,
		"--socket=" + filepath.Join(dir, "s"),
		"--pid-file=" + filepath.Join(dir, "pid"),
		"--bind-address=127.0.0.1",
		fmt.Sprintf("--port=%d", port),
		"--secure-file-priv=",
	}, asRoot()...)
	return append(flags, mysqlTuning()...)
}

// asRoot lets MariaDB and MySQL run as root, which they refuse unless told.
func asRoot() []string {
	if os.Geteuid() == 0 {
		return []string{"--user=root"}
	}
	return nil
}

// postgres finds the version that the environment names or the newest installed one, in Debian's folders or on
// the PATH.
func postgres() (*program, error) {
	bin := os.Getenv(EnvPostgresBin)
	if bin != "" {
		if _, err := os.Stat(filepath.Join(bin, "initdb")); err != nil {
			return nil, fmt.Errorf("%s: %w", EnvPostgresBin, err)
		}
	} else if found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/initdb"); len(found) > 0 {
		bin = filepath.Dir(slices.MaxFunc(found, func(a, b string) int {
			version := func(path string) int {
				n, _ := strconv.Atoi(filepath.Base(filepath.Dir(filepath.Dir(path))))
				return n
			}
			return version(a) - version(b)
		}))
	} else if path, err := exec.LookPath("initdb"); err == nil {
		bin = filepath.Dir(path)
	} else {
		return nil, absent("no initdb in /usr/lib/postgresql/*/bin nor PATH")
	}
	p := &program{
		install: func(dir string) []string {
			return []string{filepath.Join(bin, "initdb"), "-D", dir, "-U", "postgres", "-A", "trust",
				"-E", "UTF8", "--locale=C", "--no-sync", "--no-instructions"}
		},
		serve: func(dir string, port int) []string {
			return append([]string{filepath.Join(bin, "postgres"), "-D", dir, "-p", strconv.Itoa(port),
				"-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories="}, postgresTuning()...)
		},
		dsn: func(port int) string {
			return fmt.Sprintf("postgres://postgres@127.0.0.1:%d/postgres?sslmode=disable", port)
		},
		// Immediate shutdown. After a SIGKILL its shared memory would stay.
		quit: syscall.SIGQUIT,
	}
	if os.Geteuid() == 0 { // which it refuses to run as
		u, err := user.Lookup("postgres")
		if err != nil {
			return nil, absent("postgres does not run as root, and there is no other user for it: %v", err)
		}
		uid, err1 := strconv.ParseUint(u.Uid, 10, 32)
		gid, err2 := strconv.ParseUint(u.Gid, 10, 32)
		if err := firstError(err1, err2); err != nil {
			return nil, err
		}
		p.credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
	}
	return p, nil
}

// lookPath also looks where Debian puts servers, which is not in every user's PATH.
func lookPath(name string) (string, error) {
	path, err := exec.LookPath(name)
	if err != nil {
		if path, err2 := exec.LookPath("/usr/sbin/" + name); err2 == nil {
			return path, nil
		}
	}
	return path, err
}

func freePort() (int, error) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer func() { _ = l.Close() }()
	return l.Addr().(*net.TCPAddr).Port, nil
}

// A process is a child that dies with this process, however that ends.
type process struct {
	name string
	log  string // path
	pid  int
	done chan struct{}
	err  error // of Wait; set when done is closed
}

func (p *program) spawn(root *dir, logName string, args []string) (*process, error) {
	log := filepath.Join(root.path, logName)
	out, err := os.Create(log)
	if err != nil {
		return nil, err
	}
	defer func() { _ = out.Close() }()
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Dir = "/"
	cmd.Env = append(os.Environ(), "TMPDIR="+root.tmp())
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Credential: p.credential,
		Pdeathsig:  p.quit,
		// A process group of its own, so that ^C in a terminal reaches the tests and not their server.
		Setpgid: true,
	}
	child := &process{name: filepath.Base(args[0]), log: log, done: make(chan struct{})}
	started := make(chan error)
	go func() {
		// The death signal comes when the thread ends that started the child, not the process. So
		// this goroutine keeps the thread to itself as long as the child lives.
		runtime.LockOSThread()
		err := cmd.Start()
		if err == nil {
			child.pid = cmd.Process.Pid
		}
		started <- err
		if err == nil {
			child.err = cmd.Wait()
			close(child.done)
		}
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("%s: %w", child.name, err)
	}
	return child, nil
}

// wait waits for the child to end by itself.
func (c *process) wait(ctx context.Context, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	select {
	case <-c.done:
		if c.err != nil {
			return fmt.Errorf("%s: %w", c.name, c.err)
		}
		return nil
	case <-ctx.Done():
		c.stop(syscall.SIGKILL)
		return fmt.Errorf("%s: %w", c.name, ctx.Err())
	}
}

// answers waits until the child answers on the DSN, or ends.
func (c *process) answers(ctx context.Context, kind Kind, dsn string) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-c.done:
			cancel()
		case <-ctx.Done():
		}
	}()
	err := answers(ctx, kind, dsn, time.Minute)
	select {
	case <-c.done:
		return fmt.Errorf("%s ended: %v", c.name, c.err)
	default:
	}
	if err != nil {
		return fmt.Errorf("%s: %w", c.name, err)
	}
	return nil
}

// stop ends the child and all that it started.
func (c *process) stop(quit syscall.Signal) {
	_ = syscall.Kill(c.pid, quit)
	select {
	case <-c.done:
	case <-time.After(10 * time.Second):
	}
	_ = syscall.Kill(-c.pid, syscall.SIGKILL)
	<-c.done
}

// tail returns the end of what the child has printed.
func (c *process) tail() string {
	const limit = 2000
	text, err := os.ReadFile(c.log)
	if err != nil {
		return err.Error()
	}
	return strings.TrimSpace(string(text[max(0, len(text)-limit):]))
}

// A dir is a folder that is locked as long as its process lives. One that is not locked was left by a
// process that was killed.
type dir struct {
	path string
	lock *os.File
}

const dirPrefix = "entcounter-testdb-"

func newDir() (*dir, error) {
	sweepOnce.Do(func() { sweep(os.TempDir(), time.Minute) })
	path, err := os.MkdirTemp("", dirPrefix)
	if err != nil {
		return nil, err
	}
	lock, err := os.Open(path)
	if err == nil {
		err = firstError(
			syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB),
			os.Chmod(path, 0o711), // another user's server passes through
		)
	}
	d := &dir{path: path, lock: lock}
	if err != nil {
		d.remove()
		return nil, err
	}
	return d, nil
}

// tmp returns the folder for the server's temporary files. They go with the rest when it is killed.
func (d *dir) tmp() string { return filepath.Join(d.path, "tmp") }

func (d *dir) remove() {
	// What a killed installation had started may still be writing its last.
	for range 10 {
		if os.RemoveAll(d.path) == nil {
			break
		}
		time.Sleep(50 * time.Millisecond)
	}
	_ = d.lock.Close()
}

var sweepOnce sync.Once

// sweep removes what killed processes have left in parent, except what is younger than age: it may
// be about to be locked.
func sweep(parent string, age time.Duration) {
	found, _ := filepath.Glob(filepath.Join(parent, dirPrefix+"*"))
	for _, path := range found {
		lock, err := os.Open(path)
		if err != nil {
			continue // another user's, or gone
		}
		info, err := lock.Stat()
		if err == nil && time.Since(info.ModTime()) > age &&
			syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil {
			_ = os.RemoveAll(path)
		}
		_ = lock.Close()
	}
}
