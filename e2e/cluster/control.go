// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"os"
	"syscall"
	"time"
)

// startControl starts the box of etcd, API server, controller manager and
// scheduler, and writes kubeconfigs. The administrator's is for the host.
func (c *Cluster) startControl(ctx context.Context, keys *pki) error {
	listener, address, err := listen()
	if err != nil {
		return err
	}
	defer listener.Close()
	if c.Control, err = startBox("control", c.Dir, listener, "127.0.0.1:6443"); err != nil {
		return err
	}
	if err := c.plug(c.Control, controlIPv4+"/24", controlIPv6+"/64"); err != nil {
		return err
	}
	if err := c.addOutside(); err != nil {
		return err
	}
	hosts := []string{"127.0.0.1", "localhost", controlIPv4, firstService, "kubernetes", "kubernetes.default", "kubernetes.default.svc"}
	users := []struct{ name, user, group string }{
		{"apiserver", "kube-apiserver", "system:masters"},
		{"admin", "admin", "system:masters"},
		{"controllers", "system:kube-controller-manager", ""},
		{"scheduler", "system:kube-scheduler", ""},
		{"proxy", "system:kube-proxy", ""},
	}
	for _, u := range users {
		server := "https://" + controlIPv4 + ":6443"
		if u.name == "admin" {
			server = "https://" + address
		}
		if err := keys.issue(u.name, u.user, []string{u.group}, hosts); err != nil {
			return err
		}
		if err := keys.kubeconfig(u.name, server); err != nil {
			return err
		}
	}
	if err := c.Control.startDaemon(c.path("bin"), "etcd",
		"--name=etcd", "--data-dir="+c.path("control", "etcd"), "--unsafe-no-fsync", "--heartbeat-interval=10", "--election-timeout=50",
		"--listen-client-urls=http://127.0.0.1:2379", "--advertise-client-urls=http://127.0.0.1:2379",
		"--listen-peer-urls=http://127.0.0.1:2380", "--initial-advertise-peer-urls=http://127.0.0.1:2380",
		"--initial-cluster=etcd=http://127.0.0.1:2380"); err != nil {
		return err
	}
	if err := c.StartAPI(ctx); err != nil {
		return err
	}
	return c.startControllers()
}

// addOutside adds the addresses that stand for the internet to the control box.
func (c *Cluster) addOutside() error {
	host, err := c.Control.Host()
	if err != nil {
		return err
	}
	defer host.NetNS.Close()
	return host.AddAddresses("lo", outsideIPv4+"/32", outsideIPv6+"/128")
}

// StartAPI starts the API server and waits until it is ready.
func (c *Cluster) StartAPI(ctx context.Context) error {
	pki := func(file string) string { return c.path("pki", file) }
	var audit []string
	if _, err := os.Stat(c.auditPolicy()); err == nil {
		audit = []string{"--audit-policy-file=" + c.auditPolicy(), "--audit-log-path=" + c.auditLog()}
	}
	if err := c.Control.startDaemon(c.path("bin"), "kube-apiserver", append(audit,
		"--etcd-servers=http://127.0.0.1:2379", "--secure-port=6443", "--advertise-address="+controlIPv4,
		"--tls-cert-file="+pki("apiserver.crt"), "--tls-private-key-file="+pki("apiserver.key"), "--client-ca-file="+pki("ca.crt"),
		"--service-account-key-file="+pki("accounts.key"), "--service-account-signing-key-file="+pki("accounts.key"),
		"--service-account-issuer=https://kubernetes.default.svc", "--service-cluster-ip-range="+servicesIPv4+","+servicesIPv6,
		"--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction", "--allow-privileged=true",
		"--kubelet-client-certificate="+pki("apiserver.crt"), "--kubelet-client-key="+pki("apiserver.key"),
		"--kubelet-certificate-authority="+pki("ca.crt"), "--kubelet-preferred-address-types=InternalIP",
		"--shutdown-delay-duration=0s")...); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	for {
		_, err := c.Kubectl(ctx, "", "get", "--raw", "/readyz")
		if err == nil {
			return nil
		}
		if _, ended := c.Control.pid("kube-apiserver"); ended != nil {
			return ended
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for the API server: %w", err)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// StopAPI kills the API server.
func (c *Cluster) StopAPI() error { return c.Control.stopDaemon("kube-apiserver", syscall.SIGKILL) }

func (c *Cluster) startControllers() error {
	as := func(user string) []string {
		file := c.path("pki", user+".kubeconfig")
		return []string{"--kubeconfig=" + file, "--authentication-kubeconfig=" + file, "--authorization-kubeconfig=" + file, "--bind-address=127.0.0.1", "--leader-elect=false"}
	}
	if err := c.Control.startDaemon(c.path("bin"), "kube-controller-manager", append(as("controllers"),
		"--service-account-private-key-file="+c.path("pki", "accounts.key"), "--root-ca-file="+c.path("pki", "ca.crt"),
		"--use-service-account-credentials=true", "--kube-api-qps=200", "--kube-api-burst=400")...); err != nil {
		return err
	}
	return c.Control.startDaemon(c.path("bin"), "kube-scheduler", append(as("scheduler"), "--kube-api-qps=200", "--kube-api-burst=400")...)
}
