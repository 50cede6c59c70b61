// SPDX-License-Identifier: Apache-2.0

package apiclient

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"

	"github.com/capture-cni/capture-cni/plugin/httplimit"
	"github.com/capture-cni/capture-cni/plugin/lookup"
)

// dialTimeout limits the connection to one address of the API server.
const dialTimeout = 2 * time.Second

// restClient returns a client that only knows pods, because linking the whole clientset would
// triple the program's start-up time.
func restClient(e endpoint, attempt int) (*rest.RESTClient, error) {
	scheme := runtime.NewScheme()
	scheme.AddKnownTypes(corev1.SchemeGroupVersion, &corev1.Pod{})
	metav1.AddToGroupVersion(scheme, corev1.SchemeGroupVersion)
	config := &rest.Config{
		Host:    e.server.String(),
		APIPath: "/api",
		QPS:     -1, // a program that sends at most two requests needs no limiter
		ContentConfig: rest.ContentConfig{
			GroupVersion:         &corev1.SchemeGroupVersion,
			NegotiatedSerializer: serializer.NewCodecFactory(scheme).WithoutConversion(),
			AcceptContentTypes:   runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON,
			ContentType:          runtime.ContentTypeProtobuf,
		},
	}
	transport := httplimit.Transport(&http.Transport{
		DialContext:            dialer{attempt}.dial,
		TLSClientConfig:        e.tls, // without a Proxy, because traffic to the API server uses none
		MaxResponseHeaderBytes: httplimit.MaxHeader,
	}, httplimit.MaxObject)
	client, err := rest.RESTClientForConfigAndClient(config, &http.Client{Transport: transport})
	if err != nil {
		return nil, fmt.Errorf("creating an API client: %w", err)
	}
	return client, nil
}

// dialer tries the server's addresses in turn, each for at most dialTimeout. The first address that it
// tries depends on the number of the lookup's attempt.
type dialer struct{ attempt int }

func (d dialer) dial(ctx context.Context, network, address string) (net.Conn, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	addresses, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	if err != nil {
		return nil, err
	}
	var faults []error
	for i := range addresses {
		ip := addresses[(i+d.attempt-1)%len(addresses)]
		conn, err := (&net.Dialer{Timeout: dialTimeout}).DialContext(ctx, network, net.JoinHostPort(ip.String(), port))
		if err == nil {
			return conn, nil
		}
		faults = append(faults, err)
	}
	return nil, errors.Join(faults...)
}

// apiError is the error of a failed request. withHint needs its endpoint.
type apiError struct {
	error
	endpoint endpoint
}

func (e apiError) Unwrap() error { return e.error }

// withHint adds the operator's next step to the error of a failed request or, if the cause is not known,
// the API server's address.
func withHint(err error) error {
	failed, ok := errors.AsType[apiError](err)
	if !ok {
		return err
	}
	invalid, _ := errors.AsType[x509.CertificateInvalidError](err)
	switch at := failed.endpoint; {
	case apierrors.IsUnauthorized(err):
		return fmt.Errorf("%w: the API server refuses the credentials in %s: check that the node agent runs and renews them. %s",
			err, at.credentialsFile, lookup.Uninstalled)
	case apierrors.IsForbidden(err):
		return fmt.Errorf("%w: the user of %s needs the permission \"get pods\". %s", err, at.credentialsFile, lookup.Uninstalled)
	case invalid.Reason == x509.Expired: // this reason also means that the certificate is not valid yet
		return fmt.Errorf("%w: check the clocks of this node and of the API server", err)
	case isCertificateError(err):
		return fmt.Errorf("%w: check that the kubeconfig has the certificate authority of %s", err, at.server)
	}
	return fmt.Errorf("request to %s: %w", failed.endpoint.server, err)
}

func isCertificateError(err error) bool {
	return isA[*tls.CertificateVerificationError](err) || isA[x509.CertificateInvalidError](err)
}
