# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What checkpoint_moves_cases.py said, on three ranks."""

import pytest
from launch import case_names, launch

FILE = "checkpoint_moves_cases.py"


@pytest.fixture(scope="module")
def said(tmp_path_factory):
    return launch(FILE, tmp_path_factory.mktemp("moves"), world=3)


@pytest.mark.parametrize("name", case_names(FILE))
def test_case(name, said):
    assert said[name] == ""
