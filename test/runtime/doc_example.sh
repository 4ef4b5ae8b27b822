#!/usr/bin/env bash
# Compiles the first C program of docs/abi.md as C11, and runs it where there is
# an AdamW package: SOURCE_DIR LIBRARY BUILD_DIR [PACKAGE]
#
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
set -euo pipefail
source_dir=$1
library=$2
build_dir=$3
package=${4:-}

mkdir -p "$build_dir"
program=$build_dir/example.c
text=$(awk '/^```/ { if (inside) exit; inside = /^```c$/; next } inside' \
  "$source_dir/docs/abi.md")
[ -n "$text" ] || {
  echo "docs/abi.md has no C program" >&2
  exit 1
}
{
  echo '#include <stdio.h>'
  grep '^#include' <<<"$text"
  echo 'static float weights[768 * 3072], gradients[768 * 3072];'
  echo 'int main(void) {'
  echo 'weights[5] = 1.0f; gradients[5] = 1.0f;'
  grep -v '^#include' <<<"$text"
  printf '%s\n' 'printf("%g\n", (double)weights[5]); return 0; }'
} >"$program"
"${CC:-cc}" -std=c11 -Wall -Wextra -Wpedantic -Werror \
  -I "$source_dir/runtime/include" "$program" -o "$build_dir/example" \
  "$library" "-Wl,-rpath,$(dirname "$library")"
[ -n "$package" ] || exit 0

cp "$package" "$build_dir/adamw.stepc"
cd "$build_dir"
printed=$(./example)
# Ten steps of about lr = 0.001 each, against the gradient.
[ "$printed" = 0.9899 ] || {
  echo "docs/abi.md's program prints: $printed" >&2
  exit 1
}
