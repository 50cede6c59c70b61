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

{{- define "capture-cni.image" -}}
{{- $image := .Values.image -}}
{{ $image.registry }}/{{ $image.repository }}
{{- if $image.digest }}@{{ $image.digest }}{{ else }}:{{ $image.tag | default .Chart.AppVersion }}{{ end }}
{{- end }}
