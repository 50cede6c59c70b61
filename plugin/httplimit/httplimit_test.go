// SPDX-License-Identifier: Apache-2.0

package httplimit

import (
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// TestTransport reads bodies of sizes around the limit, plain and compressed.
func TestTransport(t *testing.T) {
	t.Parallel()
	for _, size := range []int64{0, 1, MaxObject - 1, MaxObject, MaxObject + 1, 4 * MaxObject} {
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
			response, err := (&http.Client{Transport: Transport(&http.Transport{}, MaxObject)}).Get(server.URL)
			if err != nil {
				t.Fatal(err)
			}
			n, err := io.Copy(io.Discard, response.Body)
			_ = response.Body.Close()
			server.Close()
			var tooLarge TooLarge
			if got, want := errors.As(err, &tooLarge), size > MaxObject; got != want || n != min(size, MaxObject) {
				t.Errorf("body of %d bytes (compressed: %v): read %d, %v", size, compressed, n, err)
			}
		}
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }

// answering answers each request with a body.
type answering string

func (a answering) RoundTrip(*http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader(string(a)))}, nil
}

// TestStreamLimits reads lists and watches of sizes around their limits.
func TestStreamLimits(t *testing.T) {
	t.Parallel()
	event := strings.Repeat("x", maxEvent-1) + "\n"
	for name, c := range map[string]struct {
		query, body string
		want        string
	}{
		"a watch of many events": {"?watch=true", event + event + event, ""},
		"a long event":           {"?watch=true", "{}\n" + event[:1<<20] + event, "an event from"},
		"the longest event":      {"?watch=true", "{}\n" + event + "{}\n" + event, ""},
		"an event without end":   {"?watch=true", "{}\n" + strings.Repeat("x", maxEvent+1), "an event from"},
		"an empty line first":    {"?watch=true", "\n" + strings.Repeat("x", maxEvent), ""},
		"a list":                 {"", event, ""},
		"a long list":            {"", event + event + "x", "the response from"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			transport := Transport(answering(c.body), 2*maxEvent)
			request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://api.test/api/v1/pods"+c.query, nil)
			if err != nil {
				t.Fatal(err)
			}
			response, err := transport.RoundTrip(request)
			if err != nil {
				t.Fatal(err)
			}
			defer response.Body.Close()
			n, err := io.Copy(io.Discard, response.Body)
			if got := fmt.Sprint(err); (err != nil) != (c.want != "") || !strings.Contains(got, c.want) {
				t.Errorf("read %d bytes, %v, want %q", n, err, c.want)
			}
			if n, again := response.Body.Read(make([]byte, 1)); n != 0 || c.want != "" && !errors.Is(again, err) {
				t.Errorf("then read %d bytes, %v", n, again)
			}
		})
	}
}

// failing fails each request.
type failing struct{}

func (failing) RoundTrip(*http.Request) (*http.Response, error) { return nil, io.ErrUnexpectedEOF }

// TestFailures returns the error of the other transport. A watch that the server refuses has
// a body, and no events.
func TestFailures(t *testing.T) {
	t.Parallel()
	request := httptest.NewRequest(http.MethodGet, "http://api.test/api/v1/pods?watch=true", nil)
	if _, err := Transport(failing{}, 5).RoundTrip(request); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("failed with %v", err)
	}
	response, err := Transport(refusing{}, 5).RoundTrip(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	var tooLarge TooLarge
	if _, err := io.Copy(io.Discard, response.Body); !errors.As(err, &tooLarge) {
		t.Errorf("reading the refusal: %v", err)
	}
}

// refusing answers each request with 410 and a body.
type refusing struct{}

func (refusing) RoundTrip(*http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusGone, Body: io.NopCloser(strings.NewReader("expired"))}, nil
}
