#!/usr/bin/env bash
# Sets up, compiles AdamW, trains a small GPT with torch's fused AdamW and with
# ours, and measures the step. Takes a few minutes; writes build/demo/report.png.
#   tools/demo.sh [--steps N] [--rows N] [--rounds N]
#
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)
# shellcheck source=tools/setup/lib.sh
. "$here/setup/lib.sh"

"$here/setup/setup.sh"

begin=$SECONDS
mkdir -p "$build/demo"
echo
echo "stepc frontend/optimizers/adamw.mlir -o build/demo/adamw.stepc --time"
"$STEPC_COMPILER" "$root/frontend/optimizers/adamw.mlir" \
  -o "$build/demo/adamw.stepc" --time
echo
"$python" "$root/tools/demo/main.py" --out "$build/demo" "$@"
echo "demo: $((SECONDS - begin)) s"
