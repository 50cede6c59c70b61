// SPDX-License-Identifier: Apache-2.0

package lab

// IstioInit returns the command and the arguments of Istio's init container, as Istio's injector writes
// them for a pod without annotations.
func IstioInit() []string {
	return []string{
		"istio-iptables", "-p", "15001", "-z", "15006", "-u", "1337", "-m", "REDIRECT", "-i", "*", "-x", "", "-b", "*",
		"-d", "15090,15021,15020",
	}
}
