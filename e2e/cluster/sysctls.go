// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// kubeletSysctls are set by kubelets, for the whole host.
var kubeletSysctls = []string{"vm/overcommit_memory", "vm/panic_on_oom", "kernel/panic", "kernel/panic_on_oops", "kernel/keys/root_maxkeys", "kernel/keys/root_maxbytes"}

// sysctlFile is shared by all clusters of the host. The last cluster to stop
// restores the sysctls. If it was killed, the next cluster does.
const sysctlFile = "/run/capture-cni-clusters.json"

// sysctlState is the host's sysctls before the first cluster, and the clusters
// that run.
type sysctlState struct {
	Sysctls  map[string]string
	Switches []*Box // one for each cluster
}

// saveSysctls saves the host's sysctls, unless another cluster has, and registers
// this one.
func (c *Cluster) saveSysctls() error {
	return updateSysctlState(func(state *sysctlState) (err error) {
		if state.Sysctls == nil {
			state.Sysctls, err = readSysctls()
		}
		state.Switches = append(state.Switches, c.Switch)
		return err
	})
}

// restoreSysctls restores the host's sysctls unless another cluster runs.
func restoreSysctls() error {
	return updateSysctlState(func(state *sysctlState) error {
		if len(state.Switches) > 0 {
			return nil
		}
		err := writeSysctls(state.Sysctls)
		state.Sysctls = nil
		return err
	})
}

// updateSysctlState edits the state, under a lock. Clusters that do not run any
// more are removed before.
func updateSysctlState(edit func(*sysctlState) error) (err error) {
	file, err := os.OpenFile(sysctlFile, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return fmt.Errorf("saving the host's sysctls: %w", err)
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	if err := unix.Flock(int(file.Fd()), unix.LOCK_EX); err != nil {
		return fmt.Errorf("saving the host's sysctls: %w", err)
	}
	var state sysctlState
	if err := json.NewDecoder(file).Decode(&state); err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("reading %s: %w", sysctlFile, err)
	}
	state.Switches = slices.DeleteFunc(state.Switches, func(b *Box) bool { return !b.alive() })
	editErr := edit(&state)
	text, err := json.Marshal(state)
	if err == nil {
		err = file.Truncate(0)
	}
	if err == nil {
		_, err = file.WriteAt(text, 0)
	}
	return errors.Join(editErr, err)
}

func readSysctls() (map[string]string, error) {
	values := map[string]string{}
	for _, key := range kubeletSysctls {
		content, err := os.ReadFile("/proc/sys/" + key)
		if err != nil {
			return nil, fmt.Errorf("reading a sysctl: %w", err)
		}
		values[key] = strings.TrimSpace(string(content))
	}
	return values, nil
}

func writeSysctls(values map[string]string) error {
	var errs []error
	for key, value := range values {
		errs = append(errs, os.WriteFile("/proc/sys/"+key, []byte(value), 0))
	}
	return errors.Join(errs...)
}
