// SPDX-License-Identifier: Apache-2.0

package capture

// Packet marks under TPROXY.
const (
	// ProxyMark is on packets from the proxy to the application, where the proxy
	// sets it, and on packets to be delivered to the proxy.
	ProxyMark uint32 = 1337

	// markOwnPod is on packets that the proxy sends to its own pod as a client.
	markOwnPod uint32 = 1338
)

// transparent reports whether inbound traffic is captured by TPROXY.
func (b *builder) transparent() bool { return b.Transparent && b.capturesInbound() }

// localMark returns the mark of packets to be routed to this host. The application's
// replies to the proxy need it: they have the client's address as destination.
func (b *builder) localMark() uint32 {
	if b.transparent() {
		return ProxyMark
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

// transparentInbound captures inbound traffic by TPROXY, and sets a connection mark on
// the proxy's connections to the application.
func (b *builder) transparentInbound() {
	if !b.transparent() {
		return
	}
	b.chain(Mangle, chainInbound)
	// Only on lo: while rules are replaced, a packet may traverse the old rules, which
	// mark it, and then the new ones.
	b.add(Match{In: lo, Mark: ProxyMark}, Action{Verdict: SetConnMark, Mark: ProxyMark}, "remember what the proxy hands on")
	b.exempt(Match{Mark: ProxyMark}, "inbound traffic that the proxy hands on")
	b.exempt(Match{In: b.reroutes()}, "rerouted interface, see nat")
	b.exempt(Match{In: b.excludedInterfaces()}, "excluded interface")
	b.exempt(Match{In: lo, Src: one(ProxySourceIPv4)}, "inbound traffic that the proxy hands on")
	b.exempt(Match{In: lo, Src: one(ProxySourceIPv6)}, "inbound traffic that the proxy hands on")
	b.exempt(Match{In: lo, ExceptMark: markOwnPod}, "loopback between the application's processes")
	b.inboundPorts(Action{Verdict: Goto, Chain: chainTProxy})

	// A SYN is never diverted: if the proxy has ended, a retransmitted SYN would reach
	// the application. If the proxy does not listen, packets are dropped for the same
	// reason.
	b.chain(Mangle, chainTProxy)
	b.exempt(Match{Dst: one(b.LoopbackCIDR)}, "localhost")
	b.exempt(Match{Dst: one(localhostIPv6)}, "localhost")
	b.add(Match{Protocol: TCP, Established: true}, Action{Verdict: Goto, Chain: chainDivert}, "a connection that the proxy has")
	b.add(Match{Protocol: TCP}, Action{Verdict: TProxy, Port: b.InboundPort, Mark: ProxyMark}, "to the proxy's inbound port")
	b.add(Match{Protocol: TCP}, Action{Verdict: Drop}, "the proxy does not listen")

	b.chain(Mangle, chainDivert)
	b.add(Match{}, Action{Verdict: SetMark, Mark: ProxyMark}, "deliver here")

	b.chain(Mangle, chainOutput)
	b.add(Match{ConnMark: ProxyMark}, Action{Verdict: SetMark, Mark: ProxyMark}, "the application's answers to the proxy")
	b.exempt(Match{Mark: ProxyMark}, "between the proxy and the application")
	b.exempt(Match{Out: b.excludedInterfaces()}, "excluded interface")
	b.exempt(Match{Out: lo, Dst: one(b.LoopbackCIDR)}, "localhost")
	b.exempt(Match{Out: lo, Dst: one(localhostIPv6)}, "localhost")
	ownPod := Action{Verdict: SetMark, Mark: markOwnPod}
	b.add(Match{Out: lo, UID: one(b.ProxyUID)}, ownPod, "the proxy calls its own pod")
	b.add(Match{Out: lo, GID: one(b.ProxyGID)}, ownPod, "the proxy calls its own pod")
}
