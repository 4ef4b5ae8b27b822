"""Runs each pass alone, each pair of passes, and the stages with one pass left
out, on each definition: exit status 0 or 1, never a crash.

SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""

import itertools
import subprocess
import sys

PASSES = [
    "step-inline-fragments",
    "step-mark-stored",
    "step-drop-dead-states",
    "step-instantiate-variants",
    "step-resolve-options",
    "step-resolve-storage",
    "step-form-phases",
    "step-lower-scalar-phases",
    "step-lower-phases-to-cpu",
    "step-expand-powi",
    "step-expand-pow",
    "step-expand-bf16",
    "step-convert-to-llvm",
]


def orders():
    yield from ([name] for name in PASSES)
    yield from (list(pair) for pair in itertools.permutations(PASSES[:9], 2))
    for missing in PASSES:
        yield [name for name in PASSES if name != missing]


def main():
    crashes, runs, refused = [], 0, 0
    for definition, order in itertools.product(sys.argv[1:], orders()):
        command = ["stepc-opt", *(f"--{name}" for name in order), definition, "-o", "/dev/null"]
        status = subprocess.run(command, stderr=subprocess.DEVNULL).returncode
        runs, refused = runs + 1, refused + (status == 1)
        if status not in (0, 1):
            crashes.append(f"status {status}: {' '.join(command)}")
    print("\n".join(crashes))
    print(f"{runs} runs, {refused} refused, {len(crashes)} crashes")
    # Orders that make sense are among them, and orders that do not.
    sys.exit(bool(crashes) or not 0 < refused < runs)


if __name__ == "__main__":
    main()
