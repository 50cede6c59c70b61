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

{{- /* A kubelet creates mirror pods for its static pods. These run already, so
refusing a mirror pod would hide the static pod, but not stop it. */ -}}
{{- define "admission.notByNodes" -}}
- name: not-by-nodes
  expression: "!('system:nodes' in request.userInfo.groups)"
{{- end -}}

{{- /* The containers that a request creates: all of a new pod, or the ephemeral ones
that it adds to a running pod. dyn, because the two kinds have no common type. */ -}}
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

{{- /* Containers that add a capability whose name is not in the letters A to Z and _.
Runtimes upper-case names by Unicode's rules, by which U+0131 becomes an I, but
CEL can only do so for ASCII. So the policies refuse all other names. */ -}}
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

{{- /* The init container istio-validation tests the rules with the proxy's uid. */ -}}
{{- define "admission.validation" -}}
- name: validation
  expression: >-
    object.spec.?initContainers.orValue([]).filter(c, c.name == 'istio-validation' && !has(c.restartPolicy))
{{- end -}}

{{- /* The names of the given containers whose image a request changes. */ -}}
{{- define "admission.exchanged" -}}
- name: exchanged
  expression: >-
    object.kind == 'Binding' ? [] : (dyn(object.spec.containers) + object.spec.?initContainers.orValue([])).filter(c,
      c.name in {{ toJson . | replace "\"" "'" }}
      && !(dyn(oldObject.spec.containers) + oldObject.spec.?initContainers.orValue([])).exists(old, old.name == c.name && old.image == c.image)
      ).map(c, c.name)
{{- end -}}

{{- /* The images that the proxy may have, and a test that is true if this list is not
empty and container c has another image. After a name in the list, only a tag and
a digest may follow, so a longer repository does not match. */ -}}
{{- define "admission.proxyImages" -}}
- name: proxyImages
  expression: {{ toJson .proxyImages | quote }}
{{- end -}}
{{- define "admission.strange" -}}
size(variables.proxyImages) > 0 && !variables.proxyImages.exists(name, c.image.startsWith(name)
  && c.image.substring(size(name)).matches('^(:[A-Za-z0-9_][A-Za-z0-9_.-]*)?(@sha256:[0-9a-f]{64})?$'))
{{- end -}}

{{- /* Flags, as a regular expression for arguments that are joined by line breaks. A
flag that ends in = takes a value, in the same argument or in the next. A value in
the next argument must not begin with - and, because a kubelet expands $(NAME)
after admission, must contain no $, except for $(POD_NAMESPACE) at its beginning. */ -}}
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

{{- /* Variables: whether the pod names the chart's attachment, in the variable annotations. */ -}}
{{- define "admission.attached" -}}
- name: networks
  expression: variables.annotations[?'k8s.v1.cni.cncf.io/networks'].orValue('')
# Multus reads the annotation as JSON if it contains one of [ { ". The policy
# then finds our network only if no element contains an object or an escape.
- name: attached
  expression: >-
    variables.networks.matches(r'[\[{"]')
    ? variables.networks.matches(r'^\s*\[(\s*\{([^\[\]{}\\]|\[[^\[\]{}\\]*\])*\}\s*,)*\s*\{\s*("name"\s*:\s*"istio-cni"\s*,\s*"namespace"\s*:\s*"default"|"namespace"\s*:\s*"default"\s*,\s*"name"\s*:\s*"istio-cni")\s*\}\s*(,\s*\{([^\[\]{}\\]|\[[^\[\]{}\\]*\])*\}\s*)*\]\s*$')
    : variables.networks.split(',').exists(name, name.trim().matches(r'^default/istio-cni(@[^@/\s]+)?$'))
{{- end }}
