// SPDX-License-Identifier: Apache-2.0

package capture

// Marks by which packets are told apart under TPROXY.
const (
	// markProxy is on what the proxy hands on to the application, which the
	// proxy sets itself, and on what has to be delivered to the proxy.
	markProxy uint32 = 1337

	// markOwnPod is on what the proxy sends to its own pod like any client.
	markOwnPod uint32 = 1338
)

// transparent tells whether inbound traffic goes to the proxy by TPROXY. Where
// no inbound port is captured there is nothing to do it for.
func (b *builder) transparent() bool { return b.Transparent && b.capturesInbound() }

// localMark is the mark to be routed to this host: the answers to connections
// that the proxy makes in the client's name are addressed to the client.
func (b *builder) localMark() uint32 {
	if b.transparent() {
		return markProxy
	}
	return 0
}

func (b *builder) transparentJump() {
	if b.transparent() {
		b.add(Match{Protocol: TCP}, Action{Verdict: Jump, Chain: chainInbound}, "inbound TCP")
	}
}

func (b *builder) transparentReturn() {
	if b.transparent() {
		b.add(Match{Protocol: TCP}, Action{Verdict: Jump, Chain: chainOutput}, "outbound TCP")
	}
}

// transparentInbound hands what others send to the pod to the proxy, with its
// addresses, and remembers the connections that the proxy hands on.
func (b *builder) transparentInbound() {
	if !b.transparent() {
		return
	}
	b.chain(Mangle, chainInbound)
	// On lo alone: while rules are replaced, a packet may meet the old ones, which
	// mark it, and then the new ones.
	b.add(Match{In: lo, Mark: markProxy}, Action{Verdict: SetConnMark, Mark: markProxy}, "remember what the proxy hands on")
	b.exempt(Match{Mark: markProxy}, "inbound traffic that the proxy hands on")
	b.exempt(Match{In: b.reroutes()}, "rerouted interface, see nat")
	b.exempt(Match{In: b.excludedInterfaces()}, "excluded interface")
	b.exempt(Match{In: lo, Src: one(ProxySourceIPv4)}, "inbound traffic that the proxy hands on")
	b.exempt(Match{In: lo, Src: one(ProxySourceIPv6)}, "inbound traffic that the proxy hands on")
	b.exempt(Match{In: lo, ExceptMark: markOwnPod}, "loopback between the application's processes")
	b.inboundPorts(Action{Verdict: Goto, Chain: chainTProxy})

	// A SYN is never diverted: where the proxy is gone, one that is sent again
	// would reach the application. And a proxy that does not listen means a
	// drop, not a packet that goes on to the application.
	b.chain(Mangle, chainTProxy)
	b.exempt(Match{Dst: one(b.LoopbackCIDR)}, "localhost")
	b.exempt(Match{Dst: one(localhostIPv6)}, "localhost")
	b.add(Match{Protocol: TCP, Established: true}, Action{Verdict: Goto, Chain: chainDivert}, "a connection that the proxy has")
	b.add(Match{Protocol: TCP}, Action{Verdict: TProxy, Port: b.InboundPort, Mark: markProxy}, "to the proxy's inbound port")
	b.add(Match{Protocol: TCP}, Action{Verdict: Drop}, "the proxy does not listen")

	b.chain(Mangle, chainDivert)
	b.add(Match{}, Action{Verdict: SetMark, Mark: markProxy}, "deliver here")

	b.chain(Mangle, chainOutput)
	b.add(Match{ConnMark: markProxy}, Action{Verdict: SetMark, Mark: markProxy}, "the application's answers to the proxy")
	b.exempt(Match{Mark: markProxy}, "between the proxy and the application")
	b.exempt(Match{Out: b.excludedInterfaces()}, "excluded interface")
	b.exempt(Match{Out: lo, Dst: one(b.LoopbackCIDR)}, "localhost")
	b.exempt(Match{Out: lo, Dst: one(localhostIPv6)}, "localhost")
	ownPod := Action{Verdict: SetMark, Mark: markOwnPod}
	b.add(Match{Out: lo, UID: one(b.ProxyUID)}, ownPod, "the proxy calls its own pod")
	b.add(Match{Out: lo, GID: one(b.ProxyGID)}, ownPod, "the proxy calls its own pod")
}
