// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/capture-cni/capture-cni/config"
)

// listed returns a list of n elements.
func listed(n int, element func(i int) string) string {
	elements := make([]string, n)
	for i := range elements {
		elements[i] = element(i)
	}
	return strings.Join(elements, ",")
}

func portNumber(i int) string    { return fmt.Sprint(1 + i%65535) }
func address(i int) string       { return fmt.Sprintf("10.%d.%d.0/24", i/256%256, i%256) }
func exception(i int) string     { return "out:tcp:" + portNumber(i) + "@0.0.0.0/0" }
func interfaceName(i int) string { return fmt.Sprintf("eth%d", i) }

// longMessage is the limit of any message, so that runtime, kubelet and agent do not
// cut it.
const longMessage = 8 << 10

// TestLimits accepts long lists and refuses longer ones, with the limit in the fault.
func TestLimits(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name  string
		pod   Pod
		fault string // "" for none
	}{
		{"10,000 ports", meshedPod(annotated(annotationExcludeInboundPorts, listed(10_000, portNumber))), ""},
		{"10,000 ranges", meshedPod(annotated(annotationExcludeOutboundRanges, listed(10_000, address))), ""},
		{"5,000 interfaces", meshedPod(annotated(annotationExcludeInterfaces, listed(5_000, interfaceName))), ""},
		{
			"20,000 interfaces", meshedPod(annotated(annotationExcludeInterfaces, listed(20_000, interfaceName))),
			"annotation " + annotationExcludeInterfaces + ": \"eth0",
		},
		{"100 interfaces with 200 ranges", meshedPod(
			annotated(annotationRerouteInterfaces, listed(100, interfaceName)), annotated(annotationIncludeOutboundRanges, listed(200, address)),
		), ""},
		{"1,000 interfaces with 1,000 ranges", meshedPod(
			annotated(annotationRerouteInterfaces, listed(1_000, interfaceName)), annotated(annotationIncludeOutboundRanges, listed(1_000, address)),
		), "annotation " + annotationRerouteInterfaces + " with " + annotationIncludeOutboundRanges + ": \"eth0"},
		{"10,000 interfaces with 10,000 ranges", meshedPod(
			annotated(annotationKubevirtInterfaces, listed(10_000, interfaceName)), annotated(annotationIncludeOutboundRanges, listed(10_000, address)),
		), "annotation " + annotationKubevirtInterfaces + " with " + annotationIncludeOutboundRanges + ": \"eth0"},
		{"20,000 in two lists", meshedPod(
			annotated(annotationExcludeInboundPorts, listed(10_000, portNumber)), annotated(annotationExcludeOutboundRanges, listed(10_000, address)),
		), ""},
		{"20,001 in two lists", meshedPod(
			annotated(annotationExcludeInboundPorts, listed(10_000, portNumber)), annotated(annotationExcludeOutboundRanges, listed(10_001, address)),
		), "annotation " + annotationExcludeOutboundRanges + ": \"10.0.0.0/24"},
		{"20,001 in one list", meshedPod(annotated(annotationIncludeOutboundPorts, listed(20_001, portNumber))), "at most 20000 elements in all lists of a pod together, got 20001"},
		{"400 exceptions", fencedPod("true", annotated(annotationFenceAllow, listed(400, exception))), ""},
		{
			"401 exceptions", fencedPod("true", annotated(annotationFenceAllow, listed(401, exception))),
			"annotation " + annotationFenceAllow + ": \"out:tcp:1@0.0.0.0/0",
		},
		{"commas", meshedPod(annotated(annotationIncludeInboundPorts, strings.Repeat(",", 200_000))), "at most 20000"},
		{"a long annotation", meshedPod(annotated(annotationExcludeInterfaces, "eth0"+strings.Repeat(" ", 256<<10))), "262148 bytes: expected at most 262144"},
		{"a long mode", meshedPod(annotated(annotationInterceptionMode, strings.Repeat("x", 300_000))), "annotation " + annotationInterceptionMode},
		{"blanks", meshedPod(annotated(annotationExcludeInterfaces, strings.Repeat(" ", 256<<10))), ""},
	} {
		_, _, err := decide(test.pod, config.DefaultSettings(), only4)
		expect(t, test.name, err, test.fault)
		if err == nil {
			continue
		}
		if faults, ok := errors.AsType[BadInput](err); !ok || len(faults) != 1 || len(err.Error()) > longMessage {
			t.Errorf("%s: got %d faults in %d bytes, want one", test.name, len(faults), len(err.Error()))
		}
	}
}

// TestFaultsAreBounded expects the first faults of a list, the number of the others,
// and no long value.
func TestFaultsAreBounded(t *testing.T) {
	t.Parallel()
	lists := []string{
		annotationIncludeInboundPorts, annotationExcludeInboundPorts, annotationIncludeOutboundPorts, annotationExcludeOutboundPorts,
		annotationIncludeOutboundRanges, annotationExcludeOutboundRanges, annotationExcludeInterfaces, annotationRerouteInterfaces,
	}
	for name, value := range map[string]string{
		"many":            listed(2_000, func(i int) string { return fmt.Sprintf("?%d", i) }),
		"empty":           strings.Repeat(",", 2_000),
		"long":            strings.Repeat("?", 200_000),
		"long zone":       "fe80::1%" + strings.Repeat("z", 200_000),
		"long zone range": "fe80::1%" + strings.Repeat("z", 200_000) + "/64",
		"long number":     strings.Repeat("9", 200_000),
		"long zero":       strings.Repeat("0", 200_000),
		"not printable":   strings.Repeat("\x00", 200_000),
		"lines":           strings.Repeat("\n?", 100_000),
	} {
		pod := meshedPod()
		for _, key := range lists {
			pod.Annotations[key] = value
		}
		_, _, err := decide(pod, config.DefaultSettings(), only4)
		faults, ok := errors.AsType[BadInput](err)
		if !ok || len(faults) != len(lists) || len(err.Error()) > len(lists)*2<<10 || strings.Count(err.Error(), "\n") != len(lists)-1 {
			t.Errorf("%s: %d faults in %d bytes, %d lines", name, len(faults), len(fmt.Sprint(err)), strings.Count(fmt.Sprint(err), "\n"))
		}
		if name == "many" && (!strings.Contains(err.Error(), `"?0"`) || !strings.Contains(err.Error(), "1995 more elements")) {
			t.Errorf("the faults are not named or not counted: %v", err)
		}
	}
}

// TestWarningsAreBounded expects the first warnings of each kind, so that no kind
// hides another, and no long value.
func TestWarningsAreBounded(t *testing.T) {
	t.Parallel()
	pod := meshedPod(withEnv(envDropInvalid, strings.Repeat("x", 1<<20)), withClass(strings.Repeat("r", 1<<20)), func(p *Pod) {
		for i := range 1000 {
			p.Annotations[fmt.Sprintf("%sunknown-%04d", annotationTraffic, i)] = ""
			p.Containers = append(p.Containers, Container{Name: fmt.Sprintf("shared-%d", i), UID: ID{Number: 1337}})
			withInit(fmt.Sprintf("early-%d", i))(p)
		}
	})
	_, warnings, err := decide(pod, config.DefaultSettings(), dualStack)
	all := strings.Join(warnings, "\n")
	if err != nil || len(all) > longMessage || len(warnings) > 25 {
		t.Fatalf("%d warnings, %d bytes, %v", len(warnings), len(all), err)
	}
	for _, want := range []string{"INVALID_DROP", "runtime class", "unknown-0000 is not known", "shared-0 runs with", "init container early-0", "995 more"} {
		if !strings.Contains(all, want) {
			t.Errorf("no warning contains %q:\n%s", want, all)
		}
	}
	if last := slices.IndexFunc(warnings, func(w string) bool { return strings.Contains(w, "is not known and has no effect") }); last < len(warnings)-6 {
		t.Errorf("unknown annotations come before more important warnings:\n%s", all)
	}
	settings := config.DefaultSettings()
	settings.SharedProxyUID = config.SharedUIDRefuse
	if _, _, err := decide(pod, settings, dualStack); err == nil || len(err.Error()) > longMessage || !strings.Contains(err.Error(), "shared-0") || !strings.Contains(err.Error(), "995 more") {
		t.Errorf("refused with %d bytes: %.200v", len(fmt.Sprint(err)), err)
	}
}
