// SPDX-License-Identifier: Apache-2.0

package apiclient

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/capture-cni/capture-cni/e2e/kubeapi"
	"github.com/capture-cni/capture-cni/e2e/lab"
	"github.com/capture-cni/capture-cni/plugin/trust"
)

// kubeconfigText returns a kubeconfig with a cluster and a user in YAML.
func kubeconfigText(cluster, user string) string {
	return fmt.Sprintf(`current-context: c
contexts: [{name: c, context: {cluster: k, user: u}}]
clusters: [{name: k, cluster: %s}]
users: [{name: u, user: %s}]
`, cluster, user)
}

func writeFile(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestLoadKubeconfig(t *testing.T) {
	lab.RequireRoot(t)
	const good, token = "{server: 'https://10.0.0.1:6443'}", "{token: t}"
	for _, test := range []struct{ name, text, want string }{
		{"inline token", kubeconfigText(good, token), ""},
		{"token file next to it", kubeconfigText(good, "{tokenFile: token}"), ""},
		{"CA file next to it", kubeconfigText("{server: 'https://[fd00::1]:443', certificate-authority: ca.crt}", token), ""},
		{"JSON", `{"current-context":"c","contexts":[{"name":"c","context":{"cluster":"k","user":"u"}}],"clusters":[{"name":"k","cluster":{"server":"https://a"}}],"users":[{"name":"u","user":{"token":"t"}}]}`, ""},
		{"no server", kubeconfigText("{}", token), `server is ""`},
		{"no TLS", kubeconfigText("{server: 'http://10.0.0.1:8080'}", token), "expected https://HOST[:PORT]"},
		{"no host", kubeconfigText("{server: 'https://'}", token), "expected https://HOST[:PORT]"},
		{"insecure", kubeconfigText("{server: 'https://a', insecure-skip-tls-verify: true}", token), "insecure-skip-tls-verify"},
		{"proxy", kubeconfigText("{server: 'https://a', proxy-url: 'http://b'}", token), "proxy-url"},
		{"bad CA", kubeconfigText("{server: 'https://a', certificate-authority-data: YQ==}", token), "no PEM certificate"},
		{"exec", kubeconfigText(good, "{exec: {command: aws}}"), "runs no credential plugin"},
		{"auth provider", kubeconfigText(good, "{auth-provider: {name: gcp}}"), "auth-provider"},
		{"password", kubeconfigText(good, "{username: a, password: b}"), "username and password"},
		{"a user alone", kubeconfigText(good, "{username: a, token: t}"), "username and password"},
		{"a password alone", kubeconfigText(good, "{password: b, token: t}"), "username and password"},
		{"impersonated UID", kubeconfigText(good, "{token: t, as-uid: a}"), "impersonation"},
		{"impersonated group and more", kubeconfigText(good, "{token: t, as-groups: [a], as-user-extra: {b: [c]}}"), "impersonation"},
		{"no URL", kubeconfigText("{server: 'https://a:x'}", token), "expected https://HOST[:PORT]"},
		{"another name of the server", kubeconfigText("{server: 'https://a', tls-server-name: b}", token), ""},
		{"a token and a file", kubeconfigText(good, "{token: t, tokenFile: empty}"), ""},
		{"impersonation", kubeconfigText(good, "{token: t, as: admin}"), "impersonation"},
		{"impersonated group", kubeconfigText(good, "{token: t, as-groups: [a]}"), "impersonation"},
		{"no credentials", kubeconfigText(good, "{}"), "no credentials"},
		{"empty token file", kubeconfigText(good, "{tokenFile: empty}"), "no credentials"},
		{"bad client certificate", kubeconfigText(good, "{client-certificate-data: YQ==, client-key-data: YQ==}"), "client certificate"},
		{"token file by its full path", kubeconfigText(good, "{tokenFile: DIR/token}"), ""},
		{"token file elsewhere", kubeconfigText(good, "{tokenFile: /var/lib/capture-cni/token}"), `tokenFile is "/var/lib/capture-cni/token": expected a file in DIR`},
		{"token file above", kubeconfigText(good, "{tokenFile: ../token}"), "tokenFile is"},
		{"token file above, by a full path", kubeconfigText(good, "{tokenFile: DIR/../token}"), "tokenFile is"},
		{"CA file elsewhere", kubeconfigText("{server: 'https://a', certificate-authority: /etc/ssl/cert.pem}", token), "certificate-authority is"},
		{"client certificate elsewhere", kubeconfigText(good, "{client-certificate: /a, client-key: /b}"), "client-certificate is"},
		{"client key elsewhere", kubeconfigText(good, "{client-certificate: ca.crt, client-key: /b}"), "client-key is"},
		{"token that is a link to another directory", kubeconfigText(good, "{tokenFile: out}"), "escapes"},
		{"writable token file", kubeconfigText(good, "{tokenFile: open}"), "can be written by other users"},
		{"no context", "clusters: []", `current-context is ""`},
		{"no such context", "current-context: x", `current-context is "x"`},
		{"no such cluster", "current-context: c\ncontexts: [{name: c, context: {cluster: x}}]", `cluster "x"`},
		{"no such user", "current-context: c\ncontexts: [{name: c, context: {cluster: k, user: x}}]\nclusters: [{name: k, cluster: {server: 'https://a'}}]", `user "x"`},
		{"no YAML", "{", "yaml: "},
		{"empty", "", `current-context is ""`},
	} {
		t.Run(test.name, func(t *testing.T) {
			dir := kubeconfigDir(t)
			path := filepath.Join(dir, "kubeconfig")
			writeFile(t, path, strings.ReplaceAll(test.text, "DIR", dir))
			e, err := loadKubeconfig(dir)
			test.want = strings.ReplaceAll(test.want, "DIR", dir)
			switch {
			case test.want == "" && (err != nil || e.token != "t" || e.server.Scheme != "https"):
				t.Errorf("got %+v, %v", e, err)
			case test.want == "" && (e.credentialsFile != credentialsIn(test.text, path, dir) || e.tls.MinVersion != tls.VersionTLS12 ||
				e.tls.ServerName != map[bool]string{true: "b"}[strings.Contains(test.text, "tls-server-name: b")]):
				t.Errorf("got %+v of %s, with %+v", e, e.credentialsFile, e.tls)
			case test.want != "" && (!isA[trust.Untrusted](err) || !strings.Contains(err.Error(), test.want)):
				t.Errorf("got error %v, want one with %q", err, test.want)
			}
			if err != nil && !strings.Contains(err.Error(), path) {
				t.Errorf("the error does not name the file: %v", err)
			}
		})
	}
}

// credentialsIn returns the file of the credentials of a good kubeconfig.
func credentialsIn(text, path, dir string) string {
	if _, file, found := strings.Cut(text, "{tokenFile: "); found {
		file, _, _ = strings.Cut(file, "}")
		return strings.ReplaceAll(file, "DIR", dir)
	}
	return path
}

// TestClientCertificate needs no token.
func TestClientCertificate(t *testing.T) {
	lab.RequireRoot(t)
	server := httptest.NewTLSServer(http.NotFoundHandler())
	defer server.Close()
	pair := server.TLS.Certificates[0]
	key, err := x509.MarshalPKCS8PrivateKey(pair.PrivateKey)
	lab.Check(t, err)
	dir := kubeconfigDir(t)
	writeFile(t, dir+"/client.crt", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: pair.Certificate[0]})))
	writeFile(t, dir+"/client.key", string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key})))
	writeFile(t, dir+"/kubeconfig", kubeconfigText("{server: 'https://a'}", "{client-certificate: client.crt, client-key: client.key}"))
	e, err := loadKubeconfig(dir)
	if err != nil || len(e.tls.Certificates) != 1 || !bytes.Equal(e.tls.Certificates[0].Certificate[0], pair.Certificate[0]) || e.credentialsFile != dir+"/kubeconfig" {
		t.Errorf("%+v, %v", e, err)
	}
}

// TestMissingFiles names the key of a file that is not there.
func TestMissingFiles(t *testing.T) {
	lab.RequireRoot(t)
	for text, want := range map[string]string{
		kubeconfigText("{server: 'https://a', certificate-authority: missing}", "{token: t}"):                   "certificate-authority: ",
		kubeconfigText("{server: 'https://a'}", "{client-certificate: missing, client-key: missing, token: t}"): "client certificate: ",
		kubeconfigText("{server: 'https://a'}", "{tokenFile: missing}"):                                         "token: ",
	} {
		dir := kubeconfigDir(t)
		writeFile(t, dir+"/kubeconfig", text)
		if _, err := loadKubeconfig(dir); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "kubeconfig: "+want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

// kubeconfigDir returns a directory with the files that the tests' kubeconfigs name.
func kubeconfigDir(t *testing.T) string {
	t.Helper()
	api, err := kubeapi.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = api.Close() })
	dir := t.TempDir()
	writeFile(t, dir+"/ca.crt", string(api.Cert.PEM))
	writeFile(t, dir+"/token", "t\n")
	writeFile(t, dir+"/empty", "\n")
	writeFile(t, dir+"/open", "t")
	if err := os.Symlink("/etc/hostname", dir+"/out"); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir+"/open", 0o666); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestMissingKubeconfig(t *testing.T) {
	lab.RequireRoot(t)
	_, err := loadKubeconfig(t.TempDir())
	if !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "check that the node agent runs") {
		t.Errorf("got %v", err)
	}
}

func FuzzKubeconfig(f *testing.F) {
	f.Add([]byte(kubeconfigText("{server: 'https://a'}", "{token: t}")))
	f.Add([]byte("current-context: c\ncontexts: [{name: c}]\nclusters: [{name: ''}]\nusers: [{name: ''}]"))
	f.Add([]byte("{\"users\": null"))
	lab.RequireRoot(f) // loadKubeconfig reads only root's files
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, text []byte) {
		writeFile(t, dir+"/kubeconfig", string(text))
		e, err := loadKubeconfig(dir)
		if err == nil && (e.server == nil || e.server.Scheme != "https" || e.tls == nil || e.tls.InsecureSkipVerify) {
			t.Errorf("accepted: %+v", e)
		}
	})
}
