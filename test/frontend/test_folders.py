# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Folders of ``stepc.torch`` use what is lower, and names in docstrings are there."""

import ast
import importlib
import inspect
import re
from pathlib import Path

import stepc.torch
from stepc.torch.optimizers import of_torch

ROOT = Path(stepc.torch.__file__).parent
ORDER = ("tensors", "binding", "ranks", "step", "optimizers")  # docs/architecture.md
MODULES = {
    ".".join(("stepc.torch", *path.relative_to(ROOT).with_suffix("").parts)): path
    for path in sorted(ROOT.rglob("*.py"))
}


def folder_of(module):
    parts = module.split(".")
    return parts[2] if len(parts) > 3 and parts[2] in ORDER else ""


def imported(module, path):
    """The modules of the package that the file imports, wherever in it."""
    package = module.split(".")[:-1]
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.level:
            base = ".".join(package[: len(package) + 1 - node.level])
            target = f"{base}.{node.module}" if node.module else base
            yield from (
                name if (name := f"{target}.{alias.name}") in MODULES else target
                for alias in node.names
            )


def test_folders_use_what_is_lower():
    wrong = []
    for module, path in MODULES.items():
        own = folder_of(module)
        for target in imported(module, path) if own else ():
            other = folder_of(target)
            if target in MODULES and (not other or ORDER.index(other) > ORDER.index(own)):
                wrong.append(f"{module} imports {target}")
    assert wrong == []


def test_modules_that_docstrings_name_are_there():
    wrong = []
    for module, path in MODULES.items():
        for _, name in re.findall(r":(mod|class|func|meth):`~?([\w.]+)`", path.read_text()):
            if name.startswith("stepc.torch."):
                parts = name.split(".")
                found = importlib.import_module("stepc.torch")
                for depth, part in enumerate(parts[2:], 3):
                    if not hasattr(found, part) and ".".join(parts[:depth]) in MODULES:
                        importlib.import_module(".".join(parts[:depth]))
                    found = getattr(found, part, None)
                if found is None:
                    wrong.append(f"{module}: {name}")
            elif name[0] == "." and f"{module.rpartition('.')[0]}{name}" not in MODULES:
                wrong.append(f"{module}: {name}")
    assert wrong == []


def test_docstrings_are_of_one_piece():
    """Two texts, each without its indentation, which python 3.13 takes from one of them alone."""
    classes = filter(inspect.isclass, vars(of_torch).values())
    named = [c for c in classes if c.__module__ == of_torch.__name__ and c.__name__[0] != "_"]
    assert len(named) > 10
    for own in named:
        words = f"Everything else is as in :class:`torch.optim.{own.__name__}`"
        assert own.__doc__ == inspect.cleandoc(own.__doc__) and f"\n\n{words}" in own.__doc__
