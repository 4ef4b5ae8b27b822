# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Optimizers over processes, on Gloo. A file `X_cases.py` runs on every rank; `test_X.py`
launches it once and reports its cases."""
