#!/usr/bin/env bash
# Checks that a file of step operations survives being written and read: as text
# (twice), in the generic form, with locations, and as bytecode.
#
#   round-trip.sh SCRATCH FILE...     intermediate files are SCRATCH.*
#
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
set -euo pipefail

round_trip() { # SCRATCH FILE
  local scratch=$1 file=$2
  stepc-opt "$file" -o "$scratch.text"
  stepc-opt "$scratch.text" -o "$scratch.again"
  diff "$scratch.text" "$scratch.again"

  stepc-opt "$file" -mlir-print-op-generic -o "$scratch.generic"
  stepc-opt "$scratch.generic" -o "$scratch.again"
  diff "$scratch.text" "$scratch.again"

  stepc-opt "$file" -emit-bytecode -o "$scratch.bytecode"
  stepc-opt "$scratch.bytecode" -o "$scratch.again"
  diff "$scratch.text" "$scratch.again"

  # The generic form with locations holds all there is.
  stepc-opt "$file" -mlir-print-debuginfo -o "$scratch.text"
  stepc-opt "$file" -mlir-print-debuginfo -mlir-print-op-generic -o "$scratch.generic"
  stepc-opt "$scratch.text" -mlir-print-debuginfo -mlir-print-op-generic -o "$scratch.again"
  diff "$scratch.generic" "$scratch.again"
}

scratch=$1
shift
for file in "$@"; do
  echo "$file"
  round_trip "$scratch" "$file"
done
