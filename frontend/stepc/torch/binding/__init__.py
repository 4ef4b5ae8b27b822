# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What ties an optimizer to a plan of the runtime: rules, hyper-parameters, states, features."""
