#!/usr/bin/env bash
# A smoke test for users' CI: create, write, compact, list snapshots and read, all in a temporary directory.
# ENGINE=local (default) needs no JVM; ENGINE=spark uses the embedded Spark. PAIMON_CLI names the program.
set -euo pipefail

cli=${PAIMON_CLI:-paimon-cli}
engine=${ENGINE:-local}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
table=warehouse/shop.db/orders

run() {
  printf '$ paimon-cli'
  printf ' %q' "$@"
  printf '\n'
  "$cli" "$@"
}

printf '%s\n' '{"id":1,"item":"tea","amount":"3.50"}' '{"id":2,"item":"milk","amount":"1.20"}' > monday.json
printf '%s\n' '{"id":2,"item":"oat milk","amount":"1.90"}' '{"id":3,"item":"bread","amount":"2.80"}' > tuesday.json
printf '%s\n' '{"id":1}' > cancelled.json

run create "$table" -C 'id BIGINT NOT NULL' -C 'item STRING' -C 'amount DECIMAL(10, 2)' --primary-key id --bucket 2 --option write-only=true
run write "$table" monday.json --engine "$engine"
run write "$table" tuesday.json --engine "$engine"
run write "$table" cancelled.json --op delete --engine "$engine"
before=$(run read "$table" -o ndjson | grep '^{')
run compact "$table" --dedicated --strategy full --engine "$engine"
run snapshots ls "$table"
after=$(run read "$table" -o ndjson | grep '^{')
printf '%s\n' "$after"

expected='{"id":2,"item":"oat milk","amount":"1.90"}
{"id":3,"item":"bread","amount":"2.80"}'
normalise() { tr -d ' ' | sort; }
for rows in "$before" "$after"; do
  if [ "$(normalise <<< "$rows")" != "$(normalise <<< "$expected")" ]; then
    printf 'smoke test FAILED: these rows are wrong:\n%s\n' "$rows" >&2
    exit 1
  fi
done
echo "smoke test passed"
