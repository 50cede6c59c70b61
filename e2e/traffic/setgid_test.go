// SPDX-License-Identifier: Apache-2.0

package traffic

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/e2e/lab"
)

// Variables that make this test's program the process of a pod.
const (
	takesGroup = "CAPTURE_CNI_TEST_TAKES_GROUP" // "privileges" or "no new privileges"
	connectsTo = "CAPTURE_CNI_TEST_CONNECTS_TO"
)

// TestSetGroupID runs a process that has no capability and, as its pod's security context
// says, the proxy's gid among its groups. It gives a program of its own that group and the
// set-group-ID bit, and executes it. Where the rules then take it for the proxy, Decide
// warns of the container, or refuses the pod.
func TestSetGroupID(t *testing.T) {
	t.Parallel()
	if os.Getenv(connectsTo) != "" {
		lab.Check(t, takeGroupAndConnect())
		return
	}
	const proxyGroup = 1337
	fsGroup := func(gid int64) *corev1.PodSecurityContext { return &corev1.PodSecurityContext{FSGroup: &gid} }
	supplementary := &corev1.PodSecurityContext{SupplementalGroups: []int64{5, proxyGroup}}
	escalates := func(allowed bool) *corev1.SecurityContext {
		return &corev1.SecurityContext{AllowPrivilegeEscalation: &allowed}
	}
	tests := map[string]struct {
		pod       *corev1.PodSecurityContext
		container *corev1.SecurityContext
		want      string
	}{
		"fsGroup":                               {fsGroup(proxyGroup), nil, direct},
		"supplementalGroups":                    {supplementary, escalates(true), direct},
		"fsGroup, and no escalation":            {fsGroup(proxyGroup), escalates(false), outbound},
		"supplementalGroups, and no escalation": {supplementary, escalates(false), outbound},
		"another group":                         {fsGroup(5), nil, unix.EPERM.Error()},
	}
	lab.RequireRoot(t)
	programs := map[config.Backend]string{} // copied before anything runs in parallel: a fork keeps the copy open for writing
	for _, backend := range backends {
		programs[backend] = ownProgram(t)
	}
	forEachBackend(t, func(t *testing.T, backend config.Backend) {
		w := newWorld(t, []int{80}, istioMesh)
		lab.Check(t, open(t, w.pod, backend).Apply(decide(t, injected(nil, nil), dualStack())))
		for name, test := range tests {
			pod := injected(nil, nil)
			pod.Spec.SecurityContext = test.pod
			pod.Spec.Containers[0].SecurityContext = test.container
			for _, f := range bothFamilies {
				if got := w.asSetGroupID(t, pod, programs[backend], net.JoinHostPort(external[f], "80")); !strings.Contains(got, test.want) {
					t.Errorf("%s, %s: got %q, want %q", name, external[f], got, test.want)
				}
			}
			settings, address := dualStack(), netip.MustParseAddr(podIP[ipv4])
			decision, err := lab.Decide(pod, settings, address)
			lab.Check(t, err)
			settings.SharedProxyUID = config.SharedUIDRefuse
			_, refusal := lab.Decide(pod, settings, address)
			if escapes := test.want == direct; escapes != (len(decision.Warnings) > 0) || escapes != (refusal != nil) {
				t.Errorf("%s: warnings %q, refusal %v", name, decision.Warnings, refusal)
			}
		}
	})
}

// ownProgram returns a copy of the test's program that every user can execute.
func ownProgram(t *testing.T) string {
	t.Helper()
	directory, err := os.MkdirTemp("", "setgid") // not below a directory that only root can enter
	lab.Check(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(directory) })
	own, err := os.Executable()
	lab.Check(t, err)
	content, err := os.ReadFile(own)
	program := filepath.Join(directory, "program")
	lab.Check(t, errors.Join(err, os.Chmod(directory, 0o755), lab.WriteProgram(program, content)))
	return program
}

// asSetGroupID runs the program as a process of the pod's first container, with uid and
// gid of app, that tries to become one of the proxy's group. It returns what is printed:
// the name of the server that the process reaches, or an error.
func (w world) asSetGroupID(t *testing.T, pod *corev1.Pod, program, address string) string {
	t.Helper()
	lab.Check(t, errors.Join(os.Chown(program, app.UID, app.GID), os.Chmod(program, 0o755)))
	groups, privileges := []uint32{}, "privileges"
	for _, group := range pod.Spec.SecurityContext.SupplementalGroups {
		groups = append(groups, uint32(group))
	}
	if group := pod.Spec.SecurityContext.FSGroup; group != nil {
		groups = append(groups, uint32(*group))
	}
	if c := pod.Spec.Containers[0].SecurityContext; c != nil && !*c.AllowPrivilegeEscalation {
		privileges = "no new privileges"
	}
	process := exec.CommandContext(t.Context(), program, "-test.run=^TestSetGroupID$")
	process.Env = []string{takesGroup + "=" + privileges, connectsTo + "=" + address}
	process.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(app.UID), Gid: uint32(app.GID), Groups: groups}}
	process.Dir = filepath.Dir(program)
	var out []byte
	lab.Check(t, w.pod.Do(func() error { // a failure is in the output
		out, _ = process.CombinedOutput()
		return nil
	}))
	return string(out)
}

// takeGroupAndConnect is the process of a pod.
func takeGroupAndConnect() error {
	if taking := os.Getenv(takesGroup); taking != "" {
		runtime.LockOSThread()
		program, err := os.Executable()
		if err == nil && taking == "no new privileges" {
			err = unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
		}
		err = errors.Join(err, os.Chown(program, -1, 1337), os.Chmod(program, 0o755|os.ModeSetgid))
		if err != nil {
			return err
		}
		return syscall.Exec(program, os.Args, []string{connectsTo + "=" + os.Getenv(connectsTo)})
	}
	conn, err := net.DialTimeout("tcp", os.Getenv(connectsTo), 10*time.Second)
	if err != nil {
		return err
	}
	defer conn.Close()
	var answer lab.Answer
	if err := errors.Join(conn.SetDeadline(time.Now().Add(10*time.Second)), json.NewDecoder(conn).Decode(&answer)); err != nil {
		return err
	}
	_, err = io.WriteString(os.Stdout, fmt.Sprintf("answered by %s\n", answer.Server))
	return err
}
