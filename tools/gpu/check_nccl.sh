#!/usr/bin/env bash
# Compares what runtime/nccl/ declares of NCCL with its header and its library:
# check_nccl.sh SOURCE_DIR [NCCL_DIR [CUDA_INCLUDE_DIR]]
#
# NCCL_DIR has include/nccl.h and lib/libnccl.so.2; without it NCCL_HOME or
# /usr. CUDA_INCLUDE_DIR has cuda_runtime.h, which nccl.h includes; without it
# that of CUDA_INCLUDE_DIR, CUDA_HOME or /usr/local/cuda. Exit status 77 where
# one of the headers is not there. All is in packages: pip download --no-deps
# nvidia-nccl-cu13 nvidia-cuda-runtime nvidia-cuda-crt nvidia-cuda-cccl.
set -u
source_dir=$1
nccl_dir=${2:-${NCCL_HOME:-/usr}}
cuda_dir=${3:-${CUDA_INCLUDE_DIR:-${CUDA_HOME:-/usr/local/cuda}/include}}
for header in "$nccl_dir/include/nccl.h" "$cuda_dir/cuda_runtime.h"; do
  if [ ! -f "$header" ]; then
    echo "skipped: there is no $header"
    exit 77
  fi
done
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

compile() {
  "${CXX:-c++}" -std=c++17 -Wall -Wextra "$@" -isystem "$cuda_dir" \
    -isystem "$nccl_dir/include" "$source_dir/tools/gpu/check_nccl.cpp" -ldl
}

compile -I "$source_dir/runtime" -o "$work/check" || exit 1
# That it can fail: a function with another parameter or result, a constant with
# another value, a structure with another field.
mkdir "$work/nccl"
refuse() {
  cp "$source_dir"/runtime/nccl/Nccl{Types.h,Symbols.def} "$work/nccl"
  sed -i "$2" "$work/nccl/$1"
  if cmp -s "$source_dir/runtime/nccl/$1" "$work/nccl/$1" ||
    compile -I "$work" -fsyntax-only 2>/dev/null; then
    echo "check_nccl: '$2' in $1 is not noticed" >&2
    exit 1
  fi
}
refuse NcclSymbols.def 's/(ncclComm_t, int, int, ncclComm_t \*,/(ncclComm_t, long, int, ncclComm_t *,/'
refuse NcclSymbols.def 's/ncclGetErrorString, const char \*/ncclGetErrorString, char */'
refuse NcclTypes.h 's/ncclFloat64, 8/ncclFloat64, 7/'
refuse NcclTypes.h 's/  int blocking;/  long blocking;/'
refuse NcclTypes.h 's/internal\[128\]/internal[64]/'
echo "check_nccl: $(grep -c '^STEPC_NCCL_SYMBOL' \
  "$source_dir/runtime/nccl/NcclSymbols.def") functions are those of $nccl_dir/include/nccl.h"

library=$nccl_dir/lib/libnccl.so.2
if [ -f "$library" ]; then
  version=$("$work/check" "$library") || exit 1
  echo "check_nccl: $library, version $version, has them"
else
  echo "check_nccl: there is no $library"
fi
