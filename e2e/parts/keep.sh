#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# keep.sh TARGET COMMAND [INPUT...]: makes TARGET by a shell command that writes
# into the directory $OUT, and copies all of it next to TARGET. The result is
# kept in the user's cache directory under the digest of command, input files
# and Go version, so that another checkout does not build it again. What no
# checkout used for 60 days is removed.
set -euo pipefail
target=$1 command=$2
shift 2
name=$(basename "$target")
cache=${XDG_CACHE_HOME:-$HOME/.cache}/capture-cni/parts
digest=$({ go version; echo "$command"; cat /dev/null "$@"; } | sha256sum | cut -c1-16)
kept=$cache/$name-$digest

if [ ! -e "$kept" ]; then
	echo "building $name: some minutes if Go's build cache is cold"
	mkdir -p "$cache"
	export OUT=$kept.$$
	trap 'rm -rf "$OUT"' EXIT
	mkdir "$OUT"
	bash -euo pipefail -c "$command"
	mv -T "$OUT" "$kept"
fi
touch "$kept"
find "$cache" -mindepth 1 -maxdepth 1 -mtime +60 -exec rm -rf {} +
mkdir -p "$(dirname "$target")"
rm -rf "$target"
cp -R --remove-destination "$kept/." "$(dirname "$target")"
touch "$target"
