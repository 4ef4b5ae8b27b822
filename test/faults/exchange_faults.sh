#!/usr/bin/env bash
# The tests of sharded tensors see every fault of exchanges, and none where there
# is none: SOURCE_DIR TESTS FAULTY_LIBRARY
#
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
set -u
source_dir=$1
tests=$2
failures=0

# LD_PRELOAD is cut at spaces, which the path of the library may have.
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
library=$folder/faulty.so
ln -s "$3" "$library"

run() {
  STEPC_FAULT=$1 LD_PRELOAD=$library timeout 60 "$tests" --gtest_fail_fast \
    --gtest_filter='Shard.everyLayout:Shard.severalBinds:Shard.idleRank:Shard.skip' >/dev/null 2>&1
}

names=$(grep -rhoE 'STEPC_FAULT\(\s*"exchange-[a-z-]+"' "$source_dir/runtime" |
  grep -oE 'exchange-[a-z-]+' | sort -u)
[ "$(echo "$names" | wc -l)" -ge 7 ] || {
  echo "fewer than 7 faults of exchanges" >&2
  exit 1
}
run none || {
  echo "without a fault the tests fail" >&2
  exit 1
}
for name in $names; do
  if run "$name"; then
    echo "not caught: $name" >&2
    failures=$((failures + 1))
  else
    echo "caught: $name"
  fi
done
exit "$((failures != 0))"
