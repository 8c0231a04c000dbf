package countercli_test

import (
	"context"
	"database/sql"
	"fmt"
	"log"
	"os"

	"entgo.io/ent/dialect"
	entsql "entgo.io/ent/dialect/sql"
	_ "github.com/go-sql-driver/mysql"
	"github.com/spf13/cobra"
	_ "modernc.org/sqlite"

	"github.com/entcounter/entcounter/ent"
	"github.com/entcounter/entcounter/entcounter"
	"github.com/entcounter/entcounter/entcounter/countercli"
)

// A program of its own, such as cmd/counters of a module.
func ExampleMain() {
	client, err := ent.Open(dialect.MySQL, os.Getenv("FILES_DSN"))
	if err != nil {
		log.Fatal(err)
	}
	countercli.Main(client.Counters())
}

// A command among those of a program that has others, with a flag of that program.
func ExampleCommand() {
	var dsn string
	root := &cobra.Command{Use: "files"}
	root.PersistentFlags().StringVar(&dsn, "dsn", "", "the database")
	root.AddCommand(countercli.Command(func(ctx context.Context) ([]*entcounter.Handle, error) {
		db, err := sql.Open("sqlite", dsn)
		if err != nil {
			return nil, err
		}
		client := ent.NewClient(ent.Driver(entsql.OpenDB(dialect.SQLite, db)))
		return client.Counters(), client.Schema.Create(ctx)
	}))
	root.SetArgs([]string{"--dsn", "file:counters?mode=memory&cache=shared&_pragma=foreign_keys(1)", "counters", "read", "--total"})
	root.SetOut(os.Stdout)
	fmt.Println("exit code", countercli.Execute(context.Background(), root))

	// Output:
	// COUNT  BYTES  PENDING  UPDATED (UTC)
	//     0      0        0  never
	// exit code 0
}
