#!/usr/bin/env bash
# Makes ready what tools/check.sh and tools/demo.sh need: system packages, the
# Python environment in .venv, the build in build/. Does only what is missing.
#
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
set -euo pipefail

# shellcheck source=tools/setup/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
# shellcheck source=tools/setup/system.sh
. "$root/tools/setup/system.sh"

requirements="$root/tools/setup/requirements.txt"
originals="$root/tools/setup/originals.txt"

# A Python of at least 3.11 with venv and the headers of its C interface.
find_python() {
  local candidate
  for candidate in "${STEPC_PYTHON:-}" python3 /usr/bin/python3; do
    [ -n "$candidate" ] || continue
    if "$candidate" - 2>/dev/null <<'PROBE'; then
import ensurepip, os, sys, sysconfig, venv
assert sys.version_info >= (3, 11)
assert os.path.exists(os.path.join(sysconfig.get_paths()["include"], "Python.h"))
PROBE
      "$candidate" -c 'import sys; print(sys.executable)'
      return
    fi
  done
  echo "missing: a Python of at least 3.11 with venv and Python.h" >&2
  return 1
}

# What the environment was made from: our requirements, at this place.
environment_stamp() {
  (cat "$requirements" "$originals" && echo "$venv") | sha256sum | cut -c 1-64
}

install_requirements() {
  "$python" -m pip install --disable-pip-version-check -r "$requirements"
  "$python" -m pip install --disable-pip-version-check --no-deps -r "$originals"
}

require_environment() {
  local stamp="$venv/stepc-stamp" base
  if [ "$(cat "$stamp" 2>/dev/null)" = "$(environment_stamp)" ] &&
    "$python" -c '' 2>/dev/null; then
    return 0
  fi
  if ! "$python" -m pip --version >/dev/null 2>&1; then
    base=$(find_python)
    stage "Python environment" "$build/logs/venv.log" \
      "$base" -m venv --clear "$venv"
  fi
  stage "Python packages" "$build/logs/pip.log" install_requirements
  environment_stamp >"$stamp"
}

configure() {
  cmake "$@" -S "$root" -B "$build" -G Ninja \
    -DCMAKE_BUILD_TYPE=Release \
    -DPython3_EXECUTABLE="$python" \
    -DLLVM_EXTERNAL_LIT="$venv/bin/lit"
}

require_build() {
  local cache="$build/CMakeCache.txt" fresh=()
  if [ -e "$cache" ] && ! grep -qxF "CMAKE_HOME_DIRECTORY:INTERNAL=$root" "$cache"; then
    fresh=(--fresh) # the tree was moved or copied
  fi
  if [ ! -e "$build/build.ninja" ] || [ ${#fresh[@]} -gt 0 ]; then
    stage "configure" "$build/logs/configure.log" configure "${fresh[@]}"
  fi
  stage "build" "$build/logs/build.log" cmake --build "$build"
}

main() {
  echo "set-up of $root"
  require_system
  # From here on there is something to write: one set-up at a time.
  mkdir -p "$build"
  exec 9>"$build/.setup.lock"
  flock 9
  require_environment
  require_build
}

main "$@"
