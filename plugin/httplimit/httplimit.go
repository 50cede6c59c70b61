// SPDX-License-Identifier: Apache-2.0

// Package httplimit limits the size of HTTP responses, so that an endless response
// can't exhaust the node's memory.
package httplimit

import (
	"fmt"
	"io"
	"net/http"
)

// MaxHeader is a value for http.Transport's MaxResponseHeaderBytes.
const MaxHeader = 64 << 10

// maxBody has room for the JSON of the largest object that etcd stores (1.5 MiB).
const maxBody = 4 << 20

// TooLarge is the error for a response whose body exceeds the limit.
type TooLarge struct{ URL string }

func (e TooLarge) Error() string {
	return fmt.Sprintf("the response from %s is larger than %d MiB: check that this is the API server, and the size of the object", e.URL, maxBody>>20)
}

// Transport limits the response bodies of another transport, after decompression.
func Transport(next http.RoundTripper) http.RoundTripper { return transport{next} }

type transport struct{ next http.RoundTripper }

func (t transport) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := t.next.RoundTrip(request)
	if err != nil {
		return nil, err
	}
	response.Body = &body{ReadCloser: response.Body, remaining: maxBody, url: request.URL.Redacted()}
	return response, nil
}

type body struct {
	io.ReadCloser
	remaining int64 // bytes below the limit
	url       string
}

func (b *body) Read(p []byte) (int, error) {
	if b.remaining < 0 {
		return 0, TooLarge{b.url}
	}
	// Reading one byte beyond the limit distinguishes a body of maxBody bytes from a larger one.
	n, err := b.ReadCloser.Read(p[:min(int64(len(p)), b.remaining+1)])
	if b.remaining -= int64(n); b.remaining < 0 {
		return n - 1, TooLarge{b.url}
	}
	return n, err
}
