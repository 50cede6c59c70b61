module github.com/capture-cni/capture-cni/e2e/parts/linkerd

go 1.26.0

require github.com/linkerd/linkerd2-proxy-init v1.6.2

require (
	github.com/inconshreveable/mousetrap v1.0.0 // indirect
	github.com/sirupsen/logrus v1.9.0 // indirect
	github.com/spf13/cobra v1.5.0 // indirect
	github.com/spf13/pflag v1.0.5 // indirect
	golang.org/x/sys v0.0.0-20220715151400-c0bba94af5f8 // indirect
)
