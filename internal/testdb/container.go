package testdb

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/testcontainers/testcontainers-go"
)

// openContainer starts a server in a container. The image is the official one, or what the
// environment names: ENTCOUNTER_MARIADB_IMAGE, ENTCOUNTER_MYSQL_IMAGE, ENTCOUNTER_POSTGRES_IMAGE.
// Should this process be killed, testcontainers' reaper removes the container.
func openContainer(ctx context.Context, kind Kind) (*Server, error) {
	const password = "entcounter"
	var (
		image, port, env string
		cmd              []string
		dsn              func(addr string) string
	)
	switch kind {
	case MariaDB, MySQL:
		image, env, port = "mysql:9", "MYSQL_ROOT_PASSWORD", "3306/tcp"
		if kind == MariaDB {
			image, env = "mariadb:10.11", "MARIADB_ROOT_PASSWORD"
		}
		cmd = mysqlTuning()
		dsn = func(addr string) string { return fmt.Sprintf("root:%s@tcp(%s)/", password, addr) }
	case Postgres:
		image, env, port = "postgres:15", "POSTGRES_PASSWORD", "5432/tcp"
		cmd = postgresTuning()
		dsn = func(addr string) string {
			return fmt.Sprintf("postgres://postgres:%s@%s/postgres?sslmode=disable", password, addr)
		}
	}
	if name := os.Getenv("ENTCOUNTER_" + strings.ToUpper(string(kind)) + "_IMAGE"); name != "" {
		image = name
	}

	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute) // an image may have to be pulled
	defer cancel()
	c, err := testcontainers.Run(ctx, image,
		testcontainers.WithEnv(map[string]string{env: password}),
		testcontainers.WithCmd(cmd...),
		testcontainers.WithExposedPorts(port),
	)
	// Also after an error there may be one.
	srv := &Server{stop: func() { _ = testcontainers.TerminateContainer(c) }}
	if err == nil {
		var addr string
		if addr, err = c.PortEndpoint(ctx, port, ""); err == nil {
			srv.DSN = dsn(addr)
			err = answers(ctx, kind, srv.DSN, 2*time.Minute)
		}
	}
	if err != nil {
		srv.stop()
		return nil, err
	}
	return srv, nil
}
