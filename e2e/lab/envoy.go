// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// Envoy is an Envoy sidecar in a pod's network namespace. Its listeners at the ports 15001 and 15006 do
// what Istio's listeners do.
type Envoy struct {
	t         testing.TB
	pod       *Host
	owner     Owner
	directory string
	tproxy    bool
	processes []*envoyProcess // one for each hot restart; the last one serves
}

type envoyProcess struct {
	*exec.Cmd
	log   bytes.Buffer
	ended chan struct{}
}

// StartEnvoy starts Envoy in a pod, and returns once Envoy accepts connections. With tproxy, Envoy
// accepts inbound connections with their original addresses, and connects to the application from the
// client's address.
func StartEnvoy(t testing.TB, pod *Host, owner Owner, tproxy bool) *Envoy {
	t.Helper()
	directory, err := os.MkdirTemp("", "envoy-")
	Check(t, err)
	e := &Envoy{t: t, pod: pod, owner: owner, tproxy: tproxy, directory: directory}
	t.Cleanup(func() {
		for _, process := range e.processes {
			_ = process.Process.Kill()
			<-process.ended
			if t.Failed() {
				t.Logf("%s: %s", process.ProcessState, process.log.String())
			}
		}
		if base, err := os.ReadFile(e.path("base")); err == nil { // Envoy keeps its shared memory for a restart
			left, _ := filepath.Glob("/dev/shm/envoy_shared_memory_" + strings.TrimSpace(string(base)) + "*")
			for _, path := range left {
				_ = os.Remove(path)
			}
		}
		_ = os.RemoveAll(directory)
	})
	Check(t, errors.Join(os.Chmod(directory, 0o755), os.Chown(directory, owner.UID, owner.GID)))
	Check(t, os.WriteFile(e.path("envoy.json"), []byte(strings.NewReplacer("DIRECTORY", directory, "UPSTREAM", envoyUpstream).Replace(envoyBootstrap)), 0o644))
	e.Configure("first")
	e.Restart()
	return e
}

func (e *Envoy) path(name string) string { return filepath.Join(e.directory, name) }

// Restart starts a new process, which takes over the listeners of the previous one (Envoy's hot
// restart), and returns once the new process is ready. The previous process drains, and ends soon after.
func (e *Envoy) Restart() {
	e.t.Helper()
	args := []string{
		"-c", e.path("envoy.json"), "--log-level", "warning", "--concurrency", "2", "--drain-time-s", "1", "--parent-shutdown-time-s", "2",
		"--restart-epoch", fmt.Sprint(len(e.processes)),
	}
	if len(e.processes) == 0 {
		args = append(args, "--use-dynamic-base-id", "--base-id-path", e.path("base"))
	} else {
		base, err := os.ReadFile(e.path("base"))
		Check(e.t, err)
		args = append(args, "--base-id", strings.TrimSpace(string(base)))
	}
	process := &envoyProcess{Cmd: exec.Command(Part(e.t, "envoy"), args...), ended: make(chan struct{})}
	process.Dir, process.Stdout, process.Stderr = "/", &process.log, &process.log
	process.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(e.owner.UID), Gid: uint32(e.owner.GID)}}
	if e.tproxy {
		process.SysProcAttr.AmbientCaps = []uintptr{unix.CAP_NET_ADMIN} // for IP_TRANSPARENT and SO_MARK
	}
	started := make(chan error)
	go func() {
		defer close(process.ended)
		_ = e.pod.Do(func() error { // by PR_SET_PDEATHSIG, Envoy ends when the thread that started it ends
			err := process.Start()
			if started <- err; err == nil {
				err = process.Wait()
			}
			return err
		})
	}()
	Check(e.t, <-started)
	epoch := fmt.Sprintf("\"restart_epoch\": %d", len(e.processes))
	e.processes = append(e.processes, process)
	Eventually(e.t, func() error {
		select {
		case <-process.ended:
			e.t.Fatalf("Envoy ended: %s", process.ProcessState)
		default:
		}
		info, err := e.admin("/server_info")
		if err == nil && !(strings.Contains(info, `"state": "LIVE"`) && strings.Contains(info, epoch)) {
			err = fmt.Errorf("Envoy is not ready: %s", info)
		}
		return err
	})
}

// WaitForParent waits until the process before the last Restart has ended.
func (e *Envoy) WaitForParent() { <-e.processes[len(e.processes)-2].ended }

// Stop stops the serving process by SIGSTOP, and returns a function that continues it. Stop waits until
// all threads have stopped, because the signal reaches one thread after another.
func (e *Envoy) Stop() (resume func()) {
	e.t.Helper()
	process := e.processes[len(e.processes)-1].Process
	Check(e.t, process.Signal(unix.SIGSTOP))
	Eventually(e.t, func() error {
		threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", process.Pid))
		for _, thread := range threads {
			if stat, _ := os.ReadFile(thread); !bytes.Contains(stat, []byte(") T ")) {
				return fmt.Errorf("a thread of Envoy runs: %s", stat)
			}
		}
		return err
	})
	return func() { Check(e.t, process.Signal(unix.SIGCONT)) }
}

// Configure replaces the listeners by new ones at the same addresses. Envoy drains the old listeners,
// and closes their connections a second later.
func (e *Envoy) Configure(version string) {
	e.t.Helper()
	text := envoyListeners
	if e.tproxy {
		text = strings.NewReplacer("INBOUND_TRANSPARENT", "true", "INBOUND_FILTER", envoyOriginalSource, "INBOUND_CLUSTER", "onwards").Replace(text)
	}
	text = strings.NewReplacer("VERSION", version, "INBOUND_TRANSPARENT", "false", "INBOUND_FILTER", "", "INBOUND_CLUSTER", "application").Replace(text)
	Check(e.t, os.WriteFile(e.path("new"), []byte(text), 0o644))
	Check(e.t, os.Rename(e.path("new"), e.path("listeners.json"))) // Envoy watches for a rename
	if len(e.processes) > 0 {
		Eventually(e.t, func() error {
			if active, err := e.admin("/config_dump?resource=dynamic_listeners"); err != nil || strings.Count(active, `"metadata_version": "`+version) < 2 {
				return fmt.Errorf("Envoy has not taken the listeners of %s: %w", version, err)
			}
			return nil
		})
	}
}

// Accepted returns the number of connections that the listener "outbound" or "inbound" has accepted.
func (e *Envoy) Accepted(listener string) (connections int) {
	e.t.Helper()
	text, err := e.admin("/stats?filter=^listener." + listener + ".downstream_cx_total$")
	Check(e.t, err)
	_, number, _ := strings.Cut(text, ": ")
	_, _ = fmt.Sscan(number, &connections)
	return connections
}

// admin returns the answer of Envoy's administration interface to a GET of path.
func (e *Envoy) admin(path string) (string, error) {
	dial := func(context.Context, string, string) (net.Conn, error) {
		return e.pod.Dial(e.owner, "", "127.0.0.1:15000")
	}
	client := http.Client{Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true}, Timeout: timeout}
	response, err := client.Get("http://envoy" + path)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	return string(text), err
}

// envoyUpstream makes a cluster of Envoy use the client's version of HTTP, and as many connections as
// there are clients. Envoy's default limit is 1,024 connections, and Istio configures the largest
// possible number.
const envoyUpstream = `"circuit_breakers": {"thresholds": [{"max_connections": 4294967295, "max_pending_requests": 4294967295}]},
	"typed_extension_protocol_options": {"envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {
	"@type": "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions",
	"use_downstream_protocol_config": {"http2_protocol_options": {}}}}`

const envoyBootstrap = `{
  "node": {"id": "sidecar", "cluster": "test"},
  "admin": {"address": {"socket_address": {"address": "127.0.0.1", "port_value": 15000}}},
  "dynamic_resources": {"lds_config": {"path_config_source": {"path": "DIRECTORY/listeners.json"}, "resource_api_version": "V3"}},
  "static_resources": {"clusters": [
    {"name": "onwards", "type": "ORIGINAL_DST", "lb_policy": "CLUSTER_PROVIDED", UPSTREAM},
    {"name": "application", "type": "ORIGINAL_DST", "lb_policy": "CLUSTER_PROVIDED", UPSTREAM, "upstream_bind_config": {
      "source_address": {"address": "127.0.0.6", "port_value": 0},
      "extra_source_addresses": [{"address": {"address": "::6", "port_value": 0}}]}}
  ]}
}`

// envoyListeners contains two listeners that forward bytes. Connections to the ports 8000 to 8099 count
// as HTTP if they begin with HTTP. On other ports, Envoy does not wait for the client's first bytes, so
// the server can speak first.
var envoyListeners = `{"resources": [` + envoyListener("outbound", 15001, "false", "", "onwards") + `, ` +
	envoyListener("inbound", 15006, "INBOUND_TRANSPARENT", "INBOUND_FILTER", "INBOUND_CLUSTER") + `]}`

const envoyOriginalSource = `, {"name": "source", "typed_config": {
	"@type": "type.googleapis.com/envoy.extensions.filters.listener.original_src.v3.OriginalSrc", "mark": 1337}}`

func envoyListener(name string, port int, transparent, filter, cluster string) string {
	const filters = "type.googleapis.com/envoy.extensions.filters."
	return fmt.Sprintf(`{
  "@type": "type.googleapis.com/envoy.config.listener.v3.Listener", "name": %[1]q, "stat_prefix": %[1]q,
  "metadata": {"filter_metadata": {"test": {"metadata_version": "VERSION"}}},
  "address": {"socket_address": {"address": "::", "port_value": %[2]d, "ipv4_compat": true}}, "transparent": %[3]s,
  "listener_filters": [
    {"name": "destination", "typed_config": {"@type": "%[6]slistener.original_dst.v3.OriginalDst"}},
    {"name": "http", "typed_config": {"@type": "%[6]slistener.http_inspector.v3.HttpInspector"},
     "filter_disabled": {"not_match": {"destination_port_range": {"start": 8000, "end": 8100}}}}%[4]s],
  "filter_chains": [
    {"filter_chain_match": {"application_protocols": ["http/1.0", "http/1.1", "h2c"]}, "filters": [{"name": "http", "typed_config": {
      "@type": "%[6]snetwork.http_connection_manager.v3.HttpConnectionManager", "stat_prefix": "http", "server_name": "sidecar", "codec_type": "AUTO",
      "http_filters": [{"name": "router", "typed_config": {"@type": "%[6]shttp.router.v3.Router"}}],
      "route_config": {"virtual_hosts": [{"name": "all", "domains": ["*"], "routes": [{"match": {"prefix": "/"}, "route": {"cluster": %[5]q}}]}]}}}]}],
  "default_filter_chain": {"filters": [{"name": "tcp", "typed_config": {
    "@type": "%[6]snetwork.tcp_proxy.v3.TcpProxy", "stat_prefix": "tcp", "cluster": %[5]q}}]}
}`, name, port, transparent, filter, cluster, filters)
}
