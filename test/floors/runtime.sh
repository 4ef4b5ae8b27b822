#!/usr/bin/env bash
# The runtime's floors: SOURCE_DIR LIBRARY BUILD_DIR
#
# Checks which headers runtime/ includes, what the built library needs and
# exports, and that the runtime can be built where nothing else is.
set -u
source_dir=$1
library=$2
build_dir=$3
failures=0

fail() {
  echo "floors: $*" >&2
  failures=$((failures + 1))
}

# Prints the names that the files include.
includes() {
  grep -hoE '^[[:space:]]*#[[:space:]]*include[[:space:]]*[<"][^>"]+' "$@" |
    sed -E 's/.*[<"]//'
}

files=$(find "$source_dir/runtime" -name '*.h' -o -name '*.cpp' -o -name '*.c')
[ "$(echo "$files" | wc -l)" -ge 20 ] || fail "runtime/ has too few files"
while read -r file; do
  while read -r name; do
    case $name in
    mpi/* | mpi.h)
      case $file in
      "$source_dir"/runtime/mpi/*) ;;
      *) fail "${file#"$source_dir"/} includes $name, which runtime/mpi alone may" ;;
      esac
      ;;
    cuda/* | nccl/*)
      [ -f "$source_dir/runtime/$name" ] ||
        fail "${file#"$source_dir"/} includes $name, which is not ours"
      ;;
    mlir/* | llvm/* | llvm-c/* | clang/* | Python.h | python* | pybind11/* | \
      torch/* | ATen/* | c10/* | cuda* | nccl* | dialect/* | passes/* | \
      frontend/* | tools/* | *dialect/* | *passes/*)
      fail "${file#"$source_dir"/} includes $name"
      ;;
    api/* | comm/* | core/* | cpu/* | shm/* | store/* | stepc/* | dlpack/* | numerics/*) ;;
    */*)
      case $name in
      sys/* | linux/futex.h) ;;
      *) fail "${file#"$source_dir"/} includes $name, which is not listed" ;;
      esac
      ;;
    esac
  done < <(includes "$file")
done <<<"$files"

# The core knows the interface of engines and none of them, and engines do not
# know each other: what runs on both is written once.
may_not() { # FOLDER LEAST PATTERN
  local own count
  own=$(find "$source_dir/runtime/$1" -name '*.h' -o -name '*.cpp')
  count=$(echo "$own" | wc -l)
  [ "$count" -ge "$2" ] || fail "runtime/$1 has $count files, fewer than $2"
  while read -r file; do
    while read -r name; do
      [[ $name =~ ^($3)/ ]] && fail "${file#"$source_dir"/} includes $name," \
        "which runtime/$1 may not know"
    done < <(includes "$file")
  done <<<"$own"
}
may_not core 60 'api|comm|cpu|cuda|mpi|nccl|shm'
may_not cpu 15 'api|comm|cuda|mpi|nccl|shm'
may_not cuda 12 'api|comm|cpu|mpi|nccl|shm'
may_not store 5 'api|comm|cpu|cuda|mpi|nccl|shm'
# A store knows of no plan: of the core it has errors, faults and hashes.
others=$(cat "$source_dir"/runtime/store/*.h "$source_dir"/runtime/store/*.cpp |
  grep -E '^#include "core/' | grep -vE '"core/(Status|Fault|Sha256)\.h"')
[ -z "$others" ] || fail "runtime/store includes $others"
# And nothing of theirs is named in it.
named=$(grep -nE '\b(cuda|cpu|nccl)::|#if.*CUDA' "$source_dir"/runtime/core/*.h \
  "$source_dir"/runtime/core/*.cpp)
[ -z "$named" ] || fail "runtime/core names an engine: $named"

# A user's header needs nothing that a C11 compiler does not bring, and the
# header shared with the compiler needs <stdint.h> only.
abi=$(includes "$source_dir/runtime/include/stepc/kernel_abi.h" | sort -u |
  tr '\n' ' ')
[ "$abi" = "stdint.h " ] || fail "kernel_abi.h includes $abi"
api=$(includes "$source_dir/runtime/include/stepc/stepc.h" | sort -u |
  tr '\n' ' ')
[ "$api" = "dlpack/dlpack.h stddef.h stdint.h stepc/communicator.h stepc/layout.h " ] ||
  fail "stepc.h includes $api"
for name in communicator layout; do
  own=$(includes "$source_dir/runtime/include/stepc/$name.h" | sort -u | tr '\n' ' ')
  [[ "$own" =~ ^(dlpack/dlpack.h )?"stddef.h stdint.h "$ ]] || fail "$name.h includes $own"
done
for name in cuda describe simulated shared_memory mpi nccl; do
  own=$(includes "$source_dir/runtime/include/stepc/$name.h" | tr '\n' ' ')
  [ "$own" = "stepc/stepc.h " ] || fail "$name.h includes $own"
done

needed=$(readelf -d "$library" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p')
[ -n "$needed" ] || fail "$library: readelf shows no dependency"
for name in $needed; do
  case $name in
  libgomp.so.1 | libstdc++.so.6 | libgcc_s.so.1 | libm.so.6 | libc.so.6 | \
    libdl.so.2 | libpthread.so.0 | ld-linux-x86-64.so.2) ;;
  *) fail "$library needs $name" ;;
  esac
done
if readelf -d "$library" | grep -qE 'RPATH|RUNPATH'; then
  fail "$library has a run path"
fi

symbols=$(nm -D --defined-only "$library" | awk '{ print $NF }')
[ "$(echo "$symbols" | grep -c '^stepc')" -ge 20 ] ||
  fail "$library exports too little"
others=$(echo "$symbols" | grep -v '^stepc[A-Z][A-Za-z]*$')
[ -z "$others" ] || fail "$library exports $others"
# What the headers declare is there, and nothing else.
declared=$(grep -hoE '\bstepc[A-Z][A-Za-z]*\(' \
  "$source_dir/runtime/include/stepc/stepc.h" \
  "$source_dir/runtime/include/stepc/cuda.h" \
  "$source_dir/runtime/include/stepc/codes.h" \
  "$source_dir/runtime/include/stepc/store.h" \
  "$source_dir/runtime/include/stepc/describe.h" \
  "$source_dir/runtime/include/stepc/simulated.h" \
  "$source_dir/runtime/include/stepc/shared_memory.h" \
  "$source_dir/runtime/include/stepc/nccl.h" | tr -d '(' | sort -u)
[ "$declared" = "$(echo "$symbols" | sort -u)" ] ||
  fail "the headers and the exports differ:" \
    "$(diff <(echo "$declared") <(echo "$symbols" | sort -u))"

# Alone: no compiler, no tests, no frontend's extension; and not made fast, nobody runs it.
if ! "${CMAKE_COMMAND:-cmake}" -S "$source_dir" -B "$build_dir" -G Ninja \
  -DCMAKE_BUILD_TYPE=None -DCMAKE_CXX_FLAGS=-O0 \
  -DSTEPC_BUILD_COMPILER=OFF -DSTEPC_BUILD_TESTS=OFF \
  -DCMAKE_DISABLE_FIND_PACKAGE_MPI=ON >"$build_dir.log" 2>&1 ||
  ! "${CMAKE_COMMAND:-cmake}" --build "$build_dir" --target stepc_runtime \
    >>"$build_dir.log" 2>&1; then
  fail "the runtime does not build alone:" "$(tail -5 "$build_dir.log")"
fi

[ "$failures" -eq 0 ] && echo "floors: the runtime stands on its own"
exit "$((failures != 0))"
