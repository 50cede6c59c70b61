// SPDX-License-Identifier: Apache-2.0

// Package credentials writes the plugin's kubeconfig, token and CA to the node, and renews them. The
// plugin uses them to read pods while the agent does not answer.
package credentials

import (
	"cmp"
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

// Names returns the names of all files of the credentials.
func Names() []string { return []string{config.KubeconfigName, TokenName, CAName} }

// Settings describes the credentials.
type Settings struct {
	OnNode bool           // if false, the agent writes no credentials, and no program that needs them
	Pod    capture.PodRef // the agent's own pod
	kube.TokenSpec
	Server string // URL at which the node reaches the API server
	CAFile string // in the agent's own file system

	Disk   host.Disk                               `json:"-"` // makes operations fail in simulations; nil on a real node
	Jitter func(limit time.Duration) time.Duration `json:"-"` // a random part of a pause; nil for rand.N
}

// Store writes and renews the plugin's credentials.
type Store struct {
	settings    Settings
	root        string   // where the agent sees the node's file system
	directories []string // directories for credentials, the preferred one first
	api         *kube.Client
	requests    requests
}

// New returns a Store. If api is nil, the Store requests no tokens.
func New(root string, directories []string, settings Settings, api *kube.Client) *Store {
	return &Store{settings: settings, root: root, directories: directories, api: api, requests: requests{jitter: settings.Jitter}}
}

// at returns the path at which the agent sees a path of the node.
func (c *Store) at(path string) string { return filepath.Join(c.root, path) }

// State describes the credentials on the node.
type State struct {
	Kubeconfig string // path that the plugin uses
	Token      Lifetime
	CAExpires  time.Time
	Fallback   bool // the run directory, which a reboot empties, has the current credentials
}

// Ensure writes the kubeconfig, token and CA that are missing, differ or are due for renewal. With
// renew, it requests a new token even if the current one is not old. If Ensure returns an error and a
// State that is not zero, the node has the credentials, and their token has not expired.
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
		if errors.Is(err, host.ErrUnsynced) || // the files are there, and the caller must sync again
			!errors.Is(err, syscall.ENOSPC) && !errors.Is(err, syscall.EROFS) && !errors.Is(err, syscall.EDQUOT) {
			break
		}
	}
	return State{}, errors.Join(requestErr, err)
}

// FirstExpiry returns the expiry of the certificate in a bundle that expires first, or zero if the
// bundle contains no certificate.
func FirstExpiry(bundle []byte) (first time.Time) {
	for block, rest := pem.Decode(bundle); block != nil; block, rest = pem.Decode(rest) {
		certificate, err := x509.ParseCertificate(block.Bytes)
		if err == nil && (first.IsZero() || certificate.NotAfter.Before(first)) {
			first = certificate.NotAfter
		}
	}
	return first
}

// freshToken returns the current token or a new one. It requests a new token if there is none, with
// renew, if the last request failed, after half of the current token's lifetime, and if the current token
// is bound to another Node, as on a copy of that node's disk, but not before the pause after the last
// request has ended. If a request fails, it returns the error, and the current token while that is valid.
// An error with a new token is about the clocks.
func (c *Store) freshToken(ctx context.Context, renew bool) (string, Lifetime, error) {
	_, current, valid := c.CurrentToken()
	now := time.Now()
	if current != "" && !renew && c.requests.err == nil && now.Before(valid.renewal()) && !c.isOfAnotherNode(current) {
		// The times of the current token show whether the clock was set back. If not, this assignment
		// clears an earlier error.
		c.requests.clocks = valid.clockFault(now)
		return current, valid, c.requests.clocks
	}
	if c.api != nil && c.requests.isDue(now) {
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
	return "", Lifetime{}, cmp.Or(c.requests.fault(), errNoToken)
}

// errNoToken is the error if none of the node's tokens is valid, and the pause after the last request has
// not ended, or the Store has no client.
var errNoToken = errors.New("no token on the node is valid, and the agent can't request one now")

// isOfAnotherNode reports whether a token is bound to another Node than this agent's. Such a token
// becomes invalid when that Node is deleted.
func (c *Store) isOfAnotherNode(token string) bool {
	bound, own := boundNode(token), c.settings.Node
	return bound != "" && own != "" && bound != own
}

// CurrentToken returns the token on the node that expires last, its directory and its lifetime. It
// returns zero values if there is none.
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

// write replaces the files in a directory that differ. It writes the kubeconfig last, because the
// kubeconfig names the other files.
func (c *Store) write(directory string, ca []byte, token string) (err error) {
	dir, err := host.MakeDir(c.at(directory), c.settings.Disk)
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

// IsRejected reports whether the API server rejects the plugin's token, for example because its signing
// key was replaced.
func (c *Store) IsRejected(ctx context.Context) bool {
	_, token, _ := c.CurrentToken()
	rejected := token != "" && c.api.RejectsToken(ctx, c.settings.Server, c.settings.CAFile, token)
	if !rejected {
		c.requests.rejected = 0
	}
	return rejected
}

// Requested returns the number of tokens that the Store has received from the API server.
func (c *Store) Requested() int { return c.requests.issued }

// Due returns the time of the next request for a token: after half of the current token's lifetime, or
// after a failed request, but not before the end of the pause after the last request.
func (c *Store) Due(current State) time.Time {
	if due := current.Token.renewal(); c.requests.err == nil && due.After(c.requests.next) {
		return due
	}
	return c.requests.next
}

// ClockFault returns an error if the times in the last token show that the clocks of node and API
// server differ too much.
func (c *Store) ClockFault() error { return c.requests.clocks }

// Fault returns the kubeconfig that the plugin would use. It returns an error if the plugin can't read
// a pod with it, because a file is missing or the token has expired.
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
