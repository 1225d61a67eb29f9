#!/usr/bin/env bash
# The reference experiment: numbered records go from topic to topic through `waterwheel run`, the worker gets SIGKILL ten seconds after its second
# checkpoint and is started again, and the output is counted under both isolation levels. Settings are variables of the environment:
#
#   GUARANTEE   exactly-once (default), at-least-once,
#               timeout-refused: transactions that would time out before a checkpoint; such a job must be refused before it starts,
#               timed-out: exactly-once, and the worker stands still (SIGSTOP) until the broker has timed its transaction out
#   FAST=1      a checkpoint every 2 s, a record every 0.01 s, killed 1 s after the second checkpoint: half a minute
#   INTERVAL    seconds between checkpoints [20]     EVERY       seconds between records [0.1]
#   RECORDS     how many [1200]                      KILL_AFTER  seconds from the second completed checkpoint to the kill [10]
#   BOOTSTRAP   host:port of a cluster; by default a broker is started and stopped (tests/services/kafka.sh)
#   INPUT, OUTPUT, GROUP, PREFIX   topics, consumer group and transactional-id-prefix [ck-in, ck-out-eos or ck-out-alo, ck, ck-eos]; topics are emptied first
#   WATERWHEEL  the program [target/release/waterwheel]     FOLDER  where it works; it is emptied first [target/experiment]
#
# The last line is JSON; the exit code says whether the guarantee held.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
target=${CARGO_TARGET_DIR:-$root/target}

guarantee=${GUARANTEE:-exactly-once}
if [ -n "${FAST:-}" ] && [ "${FAST:-}" != 0 ]; then
  interval=${INTERVAL:-2} every=${EVERY:-0.01} kill_after=${KILL_AFTER:-1}
else
  interval=${INTERVAL:-20} every=${EVERY:-0.1} kill_after=${KILL_AFTER:-10}
fi
records=${RECORDS:-1200}
case $guarantee in
  at-least-once) sink=at-least-once output=${OUTPUT:-ck-out-alo} ;;
  exactly-once | timeout-refused | timed-out) sink=exactly-once output=${OUTPUT:-ck-out-eos} ;;
  *) echo "GUARANTEE is exactly-once, at-least-once, timeout-refused or timed-out, not $guarantee" >&2; exit 2 ;;
esac
input=${INPUT:-ck-in} group=${GROUP:-ck} prefix=${PREFIX:-ck-eos}
waterwheel=${WATERWHEEL:-$target/release/waterwheel}
folder=${FOLDER:-$target/experiment}
job=experiment
worker='' feeder='' broker=''

say() { printf '%s %s\n' "$(date +%H:%M:%S.%3N)" "$*" >&2; }
fail() { say "$*"; exit 1; }
now() { date +%s%3N; }
# Seconds as a number of milliseconds; bash knows no fractions.
ms() { awk -v seconds="$1" 'BEGIN { printf "%d", seconds * 1000 }'; }

clean_up() {
  [ -z "$feeder" ] || kill "$feeder" 2>/dev/null || true
  [ -z "$worker" ] || kill -KILL "$worker" 2>/dev/null || true
  [ -z "$broker" ] || "$root/tests/services/kafka.sh" kill "$broker" || true
}
trap clean_up EXIT
trap 'exit 130' INT TERM

kafka() { "$waterwheel" kafka --bootstrap-servers "$bootstrap" "$@"; }

start_broker() {
  bootstrap=${BOOTSTRAP:-}
  [ -z "$bootstrap" ] || return 0
  broker=$folder/broker
  local line
  line=$("$root/tests/services/kafka.sh" start "$broker" --parent $$)
  bootstrap=$(sed -n 's/.*bootstrap=\([^ ]*\).*/\1/p' <<<"$line")
  say "a broker runs at $bootstrap"
}

reset_topics() {
  local topic
  kafka topics delete --if-exists "__waterwheel-$prefix" >/dev/null
  for topic in "$input" "$output"; do kafka topics create --replace "$topic" --partitions 1 >&2; done
}

# Writes {"seq":FROM} to {"seq":TO} into the input, one every $3 seconds, in the background.
feed() {
  local rate
  rate=$(awk -v every="$3" 'BEGIN { printf "%.6f", 1 / every }')
  # The program itself, not a function around it, so that its process can be ended.
  seq -f '{"seq":%.0f}' "$1" "$2" | "$waterwheel" kafka --bootstrap-servers "$bootstrap" produce "$input" --rate "$rate" 2>"$folder/feed.log" &
  feeder=$!
}

# Writes the job file. $1: transaction.timeout.ms, if it is to be set.
write_job() {
  cat >"$folder/job.yaml" <<X
name: $job
sources:
- uid: in
  type: kafka
  bootstrap-servers: $bootstrap
  topics: [$input]
  startup-mode: earliest-offset
  properties: {group.id: $group}
sinks:
- uid: out
  type: kafka
  bootstrap-servers: $bootstrap
  topic: $output
  inputs: [in]
  delivery-guarantee: $sink
  $([ "$sink" != exactly-once ] || echo "transactional-id-prefix: $prefix")
  $([ -z "${1:-}" ] || echo "properties: {transaction.timeout.ms: $1}")
execution:
  checkpointing:
    interval: $(ms "$interval") ms
    dir: $folder/checkpoints
    num-retained: 3
  restart-strategy: {type: fixed-delay, fixed-delay: {attempts: 100, delay: 200 ms}}
X
}

free_port() {
  local port
  while :; do
    port=$((15000 + RANDOM % 16000))
    (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null || { echo "$port"; return; }
  done
}

# Starts the worker, or starts it again.
submit() {
  status=127.0.0.1:$(free_port)
  "$waterwheel" run "$folder/job.yaml" --status-address "$status" --quiet --log-level info 2>>"$folder/worker.log" &
  worker=$!
  started=$(now)
}

# Asks the worker; nothing if it does not answer.
ask() { curl -fsS --max-time 2 "http://$status/v1/jobs/$job${1:-}" 2>/dev/null || true; }

# Sets completed, failed and restored (how many), latest, latest_ack and latest_path (the newest completed checkpoint), restored_from.
ckpt() {
  local json
  json=$(ask /checkpoints)
  completed=0 failed=0 restored=0 latest='' latest_ack=0 latest_path='' restored_from=''
  [[ $json =~ \"counts\":\{([^}]*)\} ]] || return 0
  local counts=${BASH_REMATCH[1]}
  [[ $counts =~ \"completed\":([0-9]+) ]] && completed=${BASH_REMATCH[1]}
  [[ $counts =~ \"failed\":([0-9]+) ]] && failed=${BASH_REMATCH[1]}
  [[ $counts =~ \"restored\":([0-9]+) ]] && restored=${BASH_REMATCH[1]}
  if [[ $json =~ \"latest\":\{\"completed\":\{([^}]*)\} ]]; then
    local newest=${BASH_REMATCH[1]}
    [[ $newest =~ \"id\":([0-9]+) ]] && latest=${BASH_REMATCH[1]}
    [[ $newest =~ \"latest_ack_timestamp\":([0-9]+) ]] && latest_ack=${BASH_REMATCH[1]}
    [[ $newest =~ \"external_path\":\"([^\"]*)\" ]] && latest_path=${BASH_REMATCH[1]}
  fi
  [[ $json =~ \"restored\":\{\"id\":([0-9]+) ]] && restored_from=${BASH_REMATCH[1]}
  return 0
}

# The worker must be there; otherwise what it said last is the reason.
assert_worker() { kill -0 "$worker" 2>/dev/null || { tail -n 5 "$folder/worker.log" >&2; fail "the worker has ended"; }; }

# Waits until this worker has completed $1 checkpoints.
wait_ckpt() {
  while ckpt; [ "$completed" -lt "$1" ]; do assert_worker; sleep 0.05; done
}

# Waits until the worker goes on from a checkpoint and has read a record; sets first_record to the milliseconds since $1.
wait_restored() {
  local json
  until json=$(ask); [[ $json =~ \"kind\":\"source\"[^}]*\"records_out\":([1-9]) ]]; do assert_worker; sleep 0.01; done
  first_record=$(($(now) - $1))
  while ckpt; [ -z "$restored_from" ]; do assert_worker; sleep 0.05; done
}

kill_worker() {
  kill -KILL "$worker"
  wait "$worker" 2>/dev/null || true
}

# Counts topic $1 under isolation $2: sets lines, distinct, duplicates, missing, and again_from, the first number that is there twice.
count() {
  local json
  json=$(kafka count "$1" --isolation "$2" --json-pointer /seq --first 1 --last "$records" --format json)
  for name in lines distinct duplicates missing; do
    [[ $json =~ \"$name\":([0-9]+) ]] || fail "kafka count says nothing of $name: $json"
    printf -v "$name" %s "${BASH_REMATCH[1]}"
  done
  again_from=''
  [[ $json =~ \"seen_again\":\[\[([0-9]+) ]] && again_from=${BASH_REMATCH[1]}
  counted="{\"lines\":$lines,\"distinct\":$distinct,\"duplicates\":$duplicates,\"missing\":$missing}"
  say "$1 under $2: $lines lines, $distinct distinct, $duplicates twice${again_from:+ from $again_from on}, $missing missing"
}

# The offset in the newest completed checkpoint of the worker.
checkpoint_offset() {
  local manifest
  manifest=$(tail -n 1 "$folder/checkpoints/$latest_path/_metadata")
  [[ $manifest =~ \"$input-0\":[^0-9]*([0-9]+) ]] && echo "${BASH_REMATCH[1]}"
}

show_transactions() {
  say "transactions $1:"
  kafka transactions list --prefix "$prefix" >&2
  kafka transactions describe --prefix "$prefix" --topic "$output" >&2
}

# Shows the lag of the group, and sets group_offset.
show_lag() {
  local json
  say "group $group $1:"
  kafka lag "$group" --topic "$input" >&2
  json=$(kafka lag "$group" --topic "$input" --format json)
  group_offset=null
  [[ $json =~ \"committed\":([0-9]+) ]] && group_offset=${BASH_REMATCH[1]}
  return 0
}

# A job whose transactions would time out between two checkpoints, which loses data elsewhere, does not start here.
timeout_refused() {
  local timeout code=0 said
  timeout=$(ms "$(awk -v interval="$interval" 'BEGIN { print interval / 2 }')")
  write_job "$timeout"
  said=$("$waterwheel" run "$folder/job.yaml" --quiet 2>&1) || code=$?
  say "exit code $code: $said"
  local refused=false
  [ "$code" = 2 ] && [[ $said == *transaction.timeout.ms* ]] && refused=true
  printf '{"guarantee":"timeout-refused","refused":%s,"exit_code":%s,"transaction_timeout_ms":%s,"interval_ms":%s}\n' \
    "$refused" "$code" "$timeout" "$(ms "$interval")"
  [ "$refused" = true ]
}

# SIGKILL, and the same command again.
kill_and_restart() {
  killed=$(now)
  kill_worker
  say "killed the worker $((killed - latest_ack)) ms after checkpoint $latest"
  # The group's offset is that of the checkpoint, and nothing more: reading resumes at the checkpoint's in any case.
  show_lag "after the kill"
  [ "$sink" != exactly-once ] || show_transactions "after the kill"
  # A person, or what watches processes, would be as quick without the look at the transactions.
  killed=$(now)
  submit
}

# SIGSTOP for longer than its transaction may be open.
stand_still() {
  local timeout=$1
  say "the worker stands still for $((timeout + 3000)) ms, $(($(now) - latest_ack)) ms after checkpoint $latest; its transactions may be open for $timeout ms"
  kill -STOP "$worker"
  sleep "$(awk -v ms="$timeout" 'BEGIN { print ms / 1000 + 3 }')"
  show_transactions "after $((timeout + 3000)) ms"
  killed=$(now)
  kill -CONT "$worker"
}

# Waits until all is fed and two more checkpoints are completed.
let_it_finish() {
  wait "$feeder" || fail "feeding failed: $(<"$folder/feed.log")"
  feeder=''
  ckpt
  wait_ckpt $((completed + 2))
}

main() {
  rm -rf "$folder"
  mkdir -p "$folder"
  [ -x "$waterwheel" ] || fail "there is no program $waterwheel: run make build"
  start_broker
  reset_topics
  [ "$guarantee" != timeout-refused ] || { timeout_refused; return; }
  local timeout=''
  [ "$guarantee" != timed-out ] || timeout=$(ms "$(awk -v interval="$interval" 'BEGIN { print 2 * interval + 10 }')")
  write_job "$timeout"
  say "$guarantee: $records records, one every $every s; a checkpoint every $interval s"
  submit
  feed 1 "$records" "$every"
  wait_ckpt 2
  sleep "$(awk -v after="$(ms "$kill_after")" -v ack="$latest_ack" -v now="$(now)" 'BEGIN { left = after - (now - ack); print (left > 0 ? left / 1000 : 0) }')"
  ckpt
  local at_checkpoint first_record='' resumed=null
  at_checkpoint=$(checkpoint_offset)
  if [ "$guarantee" = timed-out ]; then
    stand_still "$timeout"
  else
    kill_and_restart
    wait_restored "$killed"
    say "restored checkpoint $restored_from; from the kill to the first record $first_record ms"
  fi
  let_it_finish
  local at_kill=${group_offset:-null}
  show_lag "at the end"
  [ "$sink" != exactly-once ] || show_transactions "after recovery"
  kill -TERM "$worker"
  wait "$worker" || fail "the worker did not stop in order: $(tail -n 3 "$folder/worker.log")"
  worker=''
  count "$output" read_uncommitted
  local uncommitted=$counted
  [ -z "$again_from" ] || resumed=$((again_from - 1))
  count "$output" read_committed
  printf '{"guarantee":"%s","read_committed":%s,"read_uncommitted":%s,"resumed_from_offset":%s,"checkpoint_offset":%s,"group_offset":%s,"kill_to_first_record_ms":%s}\n' \
    "$guarantee" "$counted" "$uncommitted" "$resumed" "${at_checkpoint:-null}" "$at_kill" "${first_record:-null}"
  [ "$missing" = 0 ] && { [ "$sink" = at-least-once ] || [ "$duplicates" = 0 ]; }
}

main
