// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"runtime/debug"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"

	"github.com/capture-cni/capture-cni/install/bundle"
	"github.com/capture-cni/capture-cni/install/guard"
	"github.com/capture-cni/capture-cni/install/node"
	"github.com/capture-cni/capture-cni/plugin/report"
)

func reportCommand(o *options) *cobra.Command {
	var address string
	command := &cobra.Command{
		Use:   "report",
		Short: "Pack what is known of the node and its pods, for a support case",
		Long: `Pack what is known of the node and its pods, for a support case: a gzipped tar
archive on stdout, without secrets. In the agent's container it is about the
node, in the guard's about the pods; the flags are those of the process there:

  kubectl exec --namespace capture-cni AGENT --container installer -- /capture-cni-node report > node.tar.gz
  kubectl exec --namespace capture-cni AGENT --container guard -- /capture-cni-node report > pods.tar.gz`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			where, err := adopt(command.Flags())
			if err != nil {
				return err
			}
			parts, err := o.parts(command.Context(), where, address)
			if err != nil {
				return err
			}
			return bundle.Write(command.Context(), command.OutOrStdout(), time.Now(), parts)
		},
	}
	command.Flags().StringVar(&address, "listen", "127.0.0.1:15015", "where the agent, or the guard, shows its metrics")
	return command
}

// parts are what can be told in a container whose process runs a command.
func (o *options) parts(ctx context.Context, where, address string) ([]bundle.Part, error) {
	settings, err := o.settings()
	if err != nil {
		return nil, err
	}
	parts := []bundle.Part{
		{Name: "about.txt", Write: about},
		{Name: "kernel/version.txt", Write: copyOf("/proc/version")},
		{Name: "kernel/modules.txt", Write: copyOf("/proc/modules")},
		{Name: "metrics.txt", Write: metricsAt(address)},
	}
	if socket, err := settings.AgentSocket(); err == nil && socket != "" {
		parts = append(parts,
			bundle.Part{Name: "adds.json", Write: recordsIn(report.Memory(socket))},
			bundle.Part{Name: "failures.json", Write: recordsIn(report.Ring(socket))})
	}
	if where != "guard" {
		runtime := o.runtime(ctx, newLog())
		n := node.New(settings, nil, runtime, newLog())
		parts = append(parts,
			bundle.Part{Name: "node/verify.json", Write: asJSON(func(ctx context.Context) any { return n.Verify(ctx) })},
			bundle.Part{Name: "node/preflight.json", Write: asJSON(func(ctx context.Context) any { return node.Preflight(ctx, settings, runtime) })})
		parts = append(parts, n.Evidence()...)
	}
	if where != "run" {
		parts = append(parts, o.podParts(ctx)...)
	}
	return parts, nil
}

// podParts explain each pod of the mesh.
func (o *options) podParts(ctx context.Context) []bundle.Part {
	g, err := o.newGuard(ctx, guard.Settings{Policy: guard.ReportOnly}, prometheus.NewRegistry())
	var pods []string
	if err == nil {
		pods, err = g.Pods(ctx)
	}
	if err != nil {
		return []bundle.Part{{Name: "pods", Write: func(context.Context, io.Writer) error { return err }}}
	}
	var parts []bundle.Part
	for _, pod := range pods {
		namespace, name, _ := strings.Cut(pod, "/")
		parts = append(parts, bundle.Part{
			Name:  "pods/" + namespace + "_" + name + ".txt",
			Write: func(ctx context.Context, out io.Writer) error { return g.Explain(ctx, namespace, name, out) },
		})
	}
	return parts
}

func about(_ context.Context, out io.Writer) error {
	version := "unknown"
	if info, ok := debug.ReadBuildInfo(); ok {
		version = info.Main.Version + ", " + info.GoVersion
	}
	fmt.Fprintf(out, "time     %s\nversion  %s\ncommand  %s\n", time.Now().UTC().Format(time.RFC3339), version, strings.Join(os.Args, " "))
	line, err := os.ReadFile("/proc/1/cmdline")
	fmt.Fprintf(out, "process  %s\n", strings.ReplaceAll(strings.TrimSuffix(string(line), "\x00"), "\x00", " "))
	return err
}

// copyOf gives a file as it is; not every kernel has each of them.
func copyOf(path string) func(context.Context, io.Writer) error {
	return func(_ context.Context, out io.Writer) error {
		content, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		_, err = out.Write(content)
		return err
	}
}

func metricsAt(address string) func(context.Context, io.Writer) error {
	return func(ctx context.Context, out io.Writer) error {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/metrics", nil)
		if err != nil {
			return err
		}
		answer, err := http.DefaultClient.Do(request)
		if err != nil {
			return err
		}
		_, err = io.Copy(out, answer.Body)
		return errors.Join(err, answer.Body.Close())
	}
}

func recordsIn(folder string) func(context.Context, io.Writer) error {
	return func(_ context.Context, out io.Writer) error {
		records, err := report.RecallAll(folder)
		if err != nil {
			return err
		}
		return json.NewEncoder(out).Encode(records)
	}
}

func asJSON(ask func(context.Context) any) func(context.Context, io.Writer) error {
	return func(ctx context.Context, out io.Writer) error { return json.NewEncoder(out).Encode(ask(ctx)) }
}
