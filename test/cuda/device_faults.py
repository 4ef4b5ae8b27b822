# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Runs tests of this folder until one fails, and says which:

    device_faults.py ADAMW SCALED DADAPT LAMB PARTLY MAXIMA CARRIED SOAP ENTRIES

of which each is the package of the fixture.

For the runtime in which STEPC_FAULT is active; test_device_faults.py runs it.
"""

import gc
import inspect
import sys
from pathlib import Path

import test_device_calls
import test_device_carried
import test_device_codes
import test_device_entries
import test_device_errors
import test_device_graphs
import test_device_ranks
import test_device_rounds
import test_device_steps
from device_models import DeviceMemory, Memory, Model
from double import get_double
from stepc._runtime import Package


def make_models(package, double):
    stream = double.make_stream()
    device = Model(package, DeviceMemory(double), stream=stream)
    device.stream = stream
    return Model(package, Memory()), device


def run(package, test, *arguments):
    double = get_double()
    gc.collect()
    double.reset()
    try:
        if test.__module__ == "test_device_graphs":
            test(*arguments, make_models(package, double), double)
        elif "models" in inspect.signature(test).parameters:
            test(test_device_rounds.make_streamed(package, double), double)
        elif test.__module__ == "test_device_entries":
            test({"whole": (test_device_entries.make_whole(), package)}, *arguments, double)
        elif test.__module__ in ("test_device_carried", "test_device_ranks"):
            test(package, double, *arguments)
        elif test.__module__ == "test_device_rounds":
            test(double, package)
        else:
            test(*arguments, package, double)
    except BaseException as error:  # pytest's own are no exceptions
        print(f"{test.__name__}: {str(error)[:100]}")
        sys.exit(1)


def main():
    package, scaled, dadapt, lamb, partly, maxima, carried, soap, entries = (
        Package.from_bytes(Path(path).read_bytes()) for path in sys.argv[1:]
    )  # fmt: skip
    run(package, test_device_steps.test_nothing_is_told_twice)
    run(package, test_device_steps.test_a_step_waits_for_nothing_and_allocates_nothing)
    run(package, test_device_steps.test_hypers_of_groups)
    run(package, test_device_steps.test_tensors_without_gradients)
    run(package, test_device_steps.test_what_moves_is_seen)
    run(package, test_device_steps.test_two_devices)
    run(package, test_device_codes.test_steps, ("q8",))
    run(package, test_device_graphs.test_replayed_steps)
    run(package, test_device_graphs.test_what_a_capture_refuses)
    run(package, test_device_graphs.test_a_plan_that_goes_in_a_capture)
    run(package, test_device_errors.test_a_store_that_fails_is_made_again)
    run(package, test_device_errors.test_a_kernel_that_faults)
    run(package, test_device_errors.test_launches_of_a_step, 1)
    run(package, test_device_errors.test_gradients_elsewhere)
    run(package, test_device_graphs.test_counts_are_set_after_launches)
    run(package, test_device_graphs.test_steps_beside_a_graph_have_their_own_gradients)
    for change in ("gradient", "bind"):
        run(package, test_device_graphs.test_graphs_from_before_do_nothing, change)
    run(dadapt, test_device_rounds.test_groups_have_their_own_statistics)
    run(scaled, test_device_rounds.test_skipped_steps)
    run(scaled, test_device_rounds.test_groups_and_tensors_are_added)
    run(scaled, test_device_codes.test_skipped_steps)
    run(lamb, test_device_ranks.test_skipped_steps)
    run(lamb, test_device_ranks.test_idle_tensors)
    run(partly, test_device_ranks.test_groups_of_other_ranks)
    run(lamb, test_device_ranks.test_a_graph_keeps_what_its_calls_name)
    run(lamb, test_device_ranks.test_waiting_fails)
    run(maxima, test_device_ranks.test_maxima)
    run(carried, test_device_carried.test_what_others_write_is_told)
    run(carried, test_device_carried.test_what_is_not_told_is_found)
    run(soap, test_device_calls.test_bits_and_what_is_called)
    run(entries, test_device_entries.test_the_bits_of_one_process, "whole")
    run(entries, test_device_entries.test_a_graph)
    run(entries, test_device_entries.test_steps_beside_a_graph)


if __name__ == "__main__":
    main()
