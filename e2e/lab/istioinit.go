// SPDX-License-Identifier: Apache-2.0

package lab

// IstioInit returns the arguments of Istio's init container, as its injector gives them to a
// pod without annotations. They begin with the command of the image's program.
func IstioInit() []string {
	return []string{
		"istio-iptables", "-p", "15001", "-z", "15006", "-u", "1337", "-m", "REDIRECT", "-i", "*", "-x", "", "-b", "*",
		"-d", "15090,15021,15020",
	}
}
