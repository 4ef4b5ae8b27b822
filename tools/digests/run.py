#!/usr/bin/env python3
# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Digests of what packages compute: for changes of the compiler or the runtime that must not
change a bit.

    tools/digests/run.py record                # before: writes recorded.txt
    tools/digests/run.py compare               # after: says what has another digest
    tools/digests/run.py compare came lamb     # some definitions of the zoo

Each line of recorded.txt is a case and the digest of all that it leaves: parameters, states,
kept scalars, reports, skipped steps. Any NaN is equal to any. Cases are whole steps of models in
f32, bf16 and f64 (cases.py): unsharded with awkward values, alone and behind fragments, on meshes
of one and two axes, with reproducible sums, and on devices of the driver's double, whole and in
parts. f16, masters, stochastic rounding and carried statistics are not among them.
The exit status is 1 where a digest differs or a case is missing; a definition whose text has
changed on purpose may be named with --changed, and is told apart.
"""

import argparse
import os
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
RECORDED = Path(__file__).with_name("recorded.txt")
sys.path[:0] = [
    str(ROOT / folder)
    for folder in ("test/cuda", "test/sharding", "test/exact", "test/interpreter", "frontend")
]


def read_arguments():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("what", choices=["record", "compare"])
    parser.add_argument("definitions", nargs="*", help="of the zoo (default: all)")
    parser.add_argument("--changed", default="", help="definitions, separated by commas")
    parser.add_argument("--file", type=Path, default=RECORDED)
    return parser.parse_args()


def read_recorded(path):
    return dict(line.rsplit(" ", 1) for line in path.read_text().splitlines())


def take_digests(names):
    """The digest of each case, by its name."""
    from cases import FAMILIES

    found = {}
    for name in names:
        for family in FAMILIES:
            with tempfile.TemporaryDirectory() as folder:
                for key, digest in family(name, Path(folder)):
                    assert key not in found, key
                    found[key] = digest
        print(f"{name}: {len(found)} cases until here", flush=True)
    return found


def report(found, expected, changed):
    """Prints what differs; returns the number of cases that must not."""
    wrong = 0
    for key in sorted(found.keys() | expected.keys()):
        if found.get(key) == expected.get(key):
            continue
        own = key.split()[1].partition("+")[0] in changed
        wrong += not own
        how = "not recorded" if key not in expected else "gone" if key not in found else "differs"
        print(f"{key}: {how}{', as its definition does' if own else ''}")
    same = sum(found.get(key) == digest for key, digest in expected.items())
    print(f"{same} of {len(expected)} cases have the digest of before, {wrong} wrong")
    return wrong


def main():
    from cases import DEFINITIONS

    arguments = read_arguments()
    names = arguments.definitions or DEFINITIONS
    for name in names:
        if name not in DEFINITIONS:
            sys.exit(f"'{name}' is no optimizer of the zoo: {', '.join(DEFINITIONS)}")
    found = take_digests(names)
    if arguments.what == "record":
        lines = [f"{key} {digest}\n" for key, digest in sorted(found.items())]
        arguments.file.write_text("".join(lines))
        return 0
    expected = {
        key: digest
        for key, digest in read_recorded(arguments.file).items()
        if key.split()[1].partition("+")[0] in names
    }
    return 1 if report(found, expected, arguments.changed.split(",")) else 0


if __name__ == "__main__":
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    sys.exit(main())
