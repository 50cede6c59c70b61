module github.com/capture-cni/capture-cni/e2e/parts/critest

go 1.26.0

require sigs.k8s.io/cri-tools v1.34.0
