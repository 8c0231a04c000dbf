package counterprom_test

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/entcounter/entcounter/ent"
	"github.com/entcounter/entcounter/entcounter"
	"github.com/entcounter/entcounter/entcounter/counterprom"
)

func ExampleNewCollector() {
	run := func(ctx context.Context, client *ent.Client) error {
		collector := counterprom.NewCollector(client.Counters())
		prometheus.MustRegister(collector)
		worker := entcounter.NewWorker(client.Counters(), entcounter.WorkerOptions{OnCycle: collector.OnCycle})
		return worker.Run(ctx)
	}
	_ = run
}
