# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What owners_cases.py said."""

import pytest
from launch import case_names, launch

FILE = "owners_cases.py"


@pytest.fixture(scope="module")
def said(tmp_path_factory):
    return launch(FILE, tmp_path_factory.mktemp("owners"))


@pytest.mark.parametrize("name", case_names(FILE))
def test_case(name, said):
    assert said[name] == ""


@pytest.mark.parametrize("world", [2, 3])
def test_few_ranks(world, tmp_path):
    file = "owners_few_cases.py"
    assert launch(file, tmp_path, world) == dict.fromkeys(case_names(file), "")


def test_faults(tmp_path):
    file = "owners_faults_cases.py"
    assert launch(file, tmp_path) == dict.fromkeys(case_names(file), "")
