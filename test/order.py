# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""In which order files of tests are run: the longest first, so that at the end of the check no
process works on one of them while the others have none. Those of many processes, and those that
wait for deadlines, come between others. New files that take half a minute belong here."""

LONGEST = [
    "distributed/test_timeout.py",
    "docs/test_tutorials.py",
    "faults/test_faults.py",
    "distributed/test_killed.py",
    "install/test_wheel.py",
    "tools/test_gpu_kit.py",
    "distributed/test_works.py",
    "fuzz/test_fuzz.py",
    "fuzz/test_ranks.py",
    "distributed/test_dtensor.py",
    "bench/test_bench_smoke.py",
    "frontend/test_modes.py",
    "distributed/test_zero_matrices.py",
    "ptx/test_tiles.py",
    "frontend/test_galore.py",
    "distributed/test_owners.py",
    "cuda/test_device_faults.py",
    "frontend/test_muon.py",
    "distributed/test_models.py",
    "sharding/test_names.py",
    "exact/test_sizes.py",
    "distributed/test_cuda_zero.py",
    "cuda/test_device_steps.py",
    "distributed/test_cuda_layouts.py",
    "frontend/test_torch_suite_around.py",
    "distributed/test_transfers.py",
    "cuda/test_device_errors.py",
    "distributed/test_colossal.py",
    "sharding/test_entries.py",
    "distributed/test_cuda_knobs.py",
    "frontend/test_cpu_targets.py",
    "distributed/test_leaving.py",
    "cuda/test_kit.py",
    "distributed/test_checkpoint.py",
    "frontend/test_written_out.py",
    "distributed/test_empty.py",
    "tools/test_vit_hybrid.py",
    "placement/test_stored_steps.py",
    "distributed/test_stored.py",
    "frontend/test_checkpoint_layouts.py",
]
_PLACES = {file: place for place, file in enumerate(LONGEST)}


def place(item):
    """Of a test of pytest: a key to sort by, which leaves what a file has together."""
    return _PLACES.get("/".join(item.path.parts[-2:]), len(LONGEST))
