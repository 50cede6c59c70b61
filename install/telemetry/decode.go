// SPDX-License-Identifier: Apache-2.0

package telemetry

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/capture-cni/capture-cni/install/report"
	"github.com/capture-cni/capture-cni/plugin/record"
)

// Limits of a record's fields, in addition to the limits that the sender observes.
const (
	maxStamp = 128 // a stamp is a rule's comment, which has at most 127 bytes
	maxStage = time.Hour
)

// errVersion is the error for a record in another version of the records' format.
var errVersion = errors.New("a record of another version")

// ParseRecord decodes a record strictly, because its texts become labels of metrics, names of files and
// lines of a log.
func ParseRecord(document []byte) (record.Record, error) {
	r, err := read(document)
	if err != nil {
		return record.Record{}, fmt.Errorf("reading a record: %w", err)
	}
	return r, nil
}

func read(document []byte) (r record.Record, err error) {
	if len(document) > record.MaxSize {
		return r, fmt.Errorf("a record of %d bytes: expected at most %d", len(document), record.MaxSize)
	}
	var head struct{ Version int }
	if err := json.Unmarshal(document, &head); err != nil {
		return r, errors.New(record.Cut(err.Error(), record.MaxFault))
	}
	if head.Version != record.Version {
		return r, fmt.Errorf("%w: %d", errVersion, head.Version)
	}
	decoder := json.NewDecoder(bytes.NewReader(document))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&r); err != nil {
		return r, errors.New(record.Cut(err.Error(), record.MaxFault))
	}
	if !slices.Contains(Reasons(r.Verdict), r.Reason) {
		return r, fmt.Errorf("verdict %q with reason %q: expected a known verdict with one of its reasons",
			record.Cut(string(r.Verdict), record.MaxFault/4), record.Cut(string(r.Reason), record.MaxFault/4))
	}
	return r, fault(r)
}

// fault returns an error if a field of a record exceeds a limit or is malformed. Otherwise it returns
// nil.
func fault(r record.Record) error {
	sandbox, backend := record.CheckName("sandbox", r.Sandbox, record.MaxSandbox), record.CheckName("backend", r.Backend, record.MaxBackend)
	wrong := cmp.Or(record.CheckPod(r.Pod), sandbox, backend)
	switch {
	case wrong != nil:
		return wrong
	case r.Trace != "" && !record.IsTrace(r.Trace):
		return fmt.Errorf("trace %q: expected 32 hexadecimal digits in lower case, not all 0", record.Cut(r.Trace, record.MaxFault/4))
	case len(r.Stamp) > maxStamp:
		return fmt.Errorf("a stamp of %d bytes: expected at most %d", len(r.Stamp), maxStamp)
	case len(r.Message) > record.MaxMessage+len(record.Ellipsis):
		return fmt.Errorf("a message of %d bytes: expected at most %d", len(r.Message), record.MaxMessage+len(record.Ellipsis))
	case len(r.Warnings) > record.MaxWarnings || len(r.Notes) > record.MaxWarnings:
		return fmt.Errorf("%d warnings and %d notes: expected at most %d of each", len(r.Warnings), len(r.Notes), record.MaxWarnings)
	case !r.Time.IsZero() && (r.Time.Year() < 1970 || r.Time.Year() >= 2262): // for other years, time.UnixNano can be negative or undefined
		return fmt.Errorf("time %s: expected a year from 1970 to 2261", r.Time.Format(time.DateOnly))
	}
	for _, warning := range slices.Concat(r.Warnings, r.Notes) {
		if len(warning) > record.MaxWarning+len(record.Ellipsis) {
			return fmt.Errorf("a warning or note of %d bytes: expected at most %d", len(warning), record.MaxWarning+len(record.Ellipsis))
		}
	}
	for stage, seconds := range r.Stages {
		if !slices.Contains(report.Stages(), stage) {
			return fmt.Errorf("stage %q: expected one of %q", record.Cut(string(stage), record.MaxFault), report.Stages())
		}
		if seconds < 0 || seconds > maxStage.Seconds() {
			return fmt.Errorf("stage %s took %g seconds: expected 0 to %g", stage, seconds, maxStage.Seconds())
		}
	}
	return nil
}
