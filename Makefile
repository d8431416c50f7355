# Every command of the repository. "make" alone lists them.
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

.PHONY: help demo test lint build bench clean services-up services-down

help: ## List the commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: ## Tell the whole story on a temporary SQLite file; needs no server
	go run ./cmd/worker demo

test: ## Start Postgres and RabbitMQ, run every test, end them again
	scripts/with-services scripts/test

lint: ## go vet, staticcheck, gofmt and the syntax of the scripts
	scripts/lint

build: ## Static binaries of worker and admin into bin/, stamped with the commit ("go version -m" shows it)
	CGO_ENABLED=0 go build -buildvcs=auto -trimpath -ldflags '-s -w' -o bin/ ./cmd/worker ./cmd/admin
	@ls -lh bin/worker bin/admin

bench: ## Measure this engine beside plain River, on a private Postgres and RabbitMQ
	scripts/with-services go run ./cmd/worker bench

services-up: ## Start Postgres and RabbitMQ and leave them running
	scripts/services up

services-down: ## End what services-up started and remove its data
	scripts/services down

clean: services-down ## End the servers; remove bin/, data/ and test leftovers
	rm -rf bin data .services
	find . -name '*.test' -o -name '*.prof' | xargs rm -f
