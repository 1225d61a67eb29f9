#!/usr/bin/env bash
# One Kafka broker for tests and demonstrations, from Maven's jars and without containers; it listens on 127.0.0.1 only.
#
#   kafka.sh install                   fetch the jars into the target folder, once for all runs (`start` does it too)
#   kafka.sh start DIR [PORT] [OPTION…]  start a broker whose files are all in DIR; a free port is chosen if none is given
#   kafka.sh show DIR                  print the line of `start` again
#   kafka.sh stop DIR                  end it in order (SIGTERM, after 20 s SIGKILL)
#   kafka.sh kill DIR                  SIGKILL
#   kafka.sh pause DIR, resume DIR     SIGSTOP, SIGCONT
#   kafka.sh restart DIR [--set K=V]…  end it if it runs, start it with the same ports, settings and data
#   kafka.sh tool DIR NAME ARGUMENT…   one of Kafka's own tools: topics, groups, transactions, acls, configs, offsets, consume, produce,
#                                      features, delete-records, or the name of a Java class
#
# Options of `start`:
#   --parent PID      kill the broker as soon as this process is gone; without it the broker runs until `stop`
#   --tls             a TLS listener; CA, server and client certificates are made in DIR/tls
#   --sasl            listeners with PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 and OAUTHBEARER (unsecured tokens): one in plain text, with --tls one in TLS
#   --user NAME:PASSWORD  a user for --sasl (several times; alice:alice-secret by default), made when DIR is new
#   --acl             authorise by ACLs; whoever comes through the plain listener may do everything
#   --proxy-port P    one more listener that sends clients to 127.0.0.1:P, where a proxy listens that forwards to `proxied=`
#   --set KEY=VALUE   a broker setting (several times)
# KAFKA_JVM_OPTIONS replaces the JVM's options, WATERWHEEL_SERVICES the folder of the jars.
#
# `start`, `restart` and `show` print one line of KEY=VALUE: pid, bootstrap (the plain listener), port, dir, log, and as asked for
# tls, sasl, sasl_tls and proxied (HOST:PORT), ca, client_cert and client_key (PEM files), user and password (of the first user).
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=kafka/install.sh
. "$here/kafka/install.sh"
# shellcheck source=kafka/configure.sh
. "$here/kafka/configure.sh"

die() { echo "kafka.sh: $*" >&2; exit 1; }

# Sets `born` to the start time of process $1, which together with its id names it for good; fails when it is gone or a zombie.
born_at() {
  local stat
  { read -r stat <"/proc/$1/stat"; } 2>/dev/null || return 1
  stat=${stat##*) } # the name before it may contain anything
  # shellcheck disable=SC2086
  set -- $stat
  case $1 in Z | X) return 1 ;; esac
  born=${20}
}

# Sets `pid` if the process that file $1 names (id and start time) runs.
runs() {
  local recorded
  read -r pid recorded 2>/dev/null <"$1" || return 1
  born_at "$pid" && [ "$born" = "$recorded" ]
}

# Records the background process $2 in file $1, in one step.
record_process() {
  born_at "$2" || return 1
  echo "$2 $born" >"$1.new" && mv "$1.new" "$1"
}

# Sends signal $1 to the broker and waits up to $2 seconds until it is gone.
end_broker() {
  local i
  runs "$dir/pid" || return 0
  kill "-$1" "$pid" 2>/dev/null || true
  kill -CONT "$pid" 2>/dev/null || true # a paused one would never see SIGTERM
  for ((i = 0; i < $2 * 20; i++)); do
    runs "$dir/pid" || return 0
    sleep 0.05
  done
  return 1
}

end_watchdog() {
  if runs "$dir/watchdog"; then kill "$pid" 2>/dev/null || true; fi
  rm -f "$dir/watchdog"
}

# Runs in the background beside the broker: kills it when process $1, born at $2, is gone.
watch_parent() {
  while born_at "$1" && [ "$born" = "$2" ]; do
    [ -d "$dir" ] || exit 0
    sleep 0.3
  done
  # `start` may be about to record the broker. The folder may also have been given to another broker, which has a watchdog of its own.
  for ((i = 0; i < 20; i++)); do
    grep -qs "^$$ " "$dir/watchdog" || exit 0
    end_broker KILL 5
    sleep 0.1
  done
}

# Starts the configured broker and waits until it serves; fails with its last words.
launch() {
  local i broker
  mkdir -p "$dir/log"
  [ ! -f "$dir/log/server.log" ] || mv "$dir/log/server.log" "$dir/log/server.log.before"
  # shellcheck disable=SC2086
  setsid nohup $java ${KAFKA_JVM_OPTIONS:-$broker_options} "-Dkafka.log.file=$dir/log/server.log" "-Dlog4j2.configurationFile=$here/kafka/log4j2.xml" \
    -cp "$jars/*" kafka.Kafka "$dir/server.properties" </dev/null >"$dir/log/server.out" 2>&1 9>&- &
  broker=$!
  record_process "$dir/pid" "$broker" || true
  trap 'end_broker KILL 5' EXIT
  for ((i = 0; i < 1200; i++)); do
    if grep -qs 'Kafka Server started' "$dir/log/server.log"; then
      trap - EXIT
      return 0
    fi
    runs "$dir/pid" || break
    [ -z "$parent" ] || born_at "$parent" || break
    sleep 0.05
  done
  end_broker KILL 5 || true
  trap - EXIT
  return 1
}

last_words() {
  tail -n 12 "$dir/log/server.out" "$dir/log/server.log" >&2 2>/dev/null || true
}

start() {
  local attempt asked
  parse_start "$@"
  case $dir in *[[:space:]]*) die "the folder's name may not contain white space: $dir" ;; esac
  runs "$dir/pid" && die "a broker runs in $dir already (process $pid): stop it first"
  install
  rm -f "$dir/pid"
  if [ -n "$parent" ]; then
    born_at "$parent" || die "process $parent, which the broker is to end with, does not run"
    setsid "$here/kafka.sh" watch-parent "$dir" "$parent" "$born" </dev/null >/dev/null 2>&1 9>&- &
    record_process "$dir/watchdog" $! || die "the watchdog did not start"
  fi
  asked=$port
  [ -n "$port" ] || [ ! -f "$dir/port" ] || { port=$(<"$dir/port"); asked=$port; }
  for ((attempt = 0; attempt < 5; attempt++)); do
    [ -n "$asked" ] || port=$(free_port)
    echo "$port" >"$dir/port"
    configure
    format
    if launch; then
      show
      return 0
    fi
    # A port that was free a moment ago may be taken: another one, unless it was asked for.
    [ -z "$asked" ] && grep -qsE 'Address already in use|Socket server failed to bind' "$dir/log/server.log" "$dir/log/server.out" || break
  done
  rm -f "$dir/port"
  last_words
  end_watchdog
  die "the broker did not start; its log is in $dir/log"
}

restart() {
  local setting
  while [ $# -gt 0 ]; do
    case $1 in
      --set) setting=${2:?--set needs KEY=VALUE}; echo "$setting" >>"$dir/server.properties"; shift 2 ;;
      *) die "restart knows only --set, not $1" ;;
    esac
  done
  [ -f "$dir/server.properties" ] || die "no broker was ever started in $dir"
  install
  end_broker TERM 20 || end_broker KILL 5
  parent=
  launch || { last_words; die "the broker did not start again; its log is in $dir/log"; }
  show
}

show() {
  [ -f "$dir/line" ] || die "no broker was ever started in $dir"
  runs "$dir/pid" || die "the broker in $dir does not run"
  echo "pid=$pid $(<"$dir/line")"
}

tool() {
  local name=${1:?which tool?} class server
  shift
  server=$(grep -o 'bootstrap=[^ ]*' "$dir/line")
  server=(--bootstrap-server "${server#bootstrap=}")
  case $name in
    topics) class=org.apache.kafka.tools.TopicCommand ;;
    groups) class=org.apache.kafka.tools.consumer.group.ConsumerGroupCommand ;;
    transactions) class=org.apache.kafka.tools.TransactionsCommand ;;
    acls) class=org.apache.kafka.tools.AclCommand ;;
    configs) class=org.apache.kafka.tools.ConfigCommand ;;
    offsets) class=org.apache.kafka.tools.GetOffsetShell ;;
    consume) class=org.apache.kafka.tools.consumer.ConsoleConsumer ;;
    produce) class=org.apache.kafka.tools.ConsoleProducer ;;
    features) class=org.apache.kafka.tools.FeatureCommand ;;
    delete-records) class=org.apache.kafka.tools.DeleteRecordsCommand ;;
    *) class=$name server=() ;;
  esac
  install
  # shellcheck disable=SC2086
  exec $java $tool_options "-Dkafka.log.file=$dir/log/tools.log" "-Dlog4j2.configurationFile=$here/kafka/log4j2.xml" -cp "$jars/*" "$class" "${server[@]}" "$@"
}

command=${1:-help}
shift || true
case $command in
  install) install && echo "jars=$jars" && exit 0 ;;
  help | --help | -h) sed -n '2,/^set -/{/^#/s/^# \{0,1\}//p}' "$here/kafka.sh" && exit 0 ;;
  start | show | stop | kill | pause | resume | restart | tool | watch-parent) ;;
  *) die "unknown command $command; kafka.sh help lists them" ;;
esac
dir=${1:?which folder? kafka.sh help tells more}
shift
case $command in start) mkdir -p "$dir" ;; *) [ -d "$dir" ] || die "there is no folder $dir" ;; esac
dir=$(cd "$dir" && pwd)
parent=
case $command in
  stop) end_watchdog; end_broker TERM 20 || end_broker KILL 5; rm -f "$dir/pid" ;;
  kill) end_broker KILL 10 || die "process $pid does not end" ;;
  pause) runs "$dir/pid" || die "the broker in $dir does not run"; kill -STOP "$pid" ;;
  resume) runs "$dir/pid" || die "the broker in $dir does not run"; kill -CONT "$pid" ;;
  watch-parent) watch_parent "$@" ;;
  *) "$command" "$@" ;;
esac
