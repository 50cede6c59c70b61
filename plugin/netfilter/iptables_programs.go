// SPDX-License-Identifier: Apache-2.0

package netfilter

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/plugin/capture"
)

// programs are iptables' of one family and variant.
type programs struct {
	variant       config.Backend // config.IPTablesNFT or config.IPTablesLegacy
	save, restore string         // paths
	wait          bool           // restore knows --wait
}

// folders are where distributions keep iptables; a runtime's PATH can lack them.
var folders = []string{"/usr/sbin", "/sbin", "/usr/local/sbin", "/usr/bin", "/bin"}

// commandPrefix is what a family's programs begin with.
var commandPrefix = map[capture.Family]string{capture.IPv4: "iptables", capture.IPv6: "ip6tables"}

// findPrograms looks for a family's programs. A variant's own names say which
// one it is; of the plain ones, which a host may point at either, only their
// version does.
func findPrograms(ctx context.Context, family capture.Family, asked config.Backend) (programs, error) {
	plain := commandPrefix[family]
	p := programs{variant: asked, wait: asked == config.IPTablesLegacy}
	if asked != config.IPTables {
		suffix := strings.TrimPrefix(string(asked), "iptables") // "-nft"
		if p.locate(plain+suffix) == nil {
			return p, nil
		}
	}
	if err := p.locate(plain); err != nil {
		return p, missingPrograms(asked, err)
	}
	command, err := lookPath(plain)
	if err != nil {
		return p, missingPrograms(asked, err)
	}
	out, err := run(ctx, nil, command, "-V")
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
	return capture.Refusal(fmt.Sprintf("backend %q: this host does not have it: %v; install it, or use backend %q", asked, err, config.NFTables))
}

func (p *programs) locate(name string) (err error) {
	if p.save, err = lookPath(name + "-save"); err != nil {
		return err
	}
	p.restore, err = lookPath(name + "-restore")
	return err
}

func lookPath(name string) (string, error) {
	path, err := exec.LookPath(name)
	for _, folder := range folders {
		if err == nil {
			break
		}
		path, err = exec.LookPath(filepath.Join(folder, name))
	}
	if err != nil {
		return "", fmt.Errorf("no %s in PATH or %s", name, strings.Join(folders, ", "))
	}
	return path, nil
}

// parseVersion reads "iptables v1.8.9 (nf_tables)". Versions before 1.8 know
// but one variant and name none. Since 1.6.2, restore can wait for the lock.
func parseVersion(text string) (variant config.Backend, wait bool, err error) {
	// Compiled here, and not at every start of the plugin.
	form := regexp.MustCompile(`v(\d+)\.(\d+)\.(\d+)(?: \((\w+)\))?`)
	match := form.FindStringSubmatch(text)
	if match == nil {
		return "", false, fmt.Errorf("%q is no version", strings.TrimSpace(text))
	}
	var number int // 1.6.2 is 10602
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
	return "", false, fmt.Errorf("%q names a variant that is not known", strings.TrimSpace(text))
}

// lockVariable names the file that iptables' legacy variant locks, in place of
// the one that all programs of the node queue up for. The namespace's own lock
// is held already, so that privateLock, a file of the process's own, need not
// keep anybody out.
const (
	lockVariable = "XTABLES_LOCKFILE"
	privateLock  = "/proc/self/comm"
)

// run executes a program on the calling thread, and so in its namespace, with
// nothing in its environment that could change what it does.
func run(ctx context.Context, stdin []byte, path string, args ...string) ([]byte, error) {
	command := exec.CommandContext(ctx, path, args...)
	command.Env = []string{"PATH=" + strings.Join(folders, string(os.PathListSeparator)), "LC_ALL=C", lockVariable + "=" + privateLock}
	command.Stdin = bytes.NewReader(stdin)
	stdout, stderr := bounded{most: maxSaved, what: "bytes of rules, as " + filepath.Base(path) + " prints them"}, bounded{most: maxSaid, what: "bytes of errors"}
	command.Stdout, command.Stderr = &stdout, &stderr
	err := command.Run()
	if ctx.Err() != nil {
		err = errors.Join(ctx.Err(), err)
	}
	if err != nil {
		said := strings.Join(strings.Fields(stderr.String()), " ")
		return nil, fmt.Errorf("running %s: %w: %s", strings.Join(command.Args, " "), err, said)
	}
	return stdout.Bytes(), nil
}

// bounded keeps what a program prints.
type bounded struct {
	bytes.Buffer
	what string
	most int
}

// Write ends the program's output at the limit, and with it the program.
func (b *bounded) Write(data []byte) (int, error) {
	if b.Len()+len(data) > b.most {
		return 0, TooLarge{b.what, b.most}
	}
	return b.Buffer.Write(data)
}
