#!/usr/bin/env bash
# Compares what runtime/cuda/ declares of the CUDA driver with the toolkit's
# header: check_driver.sh SOURCE_DIR [INCLUDE_DIR]
#
# INCLUDE_DIR has cuda.h; without it that of CUDA_INCLUDE_DIR, CUDA_HOME or
# /usr/local/cuda. Exit status 77 where there is none (the header is in the
# package nvidia-cuda-runtime: pip download --no-deps nvidia-cuda-runtime).
set -u
source_dir=$1
include_dir=${2:-${CUDA_INCLUDE_DIR:-${CUDA_HOME:-/usr/local/cuda}/include}}
if [ ! -f "$include_dir/cuda.h" ]; then
  echo "skipped: there is no $include_dir/cuda.h"
  exit 77
fi

compile() {
  "${CXX:-c++}" -std=c++17 -fsyntax-only -Wall -Wextra "$@" \
    -isystem "$include_dir" "$source_dir/tools/gpu/check_driver.cpp"
}

compile -I "$source_dir/runtime" || exit 1
# That it can fail: a function with another parameter, a constant with another
# value, a symbol of another version.
changed=$(mktemp -d)
trap 'rm -rf "$changed"' EXIT
mkdir "$changed/cuda"
refuse() {
  cp "$source_dir"/runtime/cuda/Driver{Types.h,Symbols.def} "$changed/cuda"
  sed -i "$2" "$changed/cuda/$1"
  if cmp -s "$source_dir/runtime/cuda/$1" "$changed/cuda/$1" ||
    compile -I "$changed" 2>/dev/null; then
    echo "check_driver: '$2' in $1 is not noticed" >&2
    exit 1
  fi
}
refuse DriverSymbols.def 's/(CUmodule \*, const void \*,/(CUmodule *, void *,/'
refuse DriverSymbols.def 's/cuMemFree_v2, (CUdeviceptr)/cuMemFree_v2, (int)/'
refuse DriverSymbols.def 's/cuMemFree_v2/cuMemFree/'
refuse DriverTypes.h 's/ILLEGAL_ADDRESS, 700/ILLEGAL_ADDRESS, 701/'
echo "check_driver: $(grep -c '^STEPC_CUDA_SYMBOL' \
  "$source_dir/runtime/cuda/DriverSymbols.def") functions are those of $include_dir/cuda.h"
