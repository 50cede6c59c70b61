// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
)

// Limits of what the API server sends about a node's pods, in bytes. A list has room
// for 250 pods of 128 KiB. A watch has no limit in total: it lasts for minutes, and
// its length depends on the node. It has one for each event, which is more than the
// largest object that etcd stores takes.
const (
	maxList  = 32 << 20
	maxEvent = 16 << 20
)

// limitStreams limits lists and watches of another transport, after decompression.
func limitStreams(next http.RoundTripper) http.RoundTripper { return streamLimit{next} }

type streamLimit struct{ next http.RoundTripper }

func (l streamLimit) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := l.next.RoundTrip(request)
	if err != nil {
		return nil, err
	}
	body := &streamBody{ReadCloser: response.Body, limit: maxList, url: request.URL.Redacted()}
	if request.URL.Query().Get("watch") == "true" && response.StatusCode == http.StatusOK {
		body.limit, body.events = maxEvent, true
	}
	response.Body = body
	return response, nil
}

type streamBody struct {
	io.ReadCloser
	url    string
	limit  int
	length int  // so far, or of the current event
	events bool // it is a watch
}

// Read counts the bytes since the last line feed as one event: each JSON event ends
// with one. Events in protobuf have line feeds, too; their length is limited by the
// client's decoder, which reads it before the event.
func (b *streamBody) Read(p []byte) (int, error) {
	if b.length > b.limit {
		return 0, b.tooLong()
	}
	n, err := b.ReadCloser.Read(p)
	b.length += n
	if i := bytes.LastIndexByte(p[:n], '\n'); b.events && i >= 0 {
		b.length = n - i - 1
	}
	if b.length > b.limit {
		return n, b.tooLong()
	}
	return n, err
}

func (b *streamBody) tooLong() error {
	what := "the response"
	if b.events {
		what = "an event"
	}
	return tooLarge{what, b.url, b.limit}
}

// tooLarge is the error for a response or an event above its limit.
type tooLarge struct {
	what, url string
	limit     int // in bytes
}

func (e tooLarge) Error() string {
	return fmt.Sprintf("%s from %s is larger than %d MiB: check that this is the API server, and the size of the node's pods", e.what, e.url, e.limit>>20)
}
