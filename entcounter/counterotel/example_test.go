package counterotel_test

import (
	"context"
	"log"

	"go.opentelemetry.io/otel"

	"github.com/entcounter/entcounter/ent"
	"github.com/entcounter/entcounter/entcounter"
	"github.com/entcounter/entcounter/entcounter/counterotel"
)

func Example() {
	run := func(ctx context.Context, client *ent.Client) error {
		metrics, err := counterotel.NewMetrics(client.Counters(), otel.GetMeterProvider())
		if err != nil {
			log.Fatal(err)
		}
		defer metrics.Close()
		ctx = entcounter.WithTracer(ctx, counterotel.NewTracer(otel.GetTracerProvider()))
		worker := entcounter.NewWorker(client.Counters(), entcounter.WorkerOptions{OnCycle: metrics.OnCycle})
		return worker.Run(ctx)
	}
	_ = run
}
