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
	"path/filepath"
	"syscall"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/capture-cni/capture-cni/install/host"
	"github.com/capture-cni/capture-cni/install/kube"
)

// Files that the plugin reads a pod with.
const (
	kubeconfigName = "kubeconfig"
	tokenName      = "token"
	caName         = "ca.crt"
)

// credentials keeps the plugin's token young.
type credentials struct {
	settings Settings
	api      *kube.Client
}

// secrets are where they ended up, and for how long they are good.
type secrets struct {
	kubeconfig string // as the plugin sees it
	token      lifetime
	caExpires  time.Time
	fallback   bool // not on the disk that survives a boot
}

// ensure makes kubeconfig, token and CA be there and good. renew asks for a
// new token though the old one has time left. With an error, what is there is
// still good unless the secrets are zero.
func (c credentials) ensure(ctx context.Context, renew bool) (secrets, error) {
	ca, err := os.ReadFile(c.settings.Credentials.CAFile)
	if err != nil {
		return secrets{}, fmt.Errorf("reading the cluster's CA: %w", err)
	}
	token, requestErr := c.youngToken(ctx, renew)
	if token == "" {
		return secrets{}, requestErr
	}
	good, err := readLifetime(token)
	if err != nil {
		return secrets{}, errors.Join(requestErr, err)
	}
	for _, folder := range []string{c.settings.StateDir, c.settings.RunDir} {
		err = c.write(folder, ca, token)
		if err == nil {
			return secrets{folder + "/" + kubeconfigName, good, firstEnd(ca), folder != c.settings.StateDir}, requestErr
		}
		if !errors.Is(err, syscall.ENOSPC) && !errors.Is(err, syscall.EROFS) && !errors.Is(err, syscall.EDQUOT) {
			break
		}
	}
	return secrets{}, errors.Join(requestErr, err)
}

// firstEnd is when the first of a bundle's certificates ends, zero where there
// is none that can be read.
func firstEnd(bundle []byte) (first time.Time) {
	for block, rest := pem.Decode(bundle); block != nil; block, rest = pem.Decode(rest) {
		certificate, err := x509.ParseCertificate(block.Bytes)
		if err == nil && (first.IsZero() || certificate.NotAfter.Before(first)) {
			first = certificate.NotAfter
		}
	}
	return first
}

// youngToken is the one that is there, or a new one where that has lived half
// its life. Where none can be had, the old one does until it ends.
func (c credentials) youngToken(ctx context.Context, renew bool) (string, error) {
	current, good := c.currentToken()
	if current != "" && !renew && time.Now().Before(good.renewal()) {
		return current, nil
	}
	token, err := c.api.RequestToken(ctx, c.settings.Credentials.TokenSpec)
	if err == nil {
		return token, nil
	}
	if current != "" && time.Now().Before(good.expires) {
		return current, err
	}
	return "", err
}

func (c credentials) currentToken() (token string, good lifetime) {
	for _, folder := range []string{c.settings.StateDir, c.settings.RunDir} {
		content, err := os.ReadFile(c.settings.at(folder) + "/" + tokenName)
		if err != nil {
			continue
		}
		if l, err := readLifetime(string(content)); err == nil && l.expires.After(good.expires) {
			token, good = string(content), l
		}
	}
	return token, good
}

// write replaces what differs; the kubeconfig comes last, for it names the others.
func (c credentials) write(folder string, ca []byte, token string) error {
	dir, err := host.MakeDir(c.settings.at(folder))
	if err != nil {
		return err
	}
	kubeconfig, err := c.kubeconfig(folder)
	if err != nil {
		return errors.Join(err, dir.Close())
	}
	if err := dir.ClearTemps(); err != nil {
		return errors.Join(err, dir.Close())
	}
	for _, file := range []struct {
		name    string
		content []byte
	}{{caName, ca}, {tokenName, []byte(token)}, {kubeconfigName, kubeconfig}} {
		if current, err := dir.Read(file.name); err == nil && bytes.Equal(current, file.content) {
			continue
		}
		if err := dir.Replace(file.name, file.content, host.As(0o600), nil); err != nil {
			return errors.Join(err, dir.Close())
		}
	}
	return dir.Close()
}

func (c credentials) kubeconfig(folder string) ([]byte, error) {
	const name = "capture-cni"
	content := clientcmdapi.NewConfig()
	content.Clusters[name] = &clientcmdapi.Cluster{Server: c.settings.Credentials.Server, CertificateAuthority: folder + "/" + caName}
	content.AuthInfos[name] = &clientcmdapi.AuthInfo{TokenFile: folder + "/" + tokenName}
	content.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	content.CurrentContext = name
	text, err := clientcmd.Write(*content)
	if err != nil {
		return nil, fmt.Errorf("writing a kubeconfig: %w", err)
	}
	return text, nil
}

// rejected tells whether the API server takes the plugin's token for invalid,
// as it does after its keys were changed.
func (c credentials) rejected(ctx context.Context) bool {
	token, _ := c.currentToken()
	if token == "" {
		return false
	}
	return kube.RejectsToken(ctx, c.settings.Credentials.Server, c.settings.Credentials.CAFile, token)
}

// fault says why the plugin could not read a pod with what is there, and gives
// the kubeconfig that it would use.
func (c credentials) fault() (kubeconfig string, err error) {
	kubeconfig = c.settings.StateDir + "/" + kubeconfigName
	token, good := c.currentToken()
	if token == "" {
		return kubeconfig, fmt.Errorf("%s has no token", c.settings.StateDir)
	}
	if !time.Now().Before(good.expires) {
		return kubeconfig, fmt.Errorf("the token ended at %s", good.expires.Format(time.RFC3339))
	}
	for _, folder := range []string{c.settings.StateDir, c.settings.RunDir} {
		current, err := os.ReadFile(c.settings.at(folder) + "/" + tokenName)
		if err != nil || string(current) != token {
			continue
		}
		kubeconfig = folder + "/" + kubeconfigName
		for _, name := range []string{kubeconfigName, caName} {
			if _, err := os.Stat(c.settings.at(folder) + "/" + name); err != nil {
				return kubeconfig, fmt.Errorf("looking at the credentials: %w", err)
			}
		}
		break
	}
	return kubeconfig, nil
}

// CredentialsDir returns the directory of the plugin's credentials, as the plugin
// sees it.
func (s Settings) CredentialsDir() string {
	kubeconfig, _ := credentials{settings: s}.fault() // a path also with a fault
	return filepath.Dir(kubeconfig)
}

// clear deletes the credentials in both places.
func (c credentials) clear() error {
	var errs []error
	for _, folder := range []string{c.settings.StateDir, c.settings.RunDir} {
		dir, err := host.OpenDir(c.settings.at(folder))
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		errs = append(errs, dir.ClearTemps(), dir.Remove(kubeconfigName), dir.Remove(tokenName), dir.Remove(caName), dir.Close())
	}
	return errors.Join(errs...)
}
