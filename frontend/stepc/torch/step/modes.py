# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What torch may have switched on around a step.

A compiled step writes memory that there is, and makes states that outlive whatever it stands
in. So it is done outside of inference mode, whose tensors have no version, and of transforms of
``torch.func``, whose tensors have no memory. Within ``FakeTensorMode`` nothing has memory:
fake parameters are torch's own step's, others must not be written.
"""

from __future__ import annotations

import contextlib

import torch

from ... import errors
from ..tensors.dlpack import is_ordinary
from ..tensors.members import named_parameters

_FAKE = torch._C._TorchDispatchModeKey.FAKE


@contextlib.contextmanager
def _outside():
    from torch._functorch.pyfunctorch import temporarily_clear_interpreter_stack

    with contextlib.ExitStack() as stack:
        if torch._C._functorch.peek_interpreter_stack() is not None:
            stack.enter_context(temporarily_clear_interpreter_stack())
        stack.enter_context(torch.inference_mode(False))
        stack.enter_context(torch.no_grad())
        yield


_HERE = contextlib.nullcontext()


def outside() -> contextlib.AbstractContextManager:
    """Outside of what a compiled step cannot be done in."""
    transformed = torch._C._functorch.peek_interpreter_stack() is not None
    return _outside() if transformed or torch.is_inference_mode_enabled() else _HERE


def refuse_fake(optimizer) -> None:
    """StepcError for a step within FakeTensorMode that would write memory."""
    if torch._C._get_dispatch_mode(_FAKE) is None:
        return
    for name, param in named_parameters(optimizer.param_groups):
        if is_ordinary(param) and param.grad is not None:
            raise errors.StepcError(
                f"a step within FakeTensorMode would write to {name}, which is no FakeTensor"
            )
