package main

import (
	"bufio"
	"errors"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

const envMain = "ENTCOUNTER_TESTDB_WITH"

// TestMain makes the test binary be the command when a test says so.
func TestMain(m *testing.M) {
	if os.Getenv(envMain) != "" {
		main()
	}
	os.Exit(m.Run())
}

func with(args ...string) *exec.Cmd {
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = append(os.Environ(), envMain+"=1")
	return cmd
}

func code(t *testing.T, err error) int {
	t.Helper()
	if err == nil {
		return 0
	}
	var exit *exec.ExitError
	require.True(t, errors.As(err, &exit), err)
	return exit.ExitCode()
}

func TestRunsTheCommandWithServers(t *testing.T) {
	out, err := with("-postgres", "--", "sh", "-c", `echo "$ENTCOUNTER_POSTGRES_DSN"; exit 7`).Output()
	require.Equal(t, 7, code(t, err), string(out))
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	require.Len(t, lines, 2)
	require.Regexp(t, `^postgres [0-9.]+ \((env|local|container)\)$`, lines[0])
	require.Regexp(t, `^postgres(ql)?://`, lines[1])
}

func TestForwardsSignals(t *testing.T) {
	cmd := with("-postgres", "--", "sh", "-c", `trap 'echo got it; exit 3' TERM; echo ready; while :; do sleep 0.05; done`)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	lines := bufio.NewScanner(out)
	var printed []string
	for lines.Scan() {
		printed = append(printed, lines.Text())
		if lines.Text() == "ready" {
			require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
		}
	}
	require.Equal(t, 3, code(t, cmd.Wait()))
	require.Contains(t, printed, "got it")
}

func TestRunsNothingWithoutAServer(t *testing.T) {
	cmd := with("-postgres", "--", "echo", "ran")
	cmd.Env = append(cmd.Env, "ENTCOUNTER_POSTGRES_DSN=postgres://127.0.0.1:1/postgres")
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	require.Equal(t, 1, code(t, err))
	require.Empty(t, string(out))
	require.Contains(t, stderr.String(), "testdb: no postgres server")
}

func TestUsage(t *testing.T) {
	require.Equal(t, 2, code(t, with().Run()))
	require.Equal(t, 1, code(t, with("-postgres", "--", "/nonexistent/command").Run()))
}
