// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/capture-cni/capture-cni/e2e/lab"
)

// batch is one kind of start of a pod, many at the same moment.
type batch struct {
	name    string
	target  string
	prepare func(netns string) []*exec.Cmd // one after the other, as a chain of plugins
	totals  []time.Duration                // until the last start of a round ended
	each    samples
}

// parallel calls the plugin for 16 pods at once, as on a node that is busy.
func (b *bench) parallel(rounds int) error {
	if err := b.answerPods(); err != nil {
		return err
	}
	return b.runBatches(rounds, 16, []*batch{
		{name: "floor", prepare: func(netns string) []*exec.Cmd { return []*exec.Cmd{b.floor(netns)} }},
		{name: "ADD, meshed", target: "0.70x floor", prepare: func(netns string) []*exec.Cmd { return []*exec.Cmd{b.call("ADD", "web", netns)} }},
	})
}

// crowd starts 100 pods at once by an interface plugin alone, and with capture after it:
// what that adds is the difference.
func (b *bench) crowd(rounds int) (err error) {
	if err := b.answerPods(); err != nil {
		return err
	}
	istio, err := b.istioDirectory()
	if err != nil {
		return err
	}
	node, err := lab.NewHost()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, node.Close()) }()
	plugins, err := filepath.Abs(parts)
	if err != nil {
		return err
	}
	primary := func(netns string) *exec.Cmd { return b.primary(plugins, node.Path(), netns) }
	return b.runBatches(rounds, 100, []*batch{
		{name: "ptp", prepare: func(netns string) []*exec.Cmd { return []*exec.Cmd{primary(netns)} }},
		{name: "ptp, capture-cni", prepare: func(netns string) []*exec.Cmd {
			return []*exec.Cmd{primary(netns), b.call("ADD", "web", netns)}
		}},
		{name: "ptp, istio-cni with nftables", prepare: func(netns string) []*exec.Cmd {
			return []*exec.Cmd{primary(netns), b.istioCNI(istio, netns, true)}
		}},
	})
}

// primary prepares an ADD of the interface plugin of the test cluster. Its other end is in
// the namespace of a node.
func (b *bench) primary(plugins, node, netns string) *exec.Cmd {
	command := exec.CommandContext(b.ctx, "nsenter", "--net="+node, filepath.Join(plugins, "ptp"))
	command.Env = []string{
		"CNI_COMMAND=ADD", "CNI_CONTAINERID=" + filepath.Base(netns), "CNI_NETNS=" + netns, "CNI_IFNAME=eth0", "CNI_PATH=" + plugins,
	}
	command.Stdin = strings.NewReader(fmt.Sprintf(`{"cniVersion":"1.0.0","name":"bench","type":"ptp","ipam":{"type":"host-local","dataDir":%q,
		"ranges":[[{"subnet":"10.80.0.0/12"}]],"routes":[{"dst":"0.0.0.0/0"}]}}`, filepath.Join(b.dir, "addresses")))
	return command
}

// runBatches runs all kinds in turn, n pods at once.
func (b *bench) runBatches(rounds, n int, batches []*batch) error {
	progress("%d at once", n)
	for range rounds {
		for _, batch := range batches {
			if err := batch.round(n); err != nil {
				return err
			}
		}
	}
	return b.printParallel(n, batches)
}

func (b *batch) round(n int) (err error) {
	chains := make([][]*exec.Cmd, n)
	for i := range chains {
		var host *lab.Host
		if host, err = sandbox(); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, host.Close()) }()
		chains[i] = b.prepare(host.Path())
	}
	var (
		wait   sync.WaitGroup
		each   = make(samples, n)
		faults = make([]error, n)
	)
	start := time.Now()
	for i, chain := range chains {
		wait.Go(func() { each[i], faults[i] = measureChain(chain) })
	}
	wait.Wait()
	b.totals = append(b.totals, time.Since(start))
	b.each = append(b.each, each...)
	return errors.Join(faults...)
}

// measureChain measures commands that follow one another.
func measureChain(chain []*exec.Cmd) (sum sample, err error) {
	for _, command := range chain {
		s, err := measure(command)
		if err != nil {
			return sum, err
		}
		sum = sum.plus(s)
	}
	return sum, nil
}
