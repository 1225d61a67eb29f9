#!/usr/bin/env bash
# Runs the blocks of README.md that are fenced as ```sh run, as they stand, from the root. (`make demo` builds
# first, unless WATERWHEEL_BUILT is set.)
set -euo pipefail
cd "$(dirname "$0")/.."

if [ -n "${CARGO_TARGET_DIR:-}" ] && ! [ "$CARGO_TARGET_DIR" -ef target ]; then
  echo "readme: not run, because its commands are for the target folder at the root and CARGO_TARGET_DIR is $CARGO_TARGET_DIR"
  exit 0
fi

blocks=$(awk '/^```sh run$/ { inside = 1; next } /^```/ { inside = 0 } inside' README.md)
[ -n "$blocks" ] || { echo "readme: there is no block to run in README.md" >&2; exit 1; }
while IFS= read -r command; do
  [ -n "$command" ] || continue
  echo "readme: $command"
  if ! bash -euo pipefail -c "$command" </dev/null; then
    echo "readme: this command of README.md failed: $command" >&2
    exit 1
  fi
done <<<"$blocks"
