# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Durable files of four ranks, of which one fails where others do not."""

import copy
import gc

import stepc.torch as st
import torch.distributed as dist
from on_ranks import case, main, same_bits, whole
from stepc import errors
from stored_cases import WAYS, adamw, give, mesh, shared_folder, spread, values_of


def made(folder, values):
    gc.collect()  # frames of errors that have the optimizer before
    place = st.Place("disk", path=folder, window_bytes=1 << 16, durable=True)
    params = spread(WAYS["fsdp2"], mesh("fsdp2"), values)
    return params, adamw(params, place=place)


def fail_once(owner, name, error):
    """On rank 1 the next call of it."""

    def failing(*args, **more):
        delattr(owner, name)
        raise error

    if dist.get_rank() == 1:
        setattr(owner, name, failing)


def refusal_of(call):
    try:
        call()
    except BaseException as error:
        return error
    raise AssertionError("it was not refused")


def images_of(params):
    return {name: whole(param).clone() for name, param in params}


def equal(params, wanted, what):
    for name, param in params:
        same_bits(whole(param), wanted[name], f"{what}, {name}")


def counts(optimizer):
    return {int(own["step"]) for own in optimizer.state.values() if own}


@case
def files_behind_a_commit_that_failed_on_one_rank():
    """Generations of the files are apart from then on, and steps are not."""
    values, grads = values_of(steps=6)
    folder = shared_folder()
    params, optimizer = made(folder, values)
    assert optimizer.recover() == 0
    for number in range(2):
        give(params, grads[number])
        optimizer.step()
    saved = copy.deepcopy(optimizer.state_dict())
    fail_once(optimizer._store, "commit", errors.StoreError("no room", "STEPC_STORE_ERROR"))
    give(params, grads[2])
    assert "no room" in str(refusal_of(optimizer.step))
    optimizer.load_state_dict(saved)
    after = []
    for number in (3, 4):
        give(params, grads[number])
        optimizer.step()
        after.append(images_of(params))
    assert optimizer.stored().step == 5 - (dist.get_rank() == 1)
    del params, optimizer
    params, optimizer = made(folder, values)
    assert optimizer.recover() == 4 and counts(optimizer) == {4}
    equal(params, after[1], "the last step")
    del params, optimizer
    params, optimizer = made(folder, values)
    assert optimizer.recover(step=3) == 3 and counts(optimizer) == {3}
    equal(params, after[0], "the step before")
    give(params, grads[4])
    optimizer.step()
    equal(params, after[1], "the last step again")


@case
def files_that_are_not_of_one_step():
    """That of one rank is behind by a step that it cannot get, and no rank changes its own."""
    values, grads = values_of(steps=4)
    folder = shared_folder()
    params, optimizer = made(folder, values)
    give(params, grads[0])
    optimizer.step()
    saved = copy.deepcopy(optimizer.state_dict())
    for number in (1, 2):
        fail_once(optimizer._store, "commit", errors.StoreError("no room", "STEPC_STORE_ERROR"))
        give(params, grads[number])
        refusal_of(optimizer.step)
        optimizer.load_state_dict(saved)
    del params, optimizer
    params, optimizer = made(folder, values)
    words = str(refusal_of(optimizer.recover))
    assert "has step 3, and that of another rank has 1" in words, words
    equal(params, values, "untouched")


@case
def what_is_no_error_of_a_file():
    """Other ranks hear of it at once, and none goes on."""
    values, grads = values_of(steps=4)
    folder = shared_folder()
    params, optimizer = made(folder, values)
    give(params, grads[0])
    optimizer.step()
    fail_once(optimizer, "_make_note", RuntimeError("out of luck"))
    give(params, grads[1])
    assert "RuntimeError: out of luck" in str(refusal_of(optimizer.step))
    assert "is not in the file" in str(refusal_of(optimizer.step))
    after = images_of(params)
    fail_once(optimizer, "_take", RuntimeError("no luck either"))
    error = refusal_of(optimizer.recover)
    assert "RuntimeError: no luck either" in str(error), error
    assert isinstance(error, errors.StoreError)
    del params, optimizer
    params, optimizer = made(folder, values)
    assert optimizer.recover() == 1 and counts(optimizer) == {1}
    give(params, grads[1])
    optimizer.step()
    equal(params, after, "the step again")


@case
def an_interrupt_in_a_commit():
    values, grads = values_of(steps=4)
    params, optimizer = made(shared_folder(), values)
    give(params, grads[0])
    optimizer.step()
    optimizer._make_note = lambda: (_ for _ in ()).throw(KeyboardInterrupt())
    assert isinstance(refusal_of(optimizer.step), KeyboardInterrupt)  # on all ranks
    del optimizer._make_note
    words = "KeyboardInterrupt came in a commit of several ranks"
    assert words in str(refusal_of(optimizer.step))
    assert optimizer.recover() == 1 and counts(optimizer) == {1}


if __name__ == "__main__":
    main()
