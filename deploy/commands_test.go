// SPDX-License-Identifier: Apache-2.0

package deploy

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/capture-cni/capture-cni/e2e/guides"
	"github.com/capture-cni/capture-cni/e2e/lab"
)

// tools are programs that the guides use and that are not this project's.
var tools = []string{
	"cat", "cluster-autoscaler", "cosign", "curl", "echo", "export", "go", "grep", "istioctl", "kubelet",
	"mkdir", "nsenter", "rm", "sha256sum", "sleep", "tar",
}

// TestCommands checks each command of the guides without running it: flags by the help of
// the program, the chart's values by rendering it, names by the rendered objects.
func TestCommands(t *testing.T) {
	t.Parallel()
	checkCommands(t, map[string]string{"capture-cni-node": agent(t), "kubectl capture-cni": plugin(t)})
}

// TestOracleCommands does so with the flags of Helm and kubectl.
func TestOracleCommands(t *testing.T) {
	checkCommands(t, map[string]string{"helm": lab.Part(t, "helm"), "kubectl": lab.Part(t, "kubectl")})
}

func checkCommands(t *testing.T, programs map[string]string) {
	t.Helper()
	commands, err := guides.Commands("..")
	if err != nil || len(commands) < 80 {
		t.Fatalf("the guides have %d commands: %v", len(commands), err)
	}
	c := newChecker(t, programs)
	for _, command := range commands {
		for _, call := range command.Calls() {
			if err := c.check(t, call); err != nil {
				t.Errorf("%s\n%v", command, err)
			}
		}
	}
}

// TestBlocksHaveLanguages expects a language of each block, so that no command hides in a
// block that no test reads.
func TestBlocksHaveLanguages(t *testing.T) {
	blocks, err := guides.Blocks("..")
	if err != nil {
		t.Fatal(err)
	}
	command := regexp.MustCompile(`(?m)^(helm|kubectl|oc|make|capture-cni-node) `)
	for _, block := range blocks {
		switch {
		case !slices.Contains([]string{"sh", "yaml", "json", "ini", "text", "mermaid"}, block.Language):
			t.Errorf("%s, section %q: a block of the language %q: expected sh, yaml, json, ini, text or mermaid", block.Guide, block.Section, block.Language)
		case block.Language != "sh" && command.MatchString(block.Text):
			t.Errorf("%s, section %q: a command in a block of the language %q: expected sh", block.Guide, block.Section, block.Language)
		}
	}
}

// checker knows the programs and the objects that commands name.
type checker struct {
	programs   map[string]string // whose flags are checked: paths by name
	help       map[string]string // of commands
	makefile   string
	objects    []string         // as kind/name
	containers []string         // of the agent's pod
	rendered   map[string]error // by settings
}

func newChecker(t *testing.T, programs map[string]string) *checker {
	t.Helper()
	c := &checker{
		programs: programs, help: map[string]string{}, makefile: read(t, "../Makefile"),
		rendered: map[string]error{},
	}
	for _, settings := range [][]string{nil, {"platform=openshift"}} {
		for _, o := range objects(t, settings...) {
			c.objects = append(c.objects, strings.ToLower(o.kind)+"/"+o.name)
		}
	}
	c.objects = append(c.objects, "daemonset/istio-cni-node", "daemonset/consul-cni", "configmap/istio-cni-config", "configmap/kube-root-ca.crt", "networkattachmentdefinition/istio-cni") // not in these manifests
	for _, container := range daemonSet(t).Spec.Template.Spec.Containers {
		c.containers = append(c.containers, container.Name)
	}
	return c
}

// check returns what is wrong with a call of a program.
func (c *checker) check(t *testing.T, call []string) error {
	t.Helper()
	if err := c.checkFiles(call); err != nil {
		return err
	}
	switch program, args := strings.TrimPrefix(call[0], "/"), call[1:]; {
	case program == "helm":
		return c.checkHelm(t, args)
	case program == "kubectl" && len(args) > 0 && args[0] == "capture-cni":
		return c.checkFlags(t, "kubectl capture-cni", args[1:])
	case program == "kubectl":
		return c.checkKubectl(t, args)
	case program == "capture-cni-node":
		return c.checkFlags(t, program, args)
	case program == "make":
		if !strings.Contains(c.makefile, "\n"+args[0]+":") {
			return fmt.Errorf("the Makefile has no target %s", args[0])
		}
	case !slices.Contains(tools, program):
		return fmt.Errorf("the program %s is not known: expected one of this project, helm, kubectl, make or of %q", program, tools)
	}
	return nil
}

// checkFiles expects the project's files, and of bin/ those that make builds.
func (c *checker) checkFiles(call []string) error {
	for _, arg := range call {
		switch first, _, _ := strings.Cut(arg, "/"); first {
		case "deploy", "e2e":
			if _, err := os.Stat(filepath.Join("..", arg)); err != nil {
				return err
			}
		case "bin":
			if !strings.Contains(c.makefile, filepath.Base(arg)) {
				return fmt.Errorf("make builds no %s", arg)
			}
		}
	}
	return nil
}

var commandFlag = regexp.MustCompile(`^(-[a-zA-Z]$|--[a-z][a-z-]*)`)

// checkFlags looks the flags of a call up in the help of its command.
func (c *checker) checkFlags(t *testing.T, program string, args []string) error {
	t.Helper()
	if c.programs[program] == "" {
		return nil
	}
	command, _ := subcommand(program, args)
	help := c.helpOf(t, program, command)
	for _, arg := range args {
		if arg == "--" {
			break
		}
		flag := commandFlag.FindString(arg)
		if flag != "" && !regexp.MustCompile(`(^|[\s,])`+flag+`\b`).MatchString(help) {
			return fmt.Errorf("%s %s has no flag %s", program, strings.Join(command, " "), flag)
		}
	}
	return nil
}

// nested are commands of two words.
var nested = []string{"kubectl create", "kubectl rollout", "helm get"}

// subcommand returns the words of a command, and its operands; -n and its value may come
// first.
func subcommand(program string, args []string) (command, operands []string) {
	for i := 0; i < len(args); i++ {
		switch {
		case args[i] == "-n":
			i++
		case strings.HasPrefix(args[i], "-"):
		default:
			operands = append(operands, args[i])
		}
	}
	count := min(1, len(operands))
	if len(operands) > 1 && slices.Contains(nested, program+" "+operands[0]) {
		count = 2
	}
	return operands[:count], operands[count:]
}

// helpOf returns the help of a command, with the flags of all commands.
func (c *checker) helpOf(t *testing.T, program string, command []string) string {
	t.Helper()
	key := program + " " + strings.Join(command, " ")
	if c.help[key] == "" {
		out := c.output(t, program, append(slices.Clone(command), "--help")...)
		if !strings.Contains(out, strings.Join(command, " ")) {
			t.Errorf("there is no command %s", key)
		}
		if program == "kubectl" {
			if c.help["options"] == "" {
				c.help["options"] = c.output(t, program, "options")
			}
			out += c.help["options"]
		}
		c.help[key] = out
	}
	return c.help[key]
}

func (c *checker) output(t *testing.T, program string, args ...string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), c.programs[program], args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", program, strings.Join(args, " "), err, out)
	}
	return string(out)
}
