// SPDX-License-Identifier: Apache-2.0

// Command empty is what a Go program costs that does nothing.
package main

func main() {}
