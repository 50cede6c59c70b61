// SPDX-License-Identifier: Apache-2.0

// Command apps is what the pods of the test cluster run: applications, the
// sidecar proxy, what istio-init does, and the pause of every sandbox.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

const usage = `usage: apps COMMAND

  pause                        keep a sandbox, and bury its orphans
  serve NETWORK ADDRESS…       answer at each address, which may be of any family
  ask NETWORK ADDRESS [FROM]   print who touched a connection, the application last
  echo ADDRESS                 send back what comes
  hold ADDRESS                 keep a connection to an echo, and say so
  proxy                        be the sidecar
  istio-iptables …             do what istio-init does, for a pod that asks for nothing
  injector ADDRESS IMAGE CERTIFICATE KEY
                               be the webhook that injects sidecars
  status                       print what the kernel knows of this process
  record                       be a CNI plugin that writes down its calls
`

func main() {
	command := "pause" // runtimes start a sandbox's image as it is
	if os.Getenv("CNI_COMMAND") != "" {
		command = "record"
	}
	if len(os.Args) > 1 {
		command = os.Args[1]
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if err := run(ctx, command, os.Args[min(2, len(os.Args)):]); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", command, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, command string, args []string) error {
	switch {
	case command == "pause":
		return pause(ctx)
	case command == "serve" && len(args) > 1:
		return serve(ctx, args[0], args[1:])
	case command == "ask" && len(args) > 1:
		return ask(args[0], args[1], args[2:])
	case command == "echo" && len(args) == 1:
		return echo(ctx, args[0])
	case command == "hold" && len(args) == 1:
		return hold(ctx, args[0])
	case command == "proxy":
		return proxy(ctx)
	case command == "istio-iptables":
		return installCapture(ctx)
	case command == "injector" && len(args) == 4:
		return injector(ctx, args[0], args[1], args[2], args[3])
	case command == "record":
		return record()
	case command == "status":
		return status()
	}
	return fmt.Errorf("not so\n%s", usage)
}

// name is what a hop calls itself: the pod's name, and what it is in the pod.
func name(role string) string {
	pod, err := os.Hostname()
	if err != nil {
		pod = "?"
	}
	return pod + "/" + role
}

// status shows uid, gid and capabilities of a container as it really runs.
func status() error {
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return err
	}
	root, err := os.ReadFile("/proc/self/uid_map")
	if err != nil {
		return err
	}
	_, err = fmt.Printf("%sUidMap:%s", text, root)
	return err
}
