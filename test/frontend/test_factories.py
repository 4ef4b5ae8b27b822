# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Every tensor that the frontend makes says its device and its dtype: the defaults are the
user's, who may have set them to anything for their own tensors."""

import ast

import pytest
from common import FRONTEND
from torch.utils._device import _device_constructors

# Torch's own list of what a default device changes. What shares memory that there is has no
# arguments for them.
NAMES = {function.__name__ for function in _device_constructors()}
SHARES = {"frombuffer", "from_numpy", "from_dlpack"}
SAID = {"device", "dtype"}


def unsaid(text, path="<text>"):
    """The calls of ``torch.NAME`` that leave the one or the other to the user's defaults."""
    found = []
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        of = node.func.value
        if not (isinstance(of, ast.Name) and of.id == "torch") or node.func.attr not in NAMES:
            continue
        given = {keyword.arg for keyword in node.keywords}
        # One that is unpacked, `**like`, is looked at where it is made.
        if node.func.attr not in SHARES and None not in given and not given >= SAID:
            found.append(f"{path}:{node.lineno}: {ast.unparse(node)}")
    return found


def test_every_tensor_says_its_device_and_dtype():
    found = [
        words
        for path in sorted((FRONTEND / "stepc").rglob("*.py"))
        for words in unsaid(path.read_text(), path.relative_to(FRONTEND))
    ]
    assert found == []


@pytest.mark.parametrize("name", ["empty", "zeros", "ones", "full", "tensor", "arange", "randn"])
def test_the_check_finds_what_is_unsaid(name):
    assert unsaid(f"torch.{name}(1, dtype=torch.int8)") and unsaid(f"torch.{name}(1, device=d)")
    assert unsaid(f"torch.{name}(1, dtype=a, device=b)") == []
