// SPDX-License-Identifier: Apache-2.0

package report

import (
	"regexp"

	"github.com/capture-cni/capture-cni/config"
)

// CodesPage is the document that explains all codes.
const CodesPage = "deploy/reference/findings.md"

var (
	pageName     = regexp.MustCompile(`\bdeploy/(guides|reference)/[a-z-]+\.md`)
	minorVersion = regexp.MustCompile(`^v?(0\.[1-9]\d*|[1-9]\d*\.\d+)\.\d+`) // not v0.0.0, which Go reports for a commit without a tag
)

// WithURLs replaces the names of guides and reference pages in a text by URLs, because a node has no copy
// of these documents.
func WithURLs(text string) string { return withURLs(text, config.OwnVersion()) }

// withURLs uses the documents of a minor version's first release, so that all patch releases return the
// same text, and those of main for a version that is no release.
func withURLs(text, version string) string {
	tag := "main"
	if found := minorVersion.FindStringSubmatch(version); found != nil {
		tag = "v" + found[1] + ".0"
	}
	return pageName.ReplaceAllString(text, "https://github.com/capture-cni/capture-cni/blob/"+tag+"/$0")
}
