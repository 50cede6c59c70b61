// SPDX-License-Identifier: Apache-2.0

// Command empty does nothing: it measures the cost of any Go program.
package main

func main() {}
