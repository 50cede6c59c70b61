// SPDX-License-Identifier: Apache-2.0

package pods

import (
	"bytes"
	"compress/flate"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/plugin/capture"
	"github.com/capture-cni/capture-cni/plugin/capture-cni-lookup/apiclient"
	"github.com/capture-cni/capture-cni/plugin/lookup"
)

// compressFrom is the size in bytes above which a cached document is compressed.
const compressFrom = 4 << 10

// entry is the encoded answer about one pod.
type entry struct {
	key, uid, digest string
	injected         bool // a mesh marks the pod, and the pod's own fields do not exempt it from capture
	document         []byte
	size             int // of the document before compression; 0 if it is not compressed
}

// GetObjectKind implements runtime.Object, because entries replace the pods in the client's lists.
func (*entry) GetObjectKind() schema.ObjectKind { return schema.EmptyObjectKind }

// DeepCopyObject implements runtime.Object. It needs no copy, because entries do not change.
func (e *entry) DeepCopyObject() runtime.Object { return e }

// entryOf returns the entry of a pod, for the meshes whose pods are captured. If object is already an
// entry, entryOf returns it.
func entryOf(object any, meshes []config.MeshName) (*entry, error) {
	switch object := object.(type) {
	case *entry:
		return object, nil
	case *corev1.Pod:
		return newEntry(object, meshes)
	}
	return nil, fmt.Errorf("keeping an object of type %T: expected a pod", object)
}

func keyOf(object any) (string, error) {
	switch object := object.(type) {
	case *entry:
		return object.key, nil
	case *corev1.Pod:
		return object.Namespace + "/" + object.Name, nil
	}
	return "", fmt.Errorf("an object has type %T: expected a pod", object)
}

func newEntry(pod *corev1.Pod, meshes []config.MeshName) (*entry, error) {
	key, _ := keyOf(pod) // keyOf returns no error for a pod
	answer := apiclient.AnswerOf(pod)
	document, err := json.Marshal(answer)
	if err != nil {
		return nil, fmt.Errorf("encoding pod %s: %w", key, err)
	}
	sum := sha256.Sum256(document)
	answer.Digest = hex.EncodeToString(sum[:16])
	if document, err = json.Marshal(answer); err != nil {
		return nil, fmt.Errorf("encoding pod %s: %w", key, err)
	}
	if len(document) > lookup.MaxAnswer {
		return nil, fmt.Errorf("pod %s takes %d bytes: expected at most %d", key, len(document), lookup.MaxAnswer)
	}
	e := &entry{key: key, uid: answer.UID, digest: answer.Digest, document: document}
	e.injected = capture.ExemptionOf(*answer.Pod, meshes).Cause == ""
	if len(document) > compressFrom {
		e.document, e.size = compress(document), len(document)
	}
	return e, nil
}

// answer returns the document in an entry, decompressed.
func (e *entry) answer() ([]byte, error) {
	if e.size == 0 {
		return e.document, nil
	}
	document := make([]byte, e.size)
	if _, err := io.ReadFull(flate.NewReader(bytes.NewReader(e.document)), document); err != nil {
		return nil, fmt.Errorf("decompressing pod %s: %w", e.key, err)
	}
	return document, nil
}

// compress returns the document compressed by DEFLATE. It ignores errors, because the level is valid
// and a buffer's Write does not fail.
func compress(document []byte) []byte {
	var compressed bytes.Buffer
	writer, _ := flate.NewWriter(&compressed, flate.BestSpeed)
	_, _ = writer.Write(document)
	_ = writer.Close()
	return bytes.Clone(compressed.Bytes())
}
