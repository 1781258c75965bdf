import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { type TestContext, describe, test } from "node:test";
import { pages } from "../../scripts/samples.ts";
import { skipWithoutMounts } from "../support/namespaces.ts";
import { root, runBlocks, sections } from "../support/page-blocks.ts";
import { skipWithout } from "../support/parts.ts";
import { startPostgres } from "../support/postgres.ts";
import { isSoak } from "../support/soak.ts";
import { skipWithoutPkcs11 } from "../support/softhsm.ts";

// Runs the pages' blocks verbatim, each after the events that its section describes.

/** Shell lines in which "@ SECTION" means the blocks of a section and "@2 SECTION" its second block. */
type Script = string;

interface Act {
  readonly pages: readonly string[];
  readonly script: Script;
  readonly needs?: readonly string[];
  /** Whether `npm test` runs it too. */
  readonly isShort?: boolean;
  readonly skip?: string | false;
  /** Starts a server on the system's network, which the script then uses, and returns the variables that name it. */
  readonly start?: (t: TestContext) => Promise<Readonly<Record<string, string>>>;
}

async function startDatabase(t: TestContext) {
  const server = await startPostgres();
  t.after(() => server.stop());
  server.sql("CREATE ROLE jwksd LOGIN; CREATE ROLE admin LOGIN SUPERUSER;");
  server.sql("CREATE DATABASE jwksd OWNER jwksd");
  return { PGPORT: String(server.port), JWKSD_PORT: "0", JWKSD_ADMIN: "127.0.0.1:0" };
}

/** Placeholders for readers' values. A shell function with the placeholder's name prints the value. */
const placeholder = /(?<![\w$"-])(KID|OLD|KEY-URI|URI|PID|NAME|TIME)(?![\w".-])/g;

const prelude = String.raw`
export USER=root
unset http_proxy https_proxy all_proxy HTTP_PROXY HTTPS_PROXY ALL_PROXY
# A 4xx or 5xx response is a failure.
printf 'fail-with-body\nsilent\nshow-error\n' >"$STATE/.curlrc"
export CURL_HOME=$STATE
kid() { jwksd keys --json | node -p "JSON.parse(fs.readFileSync(0)).keys.find(({ state }) => state === '$1').kid"; }
# errexit ignores a command after "!", but not the status of a function.
fails() { ! "$@"; }
refused() { fails "$@" 2>"$STATE/refusal" && grep "$code" "$STATE/refusal"; }
# Waits until the last command in the background has had an effect.
until_done() { until "$@" 2>/dev/null; do kill -0 $!; sleep 0.05; done; }
# Generates a key without jwksd.
pem() { openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -out "$1"; chmod 600 "$1"; }
# Serves https://$1 at an address that counts as public on this network, with the Caddy directives $2, and so on.
on_https() {
  ip addr add 8.8.8.8/32 dev lo
  printf '%s\n' '{ skip_install_trust' 'admin off' '}' >Caddyfile
  while [ $# -gt 0 ]; do
    printf '8.8.8.8 %s\n' "$1" >>/etc/hosts
    printf '%s\n' "$1 { tls internal" "$2" '}' >>Caddyfile
    shift 2
  done
  XDG_DATA_HOME=$PWD HOME=$PWD caddy run --config Caddyfile >caddy.log 2>&1 &
  # A copy could be taken while the file is being written.
  until_done openssl x509 -in caddy/pki/authorities/local/root.crt -out ca.pem
  export CURL_CA_BUNDLE=$PWD/ca.pem NODE_EXTRA_CA_CERTS=$PWD/ca.pem
}
# Prints the directives of the Caddy block in docs/publish.md.
caddy_block() { sed -n '/^.\{3\}caddy$/,/^}$/p' "$ROOT/docs/publish.md" | sed '1,2d;$d'; }
# Prints the JSON block on page $1 that contains $2.
json_of() { jq -Rsr --arg text "$2" 'split("\u0060\u0060\u0060")[] | select(startswith("json\n") and contains($text))[5:]' "$ROOT/$1"; }
with_clouds() {
  node "$ROOT/test/docs/clouds.ts" >clouds &
  clouds=$!
  until_done grep '# ready' clouds
  . ./clouds
}
# The pages' bucket, which is readable over https.
with_bucket() {
  with_clouds
  on_https example-issuer.s3.eu-central-1.amazonaws.com "rewrite * /example-issuer{uri}
    reverse_proxy $AWS_ENDPOINT_URL_S3"
}
# Checks that the cloud stubs refused no request.
clouds_agree() { kill $clouds && wait $clouds; }
# The sign socket for Kubernetes, and the API server's previous key.
with_former_key() {
  json_of docs/kubernetes.md '"kubernetes"' >sockets.json
  mkdir -p /etc/kubernetes/pki /etc/jwksd
  pem sa.key
  openssl pkey -in sa.key -pubout -out /etc/kubernetes/pki/sa.pub
  cp /etc/kubernetes/pki/sa.pub /etc/jwksd
}
with_softhsm() {
  mkdir tokens
  echo "directories.tokendir = $PWD/tokens" >softhsm2.conf
  export SOFTHSM2_CONF=$PWD/softhsm2.conf
}
# Runs a program as a user who is not root, but owns what root owns here: PostgreSQL refuses root.
as_user() { unshare --user --map-user=1 --map-group=1 "$@"; }
# A server whose data is in $PGDATA.
with_postgres() {
  export PATH=$(printf '%s:' /usr/lib/postgresql/*/bin)$PATH
  export PGDATA=$STATE/postgres PGHOST=127.0.0.1 PGUSER=postgres
  pg_ctl() { as_user "$(type -P pg_ctl)" "$@"; }
  as_user initdb --username postgres --auth trust --no-sync >"$STATE/initdb.log"
  echo "unix_socket_directories = '$STATE'" >>"$PGDATA/postgresql.conf"
  pg_ctl start --log="$PGDATA/log"
  psql --quiet postgres --command 'CREATE ROLE jwksd LOGIN' --command 'CREATE DATABASE jwksd OWNER jwksd'
}
# jwksd uses the database with this URL.
on_database() {
  printf '127.0.0.1 db.example\n' >>/etc/hosts
  openssl rand -base64 32 | tr '+/' '-_' >wrapping.key
  chmod 600 wrapping.key
  export JWKSD_STORE=$1 JWKSD_ISSUER=https://login.example.com JWKSD_WRAPPING_KEY_FILE=wrapping.key
}
mkdir /run/jwksd /srv/www
`;

/** Pages that operators use together. */
const operators = ["docs/operations.md", "docs/emergencies.md", "docs/alerts.md"];

interface Restoring extends Omit<Act, "pages" | "script"> {
  /** Starts the database and lets jwksd use it. */
  readonly setup: Script;
  readonly backup: Script;
  readonly restore: Script;
  /** Whether the backup has presence records. */
  readonly hasPresence?: boolean;
}

/** A backup is made, keys rotate twice, the key of the backup is revoked, and the backup is restored. */
function restoring({ setup, backup, restore, hasPresence = true, ...act }: Restoring): Act {
  const script = String.raw`
    export JWKSD_REPLICA_NAME=login-1
    ${setup}
    jwksd serve
    leaked=$(kid active)
    KID() { echo "$leaked"; }
    NAME() { echo "$JWKSD_REPLICA_NAME"; }
    ${backup}
    jwksd rotate --now --yes
    jwksd rotate --now --yes
    jwksd keys revoke "$leaked" --yes
    lost=$(kid active)
    @ Making backups
    test "$(cat revoked.txt)" = "$leaked"
    end-service
    ${restore}
    test "$(kid active)" = "$leaked"
    {
    @1 Restoring a backup
    } >said
    test "$(cat said)" = "$leaked"
    @2 Restoring a backup
    {
    @1 Restoring a backup
    } && exit 1
    ${hasPresence ? "@3 Restoring a backup" : ""}
    jwksd replicas | grep '^No replicas are listed'
    jwksd serve
    curl http://127.0.0.1:9900/jwks >set.json
    grep "$(kid active)" set.json
    fails grep -e "$leaked" -e "$lost" set.json
    jwksd rotate --now --yes
  `;
  return { ...act, pages: ["docs/backups.md"], script, needs: ["jq", "openssl", ...(act.needs ?? [])] };
}

const acts: readonly Act[] = [
  {
    pages: ["docs/start-provider.md"],
    script: String.raw`
      @1 Quick start: a provider
      cp examples/docs/provider.mjs .
      {
      @2 Quick start: a provider
      } >token &
      until_done curl http://localhost:3000/jwks
      @3 Quick start: a provider
      @4 Quick start: a provider
      grep '^eyJ' token
    `,
    needs: ["openssl"],
    isShort: true,
  },
  {
    pages: ["docs/start-api.md"],
    script: String.raw`
      cp examples/docs/guard.mjs .
      {
      @1 Quick start: an API
      } >issuer &
      until_done curl http://127.0.0.1:9400/token
      {
      @2 Quick start: an API
      } &
      until_done curl --no-fail --no-fail-with-body http://localhost:3001/orders
      rm "$CURL_HOME/.curlrc"
      {
      @3 Quick start: an API
      } >responses
      test "$(grep -c '^"alice"' responses)" = 1
      test "$(sed -n 's/^HTTP\S* //p' responses | tr -d '\r')" = "$(printf '200 OK\n401 Unauthorized\n403 Forbidden')"
    `,
  },
  {
    pages: ["docs/start-service.md"],
    script: String.raw`
      @ Quick start: the service
      test "$(jwksd keys --json --issuer https://login.example.com | grep -c '"state"')" = 2
    `,
  },
  {
    pages: ["docs/service.md"],
    script: String.raw`
      @ The service
      end-service
      @ Keys that jwksd manages
      wait $!
      curl http://127.0.0.1:9900/jwks | grep '"kid"'
      ls /etc/jwksd/wrapping.key /var/lib/jwksd/keys.db
    `,
    needs: ["openssl"],
  },
  {
    pages: ["docs/many-issuers.md"],
    script: String.raw`
      export JWKSD_ISSUER=https://login.example.com
      jwksd serve
      @ Decommissioning an issuer
      test "$(wc -l <decommissioned.txt)" -gt 3
      curl http://127.0.0.1:9900/jwks | grep '"kid"'
    `,
  },
  {
    pages: operators,
    script: String.raw`
      on_https login.example.com 'reverse_proxy 127.0.0.1:9900'
      export JWKSD_ISSUER=https://login.example.com
      jwksd serve
      PID() { cat "$STATE/first.pid"; }
      @ Routine rotation
      grep '</svg>' plan.svg
      earlier=$(kid active)
      jwksd rotate --now --yes
      @ Rolling back
      test "$(kid active)" = "$earlier"
      @ Changing the policy
      jwksd policy --json | grep '"rotateEveryDays": 30'
      @ Replicas
      @ The wrong store with the right wrapping key
      @ JwksdDown
      @ JwksdStoreUnreachable
      @ JwksdNotReady
      @ JwksdKeysUnmanaged
      @ JwksdReplicaBehind
      @ JwksdStepBlocked
      @ JwksdStepOverdue
      timedatectl() { true; }
      @ JwksdClockSkew
      @ JwksdServerErrors
      @ Wrapping keys
      test "$(wc -l <wrapping.key)" = 2
      test "$(stat -c %a wrapping.key)" = 600
      leaked=$(kid active)
      KID() { echo "$leaked"; }
      @ A leaked key
      now=$(kid active)
      test "$now" != "$leaked"
      @ JwksdUpdateRefused
    `,
    needs: ["caddy", "openssl"],
  },
  {
    pages: operators,
    script: String.raw`
      jwksd serve
      lost=$(kid active)
      # Its RFC 7638 thumbprint.
      id=$(printf '{"k":"%s","kty":"oct"}' "$(cat .jwksd/wrapping.key)" | openssl dgst -sha256 -binary | openssl base64 | tr -d = | tr '+/' '-_')
      KID() { echo "$lost"; }
      end-service
      openssl rand -base64 32 | tr '+/' '-_' >.jwksd/wrapping.key
      code=ERR_WRAPPING_KEY_MISSING
      refused jwksd serve
      # It ends with 1, because nothing was verified, and names the key.
      {
      @ JwksdWrappingKeyMissing
      } >said 2>&1 && exit 1
      grep "$id" said
      @ A lost wrapping key
      jwksd serve
      now=$(kid active)
      test "$now" != "$lost"
    `,
    needs: ["openssl"],
  },
  {
    pages: operators,
    script: String.raw`
      jwksd serve
      end-service
      sqlite3 .jwksd/keys.db "UPDATE document SET text = replace(text, 'the store was empty', 'changed by an attacker')"
      code=ERR_STORE_NOT_AUTHENTIC
      refused jwksd serve
      # What only looks ends with 1, because nothing was verified.
      {
      @ JwksdStoreNotAuthentic
      } >said 2>&1 && exit 1
      grep "$code" said
      set +e
      @ A store that is not authentic
      set -e
      jwksd keys
      jwksd serve
    `,
    needs: ["sqlite3"],
  },
  {
    pages: [...operators, "docs/many-issuers.md"],
    script: String.raw`
      on_database "postgres://jwksd@db.example:$PGPORT/jwksd"
      jwksd serve
      @ Listing issuers
      @ JwksdDueStepsFailing
      @ JwksdIssuersFailing
      { openssl rand -base64 32 | tr '+/' '-_'; cat wrapping.key; } >both
      cat both >wrapping.key
      jwksd serve
      leaked=$(kid active)
      KID() { echo "$leaked"; }
      @1 A leaked wrapping key
      successor=$(kid active)
      @2 A leaked wrapping key
      head -n 1 both >wrapping.key
      jwksd serve
      test "$(kid active)" != "$leaked"
      test "$(kid active)" != "$successor"
    `,
    needs: ["initdb", "jq", "openssl"],
    start: startDatabase,
  },
  {
    pages: ["docs/provider.md"],
    script: String.raw`
      @ Installing
      @ Keys from files
      ls keys/2026-11-01.jwk
    `,
  },
  {
    pages: ["docs/publish.md"],
    script: String.raw`
      jwksd serve --issuer https://login.example.com
      on_https login.example.com "$(caddy_block)"
      @ Publishing without a server
      grep '"kid"' /srv/www/jwks
    `,
    needs: ["caddy"],
  },
  {
    pages: ["docs/doctor.md"],
    script: String.raw`
      on_https login.example.com 'reverse_proxy 127.0.0.1:9900'
      jwksd serve --issuer https://login.example.com
      curl https://login.example.com/jwks >keys.json
      TOKEN=$(jwksd token --claim sub=alice --aud api)
      printf '#!/bin/sh\necho "%s"\n' "$TOKEN" >get-token
      chmod +x get-token
      @ ${"`jwksd doctor`"}: check an issuer's keys
      @ Rejected tokens
      @ Watching a rotation
    `,
    needs: ["caddy"],
  },
  { pages: ["docs/clients.md"], script: "@ Client keys", needs: ["openssl"] },
  { pages: ["docs/better-auth.md"], script: "@ Getting started", needs: ["openssl"] },
  { pages: ["docs/relying-party.md"], script: "@ The guard\n@ The key set" },
  {
    pages: ["docs/oidc-provider.md"],
    script: String.raw`
      @1 Getting started
      node examples/docs/oidc-provider.mts >/dev/null &
      until_done curl http://localhost:3000/jwks
      @2 Getting started
      KID() { JWKSD_DATA=. kid announced; }
      @3 Getting started
    `,
    needs: ["openssl"],
  },
  {
    pages: ["docs/migrate.md"],
    script: String.raw`
      pem key.pem
      KID() { echo now; }
      @ A PEM file behind a route
      curl http://127.0.0.1:9900/your/path | grep '"now"'
      curl --unix-socket /run/jwksd/sign.sock http://localhost/readyz
      end-service

      pem old.pem
      OLD() { echo before; }
      hydra() { jwksd keygen | jq '{keys: [.]}'; }
      kc.sh() {
        mkdir export
        pem keycloak
        jq -n --arg key "$(openssl pkey -in keycloak -outform DER | base64 -w0)" \
          '{components: {"org.keycloak.keys.KeyProvider": [{providerId: "ecdsa-generated", config: {ecdsaPrivateKey: [$key]}}]}}' \
          >export/REALM-realm.json
      }
      @1 Importing keys
      @2 Importing keys
      rm -r .jwksd
      KID() { jq -r .keys[0].kid hydra.json; }
      @3 Importing keys
      rm -r .jwksd
      @4 Importing keys
    `,
    needs: ["openssl", "jq"],
  },
  {
    pages: ["docs/sign-socket.md"],
    script: String.raw`
      @ Tokens for programs in any language
      mkdir /etc/jwksd /etc/jwksd/sign-tls
      openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=localhost -addext subjectAltName=IP:127.0.0.1 \
        -keyout /etc/jwksd/sign-tls/tls.key -out /etc/jwksd/sign-tls/tls.crt 2>/dev/null
      cp /etc/jwksd/sign-tls/tls.crt /etc/jwksd/sign-tls/ca.crt
      @ TLS on loopback
      curl --insecure --cert /etc/jwksd/sign-tls/tls.crt --key /etc/jwksd/sign-tls/tls.key https://127.0.0.1:9902/readyz
      @ Restarts, overload and rotations
      for each in a b; do curl --unix-socket /run/jwksd/$each.sock http://localhost/readyz; done
    `,
    needs: ["openssl"],
  },
  {
    pages: ["docs/signers.md"],
    script: String.raw`
      printf 1234 >pin
      chmod 600 pin
      export SO_PIN=5678
      with_softhsm
      @ PKCS#11
      KEY_URI() { echo "pkcs11:token=jwksd;object=login?module-path=/usr/lib/softhsm/libsofthsm2.so&pin-source=$PWD/pin"; }
      @1 Keys in HSMs and key services
    `,
    skip: skipWithoutPkcs11("pkcs11-tool"),
  },
  {
    pages: operators,
    script: String.raw`
      printf 1234 >pin
      chmod 600 pin
      with_softhsm
      softhsm2-util --init-token --free --label jwksd --so-pin 5678 --pin 1234
      jq -n --arg pin "$PWD/pin" >signers.json \
        '{pkcs11: {modulePath: "/usr/lib/softhsm/libsofthsm2.so", pin: {file: $pin}, token: "pkcs11:token=jwksd"}}'
      export JWKSD_SIGNERS=signers.json JWKSD_SIGNER_TYPE=pkcs11
      jwksd serve
      URI() { jwksd keys --json | jq -r '.keys[] | select(.state == "active").uri'; }
      @ JwksdSignerSlow
      @ JwksdBadSignature
      test "$(URI)" = null
      end-service
      rm -r .jwksd
      jwksd serve
      @ JwksdSignerFailing
      test "$(URI)" = null
      # The second command is in the place of the first, and is refused after it.
      fails kid announced
      {
      @ JwksdNoSuccessor
      } >said 2>&1 && exit 1
      jwksd keys --json | jq --exit-status '.keys[] | select(.state == "announced").uri'
    `,
    skip: skipWithoutPkcs11("jq"),
  },
  {
    pages: ["docs/signers.md"],
    script: String.raw`
      with_clouds
      on_https login-keys.vault.azure.net "reverse_proxy $AZURE" vault.example.com "reverse_proxy $VAULT"
      export JWKSD_SIGNERS=signers.json
      # Each says which key it has made.
      aws() { echo "$AWS_KEY"; }
      @ AWS KMS
      az() { echo "$AZURE_KEY"; }
      @ Azure Key Vault
      gcloud() { echo project; }
      @ Google Cloud KMS
      vault() { echo; }
      @ Vault and OpenBao
      KEY_URI() { echo "aws-kms:$AWS_KEY"; }
      @ Using a key
      test "$(jwksd keys --json | jq -r '.keys[] | select(.state == "active").uri')" = "$(KEY_URI)"
      jwksd rotate --signer-type aws-kms
      jwksd keys --json | jq --exit-status '.keys[] | select(.state == "announced").uri | startswith("aws-kms:")'
      clouds_agree
    `,
    needs: ["caddy", "jq"],
  },
  {
    pages: ["docs/signers.md"],
    script: String.raw`
      with_clouds
      on_https login-keys.vault.azure.net "reverse_proxy $AZURE" vault.example.com "reverse_proxy $VAULT"
      export JWKSD_SIGNERS=signers.json VAULT_ADDR=https://vault.example.com
      # Each prints the key that it has created, and records the one that it deletes.
      aws() { case $2 in create-key) echo "$AWS_KEY" ;; schedule-key-deletion) echo "$4" >>deleted ;; esac; }
      az() { case $3 in create) echo "$AZURE_KEY" ;; delete) echo "$7" >>deleted ;; esac; }
      gcloud() {
        case $4 in
        create) echo projects/project/locations/europe-west3/keyRings/login/cryptoKeys/signing/cryptoKeyVersions/1 ;;
        describe) echo ENABLED ;;
        destroy) echo "$5" >>deleted ;;
        esac
      }
      vault() { case $1 in delete) echo "$2" >>deleted ;; esac; }
      export -f aws az gcloud vault
      {
      @2 Keys in HSMs and key services
      } >reports
      test "$(grep -c '^### jwksd signer check: ok' reports)" = 4
      test "$(sed 's/check-[0-9]*$/check/' deleted)" = "$(printf '%s
' "$AWS_KEY" jwksd-signer-check 1 transit/keys/jwksd-signer-check)"
      clouds_agree
      # A key that cannot be checked is deleted too.
      fails ops/signer-check/vault
      test "$(wc -l <deleted)" = 5
    `,
    needs: ["caddy", "jq"],
  },
  {
    pages: ["docs/publish.md"],
    script: String.raw`
      with_bucket
      @ A bucket
      curl https://example-issuer.s3.eu-central-1.amazonaws.com/cluster-1/jwks | grep '"kid"'
      end-service publisher
      clouds_agree
    `,
    needs: ["caddy"],
  },
  ...["2. Keys that jwksd rotates", "2b. Alternative: a Kubernetes key file"].map((keys) => ({
    pages: ["docs/workload-identity.md"],
    script: String.raw`
      with_bucket
      json_of docs/workload-identity.md authorization_endpoint >metadata.json
      with_former_key
      kube-apiserver() { printf '%s\n' "$@" >"$STATE/kube-apiserver"; }
      kubectl() { node "$ROOT/test/docs/kubectl.ts" "$@"; }
      # They take the issuer if its documents can be read.
      aws() { curl "$4/.well-known/openid-configuration" | jq --exit-status .authorization_endpoint; }
      gcloud() { true; }
      az() { true; }
      @ 1. The bucket and the issuer
      @ ${keys}
      @ 3. Checking the setup
      @ 4. AWS
      @ 5. Google Cloud
      @ 6. Azure
      clouds_agree
    `,
    needs: ["caddy", "jq", "openssl"],
  })),
  {
    pages: ["docs/kubernetes.md"],
    script: String.raw`
      with_former_key
      rm -r /etc/jwksd
      mkdir /etc/kubernetes/manifests
      manifest=/etc/kubernetes/manifests/kube-apiserver.yaml
      cp "$ROOT/test/docs/kube-apiserver.yaml" $manifest
      kubectl() {
        sed -n 's/^    - //p' $manifest >"$STATE/kube-apiserver"
        node "$ROOT/test/docs/kubectl.ts" "$@"
      }
      signed_with() {
        {
        @2 Switching the API server
        } >header
        test "$(jq -r .kid header)" = "$1"
      }
      @ Starting jwksd
      @1 Switching the API server
      signed_with "$(kid active)"
      json_of docs/kubernetes.md '"op"' >patch.json
      node "$ROOT/test/docs/manifest.ts" patch.json "$ROOT/test/docs/kube-apiserver.yaml" $manifest
      kubeadm() { test "$1 $2" = "upgrade apply"; }
      @ kubeadm
      kind() { test "$1 $2" = "create cluster"; }
      docker() { cp "$(echo "$2" | sed 's/.*://')" "$3"; }
      @ kind
      end-service
      rm -r .jwksd
      @ Several control plane nodes
      first=$kid
      export JWKSD_ISSUER=https://kubernetes.default.svc.cluster.local
      jwksd serve --sign-config sockets.json
      signed_with "$first"
      # An API server that is not switched yet accepts that kid, and so does each one after all are switched back.
      on_key_file() {
        flags="--service-account-signing-key-file=$PWD/shared.key\n    - --service-account-key-file=$PWD/shared.pub"
        sed -i "s#--service-account-signing-[a-z-]*=.*#$flags#" $manifest
        signed_with "$1"
      }
      cp $manifest switched.yaml
      on_key_file "$first"
      cp switched.yaml $manifest
      rm shared.key
      pem shared.key
      openssl pkey -in shared.key -pubout -out shared.pub
      kid=$(openssl pkey -in shared.key -pubout -outform DER | openssl dgst -sha256 -binary | openssl base64 | tr '+/' '-_' | tr -d =)
      @1 Going back
      test "$(kid announced)" = "$kid"
      on_key_file "$kid"
      @2 Going back
      cmp $manifest "$ROOT/test/docs/kube-apiserver.yaml"
    `,
    needs: ["jq", "openssl"],
  },
  {
    pages: ["docs/store-postgres.md"],
    script: String.raw`
      printf '127.0.0.1 db.example\n' >>/etc/hosts
      @ Keys in PostgreSQL
      end-service
      @ Privileges
      psql --quiet postgres://jwksd@db.example/jwksd --command 'DROP SCHEMA jwksd CASCADE'
      rm -r .jwksd
      export JWKSD_WRAPPING_KEY_FILE=wrapping.key
      jwksd serve --issuer https://login.example.com
      end-service
      @ Moving keys from a SQLite store
    `,
    needs: ["initdb", "psql", "openssl"],
    start: startDatabase,
  },
  restoring({ setup: "", backup: "@1 SQLite", restore: "@2 SQLite", needs: ["sqlite3"] }),
  {
    pages: ["docs/backups.md"],
    script: String.raw`
      export JWKSD_ISSUER=https://login.example.com
      on_https login.example.com "$(caddy_block)"
      jwksd serve
      end-service
      @1 SQLite
      jwksd rotate --now --yes
      jwksd publish /srv/www
      @2 SQLite
      code=ERR_KID_UNMANAGED
      refused jwksd publish /srv/www
      @4 Restoring a backup
      curl https://login.example.com/jwks | grep "$(kid active)"
    `,
    needs: ["caddy", "sqlite3"],
  },
  restoring({
    setup: String.raw`
      with_postgres
      on_database postgres://jwksd@db.example/jwksd
    `,
    backup: "@1 PostgreSQL",
    restore: "@2 PostgreSQL",
    needs: ["initdb", "pg_dump"],
  }),
  restoring({
    setup: String.raw`
      with_postgres
      sed -n '/^.\{3\}ini$/,/^.\{3\}$/p' "$ROOT/docs/backups.md" | sed '1d;$d' >>"$PGDATA/postgresql.conf"
      mkdir -p /var/backups
      mount -t tmpfs tmpfs /var/backups
      mkdir /var/backups/wal
      pg_ctl restart --log="$PGDATA/log"
      on_database postgres://jwksd@db.example/jwksd
    `,
    backup: String.raw`
      @1 Point-in-time recovery
      time=$(psql --no-align --tuples-only --command 'SELECT clock_timestamp()' postgres)
      TIME() { echo "$time"; }
    `,
    restore: "@2 Point-in-time recovery",
    needs: ["initdb", "pg_basebackup"],
  }),
  restoring({
    setup: String.raw`
      export HOME=$PWD
      as_root="--no-defaults --datadir=/var/lib/mysql --user=root"
      mariadb-install-db $as_root --auth-root-authentication-method=normal --skip-test-db --skip-name-resolve >mariadb.log
      mariadbd $as_root --socket="$PWD/socket" --pid-file="$PWD/pid" >>mariadb.log 2>&1 &
      until_done mariadb --no-defaults --socket="$PWD/socket" --user=root --execute \
        "CREATE DATABASE jwksd; CREATE USER jwksd IDENTIFIED BY 's3cret'; GRANT ALL ON jwksd.* TO jwksd"
      printf '[client]\nuser=jwksd\npassword=s3cret\n' >.my.cnf
      on_database mysql://jwksd:s3cret@db.example/jwksd
    `,
    backup: "@1 MySQL and MariaDB",
    restore: "@2 MySQL and MariaDB",
    needs: ["mariadbd", "mysqldump"],
  }),
  ...["RDB", "AOF"].map((kind) =>
    restoring({
      setup: String.raw`
        mkdir /var/lib/redis
        export REDISCLI_AUTH=s3cret
        systemctl() { "$1"_redis; }
        start_redis() {
          redis-server --dir /var/lib/redis --appendonly yes --appendfsync always --requirepass s3cret >redis.log &
          redis=$!
          until_done redis-cli -h db.example ping
        }
        stop_redis() { kill "$redis" && wait "$redis"; }
        on_database redis://:s3cret@db.example/0
        start_redis
      `,
      backup: `@1 ${kind}`,
      restore: `@2 ${kind}`,
      needs: ["redis-server"],
    }),
  ),
  restoring({
    setup: String.raw`
      declare -A address=([a]=127.0.0.1 [b]=127.0.0.2 [c]=127.0.0.3) etcd
      cluster=a=http://a.example:2380,b=http://b.example:2380,c=http://c.example:2380
      mkdir /var/lib/etcd
      systemctl() { "$1"_etcd; }
      start_etcd() {
        local clients=http://${"${address[$NAME]}"}:2379 peers=http://${"${address[$NAME]}"}:2380
        etcd --name "$NAME" --data-dir "/var/lib/etcd/$NAME" --initial-cluster "$cluster" --log-level error \
          --listen-client-urls "$clients" --advertise-client-urls "http://$NAME.example:2379" \
          --listen-peer-urls "$peers" --initial-advertise-peer-urls "http://$NAME.example:2380" &
        etcd[$NAME]=$!
      }
      stop_etcd() { kill "${"${etcd[$NAME]}"}"; wait "${"${etcd[$NAME]}"}" || true; }
      for NAME in a b c; do
        echo "${"${address[$NAME]}"} $NAME.example" >>/etc/hosts
        start_etcd
      done
      on_database etcd://a.example:2379,b.example:2379,c.example:2379
      until_done env ETCDCTL_API=3 etcdctl --endpoints=http://a.example:2379 endpoint health
    `,
    backup: "@1 etcd",
    restore: String.raw`
      for NAME in a b c; do
      @2 etcd
      done
      for NAME in a b c; do
      @3 etcd
      done
      for NAME in a b c; do
      @4 etcd
      done
      until_done env ETCDCTL_API=3 etcdctl --endpoints=http://a.example:2379 endpoint health
    `,
    needs: ["etcd", "etcdctl"],
  }),
  restoring({
    setup: String.raw`
      libsql() {
        node --input-type=module --eval "import { startLibsql } from '$ROOT/test/support/libsql.ts';
          console.log(await startLibsql({ after() {} }))" >"$1" &
        until_done grep http "$1"
      }
      libsql old
      libsql new
      on_https db.example "reverse_proxy $(cat old)" new.example "reverse_proxy $(cat new)"
      on_database libsql://db.example
      sed -i '/^127.* db.example$/d' /etc/hosts
    `,
    backup: String.raw`
      end-service
      @1 libSQL
      jwksd serve
    `,
    restore: String.raw`
      export JWKSD_STORE=libsql://new.example
      @2 libSQL
    `,
    hasPresence: false,
    needs: ["caddy"],
  }),
  {
    pages: ["docs/guard.md"],
    script: String.raw`
      cp "examples/docs/orders.py" "examples/docs/orders.conf" .
      listens() { (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }
      python3() {
        command python3 "$@" &
        until_done listens 8000
      }
      mkdir /var/lib/nginx /etc/jwksd
      # Only root exists in this namespace, and it does not own the system's log.
      mount -t tmpfs tmpfs /var/log/nginx
      sed -i 's/^user .*/user root;/' /etc/nginx/nginx.conf
      nginx
      @1 Getting started
      @2 Getting started
      @3 Getting started
      @4 Getting started
      until listens 8080; do sleep 0.05; done
      set +e
      {
      @5 Getting started
      } >said
      set -e
      grep '^HTTP/1.1 401 ' said
      grep -i '^www-authenticate: Bearer realm="https://api.example.com", scope="orders:read"' said
      grep "orders of ('http://127.0.0.1:9400', 'bob')" said
      grep 'the token needs the scope orders:read' said
      json_of docs/guard.md '"hosts"' >guard.json
      @ Configuration
      systemctl() { true; }
      @ DPoP and client certificates
      @ Operations
      nginx -s stop
    `,
    needs: ["nginx", "python3", "openssl"],
  },
  {
    pages: ["docs/metrics.md"],
    script: String.raw`
      jwksd serve
      @ Metrics
      curl http://127.0.0.1:9901/metrics | grep '^jwksd_'
    `,
  },
];

/** Sections whose blocks are not run here: the test that runs them, or the reason why none does. */
const elsewhere: Readonly<Record<string, Readonly<Record<string, string>>>> = {
  "README.md": { jwksd: "test/ops/scripts.test.ts" },
  "CONTRIBUTING.md": { Contributing: ".ci/run" },
  "docs/better-auth.md": {
    "Keys in better-auth's database": "test/contract/store.better-auth.test.ts",
    "Taking over existing keys": "test/docs/better-auth.test.ts",
  },
  "docs/install.md": {
    npm: "test/package/package.test.ts",
    "The archive": "test/package/archive.test.ts",
    "Help and completion": "test/cli/completion.test.ts",
    "The image": "test/ops/deployments.test.ts",
    systemd: "test/ops/deployments.test.ts",
    Compose: "test/ops/deployments.test.ts",
    Kubernetes: "test/ops/deployments.test.ts",
  },
  "docs/model/README.md": { "A model of the freshness rule": "test/model" },
  "docs/oidc-provider.md": { "Existing keys": "test/docs/samples.test.ts" },
  "docs/on-demand.md": {
    "Workers with D1": "it deploys at Cloudflare",
    "Commands for Workers": "test/runtime/demand.test.ts",
  },
  "docs/stores.md": {
    MySQL: "test/contract/store.mysql.test.ts",
    Redis: "test/contract/store.redis.test.ts",
    libSQL: "test/contract/store.libsql.test.ts",
    D1: "it makes a database at Cloudflare",
  },
  "docs/testing.md": { "Other languages": "test/testing/issuer.test.ts" },
};

const marker = /^ *@(\d*) (.+)$/gm;

/** Returns the blocks that a script's line names. */
function named(blocks: ReadonlyMap<string, readonly string[]>, number: string, section: string): readonly string[] {
  const all = blocks.get(section);
  assert.ok(all !== undefined && all.length > 0, `no section "${section}" with blocks`);
  return number === "" ? all : [all[Number(number) - 1] ?? assert.fail(`${section} has no block ${number}`)];
}

/** Returns the blocks of pages whose sections have different names. */
async function sectionsOf(pages: readonly string[]): Promise<ReadonlyMap<string, readonly string[]>> {
  const all = await Promise.all(pages.map((page) => sections(page)));
  return new Map(all.flatMap((blocks) => Array.from(blocks)));
}

test("each code block is run by this file or by another test", async () => {
  for (const page of pages) {
    const blocks = await sections(page);
    const run = new Set<string>();
    for (const { pages, script } of acts.filter(({ pages }) => pages.includes(page))) {
      const all = await sectionsOf(pages);
      for (const [, number = "", section = ""] of script.matchAll(marker))
        for (const block of named(all, number, section)) run.add(block);
    }
    const others = [...blocks].filter(([, blocks]) => !blocks.every((block) => run.has(block)));
    const known = elsewhere[page] ?? {};
    assert.deepEqual(others.map(([title]) => title).toSorted(), Object.keys(known).toSorted(), page);
    for (const [title, where] of Object.entries(known)) {
      if (!where.endsWith(".test.ts")) continue;
      const text = await readFile(join(root, where), "utf8");
      if (page === "docs/install.md" && where.startsWith("test/ops")) assert.ok(text.includes(`"${title}"`), title);
    }
  }
});

const isSkipped = skipWithoutMounts("the code blocks in the pages") || skipWithout("bash", "ip", "curl");

// Each command is a process, so only npm run soak runs all of them.
describe("a page's code blocks work as written", { skip: isSkipped }, () => {
  for (const { pages, script, needs = [], skip = false, start } of acts.filter(({ isShort }) => isSoak || isShort)) {
    const first = [...script.matchAll(marker)].map(([, , section]) => section).slice(0, 2);
    test(`${pages[0]}: ${first.join(", ")}`, { skip: skipWithout(...needs) || skip }, async (t) => {
      const blocks = await sectionsOf(pages);
      const lines = script.replaceAll(marker, (_, number: string, section: string) =>
        named(blocks, number, section)
          .join("\n")
          .replaceAll(placeholder, (word) => `"$(${word.replace("-", "_")})"`),
      );
      const stage = start === undefined ? {} : { env: await start(t), isOnNetwork: true };
      await runBlocks(t, [prelude, lines], { ...stage, programs: ["test/docs/stand-ins"] });
    });
  }
});
