# Runs every example in MLIR of the documents and of the .td files through
# stepc-opt, as it stands there.
#
# A block of lines that begin with `!` is a list of types. A block of passes/ that
# shows something before and after `// ==>` is a fragment; the test of the pass
# has it whole. So is a program outside of the optimizer whose names it has;
# test/docs/test_programs.py compares it with what the compiler prints.
#
#   examples.py STEPC_OPT
#
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FILES = ["dialect/*.td", "passes/*.td", "docs/**/*.md", "README.md"]
GENERATED = ["language.md", "passes.md"]  # from the .td files
BLOCK = re.compile(r"^( *)```mlir\n(.*?)^ *```", re.M | re.S)


def examples():
    """(file, line, text) of each example, the text at its place in the file."""
    for pattern in FILES:
        for path in sorted(ROOT.glob(pattern)):
            if path.name in GENERATED:
                continue
            text = path.read_text()
            for match in BLOCK.finditer(text):
                if "// ==>" not in match[2] and not match[2].startswith("step.program"):
                    yield path, text.count("\n", 0, match.start(2)), match[2]


def as_module(text):
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if all(line.startswith("!") for line in lines):
        return f'"test.types"() : () -> ({", ".join(lines)})'
    return text


def main():
    stepc_opt = sys.argv[1]
    total = bad = 0
    for path, line, text in examples():
        total += 1
        # Empty lines before it make the lines of messages those of the file.
        done = subprocess.run(
            [stepc_opt, "-allow-unregistered-dialect", "-o", "/dev/null", "-"],
            input="\n" * line + as_module(text),
            capture_output=True,
            text=True,
        )
        if done.returncode != 0:
            bad += 1
            print(done.stderr.replace("<stdin>", str(path.relative_to(ROOT))))
    print(f"{total} examples, {bad} refused")
    return 1 if bad or total < 10 else 0


if __name__ == "__main__":
    sys.exit(main())
