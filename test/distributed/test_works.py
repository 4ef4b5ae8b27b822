# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What works_cases.py said, and works_of_eight_cases.py."""

import functools

import pytest
from launch import case_names, launch
from works import FILES


@pytest.fixture(scope="module")
def said(tmp_path_factory):
    """Of a file, which is run once."""
    return functools.cache(lambda file: launch(file, tmp_path_factory.mktemp("works"), FILES[file]))


@pytest.mark.parametrize(("file", "name"), [(f, n) for f in FILES for n in case_names(f)])
def test_case(file, name, said):
    assert said(file)[name] == ""
