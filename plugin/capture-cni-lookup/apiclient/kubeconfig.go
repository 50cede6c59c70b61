// SPDX-License-Identifier: Apache-2.0

package apiclient

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
	"github.com/capture-cni/capture-cni/plugin/trust"
)

// endpoint contains the API server's address and the plugin's credentials.
type endpoint struct {
	server          *url.URL
	tls             *tls.Config
	token           string
	credentialsFile string // the file of the token, or else the kubeconfig, for messages
}

// loadKubeconfig reads a directory's kubeconfig, and the files in that directory that the kubeconfig
// names. It reads no environment variables, executes no credential plugin, and requires the
// verification of TLS. Errors: trust.Untrusted; fs.ErrNotExist.
func loadKubeconfig(directory string) (endpoint, error) {
	path := filepath.Join(directory, config.KubeconfigName)
	root, err := trust.OpenDirectory(directory)
	if err == nil {
		defer func() { _ = root.Close() }() // a failed close loses nothing, because the directory was only read
		var data []byte
		if data, err = trust.Read(root, config.KubeconfigName); err == nil {
			return parseKubeconfig(root, data)
		}
	}
	if errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("%w: check that the node agent runs on this node and writes to %s", err, directory)
	}
	return endpoint{}, fmt.Errorf("kubeconfig %s: %w", path, err)
}

func parseKubeconfig(root *os.Root, data []byte) (endpoint, error) {
	path := filepath.Join(root.Name(), config.KubeconfigName)
	var content clientcmd.Config
	if err := yaml.Unmarshal(data, &content); err != nil {
		return endpoint{}, trust.Untrustedf("kubeconfig %s: %v", path, err)
	}
	cluster, user, err := currentContext(content)
	if err != nil {
		return endpoint{}, trust.Untrustedf("kubeconfig %s: %v", path, err)
	}
	e := endpoint{credentialsFile: path}
	k := kubeconfig{root}
	if err := k.checkNames(cluster, user); err != nil {
		return endpoint{}, fmt.Errorf("kubeconfig %s: %w", path, err)
	}
	if err := errors.Join(k.setServer(cluster, &e), k.setCredentials(user, &e)); err != nil {
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
		return cluster, user, fmt.Errorf("current-context is %q: expected the name of one of this kubeconfig's contexts", content.CurrentContext)
	}
	found = false
	for _, c := range content.Clusters {
		if c.Name == names.Cluster {
			cluster, found = c.Cluster, true
		}
	}
	if !found {
		return cluster, user, fmt.Errorf("context %s names cluster %q: expected a cluster of this kubeconfig",
			content.CurrentContext, names.Cluster)
	}
	for _, u := range content.AuthInfos {
		if u.Name == names.AuthInfo {
			return cluster, u.AuthInfo, nil
		}
	}
	return cluster, user, fmt.Errorf("context %s names user %q: expected a user of this kubeconfig", content.CurrentContext, names.AuthInfo)
}

// kubeconfig reads the files that a kubeconfig names, in the kubeconfig's directory.
type kubeconfig struct{ root *os.Root }

// checkNames returns an error if the kubeconfig names a file outside its directory, because a kubeconfig
// must not send another file's token to its server. It is called before any of these files is opened.
func (k kubeconfig) checkNames(cluster clientcmd.Cluster, user clientcmd.AuthInfo) error {
	var errs []error
	for _, file := range []struct{ key, path string }{
		{"certificate-authority", cluster.CertificateAuthority},
		{"client-certificate", user.ClientCertificate},
		{"client-key", user.ClientKey},
		{"tokenFile", user.TokenFile},
	} {
		if file.path != "" && !filepath.IsLocal(k.relative(file.path)) {
			errs = append(errs, trust.Untrustedf("%s is %q: expected a file in %s", file.key, file.path, k.root.Name()))
		}
	}
	return errors.Join(errs...)
}

// relative returns an absolute path as a path relative to the kubeconfig's directory, and a relative
// path unchanged. The result can lead out of the directory, so checkNames checks it with filepath.IsLocal.
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

// inlineOrFile returns the inline data, or the file's content if there is no inline data.
func (k kubeconfig) inlineOrFile(inline []byte, path string) ([]byte, error) {
	if len(inline) > 0 || path == "" {
		return inline, nil
	}
	return trust.Read(k.root, k.relative(path))
}

func (k kubeconfig) setServer(cluster clientcmd.Cluster, e *endpoint) error {
	server, err := url.Parse(cluster.Server)
	switch {
	case err != nil || server.Scheme != "https" || server.Host == "":
		return trust.Untrustedf("server is %q: expected https://HOST[:PORT]", cluster.Server)
	case cluster.InsecureSkipTLSVerify:
		return trust.Untrustedf("insecure-skip-tls-verify is set: set certificate-authority instead")
	case cluster.ProxyURL != "":
		return trust.Untrustedf("proxy-url is set: expected a direct connection to the API server")
	}
	authorities, err := k.inlineOrFile(cluster.CertificateAuthorityData, cluster.CertificateAuthority)
	if err != nil {
		return fmt.Errorf("certificate-authority: %w", err)
	}
	e.server = server
	e.tls = &tls.Config{MinVersion: tls.VersionTLS12, ServerName: cluster.TLSServerName}
	if len(authorities) > 0 {
		e.tls.RootCAs = x509.NewCertPool()
		if !e.tls.RootCAs.AppendCertsFromPEM(authorities) {
			return trust.Untrustedf("certificate-authority contains no PEM certificate")
		}
	}
	return nil
}

func (k kubeconfig) setCredentials(user clientcmd.AuthInfo, e *endpoint) error {
	switch {
	case user.Exec != nil:
		return trust.Untrustedf("exec is set: the plugin runs no credential plugin; set tokenFile")
	case user.AuthProvider != nil:
		return trust.Untrustedf("auth-provider is set: set tokenFile")
	case user.Username != "" || user.Password != "":
		return trust.Untrustedf("username and password are not supported: set tokenFile")
	case user.Impersonate != "" || user.ImpersonateUID != "" || len(user.ImpersonateGroups)+len(user.ImpersonateUserExtra) > 0:
		return trust.Untrustedf("impersonation is not supported: use the token of the plugin's ServiceAccount")
	}
	certificate, certificateErr := k.inlineOrFile(user.ClientCertificateData, user.ClientCertificate)
	key, keyErr := k.inlineOrFile(user.ClientKeyData, user.ClientKey)
	if err := errors.Join(certificateErr, keyErr); err != nil {
		return fmt.Errorf("client certificate: %w", err)
	}
	if len(certificate)+len(key) > 0 && e.tls != nil {
		pair, err := tls.X509KeyPair(certificate, key)
		if err != nil {
			return trust.Untrustedf("client certificate: %v", err)
		}
		e.tls.Certificates = []tls.Certificate{pair}
	}
	token, err := k.inlineOrFile([]byte(user.Token), user.TokenFile)
	if err != nil {
		return fmt.Errorf("token: %w", err)
	}
	if e.token = strings.TrimSpace(string(token)); user.Token == "" && user.TokenFile != "" {
		e.credentialsFile = user.TokenFile
	}
	if e.token == "" && len(certificate) == 0 {
		return trust.Untrustedf("no credentials: expected a token, a tokenFile or a client certificate")
	}
	return nil
}
