// SPDX-License-Identifier: Apache-2.0

package kubeapi

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// Certificate is a self-signed serving certificate.
type Certificate struct {
	PEM  []byte
	pair tls.Certificate
}

func newCertificate(from, until time.Time) (Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return Certificate{}, fmt.Errorf("creating a key: %w", err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1),
		Subject:      pkix.Name{CommonName: "capture-cni test API"},
		NotBefore:    from, NotAfter: until,
		KeyUsage:              x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		BasicConstraintsValid: true, IsCA: true,
		DNSNames:    []string{"localhost", "api.test"},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return Certificate{}, fmt.Errorf("creating a certificate: %w", err)
	}
	return Certificate{
		PEM:  pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		pair: tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key},
	}, nil
}

// WriteKubeconfig writes kubeconfig, token and ca.crt into dir, root-only, as
// the node agent does, and returns the kubeconfig's path.
func (s *Server) WriteKubeconfig(dir string) (string, error) {
	kubeconfig := fmt.Sprintf(`apiVersion: v1
kind: Config
current-context: capture-cni
contexts:
- {name: capture-cni, context: {cluster: local, user: plugin}}
clusters:
- name: local
  cluster: {server: %q, certificate-authority: ca.crt}
users:
- name: plugin
  user: {tokenFile: token}
`, s.URL)
	files := map[string][]byte{"kubeconfig": []byte(kubeconfig), "token": []byte(s.Token()), "ca.crt": s.Cert.PEM}
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			return "", fmt.Errorf("writing credentials: %w", err)
		}
	}
	return filepath.Join(dir, "kubeconfig"), nil
}

// discardLog is for the HTTP server's own log: tests fail handshakes on purpose.
func discardLog() *log.Logger { return log.New(io.Discard, "", 0) }
