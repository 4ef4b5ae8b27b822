# shellcheck shell=bash
# What the system must have: is it there, and may we install it? To be sourced
# after lib.sh.
#
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

# shellcheck disable=SC2154 # lib.sh sets root and build
packages_file="$root/tools/setup/packages.txt"

# Prints "Debian 12" or the like.
system_name() {
  (
    # shellcheck source=/dev/null
    . /etc/os-release 2>/dev/null
    echo "${NAME:-$(uname -s)} ${VERSION_ID:-}" | sed 's, GNU/Linux,,'
  )
}

is_debian_12() {
  [ "$(system_name)" = "Debian 12" ] && command -v dpkg-query >/dev/null
}

# What of the processor is missing, one word each. Kernels are made for
# x86-64-v3.
missing_processor_features() {
  local flags feature
  if [ "$(uname -m)" != x86_64 ]; then
    echo "x86-64 (this is $(uname -m))"
    return
  fi
  flags=" $(grep -m 1 '^flags' /proc/cpuinfo | cut -d : -f 2) "
  for feature in avx avx2 bmi1 bmi2 f16c fma abm movbe; do
    case "$flags" in *" $feature "*) ;; *) echo "$feature" ;; esac
  done
}

# The packages that are not installed, one a line. Needs no network.
missing_packages() {
  local package probe
  local -A installed=()
  if is_debian_12; then
    while read -r package _; do
      installed[$package]=1
    done < <(dpkg-query -W -f '${binary:Package} ${db:Status-Status}\n' |
      sed -n 's/:[a-z0-9]* installed$//p; s/ installed$//p')
    while read -r package _; do
      [ -n "${installed[$package]:-}" ] || echo "$package"
    done < <(package_lines)
    return
  fi
  while read -r package probe; do
    case "$probe" in
    command:*) command -v "${probe#command:}" >/dev/null || echo "$package" ;;
    file:*) [ -e "${probe#file:}" ] || echo "$package" ;;
    esac
  done < <(package_lines)
}

package_lines() { grep -v -e '^#' -e '^$' "$packages_file"; }

# Prints how to become root, "" when we are; fails when we may not. sudo asks
# for a password only where there is a terminal to ask at.
root_command() {
  [ "$(id -u)" -eq 0 ] && return 0
  command -v sudo >/dev/null || return 1
  if sudo -n true 2>/dev/null; then
    echo "sudo -n"
  elif [ -t 0 ] && sudo -v; then
    echo "sudo"
  else
    return 1
  fi
}

apt_install() { # HOW-TO-BECOME-ROOT PACKAGE...
  local how=$1
  shift
  # $how is "", "sudo" or "sudo -n": split on purpose.
  # shellcheck disable=SC2086
  $how env DEBIAN_FRONTEND=noninteractive apt-get update &&
    $how env DEBIAN_FRONTEND=noninteractive apt-get install -y \
      --no-install-recommends "$@"
}

# Makes the system fit, or says in one line each what is missing.
require_system() {
  local lacks=() packages=() line how
  while read -r line; do lacks+=("$line"); done < <(missing_processor_features)
  if [ ${#lacks[@]} -gt 0 ]; then
    printf 'missing: processor feature %s\n' "${lacks[@]}" >&2
    return 1
  fi
  while read -r line; do packages+=("$line"); done < <(missing_packages)
  [ ${#packages[@]} -eq 0 ] && return 0
  if ! is_debian_12; then
    printf 'missing: %s\n' "${packages[@]}" >&2
    echo "missing: Debian 12 (this is $(system_name)); install the above by hand" >&2
    return 1
  fi
  if ! how=$(root_command); then
    printf 'missing: package %s\n' "${packages[@]}" >&2
    echo "missing: the right to install them (run as root, or as a user with sudo)" >&2
    return 1
  fi
  echo "  to install: ${packages[*]}"
  stage "system packages" "$build/logs/apt.log" apt_install "$how" "${packages[@]}"
}
