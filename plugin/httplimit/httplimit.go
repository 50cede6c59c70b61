// SPDX-License-Identifier: Apache-2.0

// Package httplimit limits the size of HTTP responses, so that an endless response can't exhaust the
// node's memory.
package httplimit

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
)

// Limits of a response, in bytes.
const (
	MaxHeader = 64 << 10 // for http.Transport's MaxResponseHeaderBytes

	// MaxObject exceeds twice the size of the largest object that etcd stores by default (1.5 MiB),
	// because JSON is longer.
	MaxObject = 4 << 20

	// maxEvent limits each event of a watch. It exceeds the JSON of the largest object that etcd stores
	// by default. The watch as a whole has no limit, because it lasts for minutes.
	maxEvent = 16 << 20
)

// TooLarge is the error for a response, or an event of a watch, that exceeds its limit.
type TooLarge struct {
	what, url string
	limit     int
}

func (e TooLarge) Error() string {
	return fmt.Sprintf("%s from %s is larger than %d MiB: check that this is the API server, and the size of its objects",
		e.what, e.url, e.limit>>20)
}

// Transport returns a transport that sends requests by another transport, and limits the size of each
// response's body or, in a watch, of each event, after decompression.
func Transport(next http.RoundTripper, limit int) http.RoundTripper { return transport{next, limit} }

type transport struct {
	next  http.RoundTripper
	limit int
}

func (t transport) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := t.next.RoundTrip(request)
	if err != nil {
		return nil, err
	}
	b := &body{ReadCloser: response.Body, fault: TooLarge{"the response", request.URL.Redacted(), t.limit}}
	if request.URL.Query().Get("watch") == "true" && response.StatusCode == http.StatusOK {
		b.events, b.fault.what, b.fault.limit = true, "an event", maxEvent
	}
	response.Body = b
	return response, nil
}

type body struct {
	io.ReadCloser
	fault  TooLarge
	events bool // the response is a watch
	length int  // bytes so far, or of the current event
}

// Read returns a TooLarge once the body or, in a watch, one event exceeds the limit. Each JSON event
// ends with a line feed. In protobuf, line feeds also occur within events, and the client's decoder
// limits an event's length.
func (b *body) Read(p []byte) (int, error) {
	if b.length > b.fault.limit {
		return 0, b.fault
	}
	// One byte more than the limit is read, to distinguish a body of exactly that size from a larger
	// one.
	n, err := b.ReadCloser.Read(p[:min(len(p), b.fault.limit-b.length+1)])
	b.length += n
	if i := bytes.LastIndexByte(p[:n], '\n'); b.events && i >= 0 {
		b.length = n - i - 1
	}
	if b.length > b.fault.limit {
		return n - 1, b.fault
	}
	return n, err
}
