{{- /* SPDX-License-Identifier: Apache-2.0 */ -}}

{{- /* The DaemonSet of a pool, with its values. */ -}}
{{- define "capture-cni.daemonset" -}}
{{- $node := include "capture-cni.node" . | fromJson -}}
{{- $absent := eq .Values.state "absent" -}}
{{- $untaint := and .Values.taint.remove (not $absent) -}}
{{- /* The agent calls the plugin for its own pod before it removes a taint or the plugin's credentials, or writes a condition that is true. */ -}}
{{- $canary := and (or .Values.taint.remove .Values.condition.enabled (not .Values.token.onNode)) (not $absent) -}}
{{- $name := .pool.name | empty | ternary "capture-cni-node" (printf "capture-cni-node-%s" .pool.name) -}}
apiVersion: apps/v1
kind: DaemonSet
metadata:
  name: {{ $name }}
  namespace: {{ .Release.Namespace | quote }}
  labels: {{- include "capture-cni.labels" . | nindent 4 }}
    {{- with .Values.daemonSetLabels }}{{ toYaml . | nindent 4 }}{{ end }}
spec:
  selector:
    # A selector can't change. Without a pool's label, it also matches the pods of pools, which the controller ignores, because
    # other DaemonSets own them.
    matchLabels: {{- include "capture-cni.selector" . | nindent 6 }}
      {{- with .pool.name }}
      capture-cni.io/pool: {{ . | quote }}
      {{- end }}
  updateStrategy:
    type: {{ .Values.updateStrategy.type }}
    {{- if eq .Values.updateStrategy.type "RollingUpdate" }}
    rollingUpdate:
      # No surge, because two agents can't use the same port of a node. With state absent, a node that can't be cleaned yet must not
      # block the other nodes.
      maxUnavailable: {{ ternary "100%" .Values.maxUnavailable $absent }}
      maxSurge: 0
    {{- end }}
  template:
    metadata:
      labels:
        {{- include "capture-cni.selector" . | nindent 8 }}
        {{- with .pool.name }}
        capture-cni.io/pool: {{ . | quote }}
        {{- end }}
        sidecar.istio.io/inject: "false"
        {{- with .Values.podLabels }}{{ toYaml . | nindent 8 }}{{ end }}
      annotations:
        kubectl.kubernetes.io/default-container: installer
        {{- with .Values.podAnnotations }}{{ toYaml . | nindent 8 }}{{ end }}
    spec:
      serviceAccountName: capture-cni-node
      automountServiceAccountToken: false
      # The runtime calls no network plugin for a pod with hostNetwork, so the plugin can't block the agent that installs it.
      hostNetwork: true
      # The node's own resolver, because the cluster's may not be up yet.
      dnsPolicy: Default
      enableServiceLinks: false
      # The agent removes nothing from the node when it ends.
      terminationGracePeriodSeconds: 5
      {{- with .Values.priorityClassName }}
      priorityClassName: {{ . }}
      {{- end }}
      {{- with .Values.imagePullSecrets }}
      imagePullSecrets: {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with .Values.nodeSelector }}
      nodeSelector: {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with .Values.tolerations }}
      tolerations: {{- toYaml . | nindent 8 }}
      {{- end }}
      affinity: {{- include "capture-cni.affinity" . | fromJson | toYaml | nindent 8 }}
      securityContext:
        {{- with .Values.seccompProfile }}
        seccompProfile: {{- toYaml . | nindent 10 }}
        {{- end }}
        {{- with .Values.appArmorProfile }}
        appArmorProfile: {{- toYaml . | nindent 10 }}
        {{- end }}
        {{- with $node.seLinuxOptions }}
        seLinuxOptions: {{- toYaml . | nindent 10 }}
        {{- end }}
      {{- if eq (include "capture-cni.tested" .) "true" }}
      initContainers:
        {{- include "capture-cni.kernel" . | nindent 8 }}
      {{- end }}
      containers:
        - name: installer
          image: {{ include "capture-cni.image" . }}
          imagePullPolicy: {{ .Values.image.pullPolicy }}
          command: [/capture-cni-node, run]
          args:
            - --state={{ .Values.state }}
            {{- if and $absent .Values.force }}
            - --force
            {{- end }}
            {{- if $untaint }}
            - --untaint={{ .Values.taint.key }}
            {{- end }}
            {{- if .Values.condition.enabled }}
            - --condition
            {{- end }}
            - --events={{ .Values.events.enabled }}
            - --lease={{ .Values.lease.enabled }}
            {{- if eq (include "capture-cni.evicts" .) "true" }}
            - --evict
            {{- end }}
          env:
            {{- include "capture-cni.env" (merge (deepCopy .Values.env) (include "capture-cni.flags" . | fromYaml)) | trim | nindent 12 }}
            - name: CAPTURE_CNI_ROOT
              value: /host
            - name: CAPTURE_CNI_SCOPE
              value: node
            - name: NODE_NAME
              valueFrom: {fieldRef: {fieldPath: spec.nodeName}}
            - name: POD_NAMESPACE
              valueFrom: {fieldRef: {fieldPath: metadata.namespace}}
            - name: POD_NAME
              valueFrom: {fieldRef: {fieldPath: metadata.name}}
            {{- if $canary }}
            # The agent's own pod, for which it calls the installed plugin.
            - name: POD_UID
              valueFrom: {fieldRef: {fieldPath: metadata.uid}}
            {{- end }}
            {{- if contains "$(HOST_IP)" .Values.metrics.listen }}
            - name: HOST_IP
              valueFrom: {fieldRef: {fieldPath: status.hostIP}}
            {{- end }}
            - name: CAPTURE_CNI_LISTEN
              value: {{ .Values.metrics.listen | quote }}
          ports:
            - name: metrics
              containerPort: {{ regexFind "[0-9]+$" .Values.metrics.listen }}
          {{- range $probe, $path := dict "livenessProbe" "/healthz" "readinessProbe" "/readyz" }}
          {{ $probe }}:
            httpGet:
              path: {{ $path }}
              port: metrics
              {{- with include "capture-cni.probeHost" $.Values.metrics.listen }}
              host: {{ . | quote }}
              {{- end }}
            periodSeconds: 10
            timeoutSeconds: 5
          {{- end }}
          resources: {{- toYaml .Values.resources | nindent 12 }}
          securityContext:
            privileged: false
            allowPrivilegeEscalation: false
            readOnlyRootFilesystem: true
            # Root owns the node's directories and needs no capability to write there.
            runAsUser: 0
            runAsGroup: 0
            capabilities:
              drop: [ALL]
              {{- with .Values.addCapabilities }}
              # For directories that root does not own.
              add: {{ toJson . }}
              {{- end }}
          volumeMounts:
            - name: api-access
              mountPath: /var/run/secrets/kubernetes.io/serviceaccount
              readOnly: true
            - name: net-dir
              mountPath: /host{{ $node.netDir }}
            {{- with $node.tmpfilesDir }}
            - name: tmpfiles-dir
              mountPath: /host{{ . }}
            {{- end }}
            {{- range $i, $directory := $node.binDirs }}
            - name: bin-dir-{{ $i }}
              mountPath: /host{{ $directory }}
            {{- end }}
            - name: state-dir
              mountPath: /host{{ .Values.paths.stateDir }}
            - name: run-dir
              mountPath: /host{{ .Values.paths.runDir }}
            {{- if $canary }}
            # The agent calls the plugin as the runtime does, so socket and credentials need the node's own paths.
            - name: state-dir
              mountPath: {{ .Values.paths.stateDir }}
              readOnly: true
            - name: run-dir
              mountPath: {{ .Values.paths.runDir }}
              readOnly: true
            {{- end }}
            {{- range $i, $socket := $node.criSockets }}
            - name: cri-socket-{{ $i }}
              mountPath: /host{{ dir $socket }}
              readOnly: true
            {{- end }}
        {{- if eq (include "capture-cni.guarded" .) "true" }}
        {{- include "capture-cni.guard" . | nindent 8 }}
        {{- end }}
      volumes:
        # The agent's service account token, as the kubelet would mount it, but only for the agent's container.
        - name: api-access
          projected:
            defaultMode: 0400
            sources:
              - serviceAccountToken:
                  path: token
                  expirationSeconds: 3607
              - configMap:
                  name: kube-root-ca.crt
                  items: [{key: ca.crt, path: ca.crt}]
              - downwardAPI:
                  items: [{path: namespace, fieldRef: {fieldPath: metadata.namespace}}]
        # The directory of the runtime's network configurations, for the plugin's entry.
        - name: net-dir
          hostPath:
            path: {{ $node.netDir }}
            type: DirectoryOrCreate
        {{- with $node.tmpfilesDir }}
        # The directory of systemd-tmpfiles' configuration, for the line that recreates the entry at boot.
        - name: tmpfiles-dir
          hostPath:
            path: {{ . }}
            type: DirectoryOrCreate
        {{- end }}
        {{- range $i, $directory := $node.binDirs }}
        # The directory of the runtime's plugins, for capture-cni and, with token.onNode, capture-cni-lookup.
        - name: bin-dir-{{ $i }}
          hostPath:
            path: {{ $directory }}
            type: DirectoryOrCreate
        {{- end }}
        # The agent's state and, with token.onNode, the plugin's credentials.
        - name: state-dir
          hostPath:
            path: {{ .Values.paths.stateDir }}
            type: DirectoryOrCreate
        # The agent's sockets and records. With token.onNode, also the plugin's credentials while the disk of the state directory
        # is full or read-only.
        - name: run-dir
          hostPath:
            path: {{ .Values.paths.runDir }}
            type: DirectoryOrCreate
        {{- range $i, $socket := $node.criSockets }}
        # The directory of a CRI socket, because a runtime that restarts creates a new socket. If the node's runtime has another
        # socket, the kubelet creates this directory, which stays empty. Mode auto waits until a runtime answers at a socket.
        - name: cri-socket-{{ $i }}
          hostPath:
            path: {{ dir $socket }}
            type: DirectoryOrCreate
        {{- end }}
        {{- if eq (include "capture-cni.tested" .) "true" }}
        # The result of the backend's test since the node booted.
        - name: backend
          hostPath:
            path: {{ .Values.paths.runDir }}/backend
            type: DirectoryOrCreate
        {{- if eq (include "capture-cni.testsPrograms" .) "true" }}
        # The node's own iptables, to test it.
        - name: root
          hostPath:
            path: /
        {{- end }}
        {{- end }}
        {{- if eq (include "capture-cni.guarded" .) "true" }}
        # The parts of the sockets' directory that the guard needs: the sockets, and the last ADD of each pod. The guard must not
        # mount the whole directory, which can contain credentials.
        - name: sockets
          hostPath:
            path: {{ $node.socketDir }}/sockets
            type: DirectoryOrCreate
        - name: adds
          hostPath:
            path: {{ $node.socketDir }}/adds
            type: DirectoryOrCreate
        # The guard's baselines and states of the pods, which survive a restart of the guard, but not a reboot.
        - name: guard-dir
          hostPath:
            path: {{ .Values.paths.runDir }}/guard
            type: DirectoryOrCreate
        # The pods' network namespaces, for the guard.
        - name: netns
          hostPath:
            path: {{ .Values.paths.netnsDir }}
            type: DirectoryOrCreate
        # The lock that guard and plugin take before they work in a network namespace.
        - name: lock
          hostPath:
            path: /run/capture-cni/lock
            type: DirectoryOrCreate
        {{- end }}
{{- end -}}
