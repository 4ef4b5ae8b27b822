"""What the figures were taken on.

SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""

import os
import platform
import re
import subprocess
from importlib import metadata
from pathlib import Path

PACKAGES = ("torch", "numpy", "deepspeed", "transformers", "came-pytorch", "pytorch_optimizer",
            "bitsandbytes", "torchao")  # fmt: skip


def _text(path):
    try:
        return Path(path).read_text().strip()
    except OSError:
        return ""


def _caches():
    """Sizes by level of the first core's caches, as the system says them."""
    found = {}
    for index in sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")):
        kind = _text(index / "type")
        if kind != "Instruction":
            found[f"L{_text(index / 'level')}"] = _text(index / "size")
    return found


def _version(command):
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return ""
    return done.stdout.splitlines()[0].strip()


def _packages():
    found = {}
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = None
    return found


def describe():
    cpu = re.search(r"^model name\s*:\s*(.*)$", _text("/proc/cpuinfo"), re.M)
    memory = re.search(r"^MemTotal:\s*(\d+)", _text("/proc/meminfo"), re.M)
    huge = re.search(r"\[(\w+)\]", _text("/sys/kernel/mm/transparent_hugepage/enabled"))
    return {
        "cpu": cpu.group(1) if cpu else platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
        "caches": _caches(),
        "memory_gib": round(int(memory.group(1)) / 2**20, 1) if memory else None,
        "huge_pages": huge.group(1) if huge else None,
        "kernel": platform.release(),
        "libc": " ".join(platform.libc_ver()),
        "python": platform.python_version(),
        "cc": _version(["cc", "--version"]),
        "load_average": os.getloadavg(),
        "packages": _packages(),
    }
