{{- /* SPDX-License-Identifier: Apache-2.0 */ -}}

{{- define "capture-cni.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
app.kubernetes.io/component: node
{{- end }}

{{- define "capture-cni.labels" -}}
{{ include "capture-cni.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
{{- end }}

{{- /* Annotations of objects that an uninstall keeps, because the plugin needs them on nodes that were not cleaned. */ -}}
{{- define "capture-cni.kept" -}}
helm.sh/resource-policy: keep
argocd.argoproj.io/sync-options: Prune=false,Delete=false
{{- end }}

{{- /* The image. A tag that is a version, and that no digest overrides, must be of the chart's minor version, because agents know only the flags
and commands of their own release's chart. A tag whose first number has three or more digits, such as a date, is not taken for a version. */ -}}
{{- define "capture-cni.image" -}}
{{- $image := .Values.image -}}
{{- if and (not $image.digest) (regexMatch "^v?[0-9]{1,2}\\.[0-9]+\\.[0-9]+" $image.tag) -}}
{{- if not (hasPrefix (regexFind "^[0-9]+\\.[0-9]+\\." .Chart.AppVersion) (trimPrefix "v" $image.tag)) -}}
{{- $pool := "" -}}
{{- with .pool -}}{{- with .name -}}{{- $pool = printf "pool %s: " . -}}{{- end -}}{{- end -}}
{{- fail (printf "%simage.tag is %s, and the chart is of %s: its agents would not start. Add --set image.tag= (in a pool, set its own image) for this chart's image, use the chart of that release, or name an image with version numbers of its own by image.digest" $pool $image.tag .Chart.AppVersion) -}}
{{- end -}}
{{- end -}}
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
