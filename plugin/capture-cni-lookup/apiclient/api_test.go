// SPDX-License-Identifier: Apache-2.0

package apiclient

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

	"github.com/capture-cni/capture-cni/plugin/httplimit"
	"github.com/capture-cni/capture-cni/plugin/lookup"
	"github.com/capture-cni/capture-cni/plugin/trust"
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

// TestErrorsOfTheAPI expects of each error the kind of its fault, and its hint.
func TestErrorsOfTheAPI(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name string
		err  error
		kind lookup.FaultKind
		hint string
	}{
		{"400", fromAPI(apierrors.NewBadRequest("x")), lookup.Refused, "request to https://10.96.0.1:443"},
		{"401", fromAPI(apierrors.NewUnauthorized("x")), lookup.Failed, "credentials in /run/token: check that the node agent runs and renews them. " + lookup.Uninstalled},
		{"403", fromAPI(apierrors.NewForbidden(pods, "web", errors.New("x"))), lookup.Refused, `needs the permission "get pods". ` + lookup.Uninstalled},
		{"404", fromAPI(apierrors.NewNotFound(pods, "web")), lookup.Gone, "not found"},
		{"405", fromAPI(answeredWith(405)), lookup.Refused, "as the server says"},
		{"408", fromAPI(answeredWith(408)), lookup.Failed, "as the server says"},
		{"409", fromAPI(answeredWith(409)), lookup.Refused, "as the server says"},
		{"429", fromAPI(apierrors.NewTooManyRequests("slow down", 1)), lookup.Failed, "slow down"},
		{"500", fromAPI(apierrors.NewInternalError(errors.New("x"))), lookup.Failed, "request to https://"},
		{"503", fromAPI(apierrors.NewServiceUnavailable("x")), lookup.Failed, "request to https://"},
		{"504", fromAPI(apierrors.NewTimeoutError("x", 1)), lookup.Failed, "request to https://"},
		{"connection refused", fromAPI(&net.OpError{Op: "dial", Err: errors.New("connection refused")}), lookup.Failed, "connection refused"},
		{"expired", fromAPI(verification(x509.CertificateInvalidError{Reason: x509.Expired})), lookup.Refused, "check the clock"},
		{"not for this use", fromAPI(verification(x509.CertificateInvalidError{Reason: x509.IncompatibleUsage})), lookup.Refused, "certificate authority"},
		{"another authority", fromAPI(verification(x509.UnknownAuthorityError{})), lookup.Refused, "certificate authority"},
		{"another name", fromAPI(verification(x509.HostnameError{Certificate: &x509.Certificate{}, Host: "a"})), lookup.Refused, "certificate authority"},
		{"another UID", uidMismatch{"new", "old"}, lookup.Gone, "UID old, expected new"},
		{"a redirect", fromAPI(answeredWith(302)), lookup.Failed, "as the server says"},
		{"too large", fromAPI(fmt.Errorf("reading: %w", httplimit.TooLarge{})), lookup.Refused, "request to https://"},
		{"no file at the API server", fromAPI(fs.ErrNotExist), lookup.Failed, "file does not exist"},
		{"an untrusted file", fmt.Errorf("kubeconfig: %w", trust.Untrusted("x")), lookup.Untrusted, "kubeconfig: x"},
		{"another error", errors.New("x"), lookup.Refused, "x"},
		{"no kubeconfig", fmt.Errorf("kubeconfig: %w", fs.ErrNotExist), lookup.NoCredentials, "kubeconfig: file does not exist"},
	} {
		if got := faultOf(test.err).Kind; got != test.kind {
			t.Errorf("%s: kind %s, want %s", test.name, got, test.kind)
		}
		hinted := withHint(test.err)
		if message := faultOf(test.err).Message; message != hinted.Error() || FaultOf(test.err).Message != test.err.Error() || !isA[apiError](test.err) && hinted != test.err {
			t.Errorf("%s: the message is %q", test.name, message)
		}
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
		if got := faultOf(err).RetryAfter; got != want {
			t.Errorf("%v: got %s, want %s", err, got, want)
		}
	}
}
