package testdb

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const envHelper = "ENTCOUNTER_TESTDB_HELPER"

// TestHelper is the process that TestServersEnd starts and ends.
func TestHelper(t *testing.T) {
	mode := os.Getenv(envHelper)
	if mode == "" {
		return
	}
	for _, kind := range []Kind{MariaDB, MySQL, Postgres} {
		srv, err := acquire(t.Context(), kind, lookups[1:2])
		require.NoError(t, err)
		servers.running = append(servers.running, srv)
	}
	fmt.Println("started")
	if mode == "sleep" {
		time.Sleep(time.Minute)
	}
}

// No server outlives the process that started it: not when that ends as it should, and not when it is
// killed.
func TestServersEnd(t *testing.T) {
	for _, mode := range []string{"exit", "sleep"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			// Not t.TempDir, through which Postgres' user cannot pass.
			tmp, err := os.MkdirTemp("", "testdb")
			require.NoError(t, err)
			t.Cleanup(func() { _ = os.RemoveAll(tmp) })
			require.NoError(t, os.Chmod(tmp, 0o711))

			helper := exec.Command(os.Args[0], "-test.run=^TestHelper$", "-test.v")
			helper.Env = append(os.Environ(), envHelper+"="+mode, "TMPDIR="+tmp)
			out, err := helper.StdoutPipe()
			require.NoError(t, err)
			require.NoError(t, helper.Start())
			t.Cleanup(func() { _ = helper.Process.Kill(); _ = helper.Wait() })
			var printed bytes.Buffer
			for !strings.Contains(printed.String(), "started\n") {
				var chunk [512]byte
				n, err := out.Read(chunk[:])
				printed.Write(chunk[:n])
				require.NoError(t, err, printed.String())
			}

			if mode == "exit" {
				require.NoError(t, helper.Wait())
				require.Empty(t, processesOf(t, tmp))
				left, err := os.ReadDir(tmp)
				require.NoError(t, err)
				require.Empty(t, left)
				return
			}
			require.Len(t, processesOf(t, tmp), 3)
			sweep(tmp, 0)
			left, err := os.ReadDir(tmp)
			require.NoError(t, err)
			require.Len(t, left, 3, "folders in use are not swept")

			require.NoError(t, helper.Process.Kill())
			_ = helper.Wait()
			require.Eventually(t, func() bool { return len(processesOf(t, tmp)) == 0 }, 10*time.Second, 10*time.Millisecond)
			sweep(tmp, time.Hour)
			left, err = os.ReadDir(tmp)
			require.NoError(t, err)
			require.Len(t, left, 3, "young folders are not swept")
			sweep(tmp, 0)
			left, err = os.ReadDir(tmp)
			require.NoError(t, err)
			require.Empty(t, left)
		})
	}
}

// processesOf returns the command lines of the running processes that name the folder.
func processesOf(t *testing.T, dir string) (found []string) {
	t.Helper()
	paths, err := filepath.Glob("/proc/[0-9]*/cmdline")
	require.NoError(t, err)
	for _, path := range paths {
		text, err := os.ReadFile(path) // empty for a zombie
		if err == nil && bytes.Contains(text, []byte(dir)) {
			found = append(found, string(bytes.ReplaceAll(text, []byte{0}, []byte{' '})))
		}
	}
	return found
}
