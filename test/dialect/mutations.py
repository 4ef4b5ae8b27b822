# Feeds stepc-opt definitions with tokens deleted, doubled, swapped and replaced:
# each is either refused with a diagnostic, or printed as something that means
# the same when it is read again. None crashes.
#
#   mutations.py STEPC_OPT FILE... [--count N] [--seed N]
#
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
import argparse
import random
import re
import subprocess
import sys
from pathlib import Path

TOKEN = re.compile(r'//[^\n]*\n|"[^"\n]*"|[%@!#^]?[\w.$]+|\s+|.', re.DOTALL)
SPLIT = "\n// -----\n"
BATCH = 50  # definitions in one run of stepc-opt
# Words that stand where they should not.
STRANGE = ["*", "1", "-1", "0x7FF8000000000000", '""', "[", "]", "mask[*]", "i1", "f32", "f64"]
STRANGE += ["state", "count", "fresh", "param", "if", "as", "%none", "@x", "!step.tensor<n>"]
STRANGE += ["step.return", "step.stored", "99999999999999999999", "{", "}", "=", "dense<1.0>"]


def alike(one, other):
    return one.split(".")[0] == other.split(".")[0] if "step." in one else one[0] == other[0]


def mutate(tokens, rng):
    """A copy of the tokens with one to three changes."""
    tokens = list(tokens)
    words = [i for i, token in enumerate(tokens) if not token.isspace() and token[:2] != "//"]
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        here, there = rng.choice(words), rng.choice(words)
        change = rng.randrange(8)
        if change == 0:
            tokens[here] = " "
        elif change == 1:
            tokens[here] = f"{tokens[here]} {tokens[here]}"
        elif change == 2:
            tokens[here], tokens[there] = tokens[there], tokens[here]
        elif change == 3:
            tokens[here] = tokens[there]
        elif change == 4:
            tokens[here] = rng.choice(STRANGE)
        else:  # of the same sort, which is often valid
            tokens[here] = rng.choice([tokens[i] for i in words if alike(tokens[i], tokens[here])])
    return "".join(tokens)


def run(stepc_opt, text, *options):
    command = [stepc_opt, "-split-input-file", "-output-split-marker=// -----", *options]
    command += ["-allow-unregistered-dialect", "-"]
    return subprocess.run(command, input=text, capture_output=True, text=True, timeout=120)


def pieces(text):
    return [piece.strip() for piece in text.split(SPLIT.strip()) if piece.strip()]


def find_crash(stepc_opt, cases, *options):
    """One of the cases that end stepc-opt otherwise than by its own exit, or None."""
    if run(stepc_opt, SPLIT.join(cases), *options).returncode in (0, 1):
        return None
    if len(cases) == 1:
        return cases[0]
    middle = len(cases) // 2
    return find_crash(stepc_opt, cases[:middle], *options) or find_crash(
        stepc_opt, cases[middle:], *options
    )


def check(stepc_opt, cases):
    """How many of the cases are accepted; None after saying what is wrong."""
    for passes in ([], ["-canonicalize", "-cse"]):  # the folds work on what verifies
        case = find_crash(stepc_opt, cases, *passes)
        if case:
            print(f"crash with {passes}:\n{case}")
            return None
    accepted = pieces(run(stepc_opt, SPLIT.join(cases)).stdout)
    again = run(stepc_opt, SPLIT.join(accepted))
    if again.returncode != 0 or pieces(again.stdout) != accepted:
        print(f"what was accepted does not print as what reads back:\n{again.stderr}")
        return None
    return len(accepted)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("stepc_opt")
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--count", type=int, default=300, help="mutations of each text")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    rng = random.Random(options.seed)

    total = accepted = 0
    for path in options.files:
        source = path.read_text()
        generic = run(options.stepc_opt, source, "-mlir-print-op-generic").stdout
        for text in (source, generic):
            tokens = TOKEN.findall(text)
            for _ in range(0, options.count, BATCH):
                cases = [mutate(tokens, rng) for _ in range(BATCH)]
                kept = check(options.stepc_opt, cases)
                if kept is None:
                    return 1
                total, accepted = total + BATCH, accepted + kept
    print(f"{total} mutations, {accepted} accepted, no crash")
    # Neither all refused nor all accepted, or nothing was tried.
    return 0 if 0 < accepted < total else 1


if __name__ == "__main__":
    sys.exit(main())
