package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"

	"github.com/entcounter/entcounter/internal/testdb"
)

// Memory is the resident memory that processes have had at most while something was done, in bytes, as Linux tells it
// (VmHWM).
type Memory struct {
	Before  int64 `json:"before"`  // what this process had when it began
	Process int64 `json:"process"` // this process, clients and, on SQLite, the database in it
	// Server is that of a server on the same machine; of PostgreSQL, that of its largest process. It includes what the
	// process keeps for all of its work, such as the buffers that it has touched. 0 where it is not known.
	Server int64 `json:"server,omitempty"`
}

// peak does something, and returns the memory that it takes; nil on other systems than Linux.
func (s *server) peak(ctx context.Context, do func() error) (*Memory, error) {
	server := s.processes(ctx)
	debug.FreeOSMemory() // what was done before is not to blame
	known := forgetPeak("self")
	for _, pid := range server {
		forgetPeak(pid)
	}
	m := &Memory{Before: memoryOf("self", "VmRSS")}
	if err := do(); err != nil {
		return nil, err
	}
	if !known {
		return nil, nil
	}
	m.Process = memoryOf("self", "VmHWM")
	for _, pid := range s.processes(ctx) { // also those that were started meanwhile
		m.Server = max(m.Server, memoryOf(pid, "VmHWM"))
	}
	return m, nil
}

// forgetPeak lets the peak of a process begin anew, and reports whether it could.
func forgetPeak(pid string) bool {
	return os.WriteFile(filepath.Join("/proc", pid, "clear_refs"), []byte("5"), 0) == nil
}

// memoryOf reads a line of the status of a process, in bytes; 0 if it is not there.
func memoryOf(pid, line string) int64 {
	text, err := os.ReadFile(filepath.Join("/proc", pid, "status"))
	if err != nil {
		return 0
	}
	for l := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(l, line+":"); ok {
			kilobytes, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 10, 64)
			if err != nil {
				return 0
			}
			return kilobytes * 1024
		}
	}
	return 0
}

// programs are what the commands of servers contain.
var programs = map[testdb.Kind]string{testdb.MariaDB: "mariadbd", testdb.MySQL: "mysqld", testdb.Postgres: "postgres"}

// processes returns the pids of a server's processes, if it runs on this machine.
func (s *server) processes(ctx context.Context) []string {
	if s.kind == testdb.SQLite {
		return nil
	}
	file := ""
	query := "SELECT @@GLOBAL.pid_file"
	if s.kind == testdb.Postgres {
		query = "SELECT setting || '/postmaster.pid' FROM pg_settings WHERE name = 'data_directory'"
	}
	if err := s.admin.QueryRowContext(ctx, query).Scan(&file); err != nil {
		return nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return nil
	}
	pid, _, _ := strings.Cut(string(text), "\n")
	pid = strings.TrimSpace(pid)
	command, err := os.ReadFile(filepath.Join("/proc", pid, "cmdline"))
	if err != nil || !strings.Contains(string(command), programs[s.kind]) {
		return nil // it runs elsewhere, where this process has its number
	}
	children, err := os.ReadFile(fmt.Sprintf("/proc/%s/task/%s/children", pid, pid))
	if err != nil {
		return []string{pid}
	}
	return append(strings.Fields(string(children)), pid)
}
