# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Where the modules are that the tests use."""

import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parent)]
