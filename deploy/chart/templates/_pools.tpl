{{- /* SPDX-License-Identifier: Apache-2.0 */ -}}

{{- /* All pools: first a pool with an empty name, for the nodes that no other pool selects, and then .Values.pools. A node that several pools
select belongs to the first of them, because each pool excludes the nodes of the pools before it. */ -}}
{{- define "capture-cni.pools" -}}
{{- $pools := list -}}
{{- $names := list -}}
{{- $selectors := list -}}
{{- range .Values.pools -}}
{{- if has .name $names -}}
{{- fail (printf "pools has two with the name %q: expected different names, because each pool has a DaemonSet of its name" .name) -}}
{{- end -}}
{{- $pools = append $pools (set (deepCopy .) "except" $selectors) -}}
{{- $names = append $names .name -}}
{{- $selectors = append $selectors .nodeSelector -}}
{{- end -}}
{{- prepend $pools (dict "name" "" "except" $selectors) | toJson -}}
{{- end -}}

{{- /* The values of a pool: (list $ POOL). Values that the pool does not set are the release's. */ -}}
{{- define "capture-cni.poolValues" -}}
{{- $root := index . 0 -}}
{{- $pool := index . 1 -}}
{{- $values := mergeOverwrite (deepCopy $root.Values) (pick $pool "nodeSelector" "image" "platform" "mode" "updateStrategy" "state") -}}
{{- if and (hasKey ($pool.image | default dict) "tag") (not (hasKey $pool.image "digest")) -}}
{{- $_ := set $values.image "digest" "" -}}
{{- end -}}
{{- with $pool.backend -}}
{{- $_ := set $values.netconf "backend" . -}}
{{- end -}}
{{- $values | toJson -}}
{{- end -}}

{{- /* A template with the values of a pool: (list $ POOL TEMPLATE). */ -}}
{{- define "capture-cni.inPool" -}}
{{- $root := index . 0 -}}
{{- $pool := index . 1 -}}
{{- include (index . 2) (merge (dict "Values" (include "capture-cni.poolValues" (list $root $pool) | fromJson) "pool" $pool) (omit $root "Values")) -}}
{{- end -}}

{{- /* Whether a template is true for a pool: (list $ TEMPLATE). */ -}}
{{- define "capture-cni.anyPool" -}}
{{- $root := index . 0 -}}
{{- $template := index . 1 -}}
{{- $found := false -}}
{{- range include "capture-cni.pools" $root | fromJsonArray -}}
{{- if eq (include "capture-cni.inPool" (list $root . $template)) "true" -}}
{{- $found = true -}}
{{- end -}}
{{- end -}}
{{- $found -}}
{{- end -}}

{{- /* The affinity of a pool's agents: the operator's, without the nodes of the pools in .pool.except. Terms are alternatives, so each label in
the selector of such a pool needs its own term, which excludes the label's value. */ -}}
{{- define "capture-cni.affinity" -}}
{{- $default := list (dict "key" "eks.amazonaws.com/compute-type" "operator" "NotIn" "values" (list "fargate")) (dict "key" "type" "operator" "NotIn" "values" (list "virtual-kubelet")) -}}
{{- $affinity := .Values.affinity | default (dict "nodeAffinity" (dict "requiredDuringSchedulingIgnoredDuringExecution" (dict "nodeSelectorTerms" (list (dict "matchExpressions" $default))))) -}}
{{- $nodes := $affinity.nodeAffinity | default dict -}}
{{- $required := $nodes.requiredDuringSchedulingIgnoredDuringExecution | default dict -}}
{{- $terms := $required.nodeSelectorTerms | default (list dict) -}}
{{- range $selector := .pool.except -}}
{{- $narrower := list -}}
{{- range $term := $terms -}}
{{- range $label, $value := $selector -}}
{{- $expressions := append ($term.matchExpressions | default list) (dict "key" $label "operator" "NotIn" "values" (list $value)) -}}
{{- $narrower = append $narrower (merge (dict "matchExpressions" $expressions) $term) -}}
{{- end -}}
{{- end -}}
{{- $terms = $narrower -}}
{{- if gt (len $terms) 100 -}}
{{- fail "pools: more than 100 alternatives of labels to leave out; select the nodes of most pools by one label of their own" -}}
{{- end -}}
{{- end -}}
{{- if .pool.except -}}
{{- $required = merge (dict "nodeSelectorTerms" $terms) $required -}}
{{- $nodes = merge (dict "requiredDuringSchedulingIgnoredDuringExecution" $required) $nodes -}}
{{- $affinity = merge (dict "nodeAffinity" $nodes) $affinity -}}
{{- end -}}
{{- $affinity | toJson -}}
{{- end -}}
