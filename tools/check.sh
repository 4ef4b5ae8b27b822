#!/usr/bin/env bash
# Sets up, builds and runs every test and lint. Every part is run even when one
# before it fails. The last line says how many passed and failed; the exit status
# is non-zero when any did.
#
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)
# shellcheck source=tools/setup/lib.sh
. "$here/setup/lib.sh"

# No test may write to the user's home or depend on what is cached there.
export STEPC_CACHE_DIR="$build/check/cache"
# Hundreds of processes import the frontend, and need not compile it each.
unset PYTHONDONTWRITEBYTECODE
reports="$build/check"
rows=()
passed=0
failed=0

run_ctest() {
  (cd "$build" && ctest --output-on-failure --test-output-size-passed 1000000 --no-tests=error -j "$(nproc)" \
    --output-junit "$reports/ctest.xml")
}

run_pytest() {
  local folder folders=() cores workers
  cores=$(nproc)
  # One more than cores: some tests wait, for deadlines above all.
  workers=${STEPC_TEST_WORKERS:-$((cores < 4 ? cores + 1 : 4))}
  for folder in test/*/; do
    if compgen -G "${folder}test_*.py" >/dev/null; then folders+=("$folder"); fi
  done
  # A file stays on one worker: what its tests share, it makes once. They come in the order
  # of test/order.py.
  "$python" -m pytest -q --durations=10 -o junit_logging=no -n "$workers" --dist loadfile \
    --no-loadscope-reorder \
    --junitxml="$reports/pytest.xml" "${folders[@]}"
}

run_docs() {
  local script status=0
  for script in tools/docs/check_*; do
    [ -e "$script" ] || continue
    echo "$script"
    case "$script" in
    *.py) "$python" "$script" || status=1 ;;
    *) "$script" || status=1 ;;
    esac
  done
  return "$status"
}

# Runs a part and adds what it counted to the table.
part() { # NAME REPORT COMMAND...
  local name=$1 report=$2 begin=$SECONDS status=0 good bad
  shift 2
  stage "$name" "$reports/$name.log" "$@" || status=$?
  read -r good bad < <("$python" tools/check/counts.py "$status" "$report")
  passed=$((passed + good))
  failed=$((failed + bad))
  rows+=("$(printf '%-14s %5d s   %5d passed  %3d failed' "$name" \
    $((SECONDS - begin)) "$good" "$bad")")
}

main() {
  local row begin=$SECONDS
  "$here/setup/setup.sh"
  cd "$root"
  mkdir -p "$reports"
  rm -f "$reports"/*.xml
  echo "checks"
  part ctest "$reports/ctest.xml" run_ctest
  part pytest "$reports/pytest.xml" run_pytest
  for row in clang-format ruff shellcheck clang-tidy; do
    part "$row" - tools/lint.sh "$row"
  done
  part docs - run_docs
  echo
  printf '%s\n' "${rows[@]}"
  printf '%-14s %5d s\n\n' "all" $((SECONDS - begin))
  if [ -n "${STEPC_WITHOUT_MPI:-}" ]; then
    printf 'not checked: ranks of MPI (STEPC_WITHOUT_MPI is set)\n\n'
  fi
  if ! grep -q avx512vl /proc/cpuinfo; then
    printf 'not checked: that code for x86-64-v4 has the bits of that for x86-64-v3\n\n'
  fi
  if ! awk '/^vendor_id/ { amd = $3 == "AuthenticAMD" } /^cpu family/ { wide = amd && $4 >= 26 }
    END { exit !wide }' /proc/cpuinfo; then
    printf 'not checked: that code for x86-64-v4-512 has the bits of that for x86-64-v3\n\n'
  fi
  echo "$passed passed, $failed failed"
  [ "$failed" -eq 0 ]
}

main "$@"
