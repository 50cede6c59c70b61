// SPDX-License-Identifier: Apache-2.0

package validate

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/capture-cni/capture-cni/install/report"
)

const (
	clientRetryInterval = 250 * time.Millisecond
	maxAnswer           = 8 << 10 // bytes of all lines together
)

// Connect connects to each destination until the application answers, or until the budget is used up.
// It retries because proxies, and the node's rules for the Service, may start later than the client.
func Connect(ctx context.Context, destinations []netip.AddrPort, budget time.Duration) []report.TestObservation {
	ctx, cancel := context.WithTimeout(ctx, budget)
	defer cancel()
	observations := make([]report.TestObservation, len(destinations))
	var connecting sync.WaitGroup
	for i, to := range destinations {
		connecting.Go(func() { observations[i] = observe(ctx, to) })
	}
	connecting.Wait()
	return observations
}

// observe connects repeatedly until the application answers or ctx ends. It returns the last attempt
// that ctx did not interrupt or, if there was none, the interrupted first one.
func observe(ctx context.Context, to netip.AddrPort) (last report.TestObservation) {
	for {
		attempt := try(ctx, to)
		if ctx.Err() == nil || last.To != to {
			last = attempt
		}
		if attempt.Answered() {
			return attempt
		}
		select {
		case <-ctx.Done():
			return last
		case <-time.After(clientRetryInterval):
		}
	}
}

func try(ctx context.Context, to netip.AddrPort) report.TestObservation {
	o := report.TestObservation{To: to}
	dialer := net.Dialer{Timeout: connectionTimeout}
	conn, err := dialer.DialContext(ctx, "tcp", to.String())
	if err != nil {
		o.Fault = err.Error()
		return o
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(connectionTimeout))
	o.Lines, err = readLines(conn)
	switch {
	case err != nil:
		o.Fault = err.Error()
	case !o.Answered():
		o.Fault = "the connection ended before the application answered"
	}
	return o
}

func readLines(conn io.Reader) (lines []report.TestLine, err error) {
	scanner := bufio.NewScanner(io.LimitReader(conn, maxAnswer))
	for scanner.Scan() {
		var line report.TestLine
		if err := json.Unmarshal(scanner.Bytes(), &line); err != nil {
			return lines, errors.New("the answer does not come from a program of this test")
		}
		lines = append(lines, line)
	}
	if err := scanner.Err(); err != nil {
		return lines, fmt.Errorf("reading the answer: %w", err)
	}
	return lines, nil
}
