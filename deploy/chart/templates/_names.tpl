{{- /* SPDX-License-Identifier: Apache-2.0 */ -}}

{{- define "capture-cni.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: node
{{- end }}

{{- define "capture-cni.labels" -}}
{{ include "capture-cni.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
{{- end }}

{{- /* Of objects that the plugin needs on nodes that were not cleaned. */ -}}
{{- define "capture-cni.kept" -}}
helm.sh/resource-policy: keep
argocd.argoproj.io/sync-options: Prune=false,Delete=false
{{- end }}

{{- define "capture-cni.image" -}}
{{- $image := .Values.image -}}
{{ $image.registry }}/{{ $image.repository }}
{{- if $image.digest }}@{{ $image.digest }}{{ else }}:{{ $image.tag | default .Chart.AppVersion }}{{ end }}
{{- end }}

{{- /* A policy's condition: the request is an agent's. */ -}}
{{- define "capture-cni.byAnAgent" -}}
- name: by-an-agent
  expression: request.userInfo.username == 'system:serviceaccount:{{ .Release.Namespace }}:capture-cni-node'
{{- end }}

{{- /* A policy's variable: the node of the agent whose request it is, in a list. */ -}}
{{- define "capture-cni.agentsNode" -}}
- name: node
  expression: request.userInfo.?extra[?'authentication.kubernetes.io/node-name'].orValue([])
{{- end }}
