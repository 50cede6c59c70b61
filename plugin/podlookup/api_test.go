// SPDX-License-Identifier: Apache-2.0

package podlookup

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/url"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/capture-cni/capture-cni/plugin/record"
)

var pods = schema.GroupResource{Resource: "pods"}

func fromAPI(err error) error {
	return apiError{err, endpoint{server: &url.URL{Scheme: "https", Host: "10.96.0.1:443"}, credentialsFile: "/run/token"}}
}

func answeredWith(code int32) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{Code: code, Message: "as the server says"}}
}

// verification returns the error as crypto/tls and net/http wrap it.
func verification(cause error) error {
	return &url.Error{Op: "Get", URL: "https://10.96.0.1", Err: &tls.CertificateVerificationError{Err: cause}}
}

// TestErrorsOfTheAPI expects of each error whether it is final, and its hint.
func TestErrorsOfTheAPI(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name    string
		err     error
		isFinal bool
		hint    string
	}{
		{"400", fromAPI(apierrors.NewBadRequest("x")), true, "request to https://10.96.0.1:443"},
		{"401", fromAPI(apierrors.NewUnauthorized("x")), false, "credentials in /run/token"},
		{"403", fromAPI(apierrors.NewForbidden(pods, "web", errors.New("x"))), true, `"get pods"`},
		{"404", fromAPI(apierrors.NewNotFound(pods, "web")), false, "not found"},
		{"405", fromAPI(answeredWith(405)), true, "as the server says"},
		{"408", fromAPI(answeredWith(408)), false, "as the server says"},
		{"409", fromAPI(answeredWith(409)), true, "as the server says"},
		{"429", fromAPI(apierrors.NewTooManyRequests("slow down", 1)), false, "slow down"},
		{"500", fromAPI(apierrors.NewInternalError(errors.New("x"))), false, "request to https://"},
		{"503", fromAPI(apierrors.NewServiceUnavailable("x")), false, "request to https://"},
		{"504", fromAPI(apierrors.NewTimeoutError("x", 1)), false, "request to https://"},
		{"connection refused", fromAPI(&net.OpError{Op: "dial", Err: errors.New("connection refused")}), false, "connection refused"},
		{"expired", fromAPI(verification(x509.CertificateInvalidError{Reason: x509.Expired})), true, "check the clock"},
		{"not for this use", fromAPI(verification(x509.CertificateInvalidError{Reason: x509.IncompatibleUsage})), true, "certificate authority"},
		{"another authority", fromAPI(verification(x509.UnknownAuthorityError{})), true, "certificate authority"},
		{"another name", fromAPI(verification(x509.HostnameError{Certificate: &x509.Certificate{}, Host: "a"})), true, "certificate authority"},
		{"another UID", uidMismatch{record.PodRef{UID: "new"}, "old"}, false, "UID old, expected new"},
		{"no kubeconfig", fmt.Errorf("kubeconfig: %w", fs.ErrNotExist), true, "kubeconfig: file does not exist"},
	} {
		if got := isFinal(test.err); got != test.isFinal {
			t.Errorf("%s: final %v, want %v", test.name, got, test.isFinal)
		}
		hinted := withHint(test.err)
		if !strings.Contains(hinted.Error(), test.hint) || !strings.Contains(hinted.Error(), test.err.Error()) {
			t.Errorf("%s: got %q, want %q in it", test.name, hinted, test.hint)
		}
		if !errors.Is(hinted, errors.Unwrap(test.err)) && errors.Unwrap(test.err) != nil {
			t.Errorf("%s: the cause is lost in %v", test.name, hinted)
		}
	}
}

func TestRetryAfter(t *testing.T) {
	t.Parallel()
	for want, err := range map[time.Duration]error{
		0:               fromAPI(apierrors.NewNotFound(pods, "web")),
		3 * time.Second: fromAPI(apierrors.NewTooManyRequests("slow down", 3)),
		5 * time.Second: fmt.Errorf("asking: %w", fromAPI(apierrors.NewServerTimeout(pods, "get", 5))),
	} {
		if got := retryAfter(err); got != want {
			t.Errorf("%v: got %s, want %s", err, got, want)
		}
	}
}

// TestJitter expects pauses from half to one and a half of the back-off.
func TestJitter(t *testing.T) {
	t.Parallel()
	seen := map[time.Duration]bool{}
	for range 1000 {
		got := jitter(firstBackoff)
		if got < firstBackoff/2 || got >= 3*firstBackoff/2 {
			t.Fatalf("got %s", got)
		}
		seen[got] = true
	}
	if len(seen) < 100 {
		t.Errorf("%d different pauses in 1000", len(seen))
	}
}
