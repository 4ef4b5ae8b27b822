# shellcheck shell=bash
# What the commands of tools/ share. To be sourced; sets `root` to the top of
# the source tree and the environment that finds what was built.
#
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd -P)
build="$root/build"
venv="$root/.venv"
# shellcheck disable=SC2034 # for those who source this
python="$venv/bin/python"

export STEPC_COMPILER="$build/bin/stepc"
export STEPC_RUNTIME_LIBRARY="$build/lib/libstepc_runtime.so"
export PYTHONPATH="$root/frontend${PYTHONPATH:+:$PYTHONPATH}"

stage_pid=
trap '[ -z "$stage_pid" ] || kill -- "-$stage_pid" 2>/dev/null || true' EXIT
trap 'exit 130' INT TERM

# The last line of a log, short enough for one line of a terminal.
last_line() {
  tail -c 400 "$1" 2>/dev/null | tr '\r' '\n' | grep -v '^[[:space:]]*$' |
    tail -n 1 | cut -c 1-"${2:-60}" || true
}

# Shows that a stage is alive: on a terminal by a line that is rewritten, else
# by a line a minute.
show_progress() { # TITLE LOG SECONDS
  if [ -t 1 ]; then
    printf '\r\033[K  %-22s %4d s  %s' "$1" "$3" "$(last_line "$2")"
  elif [ "$3" -gt 0 ] && [ $(($3 % 60)) -eq 0 ]; then
    printf '  %-22s %4d s  (running)  %s\n' "$1" "$3" "$(last_line "$2")"
  fi
}

# Runs a command with its output in a log, and prints how long it took. When it
# fails, prints the end of the log too.
stage() { # TITLE LOG COMMAND...
  local title=$1 log=$2 begin=$SECONDS shown=-1 status=0
  shift 2
  mkdir -p "$(dirname "$log")"
  set -m # in a process group of its own, which an interrupt ends whole
  "$@" >"$log" 2>&1 </dev/null &
  stage_pid=$!
  set +m
  sleep 0.02
  while kill -0 "$stage_pid" 2>/dev/null; do
    if [ $((SECONDS - begin)) -ne "$shown" ]; then
      shown=$((SECONDS - begin))
      show_progress "$title" "$log" "$shown"
    fi
    sleep 0.1
  done
  wait "$stage_pid" || status=$?
  stage_pid=
  [ -t 1 ] && printf '\r\033[K'
  printf '  %-22s %4d s  ' "$title" $((SECONDS - begin))
  if [ "$status" -eq 0 ]; then
    echo ok
  else
    echo "failed ($status)"
    tail -n 40 "$log" | sed 's/^/    | /'
    echo "    the whole log: $log"
  fi
  return "$status"
}
