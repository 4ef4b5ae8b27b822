#!/usr/bin/env bash
# Checks form and finds common mistakes in the tracked files.
#   tools/lint.sh                 everything
#   tools/lint.sh PART...         of clang-format, clang-tidy, ruff, shellcheck
#   tools/lint.sh --fix           formats C, C++ and Python files in place
# Exit status: 0 when nothing was found.
#
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
set -euo pipefail

# shellcheck source=tools/setup/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/setup/lib.sh"
cd "$root"

# Tracked files, and new ones that git does not ignore, that exist.
tracked() { # PATTERN...
  git ls-files -z --cached --others --exclude-standard -- "$@" |
    while IFS= read -r -d '' file; do
      [ ! -f "$file" ] || printf '%s\0' "$file"
    done
}

# Files of others are kept as they came.
c_files() { tracked '*.c' '*.h' '*.cpp' '*.hpp' ':!runtime/include/dlpack/*'; }

lint_clang_format() {
  c_files | xargs -0 --no-run-if-empty clang-format-22 --dry-run -Werror
}

lint_clang_tidy() {
  tracked '*.c' '*.cpp' ':!test/*' |
    xargs -0 "$python" tools/lint/clang_tidy.py --build "$build"
}

lint_ruff() {
  local status=0
  "$python" -m ruff check --quiet . || status=1
  "$python" -m ruff format --quiet --check --diff . || status=1
  return "$status"
}

lint_shellcheck() {
  { tracked '*.sh' && printf '.ci/run\0'; } | xargs -0 shellcheck -x
}

fix() {
  c_files | xargs -0 --no-run-if-empty clang-format-22 -i
  "$python" -m ruff check --quiet --fix . || true
  "$python" -m ruff format --quiet .
}

main() {
  local part status=0
  if [ "${1:-}" = --fix ]; then
    fix
    return
  fi
  [ $# -gt 0 ] || set -- clang-format clang-tidy ruff shellcheck
  for part in "$@"; do
    case "$part" in
    clang-format | clang-tidy | ruff | shellcheck) ;;
    *)
      echo "unknown part '$part'; see the head of tools/lint.sh" >&2
      return 2
      ;;
    esac
    "lint_${part//-/_}" || {
      echo "lint: $part found something" >&2
      status=1
    }
  done
  return "$status"
}

main "$@"
