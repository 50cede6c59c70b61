#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# publish.sh DIRECTORY VERSION REGISTRY [FLAG...]: pushes the image and the chart of a
# release (make release) to a registry, and signs both. It also signs the list of modules in
# the programs (SBOM), the statement about known vulnerabilities (OpenVEX), the origin of the
# programs (provenance), and the checksums. Each call of cosign gets the FLAGs. On GitHub, no
# flag is needed, because GitHub confirms the workflow's identity; elsewhere, cosign needs a
# key. BUILDER is the URI of the builder. PLAIN_HTTP=1 is for a registry without TLS.
set -euo pipefail
dist=$1 version=$2 registry=$3 builder=${BUILDER:?}
shift 3
parts=$(dirname "$0")/../../bin/parts
sbom=$dist/capture-cni-$version.cdx.json
vex=$dist/capture-cni-$version.openvex.json
source=https://github.com/capture-cni/capture-cni
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# https://slsa.dev/provenance/v1, by what Go wrote into a program.
tar -xz -C "$work" -f "$dist/capture-cni_${version}_linux_amd64.tar.gz" capture-cni
cat >"$work/provenance.json" <<END
{
  "buildDefinition": {
    "buildType": "$source/blob/main/CONTRIBUTING.md#releases",
    "externalParameters": {"repository": "$source", "ref": "refs/tags/v$version"},
    "resolvedDependencies": [
      {"uri": "git+$source@refs/tags/v$version", "digest": {"gitCommit": "$(go version -m "$work/capture-cni" | sed -n 's/.*vcs.revision=//p')"}},
      {"uri": "pkg:golang/toolchain@$(go version "$work/capture-cni" | sed 's/.* go/go/')"}
    ]
  },
  "runDetails": {"builder": {"id": "$builder"}}
}
END

mkdir "$work/image"
tar -x -C "$work/image" -f "$dist/capture-cni-image_$version.tar"
image=$("$parts/crane" push "$work/image" "$registry/capture-cni:$version")
"$parts/cosign" sign --yes --recursive "$@" "$image"
"$parts/cosign" attest --yes --type cyclonedx --predicate "$sbom" "$@" "$image"
"$parts/cosign" attest --yes --type openvex --predicate "$vex" "$@" "$image"
"$parts/cosign" attest --yes --type slsaprovenance1 --predicate "$work/provenance.json" "$@" "$image"

"$parts/helm" push ${PLAIN_HTTP:+--plain-http} "$dist/capture-cni-$version.tgz" "oci://$registry/charts" 2>&1 | tee "$work/pushed"
chart=$registry/charts/capture-cni@$(sed -n 's/^Digest: //p' "$work/pushed")
"$parts/cosign" sign --yes "$@" "$chart"
"$parts/cosign" attest --yes --type slsaprovenance1 --predicate "$work/provenance.json" "$@" "$chart"

"$parts/cosign" sign-blob --yes --bundle "$dist/SHA256SUMS.sigstore.json" "$@" "$dist/SHA256SUMS"
"$parts/cosign" sign-blob --yes --bundle "$vex.sigstore.json" "$@" "$vex"
"$parts/cosign" attest-blob --yes --type slsaprovenance1 --predicate "$work/provenance.json" --bundle "$dist/SHA256SUMS.provenance.sigstore.json" "$@" "$dist/SHA256SUMS"
