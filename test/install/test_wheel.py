# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The wheel in an empty environment: away from the tree, and with nothing on PATH but its
own commands and the few programs that the tutorial's lines name. torch and numpy are
those of the tree's environment; they are too large to be installed again."""

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "test" / "docs"))
from tutorial import follow  # noqa: E402

COMMANDS = ["stepc", "stepc-opt", "stepc-run", "stepc-lsp-server", "stepc-plan"]


class Installed:
    """An environment with the wheel: ``python``, and the variables of its processes."""

    def __init__(self, folder: Path, wheel: Path):
        self.folder = folder
        self.bin = folder / "environment" / "bin"
        self.python = self.bin / "python"
        subprocess.run([sys.executable, "-m", "venv", self.bin.parent], check=True)
        pip = [self.python, "-m", "pip", "install", "-q", "--no-index", "--no-deps"]
        subprocess.run([*pip, wheel], check=True, env=self._variables(os.environ["PATH"]))
        (site,) = (self.bin.parent / "lib").glob("python*/site-packages")
        (site / "torch_of_the_tree.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")
        few = folder / "few"
        few.mkdir()
        for program in ("bash", "sed", "grep"):
            (few / program).symlink_to(shutil.which(program))
        self.environment = self._variables(f"{self.bin}:{few}")

    def _variables(self, path: str) -> dict[str, str]:
        cache = str(self.folder / "cache")
        return {"PATH": path, "HOME": str(self.folder), "STEPC_CACHE_DIR": cache}

    def run(self, *command: str | Path, code: int = 0) -> str:
        done = subprocess.run(
            command, cwd=self.folder, env=self.environment, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == code, done.stdout
        return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("dist")
    subprocess.run(
        [sys.executable, ROOT / "tools" / "wheel" / "build.py", "--out", out], check=True
    )
    (made,) = out.glob("*.whl")
    return made


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory) -> Installed:
    return Installed(tmp_path_factory.mktemp("away"), wheel)


def test_one_wheel_for_each_python(wheel):
    name, version, python, abi, platform = wheel.stem.split("-")
    assert (name, python, abi) == ("stepc", "cp310", "abi3")
    assert wheel.stat().st_size < 60e6
    assert platform.startswith("manylinux_2_") and platform.endswith("_x86_64")


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_are_on_the_path(installed, command):
    assert (installed.bin / command).is_file()
    assert "USAGE" in installed.run(installed.bin / command, "--help").upper()


def test_commands_end_as_their_tools_do(installed):
    said = installed.run(installed.bin / "stepc", "none.mlir", "-o", "x.stepc", code=1)
    assert "none.mlir" in said


def test_nothing_is_found_in_the_tree(installed):
    script = """
import stepc._compiler, stepc._library, stepc.torch, stepc.torch.tensors.walk as walk
print(stepc.torch.__file__)
print(stepc._compiler.find_compiler())
print(stepc._library.load_library()._name)
print(walk.load_extension().__file__)
"""
    for line in installed.run(installed.python, "-c", script).splitlines():
        assert Path(line).is_relative_to(installed.folder), line


def test_a_first_step_compiles(installed):
    script = """
import torch, stepc.torch
from stepc.torch.tensors import walk as _walk
p = torch.nn.Parameter(torch.ones(8))
p.grad = torch.ones(8)
stepc.torch.AdamW([p], lr=0.5, weight_decay=0.0).step()
print(p.detach().allclose(torch.full((8,), 0.5)), _walk.way())
"""
    assert installed.run(installed.python, "-c", script).split() == ["True", "direct"]


def test_commands_of_the_package(installed):
    said = installed.run(installed.python, "-m", "stepc", "check")
    assert said.count(" ok: ") == 5, said
    page = installed.folder / "page.html"
    installed.run(installed.python, "-m", "stepc", "explain", "gpt2", "--html", str(page))
    assert "adamw on gpt2" in page.read_text()


def test_nothing_is_written_where_it_is_installed(installed):
    """So that site-packages may be read-only."""
    (site,) = (installed.bin.parent / "lib").glob("*/site-packages")

    def files():
        return {path: path.stat().st_mtime_ns for path in (site / "stepc").rglob("*")}

    script = """
import torch, stepc.torch
p = torch.nn.Parameter(torch.ones(3, 4))
p.grad = torch.ones(3, 4)
stepc.torch.hf.Adafactor([p]).step()
"""
    installed.run(installed.python, "-c", script)
    before = files()
    shutil.rmtree(installed.folder / "cache")
    installed.run(installed.python, "-B", "-c", script)
    assert files() == before


def test_without_torch_the_runtime_brings_its_threads(installed):
    (site,) = (installed.bin.parent / "lib").glob("*/site-packages")
    script = f"""
import sys; sys.path.insert(0, {str(site)!r})
import stepc._library
print(stepc._library.load_library().stepcVersion() >= 0)
"""
    assert installed.run(installed.python, "-S", "-c", script).split() == ["True"]


def test_the_tutorial(installed, tmp_path):
    follow("own-optimizer", tmp_path, "", installed.environment)
