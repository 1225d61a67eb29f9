#!/usr/bin/env bash
# Compares wit/plugin.wit byte by byte with the golden copy of the version that it declares. Exit code 0: equal.
set -euo pipefail
cd "$(dirname "$0")/.."

version=$(sed -n 's/^package waterwheel:plugin@\([0-9][0-9A-Za-z.+-]*\);$/\1/p' wit/plugin.wit)
if [ -z "$version" ]; then
  echo "wit/plugin.wit: no line \`package waterwheel:plugin@VERSION;\` found: it names the golden copy to compare with" >&2
  exit 1
fi
golden="wit/golden/$version.wit"
if [ ! -f "$golden" ]; then
  echo "$golden is missing: to publish version $version, copy wit/plugin.wit there (rules: wit/README.md)" >&2
  exit 1
fi
if ! cmp -s wit/plugin.wit "$golden"; then
  diff -u "$golden" wit/plugin.wit >&2 || true
  if [ "$version" = 0.1.0 ]; then
    echo "wit/plugin.wit differs from $golden: 0.1.0 is a draft, so if the change is meant, copy the file there and change host and SDKs with it" >&2
  else
    echo "wit/plugin.wit differs from $golden, which is published: undo the change, and put the new ability into a new interface or world (rules: wit/README.md)" >&2
  fi
  exit 1
fi
echo "wit/plugin.wit equals $golden"
