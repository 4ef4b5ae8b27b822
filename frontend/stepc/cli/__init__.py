# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""``python -m stepc COMMAND``: each command is a module here, with ``add(parser)`` for its
arguments and ``run(given)``, which returns the exit status."""

from __future__ import annotations

import argparse
import sys

from .. import errors
from . import cache, check, checkpoint, explain, info, plan

_COMMANDS = {
    "info": info,
    "explain": explain,
    "cache": cache,
    "check": check,
    "checkpoint": checkpoint,
    "plan": plan,
}


def _split(arguments: list[str]) -> tuple[list[str], list[str]]:
    """At ``--``: what stands behind it is for another program."""
    at = arguments.index("--") if "--" in arguments else len(arguments)
    return arguments[:at], arguments[at + 1 :]


def main(arguments: list[str] | None = None) -> int:
    """Runs a command; errors are one line on stderr and status 1."""
    parser = argparse.ArgumentParser(prog="python -m stepc", description="Stepc's own facts.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for name, command in _COMMANDS.items():
        said = command.__doc__.split("\n\n")[0]
        sub = commands.add_parser(name, help=said, description=said)
        command.add(sub)
        sub.set_defaults(run=command.run)
    own, behind = _split(sys.argv[1:] if arguments is None else arguments)
    given = parser.parse_args(own)
    if behind and given.run is not explain.run:
        parser.error(f"unrecognized arguments: {' '.join(behind)}")
    given.behind = behind
    try:
        return given.run(given)
    except (errors.StepcError, OSError, ValueError) as error:
        print(f"stepc: error: {error}", file=sys.stderr)
        return 1
