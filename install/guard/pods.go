// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/capture-cni/capture-cni/install/kube"
)

// errGone is a pod that the API server does not know (any more).
var errGone = errors.New("the API server has no such pod")

// Pods reads pods.
type Pods interface {
	// Get gives the pod that a sandbox is of. Errors: errGone, also for
	// another pod of that name.
	Get(ctx context.Context, sandbox Sandbox) (*corev1.Pod, error)
}

// AsPlugin reads pods with the plugin's own identity, which may get pods and
// nothing else.
type AsPlugin struct{ Kubeconfig string }

const readTimeout = 5 * time.Second

// Get implements Pods. Credentials change under our feet: each read begins anew.
func (a AsPlugin) Get(ctx context.Context, sandbox Sandbox) (*corev1.Pod, error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	client, err := a.client()
	if err != nil {
		return nil, err
	}
	pod := &corev1.Pod{}
	err = client.Get().Namespace(sandbox.Namespace).Resource("pods").Name(sandbox.Name).Do(ctx).Into(pod)
	if apierrors.IsNotFound(err) || err == nil && string(pod.UID) != sandbox.UID {
		return nil, errGone
	}
	if err != nil {
		return nil, fmt.Errorf("reading pod %s/%s: %w", sandbox.Namespace, sandbox.Name, err)
	}
	return pod, nil
}

func (a AsPlugin) client() (rest.Interface, error) {
	access, err := clientcmd.BuildConfigFromFlags("", a.Kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("reading the plugin's access: %w", err)
	}
	access.AcceptContentTypes, access.ContentType = runtime.ContentTypeProtobuf+","+runtime.ContentTypeJSON, runtime.ContentTypeProtobuf
	return kube.Client(access, func(scheme *runtime.Scheme) { scheme.AddKnownTypes(corev1.SchemeGroupVersion, &corev1.Pod{}) })
}
