#!/usr/bin/env bash
# The tests of sharded tensors see every fault of exchanges, those of entries every
# fault of transfers, those of blocks that ranks share every fault of these, and none
# where there is none: SOURCE_DIR TESTS FAULTY_LIBRARY KIND, which is exchange, transfer
# or cut-codes.
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

# FAULT FILTER SECONDS: whether the tests pass.
run() {
  STEPC_FAULT=$1 LD_PRELOAD=$library timeout "$3" "$tests" --gtest_fail_fast \
    --gtest_filter="$2" >/dev/null 2>&1
}

# PREFIX LEAST FILTER
try() {
  local name names begin limit
  names=$(grep -rhoE "STEPC_FAULT\(\s*\"$1-[a-z-]+\"" "$source_dir/runtime" |
    grep -oE "$1-[a-z-]+" | sort -u)
  [ "$(echo "$names" | wc -l)" -ge "$2" ] || {
    echo "fewer than $2 faults '$1'" >&2
    exit 1
  }
  begin=$SECONDS
  run none "$3" 300 || {
    echo "without a fault the tests fail" >&2
    exit 1
  }
  # With some faults ranks wait for each other without end.
  limit=$((8 + 4 * (SECONDS - begin)))
  for name in $names; do
    if run "$name" "$3" "$limit"; then
      echo "not caught: $name" >&2
      failures=$((failures + 1))
    else
      echo "caught: $name"
    fi
  done
}

case $4 in
exchange) try exchange 7 'Shard.everyLayout:Shard.severalBinds:Shard.idleRank:Shard.skip' ;;
cut-codes) try cut-codes 4 'CutCodes.anyCutsOfAnyRanks' ;;
transfer) try transfer 13 'Transfer.*:TransferPass.*:TransferTell.*' ;;
*) exit 2 ;;
esac
exit "$((failures != 0))"
