// SPDX-License-Identifier: Apache-2.0

package podnet_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

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
	inherit(t, podnet.LockDirectory+"/netns")
	if err := n.Close(); err != nil {
		t.Error(err)
	}
	if err := n.Close(); err == nil {
		t.Error("a second Close returns no error")
	}
	once, cancel := context.WithCancel(t.Context())
	cancel()
	again, err := podnet.Open(once, pod.Path())
	if err != nil {
		t.Fatalf("the lock was not released: %v", err)
	}
	if err := again.Close(); err != nil {
		t.Error(err)
	}
}

// inherit keeps a file of this process open, as a child between fork and exec does.
func inherit(t *testing.T, path string) {
	t.Helper()
	const descriptors = "/proc/self/fd"
	entries, err := os.ReadDir(descriptors)
	lab.Check(t, err)
	inherited := 0
	for _, entry := range entries {
		if target, _ := os.Readlink(filepath.Join(descriptors, entry.Name())); target != path {
			continue
		}
		number, err := strconv.Atoi(entry.Name())
		lab.Check(t, err)
		copied, err := unix.Dup(number)
		lab.Check(t, err)
		t.Cleanup(func() { _ = unix.Close(copied) })
		inherited++
	}
	if inherited == 0 {
		t.Fatalf("%s is not open", path)
	}
}

// TestNothingStays opens a namespace and closes it many times, as the guard does: no thread
// and no descriptor keep it, and no thread waits for calls.
func TestNothingStays(t *testing.T) {
	lab.RequireRoot(t)
	pod, err := lab.NewHost()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = pod.Close() })
	var inside string
	visit := func(open func(context.Context, string) (*podnet.Namespace, error)) {
		n, err := open(t.Context(), pod.Path())
		if err != nil {
			t.Fatal(err)
		}
		if inside, err = podnet.Read(n, func() (string, error) { return os.Readlink("/proc/thread-self/ns/net") }); err != nil {
			t.Error(err)
		}
		if err := n.Close(); err != nil {
			t.Error(err)
		}
		if slices.Contains(linksOf(t, "/proc/self/task", "ns/net"), inside) {
			t.Error("a thread is in the namespace after Close")
		}
	}
	visit(podnet.Open)
	threads, descriptors := len(linksOf(t, "/proc/self/task", "ns/net")), len(linksOf(t, "/proc/self/fd", ""))
	const visits = 200 // so that what stays is more than the threads that the Go runtime keeps on a busy machine
	for range visits {
		visit(podnet.Open)
		visit(podnet.OpenForRemoval)
	}
	var stay []string
	more := 0
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); runtime.Gosched() {
		inTask := linksOf(t, "/proc/self/task", "ns/net")
		more = len(inTask) - threads
		stay = slices.DeleteFunc(slices.Concat(inTask, linksOf(t, "/proc/self/fd", "")), func(link string) bool { return link != inside && link != pod.Path() })
		if len(stay) == 0 && more <= visits/2 {
			break
		}
	}
	if len(stay) > 0 {
		t.Errorf("%d threads and descriptors keep the namespace", len(stay))
	}
	if more > visits/2 {
		t.Errorf("%d more threads after %d visits", more, 2*visits)
	}
	if more := len(linksOf(t, "/proc/self/fd", "")) - descriptors; more > visits/2 {
		t.Errorf("%d more descriptors after %d visits", more, 2*visits)
	}
}

// linksOf returns where the links lead that a directory of /proc has, or the entries of it.
func linksOf(t *testing.T, directory, name string) (links []string) {
	t.Helper()
	entries, err := os.ReadDir(directory)
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		if link, err := os.Readlink(filepath.Join(directory, entry.Name(), name)); err == nil { // it may have ended
			links = append(links, link)
		}
	}
	return links
}

func namespaceOfThread(t *testing.T) string {
	t.Helper()
	link, err := os.Readlink("/proc/thread-self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	return link
}
