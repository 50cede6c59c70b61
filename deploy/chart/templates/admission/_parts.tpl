{{- /* SPDX-License-Identifier: Apache-2.0 */ -}}

{{- /* Puts a validating policy in force in the namespaces that opted in. */ -}}
{{- define "admission.validatingBinding" -}}
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata:
  name: capture-cni-{{ .policy }}
spec:
  policyName: capture-cni-{{ .policy }}
  validationActions: {{ toJson .values.admission.validationActions }}
  matchResources:
    namespaceSelector: {{ toJson .values.admission.namespaceSelector }}
{{- end -}}

{{- /* A kubelet shows its static pods as mirror pods. They run already, so that
refusing one hides it and stops nothing. */ -}}
{{- define "admission.notByNodes" -}}
- name: not-by-nodes
  expression: "!('system:nodes' in request.userInfo.groups)"
{{- end -}}

{{- /* The containers that a request brings: all of a new pod's, or the ephemeral
ones that are added to a running pod. dyn, as the two kinds have no common type. */ -}}
{{- define "admission.containers" -}}
- name: ephemeral
  expression: request.?subResource.orValue('') == 'ephemeralcontainers'
- name: containers
  expression: >-
    variables.ephemeral
    ? dyn(object.spec.?ephemeralContainers.orValue([]).filter(c,
        !oldObject.spec.?ephemeralContainers.orValue([]).exists(old, old.name == c.name)))
    : dyn(object.spec.containers) + object.spec.?initContainers.orValue([])
{{- end -}}

{{- /* The proxy: an ordinary container, or a native sidecar among the init containers. */ -}}
{{- define "admission.proxies" -}}
- name: proxies
  expression: >-
    (dyn(object.spec.containers) + object.spec.?initContainers.orValue([])).filter(c, c.name == 'istio-proxy')
{{- end -}}

{{- /* An init container that proves one direction of capture, as a CEL object. */ -}}
{{- define "admission.validate" -}}
{{- $port := index (.root.Values.netconf.mesh | default dict) (print .direction "Port") -}}
Object.spec.initContainers{
  name: '{{ .name }}',
  image: '{{ include "capture-cni.image" .root }}',
  imagePullPolicy: '{{ .root.Values.image.pullPolicy }}',
  args: ['validate', '{{ .direction }}'{{ with $port }}, '--{{ $.direction }}-port={{ int . }}'{{ end }}],
  ?resources: object.spec.initContainers.filter(c, c.name == 'istio-init')[0].?resources,
  securityContext: Object.spec.initContainers.securityContext{
    runAsUser: {{ .uid }}, runAsGroup: {{ .gid }}, runAsNonRoot: true,
    privileged: false, allowPrivilegeEscalation: false, readOnlyRootFilesystem: true,
    capabilities: Object.spec.initContainers.securityContext.capabilities{drop: ['ALL']},
    seccompProfile: Object.spec.initContainers.securityContext.seccompProfile{type: 'RuntimeDefault'}
  }
}
{{- end -}}
