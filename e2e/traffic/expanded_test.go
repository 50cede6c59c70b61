// SPDX-License-Identifier: Apache-2.0

package traffic

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/e2e/lab"
	"github.com/capture-cni/capture-cni/install/kernel"
	"github.com/capture-cni/capture-cni/plugin/capture"
	"github.com/capture-cni/capture-cni/plugin/netfilter"
	"github.com/capture-cni/capture-cni/plugin/nfnetlink"
	"github.com/capture-cni/capture-cni/plugin/xtables"
)

// What the largest accepted pod may take, many times what it does.
const (
	expandedTime   = time.Minute
	expandedMemory = 512 << 20 // allocated in all by a step, and the most of one program
)

// listedPod is a pod with lists of these lengths.
func listedPod(reroute, include, exclude, excludedInterfaces int, env map[string]string, mode string) *corev1.Pod {
	join := func(n int, element func(i int) string) string {
		elements := make([]string, n)
		for i := range elements {
			elements[i] = element(i)
		}
		return strings.Join(elements, ",")
	}
	ranges := func(i int) string { return oddRange(i/2, family(i%2)) }
	annotations := map[string]string{
		"istio.io/reroute-virtual-interfaces": join(reroute, func(i int) string { return fmt.Sprintf("reroute-%d", i) }),
		"excludeInterfaces":                   join(excludedInterfaces, func(i int) string { return fmt.Sprintf("exclude-%d", i) }),
		"excludeOutboundIPRanges":             join(exclude, ranges),
		"sidecar.istio.io/interceptionMode":   mode,
	}
	if include > 0 {
		annotations["includeOutboundIPRanges"] = join(include, ranges)
	}
	return injected(spelled(annotations), env)
}

// someListedPod draws lists, often of about the length that is the most, or this share of it.
func someListedPod(r *rand.Rand, share float64) *corev1.Pod {
	length := func(most int) int { return int(float64(most) * share * r.Float64() * r.Float64()) }
	env := map[string]string{"ISTIO_META_DNS_CAPTURE": pick(r, "true", "false"), "INVALID_DROP": pick(r, "true", "false")}
	reroute := 1 + length(300)
	return listedPod(reroute, min(18_000, length(60_000)/reroute), length(10_000), length(2_000), env, pick(r, "REDIRECT", "TPROXY"))
}

// TestExpanded writes the largest pods that Decide accepts, and some that are drawn: each
// backend writes them within bounds, reads the same back, as the guard does, and removes all.
// With -soak it draws more and larger pods.
func TestExpanded(t *testing.T) {
	lab.RequireRoot(t)
	fenced := fence(kumaAsked{dns: true, tuples: slices.Repeat([]kumaTuple{{"tcp,udp", "80,443", "5"}}, 250)}.pod())
	fenced.Annotations["capture-cni.io/fence-allow"] = strings.Join(slices.Repeat([]string{"in:udp:1@0.0.0.0/0"}, 400), ",")
	pods := []*corev1.Pod{ // at the limit of rules, of elements, or of exemptions and exceptions
		listedPod(121, 240, 0, 0, nil, "REDIRECT"),
		listedPod(1, 0, 14_000, 0, captureDNS, "REDIRECT"),
		listedPod(0, 0, 0, 4_900, captureDNS, "TPROXY"),
		listedPod(0, 0, 17_900, 0, nil, "REDIRECT"),
		fenced,
	}
	drawn, share := uint64(2), 0.05
	if *soak > 0 {
		drawn, share = 10, 1
	}
	t.Logf("%d pods of seed %d", drawn, *seed)
	for n := range drawn {
		pod := someListedPod(rand.New(rand.NewPCG(*seed, n)), share)
		if _, err := lab.Decide(pod, dualStack(), podAddresses()...); err == nil {
			pods = append(pods, pod)
		} else if _, ok := errors.AsType[capture.BadInput](err); !ok {
			t.Errorf("pod %d of seed %d: %v", n, *seed, err)
		}
	}
	for _, backend := range backends {
		for i, pod := range pods {
			if (i == 3 || i == 4) && backend != config.NFTables {
				continue // the limits of elements, rules and sets
			}
			t.Run(fmt.Sprintf("%s, pod %d", backend, i), func(t *testing.T) { expectHandled(t, pod, backend) })
		}
	}
}

func expectHandled(t *testing.T, pod *corev1.Pod, backend config.Backend) {
	t.Helper()
	settings := dualStack()
	settings.Meshes = config.Meshes()
	rs := decide(t, pod, settings)
	host := lab.StartHost(t)
	netns := open(t, host, backend)
	ctx, cancel := context.WithTimeout(t.Context(), expandedTime)
	defer cancel()
	step := func(name string, do func() ([]string, error)) {
		began, before := time.Now(), allocated()
		differences, err := do()
		if err != nil || len(differences) > 0 {
			t.Fatalf("%s: %v, differences %.1000q", name, err, differences)
		}
		memory := (allocated() - before) >> 20
		t.Logf("%s: %v, %d MiB allocated", name, time.Since(began).Round(time.Millisecond), memory)
		if memory > expandedMemory>>20 {
			t.Errorf("%s allocated %d MiB", name, memory)
		}
	}
	step("apply", func() ([]string, error) { return nil, netns.Namespace.Apply(ctx, rs, backend) })
	if backend == config.NFTables { // the guard has no other comparison than CHECK of rules of iptables
		step("check", func() ([]string, error) { return netns.differences(ctx, rs) })
	}
	step("guard", func() ([]string, error) {
		o, err := kernel.Observe(ctx, netns.Namespace, kernel.Question{Routes: rs.LocalMark != 0})
		if err = errors.Join(err, o.RulesFault, o.CountersFault, o.ObstructionFault); err != nil || o.Obstruction != "" {
			return []string{o.Obstruction}, err
		}
		if backend != config.NFTables {
			return o.Differences(ctx, rs, backend)
		}
		want, err := new(kernel.References).Digest(ctx, rs)
		if o.Digest != want {
			return []string{"another digest"}, err
		}
		return nil, err
	})
	step("remove", func() ([]string, error) { return nil, netns.Namespace.Remove(ctx) })
	var left netfilter.State
	lab.Check(t, host.Do(func() (err error) {
		left, err = netfilter.Inspect(ctx)
		return err
	}))
	if left != (netfilter.State{}) {
		t.Errorf("removal left %+v", left)
	}
	var programs unix.Rusage
	lab.Check(t, unix.Getrusage(unix.RUSAGE_CHILDREN, &programs))
	if t.Logf("programs: %d MiB", programs.Maxrss>>10); programs.Maxrss<<10 > expandedMemory {
		t.Error("a program took too much memory")
	}
}

func allocated() uint64 {
	var memory runtime.MemStats
	runtime.ReadMemStats(&memory)
	return memory.TotalAlloc
}

// TestExpandedBytes applies each rule with lists of several elements. If each of MaxExpanded
// rules were as large as the largest one that a list repeats, CHECK, guard and DEL could still
// read them, so the limit of rules is one of bytes.
func TestExpandedBytes(t *testing.T) {
	t.Parallel()
	lab.RequireRoot(t)
	for _, mode := range []string{"REDIRECT", "TPROXY"} {
		pod := listedPod(2, 4, 4, 2, map[string]string{"ISTIO_META_DNS_CAPTURE": "true", "INVALID_DROP": "true"}, mode)
		for key, value := range spelled(map[string]string{"excludeInboundPorts": "1,4,7", "excludeOutboundPorts": "1,4,7", "includeOutboundPorts": "11,13"}) {
			pod.Annotations[key] = value
		}
		settings := dualStack()
		settings.Mesh.OutboundOwnerGroupsExclude = []uint32{4_294_967_293, 4_294_967_294}
		rs := decide(t, pod, settings)
		for _, backend := range backends {
			t.Run(fmt.Sprintf("%s, %s", mode, backend), func(t *testing.T) {
				host := lab.StartHost(t)
				lab.Check(t, open(t, host, backend).Apply(rs))
				var sizes, repeated []int
				limit := nfnetlink.MaxBytes // of one table; it suffices for those of both families
				lab.Check(t, host.Do(func() (err error) {
					switch backend {
					case config.IPTablesLegacy:
						limit = xtables.MaxEntries
						sizes, repeated, err = legacySizes()
					case config.IPTablesNFT:
						sizes, err = ruleSizes(t.Context(), unix.NFPROTO_IPV4, unix.NFPROTO_IPV6)
						repeated = sizes
					default:
						limit = nfnetlink.MaxOurBytes
						sizes, err = ruleSizes(t.Context(), unix.NFPROTO_INET)
						repeated = []int{0} // a list is a set
					}
					return err
				}))
				most := capture.MaxExpanded * slices.Max(repeated)
				for _, size := range sizes {
					most += size
				}
				t.Logf("%d rules, at most %d bytes of %d", len(sizes), most, limit)
				if most > limit {
					t.Error("rules that are written can't be read")
				}
			})
		}
	}
}

// ruleSizes are those of the rules of nf_tables, as netlink lists them.
func ruleSizes(ctx context.Context, families ...byte) (sizes []int, err error) {
	r, err := nfnetlink.NewReader(ctx)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	for _, family := range families {
		l := nfnetlink.Listing{Family: family, Request: unix.NFT_MSG_GETRULE, What: "rules", Limit: nfnetlink.MaxRules}
		some, err := nfnetlink.List(r, l, func(rule nfnetlink.Attributes) ([]int, error) {
			size := 4 // struct nfgenmsg
			for _, data := range rule {
				size += 4 + (len(data)+3)&^3
			}
			return []int{size}, nil
		})
		if err != nil {
			return nil, err
		}
		sizes = append(sizes, some...)
	}
	return sizes, nil
}

// legacySizes are those of the entries of both families' tables, and of those that a list
// repeats: only the first entry of a rule has a comment.
func legacySizes() (sizes, repeated []int, err error) {
	tables, err := xtables.List()
	for table := range tables {
		entries, readErr := table.Entries()
		err = errors.Join(err, readErr)
		nextOffset := map[capture.Family]int{capture.IPv4: 84 + 6, capture.IPv6: 136 + 6}[table.Family] // struct ipt_entry, ip6t_entry
		for len(entries) > nextOffset+2 {
			size := int(binary.NativeEndian.Uint16(entries[nextOffset:]))
			sizes = append(sizes, size)
			if !bytes.Contains(entries[:size], []byte("comment\x00")) {
				repeated = append(repeated, size)
			}
			entries = entries[size:]
		}
	}
	return sizes, repeated, err
}
