# The commands that people expect. CI runs .ci/run.
GO ?= go
FUZZTIME ?= 30s
SEED ?= 1

.DEFAULT_GOAL := help
.PHONY: help build test race bench fuzz mutants lint generate demo ci

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

build: ## build bin/gnnactor
	$(GO) build -o bin/gnnactor ./cmd/gnnactor

test: ## run every test
	$(GO) test ./...

race: ## run every test under the race detector
	CGO_ENABLED=1 $(GO) test -race ./...

bench: ## run the benchmarks, with allocations; against the machine's limits: gnnactor bench
	$(GO) test -run '^$$' -bench . -benchmem ./...

fuzz: ## run every fuzz target for FUZZTIME
	@git ls-files '*_test.go' | xargs grep -HoE '^func Fuzz[A-Za-z0-9_]*' | sed 's/func //' | \
	while IFS=: read -r file name; do \
		$(GO) test -run '^$$' -fuzz "^$$name\$$" -fuzztime $(FUZZTIME) "./$$(dirname "$$file")" || exit 1; \
	done

mutants: ## break packages in 150 ways each, by SEED, and count what their tests notice (hours)
	$(GO) run ./internal/mutants -seed $(SEED) ./sampling ./compute ./compute/cpu ./graph/features ./scheduler ./cluster/membership ./actors

lint: ## gofmt, vet, staticcheck and the order of imports
	@test -z "$$(gofmt -l $$(git ls-files '*.go'))" || { gofmt -l $$(git ls-files '*.go'); exit 1; }
	$(GO) vet ./...
	$(GO) tool staticcheck ./...
	$(GO) test -count=1 ./internal/layers

generate: ## write the assembly anew
	$(GO) generate ./...

demo: ## train on the built-in graph and draw the curves
	$(GO) run ./cmd/gnnactor train --plot curves.svg

ci: ## everything that CI checks
	.ci/run
