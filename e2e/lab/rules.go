// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os/exec"
	"sync"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/plugin/capture"
)

// CheckRules returns an error unless lo is up, and the network namespace of a pod contains exactly the
// nftables rules for this pod. The program nft loads the expected rules, and lists both, so that faults
// in the plugin's own encoding and comparison are found, too.
func (h *Host) CheckRules(ctx context.Context, pod *corev1.Pod) error {
	addresses, err := h.addresses()
	if err != nil {
		return err
	}
	settings := config.DefaultSettings()
	settings.Meshes = config.Meshes()
	decision, err := Decide(pod, settings, addresses...)
	if err != nil {
		return err
	}
	want, err := listingOf(ctx, capture.Rules(decision.Intent).String())
	if err != nil {
		return err
	}
	got, err := h.ListRules(ctx)
	if err = errors.Join(err, h.Do(requireLoopback)); err != nil {
		return fmt.Errorf("pod %s: %w", pod.Name, err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		return fmt.Errorf("pod %s: the rules differ (-want +got):\n%s", pod.Name, diff)
	}
	return nil
}

// ListRules returns the plugin's nftables rules in the namespace, as nft lists them without counters.
func (h *Host) ListRules(ctx context.Context) (rules string, err error) {
	err = h.Do(func() (err error) {
		rules, err = nft(ctx, "", "--stateless", "list", "table", "inet", capture.TableName)
		return err
	})
	return rules, err
}

func (h *Host) addresses() (addresses []netip.Addr, err error) {
	err = h.Do(func() error {
		list, err := net.InterfaceAddrs()
		for _, address := range list {
			if prefix, err := netip.ParsePrefix(address.String()); err == nil {
				addresses = append(addresses, prefix.Addr())
			}
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("reading the addresses of %s: %w", h.Path(), err)
	}
	return addresses, nil
}

// listings maps the text of rules to nft's listing of these rules.
var listings sync.Map

// listingOf makes nft load rules in a new namespace, and returns nft's listing of them.
func listingOf(ctx context.Context, rules string) (listing string, err error) {
	if known, found := listings.Load(rules); found {
		return known.(string), nil
	}
	scratch, err := NewHost()
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, scratch.Close()) }()
	err = scratch.Do(func() error {
		_, err := nft(ctx, rules, "-f", "-")
		return err
	})
	if err == nil {
		listing, err = scratch.ListRules(ctx)
	}
	if err == nil {
		listings.Store(rules, listing)
	}
	return listing, err
}

func nft(ctx context.Context, stdin string, args ...string) (string, error) {
	command := exec.CommandContext(ctx, "nft", args...)
	command.Stdin = bytes.NewBufferString(stdin)
	var stdout, stderr bytes.Buffer
	command.Stdout, command.Stderr = &stdout, &stderr
	if err := command.Run(); err != nil {
		return "", fmt.Errorf("nft %q: %w: %s", args, err, &stderr)
	}
	return stdout.String(), nil
}

// requireLoopback returns an error if lo is down, because redirected connections use lo.
func requireLoopback() error {
	lo, err := net.InterfaceByName("lo")
	if err == nil && lo.Flags&net.FlagUp == 0 {
		err = errors.New("lo is down")
	}
	return err
}
