{{- /* SPDX-License-Identifier: Apache-2.0 */ -}}

{{- /* The settings of a node: the operator's values and, for those that are empty, the platform's. */ -}}
{{- define "capture-cni.node" -}}
{{- $platform := get (.Files.Get "platforms.yaml" | fromYaml) .Values.platform -}}
{{- $mode := .Values.mode | default $platform.mode -}}
{{- $netDir := $platform.netDir -}}
{{- if eq $mode "multus" -}}
{{- $netDir = "/etc/cni/multus/net.d" -}}
{{- else if eq $mode "multus-chain" -}}
{{- $netDir = "/run/multus/cni/net.d/vendor-cni-chain" -}}
{{- end -}}
{{- /* The directory for the file that recreates the entry at boot; empty if there is none. */ -}}
{{- $tmpfilesDir := "" -}}
{{- if and (eq $mode "multus-chain") (ne .Values.paths.tmpfilesDir "none") -}}
{{- $tmpfilesDir = .Values.paths.tmpfilesDir -}}
{{- end -}}
{{- $criSockets := empty .Values.paths.criSocket | ternary $platform.criSockets (list .Values.paths.criSocket) -}}
{{- if eq .Values.paths.criSocket "none" -}}
{{- $criSockets = list -}}
{{- end -}}
{{- /* The directory of the agent's socket; empty if there is none. */ -}}
{{- $socketDir := .Values.paths.runDir -}}
{{- if hasKey .Values.netconf "agentSocket" -}}
{{- $socketDir = .Values.netconf.agentSocket | empty | ternary "" (dir .Values.netconf.agentSocket) -}}
{{- end -}}
{{- if and (not .Values.token.onNode) (empty $socketDir) -}}
{{- fail "token.onNode is false and netconf.agentSocket is empty: the plugin could not read pods. Remove netconf.agentSocket, or set token.onNode to true" -}}
{{- end -}}
{{- $socket := .Values.netconf.agentSocket | default "" -}}
{{- if not (has $socket (list "" (printf "%s/agent.sock" .Values.paths.runDir) (printf "%s/agent.sock" .Values.paths.stateDir))) -}}
{{- fail (printf "netconf.agentSocket is %s: expected agent.sock in paths.runDir or paths.stateDir, because the plugin accepts no other directory" $socket) -}}
{{- end -}}
{{- $seLinux := dict -}}
{{- with $platform.seLinuxType -}}
{{- $seLinux = dict "type" . -}}
{{- end -}}
{{- dict "mode" $mode
  "netDir" (.Values.paths.netDir | default $netDir)
  "binDirs" (.Values.paths.binDirs | default $platform.binDirs)
  "criSockets" $criSockets
  "tmpfilesDir" $tmpfilesDir
  "socketDir" $socketDir
  "seLinuxOptions" (.Values.seLinuxOptions | default $seLinux)
  | toJson -}}
{{- end }}

{{- /* The keys of the plugin's entry: the operator's, and the platform's that the operator does not set. */ -}}
{{- define "capture-cni.netconf" -}}
{{- $platform := get (.Files.Get "platforms.yaml" | fromYaml) .Values.platform -}}
{{- merge (deepCopy .Values.netconf) ($platform.netconf | default dict) | toJson -}}
{{- end }}

{{- /* Whether Multus calls the plugin for network attachments. The cluster has one definition of the attachment, with one backend for all nodes. */ -}}
{{- define "capture-cni.underMultus" -}}
{{- $is := eq (include "capture-cni.node" . | fromJson).mode "multus" -}}
{{- $backend := .Values.netconf.backend | default "" -}}
{{- if and $is (or .pool.backend (eq $backend "auto")) -}}
{{- fail (printf "mode multus with backend %q of a pool or of the node: the network attachment has one backend for the cluster; set netconf.backend to it" $backend) -}}
{{- end -}}
{{- $is -}}
{{- end }}

{{- /* The namespaces that are never captured: the operator's or, if these are not set, the agent's default. */ -}}
{{- define "capture-cni.excludedNamespaces" -}}
{{- $default := eq (include "capture-cni.node" . | fromJson).mode "multus-chain" | ternary (list "openshift-*" "kube-*") list -}}
{{- hasKey .Values.netconf "excludeNamespaces" | ternary (.Values.netconf.excludeNamespaces | default list) $default | toJson -}}
{{- end }}

{{- /* The host of probes for a listen address. It is empty for the node's own address, which is also the pod's. */ -}}
{{- define "capture-cni.probeHost" -}}
{{- $host := regexReplaceAll ":[0-9]+$" . "" | trimPrefix "[" | trimSuffix "]" -}}
{{- if has $host (list "0.0.0.0" "::") -}}
127.0.0.1
{{- else if ne $host "$(HOST_IP)" -}}
{{ $host }}
{{- end -}}
{{- end }}

{{- /* The flags that the agent's containers share, as environment variables. They are in the pod, not in a ConfigMap, so that a container that
restarts has the same flags, even after an upgrade of the release. */ -}}
{{- define "capture-cni.flags" -}}
{{- $node := include "capture-cni.node" . | fromJson -}}
CAPTURE_CNI_MODE: {{ $node.mode | quote }}
CAPTURE_CNI_BESIDE_ISTIO_CNI: {{ .Values.besideIstioCNI | quote }}
CAPTURE_CNI_NET_DIR: {{ $node.netDir | quote }}
CAPTURE_CNI_BIN_DIR: {{ join "," $node.binDirs | quote }}
CAPTURE_CNI_STATE_DIR: {{ .Values.paths.stateDir | quote }}
CAPTURE_CNI_RUN_DIR: {{ .Values.paths.runDir | quote }}
CAPTURE_CNI_CRI_SOCKET: {{ empty $node.criSockets | ternary "none" (printf "/host%s" (join ",/host" $node.criSockets)) }}
{{- with $node.tmpfilesDir }}
CAPTURE_CNI_TMPFILES_DIR: {{ . | quote }}
{{- end }}
CAPTURE_CNI_NETCONF: {{ include "capture-cni.netconf" . | replace "$" "$$" | quote }}
CAPTURE_CNI_TRY_KERNEL: {{ .Values.tryKernel | quote }}
CAPTURE_CNI_TOKEN_ON_NODE: {{ .Values.token.onNode | quote }}
CAPTURE_CNI_TOKEN_TTL: {{ .Values.token.ttl | quote }}
{{- with .Values.apiServer }}
CAPTURE_CNI_API_SERVER: {{ . | quote }}
{{- end }}
CAPTURE_CNI_OWNER: {{ .Release.Name | quote }}
CAPTURE_CNI_LOG_LEVEL: {{ include "capture-cni.logLevel" . | quote }}
CAPTURE_CNI_LOG_FORMAT: {{ ternary "json" "text" .Values.global.logAsJson }}
{{- end }}

{{- /* The log level. In Istio's charts, global.logging.level can also contain scopes, such as "default:info,cni:debug". */ -}}
{{- define "capture-cni.logLevel" -}}
{{- $level := .Values.logging.level | default .Values.global.logging.level -}}
{{- if not (has $level (list "debug" "info" "warn" "error")) -}}
{{- fail (printf "global.logging.level is %q: set logging.level to debug, info, warn or error" $level) -}}
{{- end -}}
{{- $level -}}
{{- end }}

{{- /* Environment variables of a container, from a map. */ -}}
{{- define "capture-cni.env" -}}
{{- range $name, $value := . }}
- name: {{ $name }}
  value: {{ $value | quote }}
{{- end }}
{{- end }}
