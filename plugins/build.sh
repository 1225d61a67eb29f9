#!/usr/bin/env bash
# Builds the sample plugins written in Rust and leaves each at target/plugins/NAME.wasm (in CARGO_TARGET_DIR, if that is set).
# Arguments, if any: the names of those to build.
set -euo pipefail
cd "$(dirname "$0")/.."

triple=wasm32-wasip2
if ! [ -d "$(rustc --print sysroot)/lib/rustlib/$triple" ] && ! rustup target add "$triple"; then
  echo "plugins: this Rust cannot compile to $triple: install Rust with rustup (https://rustup.rs) and run \`rustup target add $triple\`" >&2
  exit 1
fi

names=("$@")
if [ ${#names[@]} -eq 0 ]; then
  for manifest in plugins/rust/*/Cargo.toml; do
    name=$(basename "$(dirname "$manifest")")
    [ "$name" = sdk ] || names+=("$name")
  done
fi

cargo build --profile plugin --target "$triple" $(printf -- '--package %s ' "${names[@]}")

target=${CARGO_TARGET_DIR:-target}
mkdir -p "$target/plugins"
for name in "${names[@]}"; do
  built="$target/$triple/plugin/${name//-/_}.wasm"
  placed="$target/plugins/$name.wasm"
  # In one step, and only when it changed: others may be reading it.
  if ! cmp -s "$built" "$placed"; then
    cp "$built" "$placed.$$" && mv "$placed.$$" "$placed"
  fi
done
