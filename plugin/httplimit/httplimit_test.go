// SPDX-License-Identifier: Apache-2.0

package httplimit

import (
	"compress/gzip"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
)

// TestTransport reads bodies of sizes around the limit, plain and compressed.
func TestTransport(t *testing.T) {
	t.Parallel()
	for _, size := range []int64{0, 1, maxBody - 1, maxBody, maxBody + 1, 64 * maxBody} {
		for _, compressed := range []bool{false, true} {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				var out io.Writer = w
				if compressed {
					w.Header().Set("Content-Encoding", "gzip")
					zip := gzip.NewWriter(w)
					defer zip.Close()
					out = zip
				}
				_, _ = io.CopyN(out, zeros{}, size)
			}))
			response, err := (&http.Client{Transport: Transport(&http.Transport{})}).Get(server.URL)
			if err != nil {
				t.Fatal(err)
			}
			n, err := io.Copy(io.Discard, response.Body)
			_ = response.Body.Close()
			server.Close()
			var tooLarge TooLarge
			if got, want := errors.As(err, &tooLarge), size > maxBody; got != want || n != min(size, maxBody) {
				t.Errorf("body of %d bytes (compressed: %v): read %d, %v", size, compressed, n, err)
			}
		}
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }
