// SPDX-License-Identifier: Apache-2.0

package backend

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/plugin/capture"
	"github.com/capture-cni/capture-cni/plugin/nfnetlink"
	"github.com/capture-cni/capture-cni/plugin/podnet"
)

// Test tests the backend on a node, and returns the verdict. root is the path of the node's file
// system, or "" for this process's own. If the earlier verdict is good, and has the same boot, version,
// Asked and meshes, Test returns that verdict. For Auto, Test keeps the first choice of a boot, and the
// choice's reason unless a test has failed since. If the kernel has no memory, refuses a permission or
// does not answer, Test returns an error instead of a verdict, except in the test of the fence.
func Test(ctx context.Context, root string, asked config.Backend, meshes []config.MeshName, earlier Verdict) (v Verdict, err error) {
	v = Verdict{Version: config.OwnVersion(), Asked: asked, Meshes: fmt.Sprint(meshes)}
	if v.Boot, err = bootID(); err != nil {
		return Verdict{}, err
	}
	if earlier.Boot == v.Boot {
		if earlier.Asked == asked && earlier.Version == v.Version && earlier.Meshes == v.Meshes && earlier.Chosen != "" {
			return earlier, nil
		}
		v.Choice = earlier.Choice
		if earlier.Chosen != "" {
			v.Reason = earlier.Reason
		}
	}
	candidates := []config.Backend{asked}
	switch {
	case asked == Auto && v.Choice != "":
		candidates = []config.Backend{v.Choice}
	case asked == Auto:
		candidates = []config.Backend{config.NFTables, config.IPTablesLegacy, config.IPTablesNFT}
	}
	var reasons []string
	for _, candidate := range candidates {
		found, lacks, err := probe(ctx, root, candidate, meshes, podnet.NoFeature)
		switch {
		case err != nil:
			return Verdict{}, fmt.Errorf("testing backend %s: %w", candidate, err)
		case lacks != "":
			reasons = append(reasons, fmt.Sprintf("backend %s does not work on this node: %s", candidate, lacks))
			continue
		}
		v.Chosen, v.NoIPv6 = found.Backend, lackOf(found.NoIPv6)
		if asked == Auto {
			v.Choice = v.Chosen
		}
		if _, v.NoTProxy, err = probe(ctx, root, v.Chosen, meshes, podnet.TProxy); err != nil {
			return Verdict{}, fmt.Errorf("testing %s with backend %s: %w", podnet.TProxy, v.Chosen, err)
		}
		// Only the ADD of a pod with a fence fails without the fence's rules, so an uncertain result is
		// only a note.
		if _, v.NoFence, err = probe(ctx, root, v.Chosen, meshes, podnet.Fence); err != nil {
			v.NoFence = err.Error()
		}
		break
	}
	v.Reason = cmp.Or(strings.Join(reasons, "; "), v.Reason)
	return v, nil
}

// A test is repeated if a module or a program seems to be missing, because the kernel reports a missing
// module also if it could not load the module in time.
const (
	attempts = 3
	pause    = time.Second
)

// probe returns lackOf's text about a backend that does not work, or "" if the backend works. It returns
// an error if this is uncertain.
func probe(
	ctx context.Context, root string, asked config.Backend, meshes []config.MeshName, f podnet.Feature,
) (found podnet.Probed, lacks string, err error) {
	if err := checkRights(asked); err != nil {
		return found, "", err
	}
	for range attempts {
		found, err = podnet.Probe(ctx, root, asked, meshes, f)
		if lackOf(err) == "" {
			return found, "", err
		}
		select {
		case <-ctx.Done():
			return found, "", errors.Join(ctx.Err(), err)
		case <-time.After(pause):
		}
	}
	return found, lackOf(err), nil
}

// lackOf returns the text of an error that names a missing module of the kernel, or says that programs of
// iptables are missing or of the wrong variant, and "" for any other error.
func lackOf(err error) string {
	_, lacking := errors.AsType[nfnetlink.Lacking](err)
	if _, refused := errors.AsType[capture.Refusal](err); lacking || refused {
		return err.Error()
	}
	return ""
}
