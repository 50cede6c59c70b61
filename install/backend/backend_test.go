// SPDX-License-Identifier: Apache-2.0

package backend

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/e2e/lab"
	"github.com/capture-cni/capture-cni/install/report"
	"github.com/capture-cni/capture-cni/plugin/capture"
	"github.com/capture-cni/capture-cni/plugin/nfnetlink"
)

// TestVerdicts expects of each verdict what keeps the entry away, and what does not work.
func TestVerdicts(t *testing.T) {
	t.Parallel()
	const legacy, auto = config.IPTablesLegacy, Auto
	for name, tt := range map[string]struct {
		verdict Verdict
		asked   config.Backend
		fault   string
		notes   []string
	}{
		"no test":               {Verdict{}, config.NFTables, "", nil},
		"no test, auto":         {Verdict{}, auto, `the backend is "auto", and this node was not tested for "auto" since it booted: run capture-cni-node backend`, nil},
		"a test of another one": {Verdict{Asked: legacy, Reason: "no program", NoTProxy: "no module"}, config.NFTables, "", nil},
		"none works":            {Verdict{Asked: auto, Reason: "the kernel lacks all"}, auto, "the kernel lacks all", nil},
		"all works":             {Verdict{Asked: auto, Chosen: config.NFTables}, auto, "", nil},
		"another one is chosen": {
			Verdict{Asked: auto, Chosen: legacy, Reason: "no nf_tables"},
			auto, "",
			[]string{"note: auto chose the backend iptables-legacy, so the guard is idle, and meshed pods with hostUsers: false can't start: no nf_tables [iptables-chosen]"},
		},
		"an earlier choice": {
			Verdict{Asked: auto, Chosen: legacy},
			auto, "",
			[]string{"note: auto chose the backend iptables-legacy, so the guard is idle, and meshed pods with hostUsers: false can't start: an earlier test of this boot chose it [iptables-chosen]"},
		},
		"this one works in part": {
			Verdict{Asked: legacy, Chosen: legacy, NoTProxy: "no xt_TPROXY", NoFence: "no xt_hl", NoIPv6: "no ip6_tables"},
			legacy, "",
			[]string{
				"note: meshed pods with interceptionMode TPROXY can't start: no xt_TPROXY [no-tproxy]",
				"note: meshed pods with a fence can't start: no xt_hl [no-fence]",
				"note: meshed pods with captured IPv6 can't start: no ip6_tables [no-ipv6]",
			},
		},
	} {
		if err := tt.verdict.Fault(tt.asked); (err == nil) != (tt.fault == "") || err != nil && !strings.HasPrefix(err.Error(), tt.fault) {
			t.Errorf("%s: fault %v", name, err)
		}
		if diff := cmp.Diff(tt.notes, tt.verdict.Notes(tt.asked).Each(report.Finding.Coded)); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

// TestWrittenIsRead reads the verdict of this boot, and none of another or of a damaged file.
func TestWrittenIsRead(t *testing.T) {
	t.Parallel()
	dir, boot := t.TempDir(), bootOf(t)
	file := filepath.Join(dir, DirectoryName, "verdict.json")
	for _, written := range []Verdict{
		{},
		{Boot: boot, Asked: Auto, Chosen: config.NFTables, Choice: config.NFTables, NoIPv6: "x"},
		{Boot: boot + "0", Asked: Auto},
	} {
		if written.Asked != "" {
			lab.Check(t, Write(dir, written))
		}
		want := written
		if written.Boot != boot {
			want = Verdict{}
		}
		if got, err := Read(dir); got != want || err != nil {
			t.Errorf("%+v is read as %+v, %v", written, got, err)
		}
	}
	lab.Check(t, os.WriteFile(file, []byte(`{"boot": "`+boot+`", "chosen": "nftables", "asked": 1}`), 0o600))
	if got, err := Read(dir); got != (Verdict{}) || err != nil {
		t.Errorf("a damaged file is read as %+v, %v", got, err)
	}
	lab.Check(t, os.Remove(file))
	lab.Check(t, os.Mkdir(file, 0o700))
	if got, err := Read(dir); got != (Verdict{}) || err == nil || !strings.HasPrefix(err.Error(), "reading the test of the backend in "+file+": ") {
		t.Errorf("a directory is read as %+v, %v", got, err)
	}
	if err := Write("/dev/null", Verdict{}); err == nil {
		t.Error("no error for a run directory that is none")
	}
}

func bootOf(t *testing.T) string {
	t.Helper()
	content, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	lab.Check(t, err)
	return strings.TrimSpace(string(content))
}

// TestTestedBefore keeps a good verdict of this boot and version, and tests again otherwise.
func TestTestedBefore(t *testing.T) {
	t.Parallel()
	lab.RequireRoot(t)
	good := Verdict{
		Boot: bootOf(t), Version: config.OwnVersion(), Asked: Auto, Meshes: "[consul kuma]",
		Chosen: config.IPTablesLegacy, Choice: config.NFTables, NoIPv6: "as before", Reason: "no module",
	}
	with := func(change func(*Verdict)) Verdict {
		v := good
		change(&v)
		return v
	}
	for name, tt := range map[string]struct {
		earlier Verdict
		asked   config.Backend
		same    bool
		reason  string
	}{
		"good":            {good, Auto, true, "no module"},
		"another version": {with(func(v *Verdict) { v.Version = "0" }), Auto, false, "no module"},
		"another backend": {with(func(v *Verdict) { v.Asked = config.IPTables }), Auto, false, "no module"},
		"other meshes":    {with(func(v *Verdict) { v.Meshes = "[consul]" }), Auto, false, "no module"},
		"none worked":     {with(func(v *Verdict) { v.Chosen = "" }), Auto, false, ""},
		"another boot":    {with(func(v *Verdict) { v.Boot, v.Choice = "0", config.IPTablesLegacy }), Auto, false, ""},
		"not auto":        {with(func(v *Verdict) { v.Choice = config.IPTablesLegacy }), config.NFTables, false, "no module"},
		"never tested":    {Verdict{}, Auto, false, ""},
	} {
		got, err := Test(t.Context(), "", tt.asked, []config.MeshName{config.Consul, config.Kuma}, tt.earlier)
		want := Verdict{Boot: good.Boot, Version: good.Version, Asked: tt.asked, Meshes: good.Meshes, Chosen: config.NFTables, Choice: config.NFTables, Reason: tt.reason}
		if tt.same {
			want = good
		} else if tt.asked != Auto {
			want.Choice = tt.earlier.Choice
		}
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

// TestLack has faults that say what a kernel or a node lacks, and others, which say nothing.
func TestLack(t *testing.T) {
	t.Parallel()
	lacking := nfnetlink.Lacks(errors.New("no such file"), "nf_tables")
	refused := error(capture.Refusal("no program"))
	for _, tt := range []struct {
		err  error
		want string
	}{{nil, ""}, {errors.New("no memory"), ""}, {lacking, lacking.Error()}, {refused, refused.Error()}} {
		if got := lackOf(tt.err); got != tt.want {
			t.Errorf("%v lacks %q, want %q", tt.err, got, tt.want)
		}
	}
}

// TestNoPrograms tests iptables three times, a second apart, on a node without its programs,
// unless the test is cancelled.
func TestNoPrograms(t *testing.T) {
	t.Parallel()
	lab.RequireRoot(t)
	root := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		got, err := Test(t.Context(), root, config.IPTablesLegacy, config.Meshes(), Verdict{})
		const reason = "backend iptables-legacy does not work on this node: "
		if err != nil || got.Chosen+got.Choice != "" || time.Since(began) != 3*time.Second ||
			!strings.HasPrefix(got.Reason, reason) || len(got.Reason) == len(reason) {
			t.Errorf("%+v after %s, %v", got, time.Since(began), err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
		defer cancel()
		got, err = Test(ctx, root, Auto, config.Meshes(), Verdict{Boot: got.Boot, Choice: config.IPTablesNFT})
		if got != (Verdict{}) || !errors.Is(err, context.DeadlineExceeded) ||
			!strings.HasPrefix(err.Error(), "testing backend iptables-nft: ") {
			t.Errorf("cancelled: %+v, %v", got, err)
		}
	})
}

// TestRights names the capability that a thread lacks. Only iptables needs NET_RAW.
func TestRights(t *testing.T) {
	t.Parallel()
	lab.RequireRoot(t)
	for name, tt := range map[string]struct {
		number uint
		asked  config.Backend
		fault  string
	}{
		"SYS_ADMIN": {unix.CAP_SYS_ADMIN, config.NFTables, "testing backend nftables: the test lacks the capability SYS_ADMIN"},
		"NET_ADMIN": {unix.CAP_NET_ADMIN, config.NFTables, "testing backend nftables: the test lacks the capability NET_ADMIN"},
		"NET_RAW":   {unix.CAP_NET_RAW, config.IPTables, "testing backend iptables: the test lacks the capability NET_RAW"},
		"nftables":  {unix.CAP_NET_RAW, config.NFTables, ""},
	} {
		fault := make(chan error)
		go func() {
			runtime.LockOSThread() // for good, so that the thread ends with its goroutine
			var sets [2]unix.CapUserData
			header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
			err := unix.Capget(&header, &sets[0])
			sets[0].Effective &^= 1 << tt.number
			if err = errors.Join(err, unix.Capset(&header, &sets[0])); err == nil {
				_, err = Test(t.Context(), "", tt.asked, config.Meshes(), Verdict{})
			}
			fault <- err
		}()
		if err := <-fault; (err == nil) != (tt.fault == "") || err != nil && err.Error() != tt.fault {
			t.Errorf("%s: %v", name, err)
		}
	}
}
