# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""docs/optimizers.md lists every class, with its definition, and every definition."""

import inspect
import re
from pathlib import Path

import stepc.torch
import torch

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "optimizers.md").read_text()
MODULES = (
    "apex", "bitsandbytes", "came", "colossal", "deepspeed", "hf", "lomo", "moonlight", "muon",
)  # fmt: skip
# A definition alone, for stepc.torch.Optimizer: the paper's, and D-Adaptation.
WITHOUT_CLASS = {"lamb", "dadapt_adam", "dadapt_sgd"}


def classes():
    """By the name that users write, without ``stepc.torch.``."""
    for prefix, module in [("", stepc.torch), *((m, getattr(stepc.torch, m)) for m in MODULES)]:
        for name in module.__all__:
            value = getattr(module, name)
            if inspect.isclass(value) and issubclass(value, torch.optim.Optimizer):
                yield f"{prefix}.{name}".lstrip("."), value


def rows():
    """The definition that the page gives each class."""
    found = {}
    for line in PAGE.splitlines():
        names, _, rest = line.removeprefix("| ").partition(" | ")
        definition = re.match(r"`(\w+)` \|", rest)
        if definition:
            found |= dict.fromkeys(re.findall(r"`([\w.]+)`", names), definition[1])
    return found


def test_every_class_is_listed_with_its_definition():
    listed = rows()
    known = {n: c._zoo_name for n, c in classes() if n != "Optimizer"}
    # FusedLAMB of ColossalAI is that of apex.
    known.pop("colossal.FusedLAMB")
    assert listed == known and len(known) > 20


def test_every_definition_has_a_class():
    files = {path.stem for path in (ROOT / "frontend" / "optimizers").glob("*.mlir")}
    assert files - set(rows().values()) == WITHOUT_CLASS


def test_what_is_not_there():
    absent = dict(re.findall(r"^\| `(\w+)` \| ([^|`]+) \|$", PAGE, re.M))
    of_torch = {
        name
        for name, value in vars(torch.optim).items()
        if inspect.isclass(value) and issubclass(value, torch.optim.Optimizer)
    }
    assert set(absent) == {n for n in of_torch if not hasattr(stepc.torch, n)}
