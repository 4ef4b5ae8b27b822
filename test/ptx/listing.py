# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The instructions of an entry point, with those of the functions that it calls in the places
of the calls, as no function calls itself. Each copy has registers and labels of its own, and
parameters are registers, so that of threads in different places each has what it gave.
"""

import re

from memory import Fault

_LABEL = re.compile(r"(\$[\w.]+):")
# Registers and labels. In the name of a function there is no L behind a $.
_NAME = re.compile(r"(%[a-z]+\d+|\$L\w*)\b")
_PARAMETER = re.compile(r"\.param \.b(\d+)\s+([\w$]+)")
_STORE = re.compile(r"st\.param\.b(\d+)\s+\[([\w$]+)\], (\S+);")
_LOAD = re.compile(r"ld\.param\.b(\d+)\s+(\S+), \[([\w$]+)\];")
_CALL = re.compile(r"call(?:\.uni)?\s+([\w$]+), \((.*)\);")
_RETURN = re.compile(r"\bret(\.uni)?;")


def split(line):
    """(predicate, wanted, operation, parts of its name, operands) of an instruction."""
    predicate, wanted = None, True
    if line.startswith("@"):
        head, line = line.split(None, 1)
        wanted, predicate = head[1] != "!", head.lstrip("@!")
    name, _, rest = line.partition("\t")
    name, _, more = name.strip().partition(" ")
    operands = re.findall(r"\{[^}]*\}|\[[^\]]*\]|[^,\s]+", (more + rest).strip())
    operands = [
        re.findall(r"[^{},\s]+", operand) if operand.startswith("{") else operand
        for operand in operands
    ]
    operation, *parts = name.split(".")
    return predicate, wanted, operation, parts, operands


class Listing:
    """Lines, and by label the place of the next one. Of a parameter the register and how many
    bits it has are known by its name.
    """

    def __init__(self, text, body):
        self.text, self.lines, self.labels = text, [], {}
        self.count = 0  # of names that no copy has
        self.add(body, "", {}, ())

    def get_number(self):
        self.count += 1
        return self.count

    def add(self, body, own, parameters, callers):
        """`own`: how the names of this copy end."""
        passed = {}
        for line in body.splitlines():
            line = _NAME.sub(rf"\1{own}", line.partition("//")[0].strip())
            if label := _LABEL.fullmatch(line):
                self.labels[label[1]] = len(self.lines)
            elif line in ("{", "}"):
                passed = {}
            elif match := _PARAMETER.match(line):
                passed[match[2]] = f"%given.{self.get_number()}", match[1]
            elif re.match(r"(@\S+\s+)?call\b", line):
                self.call(line, passed, callers)
            elif line and not line.startswith("."):
                line = self.move(line, passed, parameters)
                if callers:
                    line = _RETURN.sub(f"bra $end{own};", line)
                self.lines.append(line.rstrip(";"))
        self.labels[f"$end{own}"] = len(self.lines)

    def move(self, line, passed, parameters):
        """The line, or what it does to the register that a parameter is."""
        if match := _STORE.fullmatch(line):
            width, name, value = match.groups()
            if passed.get(name, ("", ""))[1] == width:
                return f"mov.b{width}\t{passed[name][0]}, {value};"
        if match := _LOAD.fullmatch(line):
            width, to, name = match.groups()
            if parameters.get(name, ("", ""))[1] == width:
                return f"mov.b{width}\t{to}, {parameters[name][0]};"
        return line

    def call(self, line, passed, callers):
        match = _CALL.fullmatch(line)
        if not match:
            raise Fault(f"{line} is not known")
        name = match[1]
        if name in callers:
            raise Fault(f"{name} calls itself")
        head = rf"\.func {re.escape(name)}\("
        function = re.search(head + r"([^()]*)\)\s*\{(.*?)\n\}", self.text, re.S)
        if not function:
            raise Fault(f"no function {name}")
        given = [passed.get(argument, ("", "")) for argument in re.findall(r"\w+", match[2])]
        wanted = _PARAMETER.findall(function[1])
        if [width for _, width in given] != [width for width, _ in wanted]:
            raise Fault(f"{name} is called with other parameters than it has")
        registers = dict(zip((parameter for _, parameter in wanted), given, strict=True))
        self.add(function[2], f".{self.get_number()}", registers, (*callers, name))
