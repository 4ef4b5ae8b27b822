# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The comparisons of tools/gpu/kit, on a device of the double."""

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).resolve().parents[2] / "tools" / "gpu" / "kit"))

import correctness


@pytest.mark.parametrize("shifted", [False, True])
@pytest.mark.parametrize("storage", ["f32", "bf16+i16"])
@pytest.mark.parametrize("name", ["AdamW", "hf.Adafactor", "AdamW, norm clipped"])
def test_comparisons(cuda, name, storage, shifted):
    assert correctness.compare(name, storage, "cuda", shifted)["wrong"] == ""


def test_a_difference_is_seen(cuda, monkeypatch):
    real = correctness.place

    def place(value, device, shifted):
        found = real(value, device, shifted)
        return found.add_(1e-7) if value.shape == (17,) else found

    monkeypatch.setattr(correctness, "place", place)
    wrong = correctness.compare("AdamW", "f32", "cuda", False)["wrong"]
    assert wrong.startswith("other bits than the processor's: {'param of 1'")
