# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Which module may import what."""

import ast
import os
import subprocess
import sys

import pytest
from common import FRONTEND, needs_table

WITHOUT_TORCH = """
import importlib, pkgutil, sys
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("torch", "numpy"):
            raise ImportError("refused: " + name)
sys.meta_path.insert(0, Refuse())
import stepc
names = [m.name for m in pkgutil.iter_modules(stepc.__path__) if m.name != "torch"]
for name in names:
    importlib.import_module("stepc." + name)
assert not [m for m in sys.modules if m.split(".")[0] in ("torch", "numpy")]
print(" ".join(sorted(names)))
"""


def test_only_stepc_torch_needs_torch():
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_TORCH],
        env={"PYTHONPATH": str(FRONTEND)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert {"_cache", "_compiler", "_runtime", "definition", "errors"} <= set(done.stdout.split())


def test_only_stepc_torch_names_torch():
    for path in (FRONTEND / "stepc").glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                assert all(alias.name.split(".")[0] != "torch" for alias in node.names), path
            if isinstance(node, ast.ImportFrom) and not node.level:
                assert node.module.split(".")[0] != "torch", path


def test_import_starts_nothing(tmp_path):
    """Importing and constructing neither compiles nor writes a cache."""
    code = (
        "import torch, stepc.torch as st\n"
        "p = [torch.nn.Parameter(torch.ones(3))]\n"
        "st.AdamW(p); st.SGD(p, lr=1.0, momentum=0.5); st.Lion(p)\n"
    )
    env = {
        "PYTHONPATH": str(FRONTEND),
        "STEPC_COMPILER": "/nonexistent/stepc",
        "STEPC_RUNTIME_LIBRARY": "/nonexistent/lib.so",
        "STEPC_CACHE_DIR": str(tmp_path / "cache"),
    }
    done = subprocess.run(
        [sys.executable, "-c", code], env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert not (tmp_path / "cache").exists()


@needs_table
def test_torch_without_an_exchange_table():
    """As before 2.10: tensors are described from their attributes, with the same result."""
    code = (
        "import sys, torch\n"
        "if sys.argv[1] == 'without': del torch.Tensor.__dlpack_c_exchange_api__\n"
        "import stepc.torch\n"
        "torch.manual_seed(1)\n"
        "kinds = torch.float32, torch.bfloat16, torch.float64\n"
        "params = [torch.nn.Parameter(torch.randn(5, 3).to(k).t()) for k in kinds]\n"
        "params.append(torch.nn.Parameter(torch.randn(())))\n"
        "optimizer = stepc.torch.AdamW(params, lr=0.1)\n"
        "for step in range(3):\n"
        "    for param in params: param.grad = torch.randn_like(param)\n"
        "    optimizer.step()\n"
        "print(stepc.torch.info()['reading'], file=sys.stderr)\n"
        "print([p.double().flatten().tolist() for p in params])\n"
    )
    results = []
    for which, reading in (("with", "direct"), ("without", "python")):
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", code, which],
            env={**os.environ, "PYTHONPATH": str(FRONTEND)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0 and done.stderr.strip() == reading, done.stderr
        results.append(done.stdout)
    assert results[0] == results[1]


def test_shared_ctypes_functions_are_left_alone():
    code = (
        "import ctypes, stepc.torch\n"
        "f = ctypes.pythonapi.PyCapsule_GetPointer\n"
        "assert f.restype is ctypes.c_int and f.argtypes is None\n"
    )
    env = {"PYTHONPATH": str(FRONTEND)}
    done = subprocess.run(
        [sys.executable, "-c", code], env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("before", "words"),
    [
        (
            "sys.modules['torch'] = None",
            "stepc.torch needs torch 2.6 or newer, which is not installed: pip install torch",
        ),
        (
            "import torch; torch.__version__ = '2.5.1+cu124'",
            "stepc.torch needs torch 2.6 or newer; this is 2.5.1+cu124: "
            "pip install --upgrade torch",
        ),
        ("import torch; torch.__version__ = '2.10.0a0+git1'", None),
    ],
)
def test_no_torch_and_an_old_one(before, words):
    code = f"import sys; {before}\nimport stepc.torch"
    env = {**os.environ, "PYTHONPATH": str(FRONTEND)}
    done = subprocess.run(
        [sys.executable, "-c", code], env=env, capture_output=True, text=True, check=False
    )
    assert (done.returncode == 0) == (words is None), done.stderr
    assert words is None or done.stderr.splitlines()[-1].endswith(f"Error: {words}")
