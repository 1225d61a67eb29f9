#!/usr/bin/env bash
# Starts a broker on a free port, runs the reference experiment's fast form under both guarantees and the example job, shows what came of them, and
# stops the broker. The exit code says whether everything held.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
target=${CARGO_TARGET_DIR:-$root/target}
waterwheel=${WATERWHEEL:-$target/release/waterwheel}
folder=$target/kafka-demo
worker=''

clean_up() {
  [ -z "$worker" ] || kill -KILL "$worker" 2>/dev/null || true
  "$root/tests/services/kafka.sh" kill "$folder/broker" 2>/dev/null || true
}

start_broker() {
  rm -rf "$folder"
  mkdir -p "$folder"
  trap clean_up EXIT
  trap 'exit 130' INT TERM
  line=$("$root/tests/services/kafka.sh" start "$folder/broker" --parent $$)
  export WATERWHEEL_KAFKA
  WATERWHEEL_KAFKA=$(sed -n 's/.*bootstrap=\([^ ]*\).*/\1/p' <<<"$line")
  echo "a broker runs at $WATERWHEEL_KAFKA" >&2
}

# Runs the experiment under guarantee $1, and adds a line to the table.
experiment() {
  local json
  json=$(FAST=1 GUARANTEE=$1 BOOTSTRAP=$WATERWHEEL_KAFKA WATERWHEEL=$waterwheel FOLDER=$folder/$1 "$root/tests/experiment.sh") || failed=1
  results+=("$json")
  local numbers='\{"lines":([0-9]+),"distinct":([0-9]+),"duplicates":([0-9]+),"missing":([0-9]+)\}'
  if [[ $json =~ \"read_committed\":$numbers,\"read_uncommitted\":$numbers.*\"kill_to_first_record_ms\":([0-9]+) ]]; then
    local found=("${BASH_REMATCH[@]:1}")
    table+=$(printf '%-14s %6s %6s %6s   %8s %6s %6s   %8s ms' "$1" "${found[0]}" "${found[2]}" "${found[3]}" "${found[4]}" "${found[6]}" "${found[7]}" "${found[8]}")$'\n'
  fi
}

# Orders come in, and the example job adds them up.
example_job() {
  local orders=3000 counted=''
  "$waterwheel" kafka topics create orders --partitions 3 >&2
  for ((order = 1; order <= orders; order++)); do
    echo "{\"order\":$order,\"user\":\"user-$((order % 17))\",\"amount\":$((order % 100)).5}"
  done | "$waterwheel" kafka produce orders --key-pointer /user
  rm -rf "$root/target/kafka/checkpoints"
  (cd "$root" && exec "$waterwheel" run examples/kafka/job.yaml --quiet) &
  worker=$!
  for ((i = 0; i < 300; i++)); do
    counted=$("$waterwheel" kafka count totals --isolation read_committed --format json 2>/dev/null || true)
    [[ $counted == *"\"lines\":$orders"* ]] && break
    kill -0 "$worker" || break
    sleep 0.2
  done
  kill -TERM "$worker" && wait "$worker" || failed=1
  worker=''
  [[ $counted == *"\"lines\":$orders"* ]] || { echo "the example job wrote: $counted" >&2; failed=1; }
}

failed=0 results=() table=''
start_broker
experiment at-least-once
experiment exactly-once
example_job
printf '\n%-14s %20s   %22s   %s\n%-14s %6s %6s %6s   %8s %6s %6s   %s\n' '' read_committed read_uncommitted 'from SIGKILL to' \
  guarantee lines twice lost lines twice lost 'the first record'
printf '%s\n' "$table"
printf '%s\n' "${results[@]}"
exit "$failed"
