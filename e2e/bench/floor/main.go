// SPDX-License-Identifier: Apache-2.0

// Command floor does the least work of an ADD of a meshed pod, with common libraries: it reads
// the pod once over TLS, enters the namespace, sends one netlink transaction
// the size of the default ruleset, and decides nothing. Without a URL it reads no pod.
package main

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"os"
	"runtime"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// rules is the number of rules in each chain of the default ruleset. The first
// two chains are base chains.
var rules = []int{2, 2, 1, 3, 7, 3, 1, 1}

func main() {
	url, ca, token, netns := os.Args[1], os.Args[2], os.Args[3], os.Args[4]
	if err := run(url, ca, token, netns); err != nil {
		fmt.Fprintln(os.Stderr, "floor:", err)
		os.Exit(1)
	}
}

func run(url, ca, token, netns string) error {
	if url != "" {
		if err := get(url, ca, token); err != nil {
			return err
		}
	}
	runtime.LockOSThread()
	file, err := os.Open(netns)
	if err != nil {
		return fmt.Errorf("opening the namespace: %w", err)
	}
	if err := unix.Setns(int(file.Fd()), unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("entering the namespace: %w", err)
	}
	return transact()
}

func get(url, ca, token string) error {
	authorities, err := os.ReadFile(ca)
	if err != nil {
		return fmt.Errorf("reading the CA: %w", err)
	}
	secret, err := os.ReadFile(token)
	if err != nil {
		return fmt.Errorf("reading the token: %w", err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(authorities)
	client := http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}}}
	request, err := http.NewRequest(http.MethodGet, url, nil)
	if err != nil {
		return fmt.Errorf("creating a request: %w", err)
	}
	request.Header.Set("Authorization", "Bearer "+string(secret))
	request.Header.Set("Accept", "application/vnd.kubernetes.protobuf")
	response, err := client.Do(request)
	if err != nil {
		return fmt.Errorf("requesting the pod: %w", err)
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("requesting the pod: %s", response.Status)
	}
	if _, err := io.Copy(io.Discard, response.Body); err != nil {
		return fmt.Errorf("reading the pod: %w", err)
	}
	return nil
}

func transact() error {
	conn, err := nftables.New()
	if err != nil {
		return fmt.Errorf("opening netlink: %w", err)
	}
	table := conn.AddTable(&nftables.Table{Family: nftables.TableFamilyINet, Name: "floor"})
	hooks := []*nftables.ChainHook{nftables.ChainHookPrerouting, nftables.ChainHookOutput}
	for i, n := range rules {
		chain := &nftables.Chain{Table: table, Name: fmt.Sprint("chain", i)}
		if i < len(hooks) {
			chain.Type, chain.Hooknum, chain.Priority = nftables.ChainTypeNAT, hooks[i], nftables.ChainPriorityNATDest
		}
		conn.AddChain(chain)
		for range n {
			conn.AddRule(&nftables.Rule{Table: table, Chain: chain, Exprs: []expr.Any{
				&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: 1},
				&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{unix.IPPROTO_TCP}},
				&expr.Counter{},
				&expr.Verdict{Kind: expr.VerdictReturn},
			}})
		}
	}
	if err := conn.Flush(); err != nil {
		return fmt.Errorf("committing: %w", err)
	}
	return nil
}
