module github.com/capture-cni/capture-cni

go 1.26.8

require (
	github.com/BurntSushi/toml v1.6.0 // the runtimes' configuration
	github.com/CycloneDX/cyclonedx-go v0.12.0 // a release's list of modules
	github.com/containernetworking/cni v1.3.1 // the protocol
	github.com/containernetworking/plugins v1.10.0 // running code in a namespace; reference plugins in tests
	github.com/coreos/go-iptables v0.8.0 // removing legacy rules
	github.com/fsnotify/fsnotify v1.9.0 // directory changes
	github.com/google/go-cmp v0.7.0 // differences in tests
	github.com/google/go-containerregistry v0.22.1 // the image, without Docker
	github.com/google/nftables v0.3.0 // encoding expressions in tests
	github.com/mdlayher/netlink v1.11.2 // decoding attributes in tests
	github.com/prometheus/client_golang v1.24.0 // metrics
	github.com/prometheus/common v0.70.0 // the parser of metrics in tests
	github.com/spf13/cobra v1.10.2 // commands
	github.com/spf13/pflag v1.0.10 // flags
	github.com/vishvananda/netlink v1.3.1 // lo, addresses, policy routing
	github.com/xeipuuv/gojsonschema v1.2.0 // the test of a release's list of modules
	go.opentelemetry.io/otel/trace v1.47.0 // a runtime's trace in a test
	go.yaml.in/yaml/v2 v2.4.4 // Kuma's annotation; the size of a manifest's aliases
	golang.org/x/sync v0.24.0 // ending tasks together
	golang.org/x/sys v0.49.0 // kernel constants and calls
	golang.org/x/term v0.47.0 // detecting a terminal
	golang.org/x/time v0.15.0 // rates of repairs and log lines
	google.golang.org/grpc v1.82.1 // the runtime's socket
	google.golang.org/protobuf v1.36.12 // recorded answers in tests
	k8s.io/api v0.37.2 // the type Pod
	k8s.io/apimachinery v0.37.2 // API errors, the protobuf codec
	k8s.io/client-go v0.37.2 // the REST client, the reflector
	k8s.io/component-helpers v0.37.2 // a DaemonSet's nodes
	k8s.io/cri-api v0.37.2 // CRI messages
	k8s.io/klog/v2 v2.140.0 // the client's log
	k8s.io/streaming v0.37.2 // falling back to SPDY in `exec`
	sigs.k8s.io/json v0.0.0-20250730193827-2d320260d730 // manifests, as the API server reads JSON
	sigs.k8s.io/yaml v1.6.0 // kubeconfigs, manifests
)

require (
	github.com/alexflint/go-filemutex v1.3.0 // indirect
	github.com/beorn7/perks v1.0.1 // indirect
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	github.com/davecgh/go-spew v1.1.2-0.20180830191138-d8f796af33cc // indirect
	github.com/fxamacker/cbor/v2 v2.9.1 // indirect
	github.com/go-logr/logr v1.4.4 // indirect
	github.com/gorilla/websocket v1.5.4-0.20250319132907-e064f32e3674 // indirect
	github.com/inconshreveable/mousetrap v1.1.0 // indirect
	github.com/json-iterator/go v1.1.12 // indirect
	github.com/klauspost/compress v1.19.2 // indirect
	github.com/mdlayher/socket v0.6.1 // indirect
	github.com/moby/spdystream v0.5.1 // indirect
	github.com/modern-go/concurrent v0.0.0-20180306012644-bacd9c7ef1dd // indirect
	github.com/modern-go/reflect2 v1.0.3-0.20250322232337-35a7c28c31ee // indirect
	github.com/munnerz/goautoneg v0.0.0-20191010083416-a7dc8b61c822 // indirect
	github.com/networkplumbing/go-nft v0.4.0 // indirect
	github.com/opencontainers/go-digest v1.0.0 // indirect
	github.com/opencontainers/image-spec v1.1.1 // indirect
	github.com/pkg/errors v0.9.1 // indirect
	github.com/pmezard/go-difflib v1.0.1-0.20181226105442-5d4384ee4fb2 // indirect
	github.com/prometheus/client_model v0.6.2 // indirect
	github.com/prometheus/procfs v0.21.1 // indirect
	github.com/safchain/ethtool v0.7.0 // indirect
	github.com/vishvananda/netns v0.0.5 // indirect
	github.com/x448/float16 v0.8.4 // indirect
	github.com/xeipuuv/gojsonpointer v0.0.0-20180127040702-4e3ac2762d5f // indirect
	github.com/xeipuuv/gojsonreference v0.0.0-20180127040603-bd5ef7bd5415 // indirect
	go.opentelemetry.io/otel v1.47.0 // indirect
	go.opentelemetry.io/otel/sdk/metric v1.47.0 // indirect
	golang.org/x/net v0.61.0 // indirect
	golang.org/x/oauth2 v0.37.0 // indirect
	golang.org/x/text v0.43.0 // indirect
	golang.org/x/tools v0.52.0 // indirect
	google.golang.org/genproto/googleapis/rpc v0.0.0-20260526163538-3dc84a4a5aaa // indirect
	gopkg.in/inf.v0 v0.9.1 // indirect
	k8s.io/kube-openapi v0.0.0-20260721132016-d427ff9ee9ad // indirect
	k8s.io/utils v0.0.0-20260626114624-be93311217bd // indirect
	sigs.k8s.io/knftables v0.0.22 // indirect
	sigs.k8s.io/randfill v1.0.0 // indirect
	sigs.k8s.io/structured-merge-diff/v6 v6.4.2 // indirect
)

tool (
	github.com/containernetworking/cni/cnitool
	github.com/containernetworking/plugins/plugins/ipam/host-local
	github.com/containernetworking/plugins/plugins/main/bridge
)
