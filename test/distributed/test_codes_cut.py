# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What codes_cut_cases.py said."""

import pytest
from launch import case_names, launch

FILE = "codes_cut_cases.py"


@pytest.fixture(scope="module")
def said(tmp_path_factory):
    return launch(FILE, tmp_path_factory.mktemp("codes-cut"))


@pytest.mark.parametrize("name", case_names(FILE))
def test_case(name, said):
    assert said[name] == ""
