package counterconsole_test

import (
	"context"
	"log"
	"net/http"
	"os"
	"os/signal"

	"entgo.io/ent/dialect"
	_ "github.com/go-sql-driver/mysql"

	"github.com/entcounter/entcounter/ent"
	"github.com/entcounter/entcounter/entcounter/counterconsole"
)

// A console among the other pages of a server. Who may see it is the server's to know.
func Example() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	client, err := ent.Open(dialect.MySQL, os.Getenv("FILES_DSN"))
	if err != nil {
		log.Fatal(err)
	}
	console, err := counterconsole.New(client.Counters(), counterconsole.Options{
		Authorize: func(r *http.Request) counterconsole.Access {
			switch user := userOf(r); {
			case user.isAdmin:
				return counterconsole.Operate
			case user.isStaff:
				return counterconsole.View
			}
			return counterconsole.None
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.Handle("/counters/", http.StripPrefix("/counters", console))

	server := &http.Server{Addr: ":8080", Handler: mux}
	server.RegisterOnShutdown(console.Close)
	go func() { _ = console.Run(ctx) }() // optional: samples also while nobody looks
	go func() {
		<-ctx.Done()
		_ = server.Shutdown(context.Background())
	}()
	log.Print(server.ListenAndServe())
}

// A console on one's own machine.
func ExampleLoopback() {
	client, err := ent.Open(dialect.MySQL, os.Getenv("FILES_DSN"))
	if err != nil {
		log.Fatal(err)
	}
	console, err := counterconsole.New(client.Counters(), counterconsole.Options{Authorize: counterconsole.Loopback})
	if err != nil {
		log.Fatal(err)
	}
	log.Fatal(http.ListenAndServe("127.0.0.1:8080", console))
}

type user struct{ isAdmin, isStaff bool }

// userOf stands for however the program knows who sends a request.
func userOf(*http.Request) user { return user{} }
