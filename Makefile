# `make` lists the targets. ARGS go to `go test`: make test ARGS='-run TestFold ./...'
.DEFAULT_GOAL := help
.PHONY: help install test test-race generate fmt lint

STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.8.2
ARGS ?= ./...
TIMEOUT ?= 25m
# Every package of one run shares the servers that this starts.
WITH := go run ./internal/testdb/with --

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  \1\t\2/p' $(MAKEFILE_LIST) | expand -t 14

install: ## install the database servers and the browser that are missing
	./internal/testdb/install.sh

test: install ## run the tests on every database
	$(WITH) go test -timeout $(TIMEOUT) $(ARGS)

test-race: install ## the same with the race detector
	# Pointer checks in a C library made Go take half of the time of its tests.
	$(WITH) go test -race -gcflags=modernc.org/...=-d=checkptr=0 -timeout $(TIMEOUT) $(ARGS)

generate: ## generate the committed code anew
	go generate ./...

fmt: ## format the code
	gofmt -w .

lint: ## check format, vet, staticcheck
	@unformatted=$$(gofmt -l .); [ -z "$$unformatted" ] || { echo "not gofmt'd:"; echo "$$unformatted"; exit 1; }
	go vet ./...
	go run $(STATICCHECK) ./...
