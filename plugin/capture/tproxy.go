// SPDX-License-Identifier: Apache-2.0

package capture

// Marks of packets and of connections under TPROXY.
const (
	// ProxyMark marks packets between the proxy and the application, and packets that the rules deliver
	// to the proxy. The proxy itself sets the mark on the packets that it sends to the application.
	// ProxyMark also marks the proxy's connections to the application.
	ProxyMark uint32 = 1337

	// markOwnPod marks packets that the proxy, as a client, sends to its own pod.
	markOwnPod uint32 = 1338

	// markDelivered marks connections that the rules delivered to the proxy.
	markDelivered uint32 = 1339
)

// natInbound returns the flow of table nat for packets that arrive in the pod. With TPROXY, table mangle
// applies this policy to each packet, and nat only counts connections by it, except that nat redirects
// connections from rerouted interfaces.
func (b *builder) natInbound() flow {
	if !b.usesTPROXY() {
		return b.inbound
	}
	redirected := b.Intent
	redirected.Transparent = false
	return b.mesh.inbound(&redirected)
}

// asNATInbound rewrites a rule of natInbound for table nat. With TPROXY, a rule that would redirect
// packets to the proxy's inbound port leads to the chain chainInTProxy, which only counts them.
func (b *builder) asNATInbound(r Rule) (Rule, bool) {
	if b.usesTPROXY() && r.Do == toInbound {
		r.Do = gotoChain(chainInTProxy)
	}
	return r, true
}

// transparentChains adds the chains that capture inbound traffic by TPROXY, and that set a connection
// mark on the proxy's connections to the application.
func (b *builder) transparentChains() {
	if !b.usesTPROXY() {
		return
	}
	b.chain(Mangle, chainInbound)
	// This rule matches only packets on lo. During an update of the rules, a packet from outside can
	// get ProxyMark from the old rules before it traverses the new rules.
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

	// A SYN goes to the proxy, even if conntrack has an entry for it. A later packet with ACK (see
	// Match.Continues) also goes to the proxy, unless its connection is assured and was not delivered to
	// the proxy. With SYN cookies, the kernel has no socket for the connection before the ACK, so the
	// application's listener could accept an ACK that passes here.
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

	// A SYN-ACK that conntrack assigns to no connection has no connection mark, so no rule above leads
	// it to the proxy. The last rule drops such a SYN-ACK of the application if it would leave the pod by
	// an interface that is not excluded.
	b.exempt(Match{ToLo: true}, "loopback")
	b.exempt(Match{UID: one(b.ProxyUID)}, "sent by the proxy's user")
	b.add(Match{Protocol: TCP, Accepts: true, Invalid: true}, Action{Verdict: Drop}, "an answer past the proxy")
}
