// SPDX-License-Identifier: Apache-2.0

package cri

import (
	"context"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/capture-cni/capture-cni/install/terms"
)

// Version returns the name and the version of the runtime.
func (c *Client) Version(ctx context.Context) (terms.Runtime, error) {
	ctx, cancel := context.WithTimeout(ctx, statusTimeout)
	defer cancel()
	answer, err := c.runtime.Version(ctx, &runtimeapi.VersionRequest{})
	if err != nil {
		return terms.Runtime{}, c.failed("asking the runtime for its version", err)
	}
	return terms.Runtime{Name: answer.RuntimeName, Version: answer.RuntimeVersion}, nil
}
