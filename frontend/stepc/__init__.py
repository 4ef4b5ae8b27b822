# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Stepc compiles optimizer steps.

``stepc.torch`` has the optimizers for PyTorch; this package itself imports no
torch. ``stepc.errors`` has all exceptions, ``stepc.definition`` reads
definitions and packages.
"""

from .errors import StepcError

__version__ = "0.1.0"
__all__ = ["StepcError", "__version__"]
