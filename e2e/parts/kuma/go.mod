module github.com/capture-cni/capture-cni/e2e/parts/kuma

go 1.26.0

require github.com/kumahq/kuma-net v0.4.3

require (
	github.com/cilium/ebpf v0.9.1 // indirect
	github.com/miekg/dns v1.1.50 // indirect
	github.com/vishvananda/netlink v1.2.1-beta.2 // indirect
	github.com/vishvananda/netns v0.0.0-20211101163701-50045581ed74 // indirect
	golang.org/x/mod v0.4.2 // indirect
	golang.org/x/net v0.61.0 // indirect
	golang.org/x/sys v0.49.0 // indirect
	golang.org/x/tools v0.1.6-0.20210726203631-07bc1bf47fb2 // indirect
	golang.org/x/xerrors v0.0.0-20200804184101-5ec99f83aff1 // indirect
)
