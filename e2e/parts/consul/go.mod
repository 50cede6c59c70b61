module github.com/capture-cni/capture-cni/e2e/parts/consul

go 1.26.9

toolchain go1.26.11

require github.com/hashicorp/consul/sdk v0.19.0
