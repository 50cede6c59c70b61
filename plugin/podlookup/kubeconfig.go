// SPDX-License-Identifier: Apache-2.0

package podlookup

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	clientcmd "k8s.io/client-go/tools/clientcmd/api/v1"
	"sigs.k8s.io/yaml"

	"github.com/capture-cni/capture-cni/config"
)

// endpoint is how to reach the API server, and as whom.
type endpoint struct {
	server      *url.URL
	tls         *tls.Config
	token       string
	credentials string // what to look at when they are refused
}

// CheckAccess reports what is wrong with the kubeconfig of a directory. It asks no
// server. Errors: Untrusted; fs.ErrNotExist.
func CheckAccess(directory string) error {
	_, err := loadKubeconfig(directory)
	return err
}

// loadKubeconfig reads the kubeconfig of a directory and the files that it
// names there. It takes nothing from the environment, executes nothing and skips
// no verification. Errors: Untrusted; fs.ErrNotExist.
func loadKubeconfig(directory string) (endpoint, error) {
	path := filepath.Join(directory, config.KubeconfigName)
	root, err := openTrusted(directory)
	if err == nil {
		defer func() { _ = root.Close() }() // it was only read from
		var data []byte
		if data, err = readTrusted(root, config.KubeconfigName); err == nil {
			return parseKubeconfig(root, data)
		}
	}
	if errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("%w: is the node agent running on this node, and is %s its directory?", err, directory)
	}
	return endpoint{}, fmt.Errorf("kubeconfig %s: %w", path, err)
}

func parseKubeconfig(root *os.Root, data []byte) (endpoint, error) {
	path := filepath.Join(root.Name(), config.KubeconfigName)
	var content clientcmd.Config
	if err := yaml.Unmarshal(data, &content); err != nil {
		return endpoint{}, distrust("kubeconfig %s: %v", path, err)
	}
	cluster, user, err := currentContext(content)
	if err != nil {
		return endpoint{}, distrust("kubeconfig %s: %v", path, err)
	}
	e := endpoint{credentials: path}
	k := kubeconfig{root}
	if err := k.trustNames(cluster, user); err != nil {
		return endpoint{}, fmt.Errorf("kubeconfig %s: %w", path, err)
	}
	if err := errors.Join(k.connection(cluster, &e), k.login(user, &e)); err != nil {
		return endpoint{}, fmt.Errorf("kubeconfig %s: %w", path, err)
	}
	return e, nil
}

func currentContext(content clientcmd.Config) (cluster clientcmd.Cluster, user clientcmd.AuthInfo, err error) {
	var names clientcmd.Context
	found := false
	for _, c := range content.Contexts {
		if c.Name == content.CurrentContext {
			names, found = c.Context, true
		}
	}
	if !found {
		return cluster, user, fmt.Errorf("current-context is %q: expected the name of one of its contexts", content.CurrentContext)
	}
	found = false
	for _, c := range content.Clusters {
		if c.Name == names.Cluster {
			cluster, found = c.Cluster, true
		}
	}
	if !found {
		return cluster, user, fmt.Errorf("context %s names cluster %q: expected one of its clusters", content.CurrentContext, names.Cluster)
	}
	for _, u := range content.AuthInfos {
		if u.Name == names.AuthInfo {
			return cluster, u.AuthInfo, nil
		}
	}
	return cluster, user, fmt.Errorf("context %s names user %q: expected one of its users", content.CurrentContext, names.AuthInfo)
}

// kubeconfig reads the files that a kubeconfig names from its own directory.
type kubeconfig struct{ root *os.Root }

// trustNames refuses a file elsewhere before any file is opened: what the
// kubeconfig's server gets to see must belong with the kubeconfig.
func (k kubeconfig) trustNames(cluster clientcmd.Cluster, user clientcmd.AuthInfo) error {
	var errs []error
	for _, file := range []struct{ key, path string }{
		{"certificate-authority", cluster.CertificateAuthority},
		{"client-certificate", user.ClientCertificate},
		{"client-key", user.ClientKey},
		{"tokenFile", user.TokenFile},
	} {
		if file.path != "" && !filepath.IsLocal(k.relative(file.path)) {
			errs = append(errs, distrust("%s is %q: expected a file in %s", file.key, file.path, k.root.Name()))
		}
	}
	return errors.Join(errs...)
}

// relative is a path as seen from the directory, with .. in front where it
// leads out.
func (k kubeconfig) relative(path string) string {
	if !filepath.IsAbs(path) {
		return path
	}
	within, err := filepath.Rel(k.root.Name(), path)
	if err != nil {
		return path
	}
	return within
}

// load returns inline data, or else the content of a file.
func (k kubeconfig) load(inline []byte, path string) ([]byte, error) {
	if len(inline) > 0 || path == "" {
		return inline, nil
	}
	return readTrusted(k.root, k.relative(path))
}

func (k kubeconfig) connection(cluster clientcmd.Cluster, e *endpoint) error {
	server, err := url.Parse(cluster.Server)
	switch {
	case err != nil || server.Scheme != "https" || server.Host == "":
		return distrust("server is %q: expected https://HOST:PORT", cluster.Server)
	case cluster.InsecureSkipTLSVerify:
		return distrust("insecure-skip-tls-verify is set: give the server's CA instead")
	case cluster.ProxyURL != "":
		return distrust("proxy-url is set: the API server must be reached directly")
	}
	authorities, err := k.load(cluster.CertificateAuthorityData, cluster.CertificateAuthority)
	if err != nil {
		return fmt.Errorf("certificate-authority: %w", err)
	}
	e.server = server
	e.tls = &tls.Config{MinVersion: tls.VersionTLS12, ServerName: cluster.TLSServerName}
	if len(authorities) > 0 {
		e.tls.RootCAs = x509.NewCertPool()
		if !e.tls.RootCAs.AppendCertsFromPEM(authorities) {
			return distrust("certificate-authority holds no PEM certificate")
		}
	}
	return nil
}

func (k kubeconfig) login(user clientcmd.AuthInfo, e *endpoint) error {
	switch {
	case user.Exec != nil:
		return distrust("exec is set: the plugin executes nothing; give a token file")
	case user.AuthProvider != nil:
		return distrust("auth-provider is set: give a token file")
	case user.Username != "" || user.Password != "":
		return distrust("username and password are not supported: give a token file")
	case user.Impersonate != "" || user.ImpersonateUID != "" || len(user.ImpersonateGroups)+len(user.ImpersonateUserExtra) > 0:
		return distrust("impersonation is not supported: give the plugin its own ServiceAccount")
	}
	certificate, certificateErr := k.load(user.ClientCertificateData, user.ClientCertificate)
	key, keyErr := k.load(user.ClientKeyData, user.ClientKey)
	if err := errors.Join(certificateErr, keyErr); err != nil {
		return fmt.Errorf("client certificate: %w", err)
	}
	if len(certificate)+len(key) > 0 && e.tls != nil {
		pair, err := tls.X509KeyPair(certificate, key)
		if err != nil {
			return distrust("client certificate: %v", err)
		}
		e.tls.Certificates = []tls.Certificate{pair}
	}
	token, err := k.load([]byte(user.Token), user.TokenFile)
	if err != nil {
		return fmt.Errorf("token: %w", err)
	}
	if e.token = strings.TrimSpace(string(token)); user.Token == "" && user.TokenFile != "" {
		e.credentials = user.TokenFile
	}
	if e.token == "" && len(certificate) == 0 {
		return distrust("no credentials: expected a token, a tokenFile or a client certificate")
	}
	return nil
}
