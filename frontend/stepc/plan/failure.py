# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What is said of a plan that cannot be made."""


class PlanError(ValueError):
    """The fact, then its values."""
