#!/usr/bin/env bash
# The floors of dialect/, passes/, tools/ and frontend/: SOURCE_DIR TOOLS_DIR
#
# Checks which of our folders each one includes, that the compiler does not link
# the runtime, and that nothing of the frontend loads MLIR into the trainer.
set -u
source_dir=$1
tools_dir=$2
failures=0

fail() {
  echo "floors: $*" >&2
  failures=$((failures + 1))
}

# allow FOLDER LEAST PATTERN: the files under FOLDER, at least LEAST of them,
# include of our headers and of others' runtimes only what PATTERN matches.
allow() {
  local folder=$1 least=$2 pattern=$3 files names
  files=$(find "$source_dir/$folder" -name '*.h' -o -name '*.cpp')
  [ "$(echo "$files" | wc -l)" -ge "$least" ] ||
    fail "$folder/ has fewer than $least files"
  names=$(echo "$files" | tr '\n' '\0' | xargs -0 grep -hoE \
    '^[[:space:]]*#[[:space:]]*include[[:space:]]*[<"][^>"]+' |
    sed -E 's/.*[<"]//' | sort -u)
  while read -r name; do
    case $name in
    mlir/* | llvm/* | lld/*) continue ;;
    */* | Python.h | cuda* | nccl*) ;;
    *) continue ;; # the standard library's
    esac
    [[ $name =~ ^($pattern)$ ]] || fail "$folder/ includes $name"
  done <<<"$names"
}

allow numerics 2 'numerics/.*'
allow dialect 15 '(dialect/.*|numerics/.*)'
# The meaning stands on the dialect alone, so that it can judge the passes; what it
# shares with the runtime is judged by its own tests.
allow dialect/reference 5 '(dialect/.*|numerics/.*)'
allow passes 30 '(dialect/[A-Za-z.]*|passes/.*|stepc/kernel_abi\.h)'
if grep -rnE '"dialect/reference/' "$source_dir/passes"; then
  fail "passes/ includes the interpreter"
fi

# The compiler knows the runtime by the header of the kernels only; the one tool
# that runs packages links it.
for tool in stepc stepc-opt stepc-lsp-server; do
  readelf -d "$tools_dir/$tool" | grep -q NEEDED ||
    fail "$tool: readelf shows no dependency"
  if readelf -d "$tools_dir/$tool" | grep -qE 'stepc_runtime|libcuda|libnccl|python'; then
    fail "$tool links the runtime, CUDA or Python"
  fi
done
readelf -d "$tools_dir/stepc-run" | grep -q stepc_runtime ||
  fail "stepc-run does not link the runtime: is this check reading anything?"

# In Python: torch below stepc/torch only, and the compiler as a process.
python_files=$(find "$source_dir/frontend/stepc" -name '*.py')
[ "$(echo "$python_files" | wc -l)" -ge 10 ] || fail "frontend/stepc has too few files"
outside=$(find "$source_dir/frontend/stepc" -name '*.py' -not -path '*/stepc/torch/*' -print0 |
  xargs -0 grep -nE '^[[:space:]]*(import|from) torch')
[ -z "$outside" ] || fail "torch is imported outside of stepc/torch: $outside"
mlir=$(echo "$python_files" | tr '\n' '\0' | xargs -0 grep -nE \
  '^[[:space:]]*(import|from) (mlir|llvmlite|xdsl)|libMLIR|libLLVM')
[ -z "$mlir" ] || fail "the frontend loads MLIR: $mlir"

[ "$failures" -eq 0 ] && echo "floors: each folder uses what it may"
exit "$((failures != 0))"
