// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"encoding/xml"
	"fmt"
	"io"
	"strings"

	"github.com/capture-cni/capture-cni/deploy/capturetest"
	"github.com/capture-cni/capture-cni/install/report"
)

const junit = "junit"

// junitSuite is the result of one whole command, as JUnit's element testsuite.
type junitSuite struct {
	XMLName xml.Name    `xml:"testsuite"`
	Name    string      `xml:"name,attr"`
	Tests   int         `xml:"tests,attr"`
	Failed  int         `xml:"failures,attr"`
	Skipped int         `xml:"skipped,attr"`
	Cases   []junitCase `xml:"testcase"`
	Notes   string      `xml:"system-out,omitempty"`
}

// junitCase is the result of one check, as JUnit's element testcase. If the check passed, it has
// neither Failure nor Skipped.
type junitCase struct {
	Class   string       `xml:"classname,attr"`
	Name    string       `xml:"name,attr"`
	Failure *junitReason `xml:"failure"`
	Skipped *junitReason `xml:"skipped"`
}

// junitReason is the reason for which a check failed or was skipped, with its code and the next step.
type junitReason struct {
	Message string      `xml:"message,attr"`
	Code    report.Code `xml:"type,attr"`
	Next    string      `xml:",chardata"`
}

func reasonOf(f report.Finding) *junitReason {
	return &junitReason{f.Code.Mark(f.Reason), f.Code, report.WithURLs(f.Next)}
}

// writeJUnit writes the report of a test as JUnit's XML, with a test case for each check. A mode with a
// single result for all its checks has one test case.
func writeJUnit(out io.Writer, r *capturetest.Report) {
	suite := junitSuite{
		Name: "capture-cni", Tests: len(r.Results), Failed: r.Count(capturetest.Failed), Skipped: r.Count(capturetest.Skipped),
		Notes: strings.Join(r.Notes, "\n"),
	}
	for _, result := range r.Results {
		one := junitCase{
			Class: fmt.Sprintf("%s.%s to %s", result.Mode, result.Client, result.Server),
			Name:  cmp.Or(strings.TrimSpace(result.Family+" "+result.Check), "all"),
		}
		reason := reasonOf(result.Finding)
		switch result.Verdict() {
		case capturetest.Failed:
			one.Failure = reason
		case capturetest.Skipped:
			one.Skipped = reason
		}
		suite.Cases = append(suite.Cases, one)
	}
	suite.write(out)
}

func (s junitSuite) write(out io.Writer) {
	document, _ := xml.MarshalIndent(s, "", "  ") // can't fail for these types
	fmt.Fprintf(out, "%s%s\n", xml.Header, document)
}
