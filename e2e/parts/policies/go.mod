module github.com/capture-cni/capture-cni/e2e/parts/policies

go 1.26.0

require (
	github.com/kyverno/kyverno v1.19.1
	github.com/open-policy-agent/gatekeeper/v3 v3.23.1
)
