# Checks that a test expects each message that the dialect and the passes emit.
#
# A message is what is streamed into an emitOpError, emitError, emitWarning,
# emitRemark or attachNote: its string literals, with anything between them. It
# is tested when one `expected-error` (or -warning, -remark, -note) of a test, or
# a line that FileCheck looks for, holds all of its literals in order. A message
# that no input of ours can cause says so by a comment `no test: REASON` in its
# statement.
#
#   every_message_is_tested.py [--list] [ROOT]
#
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
import argparse
import ast
import re
import sys
from pathlib import Path

SOURCES = ["dialect/**/*.cpp", "passes/**/*.cpp"]
TESTS = ["test/dialect", "test/passes", "test/tools"]
KINDS = {
    "emitOpError": "error",
    "emitError": "error",
    "emitWarning": "warning",
    "emitRemark": "remark",
    "attachNote": "note",
}

TOKEN = re.compile(
    r'"(?:[^"\\]|\\.)*"'  # a string
    r"|'(?:[^'\\]|\\.)'"  # a character
    r"|//[^\n]*|/\*.*?\*/"  # a comment
    r"|<<|\w+|\s+|.",
    re.DOTALL,
)
EXPECTED = re.compile(r"expected-(error|warning|remark|note)(?:-re)?\s*(?:@\S+)?\s*\{\{(.*)\}\}")


def statement_tokens(tokens, begin):
    """The tokens from `begin` to the end of the expression that they are in."""
    depth = 0
    for position in range(begin, len(tokens)):
        token = tokens[position]
        if token in "([{":
            depth += 1
        elif token in ")]}":
            depth -= 1
        if depth < 0 or (depth == 0 and token in (";", ",")):
            return tokens[begin:position]
    return tokens[begin:]


def operands(tokens):
    """Splits an expression: the arguments of its first call, and what is
    streamed into it."""
    parts, depth, in_call = [[]], 0, True
    for token in tokens:
        if token in "([{":
            depth += 1
            if depth == 1 and in_call:
                continue
        elif token in ")]}":
            depth -= 1
            if depth == 0 and in_call:
                in_call = False
                parts.append([])
                continue
        if (token == "," and depth == 1 and in_call) or (token == "<<" and depth == 0):
            parts.append([])
        else:
            parts[-1].append(token)
    return parts


def literals(tokens):
    """The string literals of a message, in order."""
    found = []
    for part in operands(tokens):
        words = [token for token in part if not token.isspace() and token[:2] not in ("//", "/*")]
        if words and all(word[0] == '"' for word in words):
            found.append("".join(ast.literal_eval(word) for word in words))
    return found


def messages(path):
    """(line, kind, literals) of each message of a C++ file."""
    text = path.read_text()
    tokens = [match.group() for match in TOKEN.finditer(text)]
    line = 1
    for position, token in enumerate(tokens):
        if token in KINDS and tokens[position + 1] == "(":
            statement = statement_tokens(tokens, position + 1)
            excused = any("no test: " in part for part in statement if part[:2] in ("//", "/*"))
            pieces = literals(statement)
            if pieces and not excused:
                yield line, KINDS[token], pieces
        line += token.count("\n")


def checked_lines(text):
    """What FileCheck looks for, under the prefixes that a RUN line names."""
    prefixes = {"CHECK"}
    for names in re.findall(r"RUN:.*check-prefix(?:es)?=(\S+)", text):
        prefixes.update(names.split(","))
    names = "|".join(map(re.escape, sorted(prefixes)))
    return re.findall(rf"^\W*(?:{names})(?:-NEXT|-SAME|-DAG)?: *(.*)", text, re.M)


def expectations(root):
    """(kind, text) of what tests expect; of FileCheck's lines any kind."""
    for folder in TESTS:
        for path in sorted((root / folder).rglob("*")):
            if path.suffix not in (".mlir", ".test"):
                continue
            text = path.read_text()
            for match in EXPECTED.finditer(text):
                yield match.group(1), match.group(2)
            for line in checked_lines(text):
                yield None, line


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--list", action="store_true", help="print all messages")
    parser.add_argument("root", nargs="?", default=Path(__file__).parents[2], type=Path)
    options = parser.parse_args()

    expected = list(expectations(options.root))
    total = missing = 0
    for pattern in SOURCES:
        for path in sorted(options.root.glob(pattern)):
            for line, kind, pieces in messages(path):
                total += 1
                wanted = re.compile(".*".join(re.escape(piece.strip()) for piece in pieces))
                tested = any(
                    other in (kind, None) and wanted.search(text) for other, text in expected
                )
                missing += not tested
                if options.list or not tested:
                    where = f"{path.relative_to(options.root)}:{line}"
                    state = "" if tested else "no test expects this "
                    print(f"{where}: {state}{kind}: {'...'.join(pieces)}")
    print(f"{total} messages, {missing} without a test")
    # An empty search would prove nothing.
    return 1 if missing or total < 40 else 0


if __name__ == "__main__":
    sys.exit(main())
