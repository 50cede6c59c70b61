// SPDX-License-Identifier: Apache-2.0

package capture

// Packet marks under TPROXY.
const (
	// ProxyMark is the mark of packets from the proxy to the application, which the proxy sets, and of
	// packets that the rules deliver to the proxy.
	ProxyMark uint32 = 1337

	// markOwnPod is the mark of packets that the proxy, as a client, sends to its own pod.
	markOwnPod uint32 = 1338

	// markDelivered is the mark of connections that the rules delivered to the proxy.
	markDelivered uint32 = 1339
)

// inboundPolicy returns the flow that decides about packets that arrive. With TPROXY, mangle decides by
// this flow for each packet, and nat only counts connections.
func (b *builder) inboundPolicy() flow {
	if !b.transparent() {
		return b.inbound
	}
	redirected := b.Intent
	redirected.Transparent = false
	return b.mesh.inbound(&redirected)
}

// asInbound rewrites a rule of inboundPolicy for nat. With TPROXY, a captured packet goes to the chain
// that counts it instead of a redirection.
func (b *builder) asInbound(r Rule) (Rule, bool) {
	if b.transparent() && r.Do == toInbound {
		r.Do = gotoChain(chainInTProxy)
	}
	return r, true
}

// transparentChains captures inbound traffic by TPROXY, and sets a connection mark on the proxy's
// connections to the application.
func (b *builder) transparentChains() {
	if !b.transparent() {
		return
	}
	b.chain(Mangle, chainInbound)
	// This rule applies only on lo. While rules are being replaced, a packet can traverse the old
	// rules, which mark it, and then the new ones.
	b.add(Match{FromLo: true, Mark: ProxyMark}, Action{Verdict: SetConnMark, Mark: ProxyMark}, "remember what the proxy hands on")
	b.exempt(Match{Mark: ProxyMark}, "inbound traffic that the proxy hands on")
	b.exempt(Match{In: b.reroutes()}, "rerouted interface, see nat")
	b.exempt(Match{In: b.excludedInterfaces()}, "excluded interface")
	if b.mesh.callsOwnPod {
		b.exempt(Match{FromLo: true, Src: one(ProxySourceIPv4)}, "inbound traffic that the proxy hands on")
		b.exempt(Match{FromLo: true, Src: one(ProxySourceIPv6)}, "inbound traffic that the proxy hands on")
	}
	b.exempt(Match{FromLo: true, ExceptMark: markOwnPod}, "loopback between the application's processes")
	var ports flow
	ports.inboundPorts(&b.Intent)
	b.addFlow(ports, func(r Rule) (Rule, bool) {
		if r.Do == toInbound {
			r.Do = gotoChain(chainTProxy)
		}
		return r, true
	})

	// A SYN goes to the proxy, whatever conntrack knows. So do the later packets of its connection,
	// which have the connection's mark. With SYN cookies, no socket exists before the ACK, and the
	// application's listener would accept this ACK, too.
	deliver := Action{Verdict: Goto, Chain: chainDeliver}
	b.chain(Mangle, chainTProxy)
	b.exempt(Match{Dst: one(b.LoopbackCIDR)}, "localhost")
	b.exempt(Match{Dst: one(localhostIPv6)}, "localhost")
	b.add(Match{Protocol: TCP, Begins: true}, deliver, "begins a connection")
	b.exempt(Match{Protocol: TCP, Continues: true, Assured: true, ExceptConnMark: markDelivered},
		"a connection that the pod began, or from before the rules")
	b.add(Match{Protocol: TCP, Continues: true}, deliver, "a connection that the proxy has, or none")
	b.add(Match{ConnMark: markDelivered}, Action{Verdict: SetMark, Mark: ProxyMark}, "a reset, delivered here whatever its destination")

	b.chain(Mangle, chainDeliver)
	b.add(Match{Protocol: TCP},
		Action{Verdict: TProxy, Port: b.InboundPort, Mark: ProxyMark, ConnMark: markDelivered},
		"to the proxy's inbound port")
	b.add(Match{Protocol: TCP}, Action{Verdict: Drop}, "the proxy does not listen")

	b.chain(Mangle, chainOutput)
	b.add(Match{ConnMark: ProxyMark}, Action{Verdict: SetMark, Mark: ProxyMark}, "the application's answers to the proxy")
	b.exempt(Match{Mark: ProxyMark}, "between the proxy and the application")
	b.exempt(Match{Out: b.excludedInterfaces()}, "excluded interface")
	b.exempt(Match{ToLo: true, Dst: one(b.LoopbackCIDR)}, "localhost")
	b.exempt(Match{ToLo: true, Dst: one(localhostIPv6)}, "localhost")
	if b.mesh.callsOwnPod {
		ownPod := Action{Verdict: SetMark, Mark: markOwnPod}
		b.add(Match{ToLo: true, UID: one(b.ProxyUID), Original: true}, ownPod, "the proxy calls its own pod")
		b.add(Match{ToLo: true, GID: one(b.ProxyGID), Original: true}, ownPod, "the proxy calls its own pod")
	}

	// Packets that conntrack assigns to no connection have no connection mark.
	b.exempt(Match{ToLo: true}, "loopback")
	b.exempt(Match{UID: one(b.ProxyUID)}, "sent by the proxy's user")
	b.add(Match{Protocol: TCP, Accepts: true, Invalid: true}, Action{Verdict: Drop}, "an answer past the proxy")
}
