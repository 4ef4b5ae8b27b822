# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A part's states on their way from the user to a plan and back."""

from __future__ import annotations

from ..binding.codes import in_whole_codes
from ..tensors.stored import StoredState
from .floats_of_codes import in_kept_floats
from .owned_part import OwnedPart


def hidden_states(part, items: dict) -> dict:
    """States of the user's as the plan is to have them."""
    if isinstance(part, OwnedPart):
        return part.begin_state(in_kept_floats(part.inner, items))
    items = in_whole_codes(part, in_kept_floats(part, items))
    hidden = {n: part.state_as_seen(n, part.hide(n, value)) for n, value in items.items()}
    return {name: value for name, value in hidden.items() if value is not None}


def read_states(part, items: dict, folder: str | None) -> dict:
    """States of the user's, with those that lie in a file as copies (``StoredState.read``)."""
    return {
        name: part.show(name, value.read(folder)) if isinstance(value, StoredState) else value
        for name, value in items.items()
    }
