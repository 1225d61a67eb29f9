# Sourced by kafka.sh: Java, and the broker's jars from Maven.
# shellcheck shell=bash

kafka_version=4.3.1
services=${WATERWHEEL_SERVICES:-${CARGO_TARGET_DIR:-$here/../../target}/services}
jars=$services/kafka-$kafka_version
java=${JAVA_HOME:+$JAVA_HOME/bin/}java
# Short-lived brokers and tools: little memory, little compiling.
broker_options="-Xms64m -Xmx384m -XX:+UseSerialGC -Xss512k -Djava.awt.headless=true"
tool_options="-Xmx192m -XX:+UseSerialGC -XX:TieredStopAtLevel=1"

# Java 17 or later and Maven: from Debian's packages if we may, otherwise a sentence.
need_packages() {
  local missing=() version
  version=$("$java" -version 2>&1 | sed -n 's/.* version "\([0-9]*\).*/\1/p') || true
  [ "${version:-0}" -ge 17 ] || missing+=(openjdk-17-jre-headless)
  command -v mvn >/dev/null || missing+=(maven)
  command -v openssl >/dev/null || missing+=(openssl)
  [ ${#missing[@]} -gt 0 ] || return 0
  if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
    die "the broker needs Java 17 or later, Maven and OpenSSL; install ${missing[*]} (apt-get install ${missing[*]})"
  fi
  echo "kafka.sh: installing ${missing[*]}" >&2
  apt-get install -y --no-install-recommends "${missing[@]}" >"$services/packages.log" 2>&1 ||
    { apt-get update && apt-get install -y --no-install-recommends "${missing[@]}"; } >"$services/packages.log" 2>&1 ||
    die "the packages ${missing[*]} could not be installed: $(tail -n 1 "$services/packages.log")"
}

# Once for all runs that share the folder: under a lock, and renamed into place when complete.
install() {
  [ ! -d "$jars" ] || return 0
  mkdir -p "$services"
  exec 9>"$services/kafka.lock"
  flock 9
  if [ ! -d "$jars" ]; then
    local new=$services/kafka-new.$$
    need_packages
    echo "kafka.sh: fetching the jars of Kafka $kafka_version with Maven" >&2
    if ! mvn -q -B -f "$here/kafka/pom.xml" -Dkafka.version="$kafka_version" dependency:copy-dependencies \
      -DincludeScope=runtime -DoutputDirectory="$new" >"$services/maven.log" 2>&1; then
      rm -rf "$new"
      grep -m 5 ERROR "$services/maven.log" >&2 || true
      die "Maven could not fetch the jars; all of what it said is in $services/maven.log"
    fi
    mv "$new" "$jars"
  fi
  exec 9>&-
}
