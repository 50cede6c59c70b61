// SPDX-License-Identifier: Apache-2.0

package node

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/capture-cni/capture-cni/install/host"
	"github.com/capture-cni/capture-cni/install/kube"
)

// The plugin's credentials.
const (
	kubeconfigName = "kubeconfig"
	tokenName      = "token"
	caName         = "ca.crt"
)

// credentials writes and renews the plugin's credentials.
type credentials struct {
	settings Settings
	api      *kube.Client
	requests *tokenRequests
}

// secrets are the credentials on the node, and when they expire.
type secrets struct {
	kubeconfig string // as the plugin sees it
	token      lifetime
	caExpires  time.Time
	fallback   bool // in the run directory alone, which a reboot empties
}

// ensure writes kubeconfig, token and CA where they are missing, differ or are due for
// renewal. renew requests a new token whatever the old one's age. With an error, the
// credentials on the node are still valid unless the returned secrets are zero.
func (c credentials) ensure(ctx context.Context, renew bool) (secrets, error) {
	ca, err := host.ReadFile(c.settings.Credentials.CAFile)
	if err != nil {
		return secrets{}, fmt.Errorf("reading the cluster's CA: %w", err)
	}
	token, requestErr := c.freshToken(ctx, renew)
	if token == "" {
		return secrets{}, requestErr
	}
	valid, err := readLifetime(token)
	if err != nil {
		return secrets{}, errors.Join(requestErr, err)
	}
	for _, directory := range c.settings.credentialDirs() {
		err = c.write(directory, ca, token)
		if err == nil {
			return secrets{directory + "/" + kubeconfigName, valid, firstExpiry(ca), directory != c.settings.StateDir}, requestErr
		}
		if !errors.Is(err, syscall.ENOSPC) && !errors.Is(err, syscall.EROFS) && !errors.Is(err, syscall.EDQUOT) {
			break
		}
	}
	return secrets{}, errors.Join(requestErr, err)
}

// firstExpiry returns when the first of a bundle's certificates expires, zero if it
// contains none.
func firstExpiry(bundle []byte) (first time.Time) {
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
func (c credentials) freshToken(ctx context.Context, renew bool) (string, error) {
	_, current, valid := c.currentToken()
	now := time.Now()
	if current != "" && !renew && now.Before(valid.renewal()) && !c.isOfAnotherNode(current) {
		c.requests.recordCurrent(now, valid)
		return current, c.requests.clocks
	}
	err := c.requests.fault()
	if c.requests.isDue(now) {
		spec := c.settings.Credentials.TokenSpec
		spec.NodeExisted = current != "" && boundNode(current) == spec.Node && now.Before(valid.expires)
		var token string
		if token, err = c.requestToken(ctx, spec, renew); token != "" {
			return token, err
		}
	}
	if current != "" && time.Now().Before(valid.expires) {
		return current, err
	}
	return "", err
}

// isOfAnotherNode reports whether a token is bound to another Node than this agent's:
// it ends with that one.
func (c credentials) isOfAnotherNode(token string) bool {
	bound, own := boundNode(token), c.settings.Credentials.Node
	return bound != "" && own != "" && bound != own
}

// requestToken requests a token. rejected says that the API server rejected the last one.
func (c credentials) requestToken(ctx context.Context, spec kube.TokenSpec, rejected bool) (string, error) {
	token, err := c.api.RequestToken(ctx, spec)
	if err != nil {
		c.requests.recordFailure(time.Now(), err)
		return "", err
	}
	valid, err := readLifetime(token)
	if err != nil {
		c.requests.recordFailure(time.Now(), err)
		return "", err
	}
	c.requests.recordToken(time.Now(), valid, rejected)
	return token, c.requests.clocks
}

// currentToken returns the token that expires last, and its directory.
func (c credentials) currentToken() (directory, token string, valid lifetime) {
	for _, dir := range c.settings.credentialDirs() {
		content, err := host.ReadFile(c.settings.at(dir) + "/" + tokenName)
		if err != nil {
			continue
		}
		if l, err := readLifetime(string(content)); err == nil && l.expires.After(valid.expires) {
			directory, token, valid = dir, string(content), l
		}
	}
	return directory, token, valid
}

// write replaces files that differ. The kubeconfig comes last, as it refers to the others.
func (c credentials) write(directory string, ca []byte, token string) (err error) {
	dir, err := host.MakeDir(c.settings.at(directory))
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
	}{{caName, ca}, {tokenName, []byte(token)}, {kubeconfigName, kubeconfig}} {
		if err := ensureFile(dir, file.name, file.content); err != nil {
			return err
		}
	}
	return nil
}

func (c credentials) kubeconfig(directory string) ([]byte, error) {
	const name = "capture-cni"
	content := clientcmdapi.NewConfig()
	content.Clusters[name] = &clientcmdapi.Cluster{Server: c.settings.Credentials.Server, CertificateAuthority: directory + "/" + caName}
	content.AuthInfos[name] = &clientcmdapi.AuthInfo{TokenFile: directory + "/" + tokenName}
	content.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	content.CurrentContext = name
	text, err := clientcmd.Write(*content)
	if err != nil {
		return nil, fmt.Errorf("writing a kubeconfig: %w", err)
	}
	return text, nil
}

// rejected reports whether the API server rejects the plugin's token, as it does
// after its signing key was replaced.
func (c credentials) rejected(ctx context.Context) bool {
	_, token, _ := c.currentToken()
	return token != "" && kube.RejectsToken(ctx, c.settings.Credentials.Server, c.settings.Credentials.CAFile, token)
}

// fault returns why the plugin can't read a pod with the credentials on the node, and
// the kubeconfig that it would use.
func (c credentials) fault() (kubeconfig string, err error) {
	kubeconfig = c.settings.StateDir + "/" + kubeconfigName
	directory, token, valid := c.currentToken()
	if token == "" {
		return kubeconfig, fmt.Errorf("%s contains no token", c.settings.StateDir)
	}
	if !time.Now().Before(valid.expires) {
		return kubeconfig, fmt.Errorf("the token expired at %s", valid.expires.Format(time.RFC3339))
	}
	for _, name := range []string{kubeconfigName, caName} {
		if _, err := os.Stat(c.settings.at(directory) + "/" + name); err != nil {
			return directory + "/" + kubeconfigName, fmt.Errorf("checking the credentials: %w", err)
		}
	}
	return directory + "/" + kubeconfigName, nil
}

// ensureFile replaces a file of the agent's own unless it has the content.
func ensureFile(dir *host.Dir, name string, content []byte) error {
	if current, err := dir.Read(name); err == nil && bytes.Equal(current, content) {
		return nil
	}
	return dir.Replace(name, content, host.As(0o600), nil)
}
