package testdb

// What a throwaway server is told, in a container or not. It is small, it does not hang for long, and
// unless durable() it is fast.

func mysqlTuning() []string {
	flags := []string{
		"--innodb-buffer-pool-size=256M",
		"--max-connections=400",
		"--innodb-lock-wait-timeout=20",
		"--lock-wait-timeout=20",
		"--character-set-server=utf8mb4",
		"--default-time-zone=+00:00",
	}
	if !durable() {
		flags = append(flags,
			"--innodb-flush-log-at-trx-commit=0",
			"--innodb-doublewrite=0",
			"--sync-binlog=0",
		)
	}
	return flags
}

func postgresTuning() []string {
	flags := []string{
		"-c", "shared_buffers=256MB",
		"-c", "max_connections=400",
		"-c", "lock_timeout=20s",
		"-c", "timezone=UTC",
	}
	if !durable() {
		flags = append(flags,
			"-c", "fsync=off",
			"-c", "synchronous_commit=off",
			"-c", "full_page_writes=off",
		)
	}
	return flags
}
