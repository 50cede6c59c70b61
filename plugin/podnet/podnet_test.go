// SPDX-License-Identifier: Apache-2.0

package podnet_test

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/capture-cni/capture-cni/e2e/lab"
	"github.com/capture-cni/capture-cni/plugin/podnet"
)

// TestDo runs calls in the namespace, whatever the ones before did, and nowhere else. After
// Close the process is as it was, also if that is called again.
func TestDo(t *testing.T) {
	lab.RequireRoot(t)
	pod, err := lab.NewHost()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = pod.Close() })
	outside := namespaceOfThread(t)
	n, err := podnet.Open(t.Context(), pod.Path())
	if err != nil {
		t.Fatal(err)
	}
	refused := errors.New("refused")
	if err := n.Do(func() error { return refused }); !errors.Is(err, refused) {
		t.Errorf("an error of a call is lost: %v", err)
	}
	if err := n.Do(func() error { panic("boom") }); err == nil || !strings.Contains(err.Error(), "panic: boom") {
		t.Errorf("a panic of a call is lost: %v", err)
	}
	for range 3 {
		inside, err := podnet.Read(n, func() (string, error) { return os.Readlink("/proc/thread-self/ns/net") })
		if err != nil || inside == outside || namespaceOfThread(t) != outside {
			t.Errorf("a call runs in %s, and the caller in %s, which was in %s: %v", inside, namespaceOfThread(t), outside, err)
		}
	}
	if err := n.Close(); err != nil {
		t.Error(err)
	}
	if err := n.Close(); err == nil {
		t.Error("a second Close returns no error")
	}
	again, err := podnet.Open(t.Context(), pod.Path())
	if err != nil {
		t.Fatalf("the lock was not released: %v", err)
	}
	if err := again.Close(); err != nil {
		t.Error(err)
	}
}

func namespaceOfThread(t *testing.T) string {
	t.Helper()
	link, err := os.Readlink("/proc/thread-self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	return link
}
