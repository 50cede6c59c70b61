// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"time"
)

// document is what govulncheck writes in OpenVEX's form (https://openvex.dev). Of a vulnerability
// in a module of the release, a statement says whether the release calls its code.
type document struct {
	Context    string      `json:"@context"`
	ID         string      `json:"@id"`
	Author     string      `json:"author"`
	Timestamp  time.Time   `json:"timestamp"`
	Version    int         `json:"version"`
	Tooling    string      `json:"tooling"`
	Statements []statement `json:"statements"`
}

type statement struct {
	Vulnerability struct {
		ID          string   `json:"@id"`
		Name        string   `json:"name"`
		Description string   `json:"description,omitempty"`
		Aliases     []string `json:"aliases,omitempty"`
	} `json:"vulnerability"`
	Products []struct {
		ID            string `json:"@id"`
		Subcomponents []struct {
			ID string `json:"@id"`
		} `json:"subcomponents,omitempty"`
	} `json:"products"`
	Status        string `json:"status"`
	Justification string `json:"justification,omitempty"`
	Impact        string `json:"impact_statement,omitempty"`
	Action        string `json:"action_statement,omitempty"`
}

// writeStatement writes an OpenVEX document about a version of the release. govulncheck knows
// neither author nor product, nor why an accepted vulnerability does no harm.
func writeStatement(ctx context.Context, path, version string, packages []string, accepted []acceptance) error {
	out, err := govulncheck(ctx, "openvex", packages)
	if err != nil {
		return err
	}
	made := document{Statements: []statement{}}
	if err := json.Unmarshal(out.Bytes(), &made); err != nil {
		return fmt.Errorf("reading govulncheck's OpenVEX: %w", err)
	}
	made.Author = "capture-cni"
	for i := range made.Statements {
		one := &made.Statements[i]
		for j := range one.Products {
			one.Products[j].ID = "pkg:golang/github.com/capture-cni/capture-cni@v" + version // as in the SBOM
		}
		at := slices.IndexFunc(accepted, func(a acceptance) bool { return a.id == one.Vulnerability.Name })
		switch {
		case one.Status != "affected":
		case at >= 0:
			one.Status, one.Impact = "not_affected", accepted[at].reason
		default:
			one.Action = "Upgrade to a release that " + one.Vulnerability.ID + " does not affect."
		}
	}
	text, err := json.MarshalIndent(made, "", "  ")
	if err != nil {
		return err
	}
	fmt.Println(path)
	return os.WriteFile(path, append(text, '\n'), 0o644)
}
