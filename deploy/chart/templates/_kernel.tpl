{{- /* SPDX-License-Identifier: Apache-2.0 */ -}}

{{- /* Whether the backend is tested before the agent starts. */ -}}
{{- define "capture-cni.tested" -}}
{{- if and (not .Values.tryKernel) (eq (.Values.netconf.backend | default "") "auto") -}}
{{- fail "netconf.backend is auto and tryKernel is false: the test chooses the backend. Set tryKernel to true, or name a backend" -}}
{{- end -}}
{{- and .Values.tryKernel (ne .Values.state "absent") -}}
{{- end -}}

{{- /* Whether the test executes the node's iptables. */ -}}
{{- define "capture-cni.testsPrograms" -}}
{{- and (eq (include "capture-cni.tested" .) "true") (ne (.Values.netconf.backend | default "nftables") "nftables") -}}
{{- end -}}

{{- /* The additional capabilities with which the test executes the node's iptables. */ -}}
{{- define "capture-cni.programCapabilities" -}}
{{- list "NET_RAW" "SYS_CHROOT" "SYS_MODULE" | toJson -}}
{{- end -}}

{{- /* The init container that tests the backend in a scratch network namespace. */ -}}
{{- define "capture-cni.kernel" -}}
{{- $programs := eq (include "capture-cni.testsPrograms" .) "true" -}}
- name: kernel
  image: {{ include "capture-cni.image" . }}
  imagePullPolicy: {{ .Values.image.pullPolicy }}
  command: [/capture-cni-node, backend]
  env:
    {{- include "capture-cni.env" (merge (deepCopy .Values.env) (include "capture-cni.flags" . | fromYaml)) | trim | nindent 4 }}
    - name: CAPTURE_CNI_ROOT
      value: /host
  # The end of its log becomes the message in the pod's status.
  terminationMessagePolicy: FallbackToLogsOnError
  resources: {{- toYaml .Values.resources | nindent 4 }}
  securityContext:
    privileged: false
    allowPrivilegeEscalation: false
    readOnlyRootFilesystem: true
    runAsUser: 0
    runAsGroup: 0
    capabilities:
      drop: [ALL]
      # SYS_ADMIN is for creating the namespace, NET_ADMIN for writing rules there, and any others for executing the node's iptables.
      add: {{ concat (list "SYS_ADMIN" "NET_ADMIN") (ternary (include "capture-cni.programCapabilities" . | fromJsonArray) list $programs) | toJson }}
  volumeMounts:
    {{- if $programs }}
    - name: root
      mountPath: /host
      readOnly: true
    {{- end }}
    - name: backend
      mountPath: /host{{ .Values.paths.runDir }}/backend
{{- end -}}
