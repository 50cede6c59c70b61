// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// profileRate is how many samples perf takes of each processor in a second.
const profileRate = 10_000

// share is a part of a program's processor time.
type share struct {
	name      string
	functions []string
}

// shares are what a sample belongs to: the first one with a function of the kernel that is
// in the sample's stack. A stack without any is the program's own.
var shares = []share{
	{"EXIT", []string{"do_exit"}},
	{"EXEC", []string{"bprm_execve", "do_execveat_common.isra.0"}},
	{"PAGE FAULTS", []string{"asm_exc_page_fault"}},
	{"NETLINK", []string{"netlink_sendmsg", "netlink_recvmsg"}},
	{"THREADS", []string{"__x64_sys_futex", "__x64_sys_nanosleep", "__x64_sys_clone", "ret_from_fork_asm", "__x64_sys_sched_yield"}},
	{"OTHER CALLS", []string{"entry_SYSCALL_64_after_hwframe", "do_syscall_64"}},
	{"INTERRUPTS", []string{"asm_sysvec_apic_timer_interrupt", "asm_sysvec_reschedule_ipi", "asm_sysvec_call_function_single"}},
	{"PROGRAM", nil},
}

// lookupProcess is the name of the process that the plugin starts without an agent: the
// kernel keeps 15 bytes of it.
const lookupProcess = "capture-cni-loo"

// profile prints which part of the kernel, or of the program, has each call's processor
// time. Waits are in none.
func (b *bench) profile(runs int) error {
	if err := b.answerPods(); err != nil {
		return err
	}
	rows := slices.DeleteFunc(b.rows(), func(row *verb) bool { return strings.HasPrefix(row.name, "iptables") })
	data := filepath.Join(b.dir, "perf.data")
	perf := exec.CommandContext(b.ctx, "perf", "record", "-q", "-a", "-e", "cpu-clock", "-F", fmt.Sprint(profileRate), "-g", "-o", data)
	if err := perf.Start(); err != nil {
		return fmt.Errorf("starting perf: %w", err)
	}
	err := errors.Join(
		sleep(b.ctx, time.Second), // until perf samples
		b.measureRows(rows, runs),
		perf.Process.Signal(syscall.SIGINT))
	_ = perf.Wait() // it ends by the signal
	if err != nil {
		return err
	}
	counts, err := b.countShares(data, rows)
	if err != nil {
		return err
	}
	lines := []string{"MICROSECONDS\tIN ALL"}
	for _, share := range shares {
		lines[0] += "\t" + share.name
	}
	for _, row := range rows {
		each := func(samples int) string {
			return fmt.Sprint(samples * int(time.Second/time.Microsecond) / profileRate / len(row.samples))
		}
		line, sum := "", 0
		for _, count := range counts[row] {
			line, sum = line+"\t"+each(count), sum+count
		}
		lines = append(lines, row.name+"\t"+each(sum)+line)
	}
	return b.Print(lines...)
}

// countShares counts the samples of each kind of call. perf writes a line with the process,
// the lines of the stack, and an empty one.
func (b *bench) countShares(data string, rows []*verb) (map[*verb][]int, error) {
	rowOf, counts := map[string]*verb{}, map[*verb][]int{}
	for _, row := range rows {
		counts[row] = make([]int, len(shares))
		for _, s := range row.samples {
			rowOf[strconv.Itoa(s.process)] = row
		}
	}
	script := exec.CommandContext(b.ctx, "perf", "script", "-i", data, "-F", "comm,pid,ip,sym")
	output, err := script.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := script.Start(); err != nil {
		return nil, fmt.Errorf("reading the samples: %w", err)
	}
	var sampled *verb
	stack := map[string]bool{}
	lines := bufio.NewScanner(output)
	for lines.Scan() {
		switch fields := strings.Fields(lines.Text()); {
		case len(fields) == 0:
			if sampled != nil {
				counts[sampled][slices.IndexFunc(shares, func(s share) bool { return s.has(stack) })]++
			}
			clear(stack)
		case strings.HasPrefix(lines.Text(), "\t"):
			stack[fields[len(fields)-1]] = true
		case fields[0] == lookupProcess:
			sampled = rows[aloneRow]
		default:
			sampled = rowOf[fields[len(fields)-1]]
		}
	}
	if err := errors.Join(lines.Err(), script.Wait()); err != nil {
		return nil, fmt.Errorf("reading the samples: %w", err)
	}
	return counts, nil
}

func (s share) has(stack map[string]bool) bool {
	return len(s.functions) == 0 || slices.ContainsFunc(s.functions, func(f string) bool { return stack[f] })
}
