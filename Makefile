# SPDX-License-Identifier: Apache-2.0

BIN      := bin
GOBUILD  := CGO_ENABLED=0 go build -trimpath -ldflags '-s -w'
PACKAGES := nftables iptables haproxy iproute2 strace
FUZZTIME := 20s
SOAKTIME := 10m

.DEFAULT_GOAL := help
.PHONY: help build plugins demo deps test test-unit soak fuzz golden bench lint verify fmt clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  %-10s %s\n", $$1, $$2}' Makefile

build: ## Build the plugin and the node agent into bin/
	$(GOBUILD) -o $(BIN)/capture-cni ./plugin
	$(GOBUILD) -o $(BIN)/capture-cni-node ./install

plugins: build ## Build also the reference plugins and cnitool
	$(GOBUILD) -o $(BIN)/ github.com/containernetworking/plugins/plugins/main/bridge \
		github.com/containernetworking/plugins/plugins/ipam/host-local github.com/containernetworking/cni/cnitool

demo: plugins ## Show the plugin at work (root); POD=file.yaml for a pod of your own
	@go run ./e2e/demo -bin $(BIN) $(if $(POD),-pod $(POD))

deps: ## Install what the tests need (Debian, root)
	@for tool in nft iptables-legacy haproxy ip strace; do command -v $$tool >/dev/null || missing=yes; done; \
	if [ "$$missing" ]; then echo "installing $(PACKAGES)"; apt-get update -qq && \
		DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $(PACKAGES) >/dev/null; fi

test: deps lint verify ## Everything: lint, verify, and all tests (root)
	go test -count=1 -timeout 20m ./...

test-unit: ## The quick tests, without root or packages
	go test -count=1 -short ./config ./plugin/... ./install/...

soak: deps ## Let all backends decide about random pods and packets for SOAKTIME (root)
	go test -count=1 -timeout 0 -v -run '^TestParity$$' ./e2e/traffic -soak $(SOAKTIME) -seed $$(date +%s)

fuzz: ## Fuzz every parser for FUZZTIME each
	@for package in ./config ./plugin ./plugin/capture ./plugin/netfilter ./install/conflist; do \
		for target in $$(go test -list '^Fuzz' $$package | grep ^Fuzz); do \
			echo "== $$package $$target" && go test -run '^$$' -fuzz "^$$target$$" -fuzztime $(FUZZTIME) $$package || exit 1; \
		done; done

golden: ## Rewrite the golden files after a change of the rules
	go test -count=1 ./plugin/capture -run Golden -update
	go test ./e2e/project -run Tables -update

bench: deps ## Print what an ADD costs, and its ratio to the least it could (root)
	go run ./e2e/bench

lint: ## Formatting, vet, staticcheck, unchecked errors
	@test -z "$$(go tool gofumpt -l .)" || { echo "not formatted (make fmt):"; go tool gofumpt -l .; exit 1; }
	go vet ./...
	go tool staticcheck -checks all ./...
	go tool errcheck -ignoretests -exclude .errcheck ./...

verify: ## go.mod is tidy, imports point one way, documents match the code
	go mod tidy -diff
	go test -count=1 ./e2e/project

fmt: ## Format the code
	go tool gofumpt -w .

clean: ## Remove what was built
	rm -rf $(BIN)
