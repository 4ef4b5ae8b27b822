# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Which module may import what."""

import ast
import subprocess
import sys

from common import FRONTEND

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


def test_torch_without_an_exchange_table():
    code = "import torch; del torch.Tensor.__dlpack_c_exchange_api__; import stepc.torch"
    env = {"PYTHONPATH": str(FRONTEND)}
    done = subprocess.run(
        [sys.executable, "-c", code], env=env, capture_output=True, text=True, check=False
    )
    assert "ImportError: stepc.torch needs torch >= 2.13; this is " in done.stderr


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
