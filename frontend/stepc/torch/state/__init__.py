# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""States, counts and scalars that steps keep: their memory, and how they are saved and loaded."""
