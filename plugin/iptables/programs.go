// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"syscall"

	"github.com/containernetworking/plugins/pkg/ns"
	"golang.org/x/sys/unix"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/plugin/capture"
	"github.com/capture-cni/capture-cni/plugin/nfnetlink"
)

// programs are the iptables programs of one family and variant.
type programs struct {
	root          string         // of the programs' file system; "" for that of this process
	variant       config.Backend // config.IPTablesNFT or config.IPTablesLegacy
	save, restore string         // paths below root
	wait          bool           // restore takes a lock, and knows the flag --wait
}

// directories are those in which distributions install iptables. A runtime's PATH can lack them.
var directories = []string{"/usr/sbin", "/sbin", "/usr/local/sbin", "/usr/bin", "/bin"}

// commandPrefix maps a family to the prefix of its programs' names.
var commandPrefix = map[capture.Family]string{capture.IPv4: "iptables", capture.IPv6: "ip6tables"}

// findPrograms returns a family's programs. If a variant is asked, it prefers programs whose names contain
// the variant. Programs with plain names can be of either variant, which their version shows.
func findPrograms(ctx context.Context, root string, family capture.Family, asked config.Backend) (programs, error) {
	plain := commandPrefix[family]
	p := programs{root: root, variant: asked, wait: asked == config.IPTablesLegacy}
	if asked != config.IPTables {
		suffix := strings.TrimPrefix(string(asked), "iptables") // "-nft"
		if p.locate(plain+suffix) == nil {
			return p, nil
		}
	}
	if err := p.locate(plain); err != nil {
		return p, missingPrograms(asked, err)
	}
	command, err := lookPath(root, plain)
	if err != nil {
		return p, missingPrograms(asked, err)
	}
	out, err := run(ctx, root, nil, command, "-V")
	if err != nil {
		return p, err
	}
	if p.variant, p.wait, err = parseVersion(string(out)); err != nil {
		return p, fmt.Errorf("asking %s for its version: %w", command, err)
	}
	if asked != config.IPTables && p.variant != asked {
		return p, missingPrograms(asked, fmt.Errorf("%s is %s", command, p.variant))
	}
	return p, nil
}

func missingPrograms(asked config.Backend, err error) error {
	return capture.Refusal(fmt.Sprintf("backend %q: this host does not have it: %v; install it, or use backend %q",
		asked, err, config.NFTables))
}

func (p *programs) locate(name string) (err error) {
	if p.save, err = lookPath(p.root, name+"-save"); err != nil {
		return err
	}
	p.restore, err = lookPath(p.root, name+"-restore")
	return err
}

// lookPath returns the path of a program, relative to root. If root is "", lookPath searches PATH
// first. It then searches directories.
func lookPath(root, name string) (path string, err error) {
	if root == "" {
		path, err = exec.LookPath(name)
	} else {
		err = os.ErrNotExist
	}
	for _, directory := range directories {
		if err == nil {
			return path, nil
		}
		path = filepath.Join(directory, name)
		_, err = exec.LookPath(root + resolve(root, path))
	}
	if err != nil {
		return "", fmt.Errorf("no %s in %s", name, strings.Join(directories, ", "))
	}
	return path, nil
}

// resolve follows the symbolic links of a program below root, such as those of Debian's alternatives.
func resolve(root, path string) string {
	for range 8 {
		target, err := os.Readlink(root + path)
		switch {
		case err != nil:
			return path
		case filepath.IsAbs(target):
			path = target
		default:
			path = filepath.Join(filepath.Dir(path), target)
		}
	}
	return path
}

// parseVersion parses a text such as "iptables v1.8.9 (nf_tables)". Before version 1.8, programs with plain
// names are of the legacy variant and do not name it. Since 1.6.2, restore can wait for the lock.
func parseVersion(text string) (variant config.Backend, wait bool, err error) {
	// The expression is compiled here, because most calls of the plugin do not need it.
	form := regexp.MustCompile(`v(\d+)\.(\d+)\.(\d+)(?: \((\w+)\))?`)
	match := form.FindStringSubmatch(text)
	if match == nil {
		return "", false, fmt.Errorf("%q is no version", strings.TrimSpace(text))
	}
	var number int // 10602 for version 1.6.2
	for _, part := range match[1:4] {
		n, err := strconv.Atoi(part)
		if err != nil {
			return "", false, fmt.Errorf("%q is no version: %w", strings.TrimSpace(text), err)
		}
		number = number*100 + n
	}
	switch match[4] {
	case "nf_tables":
		return config.IPTablesNFT, false, nil
	case "legacy", "":
		return config.IPTablesLegacy, number >= 10602, nil
	}
	return "", false, fmt.Errorf("%q names an unknown variant", strings.TrimSpace(text))
}

// lockVariable is the environment variable that names the lock file of iptables-legacy. By default, all
// programs on the node share one file. Because capture-cni locks the network namespace itself, each
// program may instead lock privateLock, a file of its own process.
const (
	lockVariable = "XTABLES_LOCKFILE"
	privateLock  = "/proc/self/comm"
)

// run executes a program below root on the calling thread, and so in the thread's network namespace.
// The program gets a fixed environment.
func run(ctx context.Context, root string, stdin []byte, path string, args ...string) ([]byte, error) {
	command := exec.CommandContext(ctx, path, args...)
	command.SysProcAttr, command.Dir = &syscall.SysProcAttr{Chroot: root, Setpgid: true}, "/"
	// Kill the program's group, because its child modprobe may hold the pipes open after the program's end.
	command.Cancel = func() error { return syscall.Kill(-command.Process.Pid, syscall.SIGKILL) }
	command.Env = []string{"PATH=" + strings.Join(directories, string(os.PathListSeparator)), "LC_ALL=C", lockVariable + "=" + privateLock}
	command.Stdin = bytes.NewReader(stdin)
	stdout, stderr := bounded{limit: maxStdout + 1}, bounded{limit: maxStderr}
	command.Stdout, command.Stderr = &stdout, &stderr
	err := command.Run()
	err = errors.Join(ctx.Err(), err)
	if len(stdout.content) > maxStdout {
		err = errors.Join(err, nfnetlink.TooLarge{What: "bytes of rules, as " + filepath.Base(path) + " prints them", Limit: maxStdout})
	}
	if err != nil {
		err = fmt.Errorf("running %s: %w: %s", strings.Join(command.Args, " "), err, strings.Join(strings.Fields(string(stderr.content)), " "))
		return nil, nameMissing(filepath.Base(path), string(stderr.content), err)
	}
	return stdout.content, nil
}

// runWithoutNameServices runs a program in the calling thread's network namespace, and in a new mount
// namespace with an empty nsswitch.conf. iptables sends a request to the name services for every numeric
// uid and gid, so a slow or unreachable directory server would delay the pod. If the mount fails, the
// program runs with the host's nsswitch.conf.
func runWithoutNameServices(ctx context.Context, root string, stdin []byte, path string, args ...string) error {
	netns, err := ns.GetCurrentNS()
	if err != nil {
		return fmt.Errorf("opening the network namespace: %w", err)
	}
	defer netns.Close()
	done := make(chan error)
	go func() {
		// The goroutine does not unlock the thread. So the thread ends with the goroutine, and its
		// mount namespace with the thread.
		runtime.LockOSThread()
		if err := netns.Set(); err != nil {
			done <- fmt.Errorf("entering the network namespace: %w", err)
			return
		}
		_ = hideNameServices(root)
		_, err := run(ctx, root, stdin, path, args...)
		done <- err
	}()
	return <-done
}

// hideNameServices gives the calling thread a private mount namespace, and mounts an empty nsswitch.conf
// there, which the host does not see.
func hideNameServices(root string) error {
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return err
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return err
	}
	return unix.Mount("/dev/null", root+"/etc/nsswitch.conf", "", unix.MS_BIND, "")
}

// Limits of a program's output, in bytes. Without them, a pod with many rules could exhaust the node's
// memory.
const (
	maxStdout = 64 << 20
	maxStderr = 64 << 10 // run ignores the rest, because the first errors name the cause
)

// bounded keeps the first bytes of a program's output. It does not embed a bytes.Buffer, because os/exec
// would call the buffer's method ReadFrom, which has no limit.
type bounded struct {
	content []byte
	limit   int
}

// Write keeps the data up to the limit, and never returns an error.
func (b *bounded) Write(data []byte) (int, error) {
	b.content = append(b.content, data[:min(len(data), b.limit-len(b.content))]...)
	return len(data), nil
}
