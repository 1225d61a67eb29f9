# Sourced by kafka.sh: options, ports, certificates and the settings of the broker.
# shellcheck shell=bash

# Options of `start`, into variables.
parse_start() {
  port='' tls='' sasl='' acl='' proxy_port='' users=() settings=()
  case ${1:-} in [0-9]*) port=$1; shift ;; esac
  while [ $# -gt 0 ]; do
    case $1 in
      --tls) tls=1; shift; continue ;;
      --sasl) sasl=1; shift; continue ;;
      --acl) acl=1; shift; continue ;;
    esac
    [ $# -ge 2 ] || die "unknown option or missing value: $1"
    case $1 in
      --parent) parent=$2 ;;
      --user) users+=("$2") ;;
      --proxy-port) proxy_port=$2 ;;
      --set) settings+=("$2") ;;
      *) die "unknown option $1; kafka.sh help lists them" ;;
    esac
    shift 2
  done
  [ ${#users[@]} -gt 0 ] || users=(alice:alice-secret)
}

# The first of six ports in a row that nobody listens on, below those that the system gives out by itself.
free_port() {
  local first i
  while :; do
    first=$((15000 + (RANDOM % 2800) * 6))
    for ((i = 0; i < 6; i++)); do
      ! (exec 3<>"/dev/tcp/127.0.0.1/$((first + i))") 2>/dev/null || continue 2
    done
    echo "$first"
    return 0
  done
}

# A CA, a server's certificate for 127.0.0.1 and localhost, and a client's.
certificates() {
  [ ! -f "$dir/tls/ca.pem" ] || return 0
  local name new=$dir/tls.new
  rm -rf "$new" && mkdir -p "$new"
  (
    cd "$new"
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 30 -subj "/CN=Waterwheel test CA" -keyout ca.key -out ca.pem
    for name in server client; do
      openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj "/CN=$name" -keyout "$name.key" -out "$name.csr"
      openssl x509 -req -in "$name.csr" -CA ca.pem -CAkey ca.key -CAcreateserial -days 30 -out "$name.pem" \
        -extfile <(printf 'subjectAltName=IP:127.0.0.1,DNS:localhost\n')
    done
    cat server.key server.pem >keystore.pem
  ) >"$dir/tls.log" 2>&1 || die "OpenSSL could not make the certificates: $(tail -n 1 "$dir/tls.log")"
  mv "$new" "$dir/tls"
}

# Adds a listener: name, port, protocol, advertised port.
listener() {
  listeners+=,$1://127.0.0.1:$2
  advertised+=,$1://127.0.0.1:$4
  protocols+=,$1:$3
}

# Login modules of the SASL listener $1.
login_modules() {
  local user name=listener.name.${1,,} module=org.apache.kafka.common.security plain=
  for user in "${users[@]}"; do plain+=" user_${user%%:*}=\"${user#*:}\""; done
  echo "$name.sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER"
  echo "$name.plain.sasl.jaas.config=$module.plain.PlainLoginModule required$plain;"
  echo "$name.scram-sha-256.sasl.jaas.config=$module.scram.ScramLoginModule required;"
  echo "$name.scram-sha-512.sasl.jaas.config=$module.scram.ScramLoginModule required;"
  echo "$name.oauthbearer.sasl.jaas.config=$module.oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub=\"broker\";"
}

# Writes DIR/server.properties, and DIR/line, which `show` prints.
configure() {
  local listeners=PLAINTEXT://127.0.0.1:$port,CONTROLLER://127.0.0.1:$((port + 1)) advertised=PLAINTEXT://127.0.0.1:$port
  local protocols=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT line="bootstrap=127.0.0.1:$port port=$port dir=$dir log=$dir/log/server.log"
  if [ -n "$tls" ]; then
    certificates
    listener TLS $((port + 2)) SSL $((port + 2))
    line+=" tls=127.0.0.1:$((port + 2)) ca=$dir/tls/ca.pem client_cert=$dir/tls/client.pem client_key=$dir/tls/client.key"
  fi
  if [ -n "$sasl" ]; then
    listener SASL $((port + 3)) SASL_PLAINTEXT $((port + 3))
    line+=" sasl=127.0.0.1:$((port + 3)) user=${users[0]%%:*} password=${users[0]#*:}"
    if [ -n "$tls" ]; then
      listener SASL_TLS $((port + 4)) SASL_SSL $((port + 4))
      line+=" sasl_tls=127.0.0.1:$((port + 4))"
    fi
  fi
  if [ -n "$proxy_port" ]; then
    listener PROXIED $((port + 5)) PLAINTEXT "$proxy_port"
    line+=" proxied=127.0.0.1:$((port + 5))"
  fi
  {
    cat "$here/kafka/server.properties"
    echo "log.dirs=$dir/data"
    echo "controller.quorum.voters=1@127.0.0.1:$((port + 1))"
    echo "listeners=$listeners"
    echo "advertised.listeners=$advertised"
    echo "listener.security.protocol.map=$protocols"
    if [ -n "$tls" ]; then
      printf '%s\n' ssl.keystore.type=PEM "ssl.keystore.location=$dir/tls/keystore.pem" ssl.truststore.type=PEM \
        "ssl.truststore.location=$dir/tls/ca.pem" ssl.client.auth=requested
    fi
    if [ -n "$sasl" ]; then
      login_modules SASL
      [ -z "$tls" ] || login_modules SASL_TLS
    fi
    [ -z "$acl" ] || printf '%s\n' authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer super.users=User:ANONYMOUS
    [ ${#settings[@]} -eq 0 ] || printf '%s\n' "${settings[@]}"
  } >"$dir/server.properties"
  echo "$line" >"$dir/line"
}

# Prepares the data folder, with the users' SCRAM credentials.
format() {
  [ ! -f "$dir/data/meta.properties" ] || return 0
  local id user mechanism scram=()
  # A UUID as Kafka writes it; the leading letter keeps it from looking like an option.
  id=A$(head -c 16 /dev/urandom | base64 | tr '+/' '-_' | cut -c 2-22)
  if [ -n "$sasl" ]; then
    for user in "${users[@]}"; do
      for mechanism in SCRAM-SHA-256 SCRAM-SHA-512; do
        scram+=(--add-scram "$mechanism=[name=${user%%:*},password=${user#*:}]")
      done
    done
  fi
  mkdir -p "$dir/log"
  # shellcheck disable=SC2086
  $java $tool_options "-Dkafka.log.file=$dir/log/format.log" "-Dlog4j2.configurationFile=$here/kafka/log4j2.xml" -cp "$jars/*" \
    kafka.tools.StorageTool format -t "$id" -c "$dir/server.properties" "${scram[@]}" >"$dir/log/format.out" 2>&1 ||
    die "the data folder could not be prepared: $(tail -n 3 "$dir/log/format.out")"
}
