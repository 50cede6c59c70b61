// SPDX-License-Identifier: Apache-2.0

// Package httplimit bounds the answers of an HTTP server, so that one that never
// ends an answer can't take all of a node's memory.
package httplimit

import (
	"fmt"
	"io"
	"net/http"
)

// MaxHeader is for http.Transport's MaxResponseHeaderBytes.
const MaxHeader = 64 << 10

// maxBody is more than etcd takes for one object (1.5 MiB), spelled as JSON.
const maxBody = 4 << 20

// TooLarge is an answer whose body exceeds the limit.
type TooLarge struct{ URL string }

func (e TooLarge) Error() string {
	return fmt.Sprintf("the answer of %s is larger than %d MiB: is this an API server, and is the object of a sane size?", e.URL, maxBody>>20)
}

// Transport bounds the bodies that another transport returns, decompressed.
func Transport(next http.RoundTripper) http.RoundTripper { return transport{next} }

type transport struct{ next http.RoundTripper }

func (t transport) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := t.next.RoundTrip(request)
	if err != nil {
		return nil, err
	}
	response.Body = &body{ReadCloser: response.Body, left: maxBody, url: request.URL.Redacted()}
	return response, nil
}

type body struct {
	io.ReadCloser
	left int64 // bytes that may still come
	url  string
}

func (b *body) Read(p []byte) (int, error) {
	if b.left < 0 {
		return 0, TooLarge{b.url}
	}
	// One byte more than is allowed tells an end from an excess.
	n, err := b.ReadCloser.Read(p[:min(int64(len(p)), b.left+1)])
	if b.left -= int64(n); b.left < 0 {
		return n - 1, TooLarge{b.url}
	}
	return n, err
}
