module github.com/capture-cni/capture-cni/e2e/parts/critest

go 1.26.6

require sigs.k8s.io/cri-tools v1.37.0 // indirect

tool sigs.k8s.io/cri-tools/cmd/critest
