# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Runs tests of this folder until one fails, and says which.

For the runtime in which STEPC_FAULT is active; test_nccl_faults.py runs it.
"""

import gc
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "cuda"))

import test_nccl_errors
import test_nccl_transfers
import test_nccl_world
from nccl_double import get_doubles


def run(test, *arguments):
    doubles = get_doubles()
    gc.collect()
    doubles.reset()
    doubles.set_patience(2)
    try:
        test(doubles, *arguments)
    except BaseException as error:  # pytest's own are no exceptions
        print(f"{test.__name__}: {str(error)[:100]}")
        sys.exit(1)


def main():
    run(test_nccl_world.test_reductions, (2, 2), 1)
    for seed in range(3):
        run(test_nccl_world.test_what_is_behind_a_round_waits_for_all_ranks, seed)
        run(test_nccl_world.test_captured_rounds, seed)
        run(test_nccl_transfers.test_captured_transfers, seed)
    run(test_nccl_errors.test_words_of_a_call_that_fails)
    run(test_nccl_errors.test_an_error_of_another_rank)


if __name__ == "__main__":
    main()
