// SPDX-License-Identifier: Apache-2.0

package kernels

import "time"

// JobFile is where a guest finds what it has to do.
const JobFile = "/job.json"

// ContainerPrograms is where a guest has the programs that its node lacks: container
// images bring them.
const ContainerPrograms = "/container"

// Job is what a guest does: it loads modules, sets sysctls and executes programs one
// after the other.
type Job struct {
	Results     string // serial line to which it writes what came of it
	Modules     []string
	Lacking     []string          // patterns of the programs that the node lacks
	Sysctls     map[string]string // below /proc/sys
	Environment []string
	Runs        []Run
}

// Run is one execution of a program.
type Run struct {
	Name, Directory string
	Command         []string
}

// Ended is what the guest writes after the output of a run, as JSON in a line that
// begins with EndMark.
type Ended struct {
	Status int
	Took   time.Duration
}

// EndMark is nothing that a test prints.
const EndMark = "\x01ended "
