# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Machines that the compiler and the runtime are not made for."""

from __future__ import annotations

import platform
import sys


def why_not() -> str | None:
    """Why they cannot run here, asked when one did not; None where nothing is known."""
    if sys.platform != "linux":
        return f"stepc is made for Linux, this is {sys.platform}"
    machine = platform.machine()
    if machine != "x86_64":
        return f"stepc is made for x86-64 processors, this is {machine}"
    libc, _ = platform.libc_ver()
    if libc != "glibc":
        other = libc or "another C library"
        return (
            f"stepc is made for glibc, this Python has {other} (as Alpine has musl): use an image "
            "of Debian, Ubuntu or RHEL"
        )
    return None
