# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What is said to the logger "stepc", and on stderr where nobody listens."""

import logging
import os
import subprocess
import sys

import pytest
import stepc.torch
import torch
from common import FRONTEND, make_params, set_grads
from stepc import _compiler


@pytest.fixture
def said(caplog):
    """The messages of a level and above."""
    caplog.set_level(logging.DEBUG, "stepc")
    return lambda level: [r.getMessage() for r in caplog.records if r.levelno >= level]


def test_what_is_compiled_and_by_which_rules(own_cache, said):
    params = make_params([(3, 4), (5,), (2, 2)])
    optimizer = stepc.torch.hf.Adafactor(params)
    set_grads(params)
    optimizer.step()
    messages = said(logging.INFO)
    (compiled,) = [m for m in messages if m.startswith("compiled '")]
    assert "adafactor.mlir' in " in compiled and "--variant=param=f32" in compiled
    assert "rule 'matrix' of optimizer 'adafactor' takes 2 parameters" in messages
    assert "rule 'any' of optimizer 'adafactor' takes 1 parameter" in messages
    assert "parameter 1 of group 0 of shape (5,): rule 'any'" in said(logging.DEBUG)
    # That it takes a while, on a machine that is slow or busy, is no fault.
    assert [message for message in said(logging.WARNING) if "takes a while" not in message] == []


def test_what_is_in_the_cache(own_cache, said, monkeypatch):
    for _ in range(2):
        monkeypatch.setattr(stepc.definition, "_packages", {})
        params = make_params([(3,)])
        optimizer = stepc.torch.Lion(params)
        set_grads(params)
        optimizer.step()
    found = [m for m in said(logging.DEBUG) if m.startswith("found '")]
    assert any(m.endswith(".package' in the cache") for m in found), said(logging.DEBUG)
    assert len([m for m in said(logging.INFO) if m.startswith("compiled '")]) == 1


@pytest.mark.filterwarnings("ignore:stepc")
def test_what_falls_back_to_torch(said):
    param = torch.nn.Parameter(torch.ones(3, dtype=torch.complex64))
    optimizer = stepc.torch.SGD([param])
    for _ in range(2):
        param.grad = torch.ones_like(param)
        optimizer.step()
    (message,) = (m for m in said(logging.INFO) if "torch's own step" in m)
    begin = "SGD runs torch's own step for 1 parameter: parameter 0 of group 0 has complex dtype"
    assert message.startswith(begin)


def test_remarks_of_the_compiler(own_cache, tmp_path, said):
    path = tmp_path / "odd.mlir"
    path.write_text(
        "step.optimizer @odd {\n"
        '  step.rule @any(%p: param[*], %g: grad[*], %s: state "never"[*]) {\n'
        "    %q = step.sub %p, %g : [*]\n    step.return %q, %s\n  }\n}\n"
    )
    params = make_params([(3,)])
    optimizer = stepc.torch.Optimizer(params, path)
    set_grads(params)
    optimizer.step()
    (remark,) = {m for m in said(logging.INFO) if ": remark: " in m}
    assert remark == f"{path}:2:45: remark: state 'never' is never used, it is dropped"


def test_a_long_compilation(own_cache, said, monkeypatch, fake_compiler):
    """While it lasts; a short one says nothing."""
    monkeypatch.setattr(_compiler, "_PATIENCE", 0.2)
    fake_compiler("sleep 1; echo no >&2; exit 1\n")
    with pytest.raises(stepc.StepcError):
        _compiler.interface("", "slow.mlir")
    assert said(logging.WARNING) == [
        "compiling 'slow.mlir', which takes a while; it is kept for later runs"
    ]


SCRIPT = """
import os, sys, torch, stepc.torch
torch.set_num_threads(int(sys.argv[1]))
params = [torch.nn.Parameter(torch.zeros(3))]
optimizer = stepc.torch.SGD(params)
for fork in (False, True):
    if fork and os.fork():
        sys.exit(os.waitstatus_to_exitcode(os.wait()[1]))
    for _ in range(2):
        params[0].grad = torch.ones(3)
        optimizer.step()
"""


def run(threads, **environment):
    finished = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(threads)], capture_output=True, text=True, check=False,
        env=os.environ | {"PYTHONPATH": str(FRONTEND)} | environment, timeout=120,
    )  # fmt: skip
    assert finished.returncode == 0, finished.stderr
    return finished.stderr.splitlines()


def test_a_forked_process_is_told_that_it_has_one_thread():
    """On stderr, as nobody listens; nothing where it would have had one in any case."""
    (line,) = run(4)
    assert line.startswith("this process was forked by one that had loaded stepc: its steps run on")
    assert "and not on 4" in line and run(1) == []


def test_the_environment_asks_for_more():
    lines = run(1, STEPC_LOG="debug")
    assert any(line.startswith("stepc DEBUG: parameter 0 of group 0") for line in lines)
    (line,) = run(1, STEPC_LOG="info")
    assert line == "stepc INFO: rule 'any' of optimizer 'sgd' takes 1 parameter"
    assert run(1, STEPC_LOG="error") == []
    text = "\n".join(run(1, STEPC_LOG="loud"))
    assert "STEPC_LOG is 'loud', it is one of debug, info, warning, error" in text
