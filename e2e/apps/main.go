// SPDX-License-Identifier: Apache-2.0

// Command apps is the program in the test cluster's containers: applications, the
// sidecar proxy, istio-init and the pause container of every sandbox.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"syscall"
)

const usage = `usage: apps COMMAND

  pause                        keep a sandbox alive and reap its orphans
  serve NETWORK ADDRESS…       answer at each address, of either family
  ask NETWORK ADDRESS [FROM]   connect and print the answers of all hops, the application's last
  echo ADDRESS                 send back what is received
  web ADDRESS [OTHER…]         answer HTTP requests with the client's identity; at the others, answer as serve does
  poll URL                     request a URL all the time, and print each answer
  hold ADDRESS                 keep a connection to an echo server, and print that it is alive
  lookup NAME                  print the addresses that the pod's name server answers with
  proxy [sidecar [silent|plain]]  run the sidecar; silent, it sends clients no answers of its own; plain, it has no address of its own
  istio-iptables …             run istio-init, for a pod without annotations
  injector ADDRESS IMAGE CERTIFICATE KEY
                               serve the webhook that injects sidecars
  status                       print /proc/self/status and the uid map
  record                       run a CNI plugin that records its calls

As envoy -c FILE …, it stands in for the proxy that pilot-agent runs.
`

func main() {
	command := "pause" // runtimes start a sandbox's image as it is
	switch {
	case os.Getenv("CNI_COMMAND") != "":
		command = "record"
	case filepath.Base(os.Args[0]) == "envoy":
		command = "envoy"
	case len(os.Args) > 1:
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
	case command == "web" && len(args) > 0:
		return web(ctx, args[0], args[1:])
	case command == "poll" && len(args) == 1:
		return poll(ctx, args[0])
	case command == "hold" && len(args) == 1:
		return hold(ctx, args[0])
	case command == "lookup" && len(args) == 1:
		return lookup(ctx, args[0])
	case command == "proxy":
		return proxy(ctx, slices.Contains(args, "silent"), slices.Contains(args, "plain"))
	case command == "envoy" && len(args) > 0:
		return envoy(ctx, args[0])
	case command == "istio-iptables":
		return installCapture(ctx)
	case command == "injector" && len(args) == 4:
		return injector(ctx, args[0], args[1], args[2], args[3])
	case command == "record":
		return record()
	case command == "status":
		return status()
	}
	return fmt.Errorf("unknown command or wrong number of arguments\n%s", usage)
}

// name returns a hop's name: that of the pod, and the hop's role in the pod.
func name(role string) string {
	pod, err := os.Hostname()
	if err != nil {
		pod = "?"
	}
	return pod + "/" + role
}

// status prints uid, gid and capabilities as the kernel has them.
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
