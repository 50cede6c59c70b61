{{- /* SPDX-License-Identifier: Apache-2.0 */ -}}

{{- /* Puts a validating policy in force in the namespaces that opted in, or in those of a selector. */ -}}
{{- define "admission.validatingBinding" -}}
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata:
  name: capture-cni-{{ .policy }}
spec:
  policyName: capture-cni-{{ .policy }}
  validationActions: {{ toJson .values.admission.validationActions }}
  matchResources:
    namespaceSelector: {{ toJson (.selector | default .values.admission.namespaceSelector) }}
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

{{- /* Containers that add a capability by another name than the kernel's. Runtimes
upper-case names as Unicode does, CEL as ASCII does: of U+0131 only the former
makes an I. So the policies know exact names and refuse all others. */ -}}
{{- define "admission.misnamed" -}}
- name: misnamed
  expression: >-
    variables.containers.filter(c, c.?securityContext.?capabilities.?add.orValue([]).exists(added,
      !added.matches('^[A-Z_]+$'))).map(c, c.name)
{{- end -}}

{{- /* The proxy: an ordinary container, or a native sidecar among the init containers. */ -}}
{{- define "admission.proxies" -}}
- name: proxies
  expression: >-
    (dyn(object.spec.containers) + object.spec.?initContainers.orValue([])).filter(c, c.name == 'istio-proxy')
{{- end -}}

{{- /* istio-validation tries the rules with the proxy's uid, before anything else runs. */ -}}
{{- define "admission.validation" -}}
- name: validation
  expression: >-
    object.spec.?initContainers.orValue([]).filter(c, c.name == 'istio-validation' && !has(c.restartPolicy))
{{- end -}}

{{- /* Those of the named containers whose image an update changes. */ -}}
{{- define "admission.exchanged" -}}
- name: exchanged
  expression: >-
    object.kind == 'Binding' ? [] : (dyn(object.spec.containers) + object.spec.?initContainers.orValue([])).filter(c,
      c.name in {{ toJson . | replace "\"" "'" }}
      && !(dyn(oldObject.spec.containers) + oldObject.spec.?initContainers.orValue([])).exists(old, old.name == c.name && old.image == c.image)
      ).map(c, c.name)
{{- end -}}

{{- /* The images that may be the proxy, and a test of container c that is true where
they are named and c has another one. After a name, only a tag and a digest may
follow: no bare prefix decides. */ -}}
{{- define "admission.proxyImages" -}}
- name: proxyImages
  expression: {{ toJson .proxyImages | quote }}
{{- end -}}
{{- define "admission.strange" -}}
size(variables.proxyImages) > 0 && !variables.proxyImages.exists(name, c.image.startsWith(name)
  && c.image.substring(size(name)).matches('^(:[A-Za-z0-9_][A-Za-z0-9_.-]*)?(@sha256:[0-9a-f]{64})?$'))
{{- end -}}

{{- /* Flags, as a regular expression over arguments that are joined by line breaks.
One that ends in = takes a value, in the same argument or in the next. A kubelet
expands $(NAME) after admission, and pilot-agent ignores flags that it does not
know: the next argument must not become a flag by either. */ -}}
{{- define "admission.flags" -}}
{{- $valued := list -}}{{- $switches := list -}}
{{- range . -}}
{{- if hasSuffix "=" . -}}
{{- $valued = trimSuffix "=" . | append $valued -}}
{{- else -}}
{{- $switches = append $switches . -}}
{{- end -}}
{{- end -}}
({{ join "|" $valued }})(=[^\n]*|\n(\$\(POD_NAMESPACE\))?([^\n$-][^\n$]*)?){{ range $switches }}|{{ . }}{{ end }}
{{- end -}}

{{- define "admission.validateArgs" -}}
{{- $port := index (.root.Values.netconf.mesh | default dict) (print .direction "Port") -}}
['validate', '{{ .direction }}'{{ with $port }}, '--{{ $.direction }}-port={{ int . }}'{{ end }}]
{{- end -}}

{{- /* An init container that proves one direction of capture, as a CEL object. */ -}}
{{- define "admission.validate" -}}
Object.spec.initContainers{
  name: '{{ .name }}',
  image: '{{ include "capture-cni.image" .root }}',
  imagePullPolicy: '{{ .root.Values.image.pullPolicy }}',
  args: {{ include "admission.validateArgs" . }},
  ?resources: object.spec.initContainers.filter(c, c.name == 'istio-init')[0].?resources,
  securityContext: Object.spec.initContainers.securityContext{
    runAsUser: {{ .uid }}, runAsGroup: {{ .gid }}, runAsNonRoot: true,
    privileged: false, allowPrivilegeEscalation: false, readOnlyRootFilesystem: true,
    capabilities: Object.spec.initContainers.securityContext.capabilities{drop: ['ALL']},
    seccompProfile: Object.spec.initContainers.securityContext.seccompProfile{type: 'RuntimeDefault'}
  }
}
{{- end -}}
