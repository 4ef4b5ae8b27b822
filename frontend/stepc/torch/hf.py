# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Optimizers of the library ``transformers``, with a compiled step."""

from .optimizers.hf_adafactor import Adafactor

__all__ = ["Adafactor"]
