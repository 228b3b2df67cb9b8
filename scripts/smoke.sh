#!/usr/bin/env bash
# A smoke test for users' CI, in a temporary directory: create, write, stage, delete, compact, read, snapshots, manifests, verify, expire.
# Each step is compared with what it must give. ENGINE=local (default) needs no JVM; ENGINE=spark writes Monday locally, and everything
# else with the embedded Spark. PAIMON_CLI names the program.
set -euo pipefail

cli=${PAIMON_CLI:-paimon-cli}
engine=${ENGINE:-local}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
table=warehouse/shop.db/orders

run() {
  printf '$ paimon-cli' >&2
  printf ' %q' "$@" >&2
  printf '\n' >&2
  "$cli" "$@"
}

expect() {  # expect WHAT EXPECTED FOUND
  if [ "$2" != "$3" ]; then
    printf 'smoke test FAILED: %s\nexpected:\n%s\nfound:\n%s\n' "$1" "$2" "$3" >&2
    exit 1
  fi
  printf 'ok: %s\n' "$1"
}

column() { tail -n +2 | cut -d, -f"$1"; }  # a column of CSV output, without its title
total() { awk '{ sum += $1 } END { print sum + 0 }'; }
rows() { run read "$table" -o csv | tail -n +2 | sort; }
files_on_disk() { find "$table" -name 'data-*.parquet' | sort; }

printf '%s\n' id,item,amount 1,tea,3.50 2,milk,1.20 > monday.csv
printf '%s\n' id,item,amount '2,oat milk,1.90' 3,bread,2.80 > tuesday.csv
printf '%s\n' id 1 > cancelled.csv
expected=$(cat monday.csv tuesday.csv | awk -F, '$1 != "id" && $1 != 1 { last[$1] = $0 } END { for (id in last) print last[id] }' | sort)

run create "$table" -C 'id BIGINT NOT NULL' -C 'item STRING' -C 'amount DECIMAL(10, 2)' --primary-key id --bucket 2 --option write-only=true
expect "a new table has no snapshots" "" "$(run snapshots ls "$table" -o csv 2>/dev/null | column 1)"

run write "$table" monday.csv --engine local
run write "$table" tuesday.csv --engine "$engine" --stage tuesday.stage
expect "a staged write is not visible" "$(tail -n +2 monday.csv | sort)" "$(rows)"
run stage commit tuesday.stage
run write "$table" cancelled.csv --op delete --engine "$engine"
expect "reads merge the runs" "$expected" "$(rows)"

written=$(files_on_disk)
run compact "$table" --dedicated --strategy full --engine "$engine"
expect "a compaction changes no row" "$expected" "$(rows)"
expect "snapshots ls" "4 COMPACT
3 APPEND
2 APPEND
1 APPEND" "$(run snapshots ls "$table" -o csv --fields id,kind | tail -n +2 | tr ',' ' ')"

live=$(run files ls "$table" -o csv --fields file | tail -n +2 | sort)
manifests=$(run manifests ls "$table" -o csv --fields added,deleted)
added=$(column 1 <<< "$manifests" | total)
deleted=$(column 2 <<< "$manifests" | total)
expect "manifests ls: files that were added and not deleted are live" "$(grep -c . <<< "$live")" "$((added - deleted))"
expect "replaced files stay until they expire" "" "$(comm -23 <(echo "$written") <(files_on_disk))"

run expire "$table" --retain-max 1 --retain-min 1 --older-than 0s --yes
expect "expire leaves the latest snapshot" "4" "$(run snapshots ls "$table" -o csv --fields id | tail -n +2)"
expect "expire leaves the live files" "$live" "$(files_on_disk | xargs -n 1 basename | sort)"
expect "expire changes no row" "$expected" "$(rows)"
expect "verify" "0 errors, 0 warnings" "$(run verify "$table" --level full | tail -n 1 | cut -d' ' -f1-4)"
printf '%s\n' "$expected"
echo "smoke test passed"
