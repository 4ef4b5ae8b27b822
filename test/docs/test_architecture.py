"""The manifest in docs/architecture.md is that of a package.

SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""

import json
import os
import re
import shlex
import subprocess
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
STEPC = os.environ.get("STEPC_COMPILER", str(ROOT / "build" / "bin" / "stepc"))
PAGE = (ROOT / "docs" / "architecture.md").read_text()


def test_manifest_is_real(tmp_path):
    (command,) = re.findall(r"^    stepc (sgd\.mlir .*)$", PAGE, re.M)
    (example,) = re.findall(r"^```json\n(.*?)^```", PAGE, re.S | re.M)
    folder = ROOT / "frontend" / "optimizers"
    definition, *arguments, flag, _ = shlex.split(command)
    assert flag == "-o"
    package = tmp_path / "sgd.stepc"
    subprocess.run([STEPC, folder / definition, *arguments, "-o", package], check=True)
    with zipfile.ZipFile(package) as archive:
        manifest = json.loads(archive.read("manifest.json"))
    assert json.loads(example) == manifest


def test_tree_names_every_folder():
    tree = PAGE.split("```")[1]
    names = [path.name for path in (ROOT / "test").iterdir() if path.is_dir()]
    tests = [name for name in names if name != "__pycache__"]
    assert [name for name in tests if f"{name}/" not in tree] == []
    testing = (ROOT / "docs" / "testing.md").read_text()
    assert [name for name in tests if f"`test/{name}`" not in testing] == []
