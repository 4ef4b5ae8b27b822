# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The doubles of NCCL and the driver as they are at their begin."""

import gc
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "cuda"))
sys.path.insert(0, str(Path(__file__).parent))

from nccl_double import get_doubles


@pytest.fixture
def doubles():
    """Four devices; nothing of other tests is left."""
    gc.collect()
    found = get_doubles()
    found.reset()
    return found
