// SPDX-License-Identifier: Apache-2.0

package pods

import (
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/capture-cni/capture-cni/config"
)

// podCache holds the answers about this node's pods. It implements kube.PodStore.
type podCache struct {
	meshes  []config.MeshName // the meshes whose pods are captured
	metrics *podMetrics
	log     *slog.Logger

	mu      sync.RWMutex
	entries map[string]*entry // by namespace/name
	watched bool              // false if the node's name is unknown, because then nothing fills the cache
	synced  bool              // the agent has read the node's pods at least once
	failure error             // why the watch is broken, or omits pods; or nil
	broken  time.Time         // since when the watch is broken
}

func newPodCache(watched bool, meshes []config.MeshName, m *podMetrics, log *slog.Logger) *podCache {
	return &podCache{meshes: meshes, metrics: m, log: log, entries: map[string]*entry{}, watched: watched}
}

// find returns the answer about the pod with this key and UID. A request without a UID finds no pod,
// because the cached pod could be an earlier one of that name.
func (c *podCache) find(key, uid string) (*entry, bool) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	found, ok := c.entries[key]
	return found, ok && found.uid == uid
}

// injected returns the UIDs of the pods that a mesh marks, except those that their own fields exempt from
// capture, for example because they have no proxy.
func (c *podCache) injected() (uids []string) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	for _, entry := range c.entries {
		if entry.injected {
			uids = append(uids, entry.uid)
		}
	}
	return uids
}

// unready returns nil if the cache contains the node's pods, or is not used because the node's name is
// unknown. Otherwise it returns the reason.
func (c *podCache) unready() error {
	c.mu.RLock()
	defer c.mu.RUnlock()
	switch {
	case !c.watched || c.synced:
		return nil
	case c.failure != nil:
		return fmt.Errorf("the agent has not read its node's pods yet: %w", c.failure)
	}
	return errors.New("the agent has not read its node's pods yet: the API server has not answered so far")
}

// Transform returns the entry of a pod, so that the pod itself can be freed.
func (c *podCache) Transform(object any) (runtime.Object, error) { return entryOf(object, c.meshes) }

// Add implements kube.PodStore.
func (c *podCache) Add(object any) error {
	added, err := entryOf(object, c.meshes)
	if err != nil {
		// After an error, delete the pod's earlier answer, which would be wrong. The agent then reads
		// the pod from the API server.
		return errors.Join(err, c.Delete(object))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.entries[added.key] = added
	c.metrics.watched.Set(float64(len(c.entries)))
	return nil
}

// Update implements kube.PodStore.
func (c *podCache) Update(object any) error { return c.Add(object) }

// Delete implements kube.PodStore.
func (c *podCache) Delete(object any) error {
	key, err := keyOf(object)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.entries, key)
	c.metrics.watched.Set(float64(len(c.entries)))
	return nil
}

// Replace implements kube.PodStore. It omits pods for which it can't make an entry. The agent reads
// such a pod from the API server for each request.
func (c *podCache) Replace(objects []any, _ string) error {
	entries := make(map[string]*entry, len(objects))
	for _, object := range objects {
		added, err := entryOf(object, c.meshes)
		if err != nil {
			c.log.Warn("caching a pod failed; the agent reads it for each request", "error", err)
			continue
		}
		entries[added.key] = added
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.synced {
		c.log.Info("the node's pods were read", "pods", len(entries))
	}
	c.entries, c.synced = entries, true
	c.metrics.watched.Set(float64(len(entries)))
	c.metrics.synced.Set(1)
	return nil
}

// Resync implements kube.PodStore.
func (c *podCache) Resync() error { return nil }

// WatchStarted implements kube.PodStore.
func (c *podCache) WatchStarted() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.failure != nil {
		c.log.Info("watching the node's pods again", "brokenFor", time.Since(c.broken).Round(time.Second))
	}
	c.failure = nil
}

// WatchFailed implements kube.PodStore.
func (c *podCache) WatchFailed(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.failure == nil {
		c.broken = time.Now()
		c.log.Warn("watching the node's pods failed, or omitted some; retrying", "error", err, "synced", c.synced)
	}
	c.failure = err
}
