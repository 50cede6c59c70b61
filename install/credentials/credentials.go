// SPDX-License-Identifier: Apache-2.0

// Package credentials keeps on the node the kubeconfig, token and CA with which the plugin
// reads pods while the agent does not answer.
package credentials

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/install/host"
	"github.com/capture-cni/capture-cni/install/kube"
	"github.com/capture-cni/capture-cni/plugin/capture"
)

// Files next to the kubeconfig.
const (
	TokenName = "token"
	CAName    = "ca.crt"
)

// Names are the names of all files of the credentials.
func Names() []string { return []string{config.KubeconfigName, TokenName, CAName} }

// Settings are what the plugin reads pods with while the agent does not answer.
type Settings struct {
	OnNode bool           // false: no credentials on the node, and no program to use them
	Pod    capture.PodRef // the agent's own, for the canary that precedes their removal
	kube.TokenSpec
	Server string // URL of the API server, as the node reaches it
	CAFile string // in the agent's own file system
}

// Store writes and renews the plugin's credentials.
type Store struct {
	settings    Settings
	root        string   // where the agent sees the node's file system
	directories []string // where credentials are written, in the order of preference
	api         *kube.Client
	requests    requests
}

// New returns a Store that has requested no token. api may be nil where nothing is
// written.
func New(root string, directories []string, settings Settings, api *kube.Client) *Store {
	return &Store{settings: settings, root: root, directories: directories, api: api}
}

// at returns a path of the node as the agent sees it.
func (c *Store) at(path string) string { return filepath.Join(c.root, path) }

// State is of the credentials on the node.
type State struct {
	Kubeconfig string // as the plugin sees it
	Token      Lifetime
	CAExpires  time.Time
	Fallback   bool // in the run directory alone, which a reboot empties
}

// Ensure writes kubeconfig, token and CA where they are missing, differ or are due for
// renewal. renew requests a new token whatever the old one's age. With an error, the
// credentials on the node are still valid unless the returned secrets are zero.
func (c *Store) Ensure(ctx context.Context, renew bool) (State, error) {
	ca, err := host.ReadFile(c.settings.CAFile)
	if err != nil {
		return State{}, fmt.Errorf("reading the cluster's CA: %w", err)
	}
	token, valid, requestErr := c.freshToken(ctx, renew)
	if token == "" {
		return State{}, requestErr
	}
	for _, directory := range c.directories {
		err = c.write(directory, ca, token)
		if err == nil {
			return State{directory + "/" + config.KubeconfigName, valid, FirstExpiry(ca), directory != c.directories[0]}, requestErr
		}
		if !errors.Is(err, syscall.ENOSPC) && !errors.Is(err, syscall.EROFS) && !errors.Is(err, syscall.EDQUOT) {
			break
		}
	}
	return State{}, errors.Join(requestErr, err)
}

// FirstExpiry returns when the first of a bundle's certificates expires, zero if it
// contains none.
func FirstExpiry(bundle []byte) (first time.Time) {
	for block, rest := pem.Decode(bundle); block != nil; block, rest = pem.Decode(rest) {
		certificate, err := x509.ParseCertificate(block.Bytes)
		if err == nil && (first.IsZero() || certificate.NotAfter.Before(first)) {
			first = certificate.NotAfter
		}
	}
	return first
}

// freshToken returns the current token, or a new one after half of its lifetime or if it is
// bound to another Node, as in a copy of that node's disk. If the request fails, or must
// wait after an earlier one, it returns the error and the current token while that is
// valid. An error with a new token is about the clocks.
func (c *Store) freshToken(ctx context.Context, renew bool) (string, Lifetime, error) {
	_, current, valid := c.CurrentToken()
	now := time.Now()
	if current != "" && !renew && now.Before(valid.renewal()) && !c.isOfAnotherNode(current) {
		// The times of the current token show whether the clock was set back. Without such a
		// fault, the assignment also clears an earlier one.
		c.requests.clocks = valid.clockFault(now)
		return current, valid, c.requests.clocks
	}
	if c.requests.isDue(now) {
		spec := c.settings.TokenSpec
		spec.NodeExisted = current != "" && boundNode(current) == spec.Node && now.Before(valid.Expires)
		token, err := c.api.RequestToken(ctx, spec)
		var fresh Lifetime
		if err == nil {
			fresh, err = readLifetime(token)
		}
		if err == nil {
			c.requests.recordToken(time.Now(), fresh, renew)
			return token, fresh, c.requests.clocks
		}
		c.requests.recordFailure(time.Now(), err)
	}
	if current != "" && time.Now().Before(valid.Expires) {
		return current, valid, c.requests.fault()
	}
	return "", Lifetime{}, c.requests.fault()
}

// isOfAnotherNode reports whether a token is bound to another Node than this agent's:
// it ends with that one.
func (c *Store) isOfAnotherNode(token string) bool {
	bound, own := boundNode(token), c.settings.Node
	return bound != "" && own != "" && bound != own
}

// CurrentToken returns the token that expires last, and its directory.
func (c *Store) CurrentToken() (directory, token string, valid Lifetime) {
	for _, dir := range c.directories {
		content, err := host.ReadFile(c.at(dir) + "/" + TokenName)
		if err != nil {
			continue
		}
		if l, err := readLifetime(string(content)); err == nil && l.Expires.After(valid.Expires) {
			directory, token, valid = dir, string(content), l
		}
	}
	return directory, token, valid
}

// write replaces files that differ. The kubeconfig comes last, as it refers to the others.
func (c *Store) write(directory string, ca []byte, token string) (err error) {
	dir, err := host.MakeDir(c.at(directory))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, dir.Close()) }()
	kubeconfig, err := c.kubeconfig(directory)
	if err != nil {
		return err
	}
	if err := dir.ClearTemps(); err != nil {
		return err
	}
	for _, file := range []struct {
		name    string
		content []byte
	}{{CAName, ca}, {TokenName, []byte(token)}, {config.KubeconfigName, kubeconfig}} {
		if err := dir.Ensure(file.name, file.content); err != nil {
			return err
		}
	}
	return nil
}

func (c *Store) kubeconfig(directory string) ([]byte, error) {
	const name = "capture-cni"
	content := clientcmdapi.NewConfig()
	content.Clusters[name] = &clientcmdapi.Cluster{Server: c.settings.Server, CertificateAuthority: directory + "/" + CAName}
	content.AuthInfos[name] = &clientcmdapi.AuthInfo{TokenFile: directory + "/" + TokenName}
	content.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	content.CurrentContext = name
	text, err := clientcmd.Write(*content)
	if err != nil {
		return nil, fmt.Errorf("writing a kubeconfig: %w", err)
	}
	return text, nil
}

// IsRejected reports whether the API server rejects the plugin's token, as it does
// after its signing key was replaced.
func (c *Store) IsRejected(ctx context.Context) bool {
	_, token, _ := c.CurrentToken()
	rejected := token != "" && kube.RejectsToken(ctx, c.settings.Server, c.settings.CAFile, token)
	if !rejected {
		c.requests.rejected = 0
	}
	return rejected
}

// Requested returns how many tokens the Store has got from the API server.
func (c *Store) Requested() int { return c.requests.issued }

// Due returns when the next token should be requested: once the current one is at half of
// its life, and no earlier than the pause after a failed request ends.
func (c *Store) Due(current State) time.Time {
	if due := current.Token.renewal(); due.After(c.requests.next) {
		return due
	}
	return c.requests.next
}

// ClockFault returns an error while the clocks of node and API server are far apart, as
// the last token shows.
func (c *Store) ClockFault() error { return c.requests.clocks }

// Fault returns why the plugin can't read a pod with the credentials on the node, and
// the kubeconfig that it would use.
func (c *Store) Fault() (kubeconfig string, err error) {
	kubeconfig = c.directories[0] + "/" + config.KubeconfigName
	directory, token, valid := c.CurrentToken()
	if token == "" {
		return kubeconfig, fmt.Errorf("%s contains no token", c.directories[0])
	}
	if !time.Now().Before(valid.Expires) {
		return kubeconfig, fmt.Errorf("the token expired at %s", valid.Expires.Format(time.RFC3339))
	}
	for _, name := range []string{config.KubeconfigName, CAName} {
		if _, err := os.Stat(c.at(directory) + "/" + name); err != nil {
			return directory + "/" + config.KubeconfigName, fmt.Errorf("checking the credentials: %w", err)
		}
	}
	return directory + "/" + config.KubeconfigName, nil
}
