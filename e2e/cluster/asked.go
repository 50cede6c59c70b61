// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strconv"
)

// askedTable counts bytes between the node and the service of the API server, by their
// first addresses: kube-proxy changes them. The kubelet does not use the service.
const askedTable = `table ip asked {
  counter sent {}
  counter received {}
  chain output {
    type filter hook output priority 0
    ct original ip daddr ` + firstService + ` ct direction original counter name sent
  }
  chain input {
    type filter hook input priority 0
    ct original ip daddr ` + firstService + ` ct direction reply counter name received
  }
}
`

// auditPolicy records the requests of agents and plugins alone. A request has one ID in all stages.
const auditPolicy = `{"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "omitStages": ["RequestReceived"], "rules": [
  {"level": "Metadata", "users": ["system:serviceaccount:` + Namespace + `:capture-cni", "system:serviceaccount:` + Namespace + `:capture-cni-node"]},
  {"level": "None"}]}`

// Asked is what all agents asked the API server for.
type Asked struct {
	Requests       map[string]int // by verb and resource
	Sent, Received int            // bytes of IP packets
}

// CountAsked restarts the API server, which from then on records what agents ask. The
// function that it returns reads what they asked for so far.
func (c *Cluster) CountAsked(ctx context.Context) (func() (Asked, error), error) {
	if err := os.WriteFile(c.auditPolicy(), []byte(auditPolicy), 0o600); err != nil {
		return nil, err
	}
	for _, node := range c.Nodes {
		if err := node.nft(ctx, askedTable); err != nil {
			return nil, err
		}
	}
	if err := errors.Join(c.StopAPI(), c.StartAPI(ctx)); err != nil {
		return nil, err
	}
	return func() (asked Asked, err error) {
		for _, node := range c.Nodes {
			counters, err := node.Command(ctx, "nft", "list", "counters", "table", "ip", "asked").Output()
			if err != nil {
				return asked, fmt.Errorf("reading counters on %s: %w", node.Name, err)
			}
			for _, found := range regexp.MustCompile(`counter (\w+) \{\s*packets \d+ bytes (\d+)`).FindAllSubmatch(counters, -1) {
				bytes, _ := strconv.Atoi(string(found[2]))
				if string(found[1]) == "sent" {
					asked.Sent += bytes
				} else {
					asked.Received += bytes
				}
			}
		}
		asked.Requests, err = c.readAudit()
		return asked, err
	}, nil
}

func (c *Cluster) auditPolicy() string { return c.path("control", "audit-policy.json") }

func (c *Cluster) auditLog() string { return c.path("control", "audit.log") }

func (c *Cluster) readAudit() (map[string]int, error) {
	file, err := os.Open(c.auditLog())
	if err != nil {
		return nil, err
	}
	defer file.Close()
	requests, seen := map[string]int{}, map[string]bool{}
	for lines := bufio.NewScanner(file); lines.Scan(); {
		var event struct {
			AuditID, Verb, RequestURI string
			ObjectRef                 struct{ Resource, Subresource string }
		}
		if err := json.Unmarshal(lines.Bytes(), &event); err != nil {
			return nil, fmt.Errorf("reading the audit log: %w", err)
		}
		if !seen[event.AuditID] {
			seen[event.AuditID] = true
			what := event.Verb + " " + cmp.Or(event.ObjectRef.Resource, event.RequestURI)
			if event.ObjectRef.Subresource != "" {
				what += "/" + event.ObjectRef.Subresource
			}
			requests[what]++
		}
	}
	return requests, nil
}
