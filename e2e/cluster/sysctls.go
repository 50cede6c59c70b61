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

// kubeletSysctls are what kubelets set, for the whole machine.
var kubeletSysctls = []string{"vm/overcommit_memory", "vm/panic_on_oom", "kernel/panic", "kernel/panic_on_oops", "kernel/keys/root_maxkeys", "kernel/keys/root_maxbytes"}

// loanFile is shared by all clusters of the machine, of which the last one puts
// its sysctls back. One that was killed leaves it to the next.
const loanFile = "/run/capture-cni-clusters.json"

// loan is what the machine had before its first cluster, and who uses it now.
type loan struct {
	Sysctls  map[string]string
	Switches []*Box // one of each cluster
}

// borrowSysctls remembers the machine's for as long as the cluster's switch lives.
func (c *Cluster) borrowSysctls() error {
	return editLoan(func(l *loan) (err error) {
		if l.Sysctls == nil {
			l.Sysctls, err = readSysctls()
		}
		l.Switches = append(l.Switches, c.Switch)
		return err
	})
}

// returnSysctls is for a cluster whose switch has ended.
func returnSysctls() error {
	return editLoan(func(l *loan) error {
		if len(l.Switches) > 0 {
			return nil
		}
		err := writeSysctls(l.Sysctls)
		l.Sysctls = nil
		return err
	})
}

// editLoan hands over the loan of those who live, and keeps what becomes of it;
// one cluster at a time.
func editLoan(edit func(*loan) error) (err error) {
	file, err := os.OpenFile(loanFile, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return fmt.Errorf("remembering the machine's sysctls: %w", err)
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	if err := unix.Flock(int(file.Fd()), unix.LOCK_EX); err != nil {
		return fmt.Errorf("remembering the machine's sysctls: %w", err)
	}
	var l loan
	if err := json.NewDecoder(file).Decode(&l); err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("reading %s: %w", loanFile, err)
	}
	l.Switches = slices.DeleteFunc(l.Switches, func(b *Box) bool { return !b.alive() })
	editErr := edit(&l)
	text, err := json.Marshal(l)
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
