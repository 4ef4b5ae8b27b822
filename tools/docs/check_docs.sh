#!/usr/bin/env bash
# Checks the documents: what is generated is up to date, and every definition
# that one shows is accepted by stepc-opt.
#
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)
root=$(cd "$here/../.." && pwd -P)

python=${PYTHON:-$root/.venv/bin/python}
stepc_opt=${1:-$root/build/bin/stepc-opt}
status=0
"$python" "$here/generate.py" --check || status=1
"$python" "$here/examples.py" "$stepc_opt" || status=1
exit "$status"
