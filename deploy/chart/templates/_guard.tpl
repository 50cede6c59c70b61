{{- /* SPDX-License-Identifier: Apache-2.0 */ -}}

{{- /* Whether there is a guard. It needs a CRI socket, the agent's socket, the state present, and the backend nftables or auto, because its container has no iptables. */ -}}
{{- define "capture-cni.guarded" -}}
{{- $node := include "capture-cni.node" . | fromJson -}}
{{- and .Values.guard.enabled (not (empty $node.criSockets)) (not (empty $node.socketDir)) (ne .Values.state "absent") (has (.Values.netconf.backend | default "nftables") (list "nftables" "auto")) -}}
{{- end -}}

{{- /* Whether the agent may have to evict pods. */ -}}
{{- define "capture-cni.evicts" -}}
{{- and (eq (include "capture-cni.guarded" .) "true") (eq .Values.guard.policy "evict") -}}
{{- end -}}

{{- /* The guard's container, of the agent's pod. */ -}}
{{- define "capture-cni.guard" -}}
{{- $node := include "capture-cni.node" . | fromJson -}}
- name: guard
  image: {{ include "capture-cni.image" . }}
  imagePullPolicy: {{ .Values.image.pullPolicy }}
  command: [/capture-cni-node, guard]
  args:
    - --policy={{ .Values.guard.policy }}
    - --round={{ .Values.guard.round }}
  env:
    {{- include "capture-cni.env" (merge (deepCopy .Values.env) (include "capture-cni.flags" . | fromYaml)) | trim | nindent 4 }}
    {{- if contains "$(HOST_IP)" .Values.guard.listen }}
    - name: HOST_IP
      valueFrom: {fieldRef: {fieldPath: status.hostIP}}
    {{- end }}
    - name: CAPTURE_CNI_LISTEN
      value: {{ .Values.guard.listen | quote }}
    - name: CAPTURE_CNI_SCOPE
      value: pods
    - name: CAPTURE_CNI_UPDATE
      value: {{ .Values.guard.update }}
  ports:
    - name: guard
      containerPort: {{ regexFind "[0-9]+$" .Values.guard.listen }}
  livenessProbe:
    httpGet:
      path: /healthz
      port: guard
      {{- with include "capture-cni.probeHost" .Values.guard.listen }}
      host: {{ . | quote }}
      {{- end }}
    periodSeconds: 10
    timeoutSeconds: 5
  resources: {{- toYaml .Values.guard.resources | nindent 4 }}
  securityContext:
    privileged: false
    allowPrivilegeEscalation: false
    readOnlyRootFilesystem: true
    runAsUser: 0
    runAsGroup: 0
    capabilities:
      drop: [ALL]
      # SYS_ADMIN enters the pods' network namespaces, NET_ADMIN reads and writes rules there.
      add: [SYS_ADMIN, NET_ADMIN]
  volumeMounts:
    # The agent's sockets, for requests of pods and for records, without their parent directory, which can contain the plugin's
    # credentials. The guard must have no access to the API server.
    - name: sockets
      mountPath: {{ $node.socketDir }}/sockets
      readOnly: true
    # The last ADD of each pod, as the agent recorded it.
    - name: adds
      mountPath: {{ $node.socketDir }}/adds
      readOnly: true
    # The lock of the pods' network namespaces, which the plugin takes, too; both have its path compiled in.
    - name: lock
      mountPath: /run/capture-cni/lock
    {{- if eq (.Values.netconf.backend | default "") "auto" }}
    # The result of the backend's test, which chose the backend.
    - name: backend
      mountPath: {{ .Values.paths.runDir }}/backend
      readOnly: true
    {{- end }}
    # The stamp and digest of the rules that ADD or the guard wrote in each pod, and the states of the pods.
    - name: guard-dir
      mountPath: {{ .Values.paths.runDir }}/guard
    {{- range $i, $socket := $node.criSockets }}
    - name: cri-socket-{{ $i }}
      mountPath: /host{{ dir $socket }}
      readOnly: true
    {{- end }}
    # The guard must also see namespaces that are created later.
    - name: netns
      mountPath: {{ .Values.paths.netnsDir }}
      mountPropagation: HostToContainer
      readOnly: true
{{- end -}}
