// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/client-go/util/exec"
	"k8s.io/streaming/pkg/httpstream"
)

// Exec executes a command in a container of an agent's pod, and writes the command's stdout to out.
type Exec func(ctx context.Context, agent Agent, container string, command []string, out io.Writer) error

// output executes a command of the agent's program, and returns its stdout. If the command writes more
// bytes than the limit most, output closes the connection, and returns the bytes up to the limit and an
// error.
func (e Exec) output(ctx context.Context, agent Agent, container string, timeout time.Duration, most int, args ...string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	var out bytes.Buffer
	limited := &limitedWriter{out: &out, left: most, full: cancel}
	err := e(ctx, agent, container, append([]string{"/capture-cni-node"}, args...), limited)
	if limited.isCut {
		err = fmt.Errorf("the output of %s in pod %s/%s has more than %d bytes, and is cut", args[0], agent.namespace, agent.name, most)
	}
	return out.Bytes(), err
}

// limitedWriter writes to a buffer, and discards the output beyond a limit.
type limitedWriter struct {
	out   *bytes.Buffer
	left  int
	full  func() // called when the output exceeds the limit
	isCut bool
}

// Write implements io.Writer.
func (w *limitedWriter) Write(p []byte) (int, error) {
	n := min(len(p), w.left)
	w.out.Write(p[:n])
	w.left -= n
	if n < len(p) {
		w.isCut = true
		w.full()
	}
	return len(p), nil
}

// Exec executes a command in a container of an agent's pod, and writes its stdout to out. If the command
// fails, the error contains its stderr. The method has the type Exec.
func (c *Client) Exec(ctx context.Context, agent Agent, container string, command []string, out io.Writer) error {
	request := c.Request("GET", &corev1.Pod{}, agent.namespace).Name(agent.name).SubResource("exec").
		VersionedParams(&corev1.PodExecOptions{
			Container: container,
			Command:   command,
			Stdout:    true,
			Stderr:    true,
		}, runtime.NewParameterCodec(c.scheme))
	var refused error
	executor, err := newExecutor(c.access, request, &refused)
	if err != nil {
		return fmt.Errorf("executing a command in pod %s/%s: %w", agent.namespace, agent.name, err)
	}
	var stderr bytes.Buffer
	err = executor.StreamWithContext(ctx, remotecommand.StreamOptions{
		Stdout: out,
		Stderr: &limitedWriter{out: &stderr, left: maxStderr, full: func() {}},
	})
	if exited, ok := errors.AsType[exec.CodeExitError](err); ok {
		err = commandFailed(cmp.Or(strings.TrimSpace(stderr.String()), exited.Error()))
	} else if message := strings.TrimSpace(stderr.String()); err != nil && message != "" {
		err = errors.New(message)
	} else if err != nil && refused != nil {
		err = withRole(refused, "create", "pods/exec", agent.namespace)
	}
	if err != nil {
		return fmt.Errorf("executing %s in pod %s/%s, container %s: %w", strings.Join(command, " "), agent.namespace, agent.name, container, err)
	}
	return nil
}

// maxStderr limits the bytes of a command's stderr that are kept.
const maxStderr = 64 << 10

// commandFailed is the error of a command that ran in the agent's pod and failed. Its text is the
// command's stderr or, if that is empty, the exit status.
type commandFailed string

func (c commandFailed) Error() string { return string(c) }

// newExecutor returns an executor that uses WebSocket or, if the API server or a proxy does not accept
// WebSocket, SPDY. If the API server forbids the request by WebSocket, the executor sets refused to this error,
// because SPDY's errors do not contain the cause.
func newExecutor(access *rest.Config, request *rest.Request, refused *error) (remotecommand.Executor, error) {
	spdy, err := remotecommand.NewSPDYExecutor(access, http.MethodPost, request.URL())
	if err != nil {
		return nil, err
	}
	websocket, err := remotecommand.NewWebSocketExecutor(access, http.MethodGet, request.URL().String())
	if err != nil {
		return nil, err
	}
	return remotecommand.NewFallbackExecutor(websocket, spdy, func(err error) bool {
		if failure, is := errors.AsType[*httpstream.UpgradeFailureError](err); is && apierrors.IsForbidden(failure.Cause) {
			*refused = failure.Cause
		}
		return httpstream.IsUpgradeFailure(err) || httpstream.IsHTTPSProxyError(err)
	})
}
