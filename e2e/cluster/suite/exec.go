// SPDX-License-Identifier: Apache-2.0

package suite

import (
	"bytes"
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/containernetworking/cni/pkg/version"

	"github.com/capture-cni/capture-cni/e2e/cluster"
)

// nodeExec has libcni execute plugins on a node.
type nodeExec struct {
	version.PluginDecoder
	node *cluster.Node
}

// ExecPlugin implements invoke.Exec. A program that is being replaced can be busy for a
// moment: libcni's own implementation tries again, too.
func (e *nodeExec) ExecPlugin(ctx context.Context, path string, stdin []byte, environ []string) ([]byte, error) {
	for {
		command := e.node.Command(ctx, path)
		command.Env, command.Stdin = environ, bytes.NewReader(stdin)
		var stderr strings.Builder
		command.Stderr = &stderr
		out, err := command.Output()
		if err == nil {
			return out, nil
		}
		if ctx.Err() != nil || !strings.Contains(stderr.String(), "Text file busy") {
			return nil, fmt.Errorf("%s: %w: %s%s", path, err, out, stderr.String())
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// FindInPath implements invoke.Exec.
func (e *nodeExec) FindInPath(plugin string, paths []string) (string, error) {
	return filepath.Join(paths[0], plugin), nil
}
