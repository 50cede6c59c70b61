// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/capture-cni/capture-cni/e2e/lab"
)

// primaryList is the interface plugin's list, which the benchmark rewrites.
const primaryList = `{"cniVersion": "1.0.0", "name": "n", "plugins": [{"type": "ptp"}, {"type": "portmap"}]}`

// agentNode is a node that consists of directories, with an agent.
type agentNode struct {
	dir     string
	url     string
	process *exec.Cmd
}

// agent measures how soon the node agent is ready, how soon it repairs a list
// that was rewritten, and what it costs at rest.
func (b *bench) agent(chosen effort) (err error) {
	const node = "node-2"
	for i := range podsOfNode {
		b.api.Put(podOn(node, i))
	}
	n, ready, err := b.startAgent(node, filepath.Join(b.dir, "run-2"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, n.stop()) }()
	var repairs []time.Duration
	for i := range chosen.repairs {
		if i%20 == 0 {
			progress("repair %d of %d", i, chosen.repairs)
		}
		took, err := n.repair(b.ctx)
		if err != nil {
			return err
		}
		repairs = append(repairs, took)
		// Slow enough for the agent not to back off.
		if err := sleep(b.ctx, chosen.pause); err != nil {
			return err
		}
	}
	progress("idle for %s", chosen.idle)
	idle, err := n.busy(func() error { return sleep(b.ctx, chosen.idle) })
	if err != nil {
		return err
	}
	progress("%d pod events a minute for %s", eventsPerMinute, chosen.idle)
	withEvents, err := n.busy(func() error { return b.changePods(node, chosen.idle) })
	if err != nil {
		return err
	}
	resident, own, err := n.resident()
	if err != nil {
		return err
	}
	return b.Print("AGENT\tMEASURED\tTARGET",
		fmt.Sprintf("from start to ready, fresh node with %d pods\t%s ms\t200 ms", podsOfNode, ms(ready)),
		fmt.Sprintf("our entry back after a rewrite, p50\t%s ms\t20 ms", ms(percentile(repairs, 50))),
		fmt.Sprintf("our entry back after a rewrite, p99\t%s ms\t100 ms", ms(percentile(repairs, 99))),
		fmt.Sprintf("idle, share of a core\t%.3f %%\t0.1 %%", 100*idle),
		fmt.Sprintf("%d pod events a minute, share of a core\t%.3f %%\t0.3 %%", eventsPerMinute, 100*withEvents),
		fmt.Sprintf("resident, with %d pods\t%.1f MiB, %.1f of it not the program's file\t25 MiB", podsOfNode, resident, own))
}

// answerPods starts the agent that answers the plugin's calls, once.
func (b *bench) answerPods() (err error) {
	if b.node == nil {
		b.node, _, err = b.startAgent(nodeName, b.answered())
	}
	return err
}

// startAgent creates a node and waits until its agent is ready.
func (b *bench) startAgent(node, runDir string) (n *agentNode, ready time.Duration, err error) {
	n = &agentNode{dir: filepath.Join(b.dir, node)}
	for _, directory := range []string{"net.d", "bin"} {
		if err := os.MkdirAll(filepath.Join(n.dir, directory), 0o755); err != nil {
			return nil, 0, fmt.Errorf("creating a node: %w", err)
		}
	}
	if err := n.write(); err != nil {
		return nil, 0, err
	}
	address, err := lab.FreeAddress()
	if err != nil {
		return nil, 0, err
	}
	n.url = "http://" + address + "/readyz"
	n.process = exec.CommandContext(b.ctx, b.program("capture-cni-node"), "run", "--mode", "insert", "--listen", address,
		"--net-dir", n.dir+"/net.d", "--bin-dir", n.dir+"/bin", "--state-dir", n.dir+"/state", "--run-dir", runDir, "--node-name", node,
		"--plugin", b.program("capture-cni"), "--kubeconfig", filepath.Join(b.credentials(), "kubeconfig"), "--ca-file", filepath.Join(b.credentials(), "ca.crt"), "--namespace", "mesh")
	start := time.Now()
	if err := n.process.Start(); err != nil {
		return nil, 0, fmt.Errorf("starting the agent: %w", err)
	}
	for !n.ready(b.ctx) {
		if time.Since(start) > 10*time.Second {
			return nil, 0, errors.Join(errors.New("the agent is not ready after 10 s"), n.stop())
		}
		time.Sleep(time.Millisecond)
	}
	return n, time.Since(start), nil
}

func (n *agentNode) ready(ctx context.Context) bool {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, n.url, nil)
	if err != nil {
		return false
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return false
	}
	_, _ = io.Copy(io.Discard, answer.Body) // so that the connection is reused
	_ = answer.Body.Close()
	return answer.StatusCode == http.StatusOK
}

func (n *agentNode) list() string { return filepath.Join(n.dir, "net.d", "10-n.conflist") }

// write replaces the list in one step, as installers do.
func (n *agentNode) write() error {
	temp := filepath.Join(n.dir, "rewritten")
	if err := errors.Join(os.WriteFile(temp, []byte(primaryList), 0o644), os.Rename(temp, n.list())); err != nil {
		return fmt.Errorf("writing the primary's list: %w", err)
	}
	return nil
}

// repair rewrites the list and waits for our entry.
func (n *agentNode) repair(ctx context.Context) (time.Duration, error) {
	if err := n.write(); err != nil {
		return 0, err
	}
	start := time.Now()
	for {
		content, err := os.ReadFile(n.list())
		if err == nil && strings.Contains(string(content), "capture-cni") {
			return time.Since(start), nil
		}
		if time.Since(start) > time.Minute || ctx.Err() != nil {
			return 0, errors.Join(errors.New("the agent did not put the entry back within a minute"), ctx.Err())
		}
		time.Sleep(100 * time.Microsecond)
	}
}

// busy returns the share of a core that the agent used during something.
func (n *agentNode) busy(during func() error) (share float64, err error) {
	before, err := n.used()
	if err != nil {
		return 0, err
	}
	began := time.Now()
	if err := during(); err != nil {
		return 0, err
	}
	after, err := n.used()
	return (after - before).Seconds() / time.Since(began).Seconds(), err
}

// resident returns the memory that the agent has, in MiB, and how much is not of its file.
func (n *agentNode) resident() (all, own float64, err error) {
	statm, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", n.process.Process.Pid))
	if err != nil {
		return 0, 0, fmt.Errorf("reading the agent's memory: %w", err)
	}
	var size, resident, shared int
	if _, err := fmt.Sscan(string(statm), &size, &resident, &shared); err != nil {
		return 0, 0, fmt.Errorf("reading the agent's memory: %w", err)
	}
	mib := func(pages int) float64 { return float64(pages*os.Getpagesize()) / (1 << 20) }
	return mib(resident), mib(resident - shared), nil
}

// used returns the agent's processor time so far, from /proc/PID/schedstat.
func (n *agentNode) used() (time.Duration, error) {
	tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", n.process.Process.Pid))
	if err != nil {
		return 0, fmt.Errorf("listing the agent's threads: %w", err)
	}
	var total time.Duration
	for _, task := range tasks {
		stat, err := os.ReadFile(task)
		if err != nil {
			continue // the thread has ended
		}
		nanoseconds, err := strconv.ParseInt(strings.Fields(string(stat))[0], 10, 64)
		if err != nil {
			return 0, fmt.Errorf("reading a thread's time: %w", err)
		}
		total += time.Duration(nanoseconds)
	}
	return total, nil
}

func (n *agentNode) stop() error {
	if err := n.process.Process.Signal(syscall.SIGTERM); err != nil {
		return fmt.Errorf("stopping the agent: %w", err)
	}
	return n.process.Wait()
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
