# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""``zero=`` with parameters on devices of the double: the bits of the processor's engine."""

import os
import tempfile

import pytest
import stepc.torch as st
import torch
import torch.distributed as dist
from hybrid_cases import SHAPES as PARTS
from hybrid_cases import grid, layouts, part
from on_cuda import Processor, backward, compare, contents, on_device
from on_ranks import case, main, same_bits
from samples import sample
from state_files import file_of
from stepc import errors
from stepc.torch.binding import placement
from torch.distributed.tensor import Shard
from zero_values import mean, parameters, values
from zoo import ALL

NAMES = ("AdamW", "hf.Adafactor", "CAME", "FusedLamb", "AdamW, clipped")
SMALL = 3000  # bytes of a bucket, of which there are several then


def trained(name, mode, dtype=torch.float32, make=None, overflow=None, **more):
    """Steps, of which one has no gradients for some parameters, and one has some of other ranks
    alone. ``overflow``: the step in which a rank has one that is not finite."""

    def train(place):
        torch.manual_seed(0)
        made, grads = values(dtype)
        params = [torch.nn.Parameter(place.place(value)) for value in made]
        optimizer = (make or ALL[name])(params, zero=1, gradients=mode, **more)
        for step, own in enumerate(grads):
            for i, param in enumerate(params):
                grad = own[dist.get_rank()][i] if mode == "local" else mean(own, i, dtype)
                if step == overflow and i == 4:
                    grad[7, 5] = float("inf")
                gone = step == 2 and i in (1, 4)
                gone |= step == 1 and mode == "local" and i == dist.get_rank()
                param.grad = None if gone else place.place(grad)
            optimizer.param_groups[0]["lr"] /= 2
            optimizer.step()
            yield contents(place, optimizer)

    return train


@case
def local_gradients():
    for name in sample(NAMES, "cuda local", 2):
        compare(trained(name, "local"), name)


@case
def reduced_gradients():
    for name in sample(NAMES, "cuda reduced", 2):
        compare(trained(name, "reduced", bucket_bytes=SMALL), name)


@case
def lines_are_stepped_as_they_come():
    for name in ("AdamW", "CAME"):
        for overlap in (True, False):
            compare(trained(name, "local", bucket_bytes=SMALL, overlap=overlap), name)


@case
def narrow_types():
    """With what crosses in another type, and masters."""
    bf16 = torch.bfloat16
    compare(trained("AdamW", "local", bf16, master="remainder"), "remainder")
    compare(trained("AdamW", "local", bf16, master="f32", reduce_dtype=torch.float32), "f32")
    compare(trained("CAME", "local", reduce_dtype=bf16, bucket_bytes=SMALL), "bf16")


@case
def skipped_steps():
    """Which the device alone knows: parameters are gathered as they were."""
    for mode in ("local", "reduced"):
        for step in (0, 2):
            compare(trained("AdamW, clipped", mode, overflow=step), f"{mode}, {step}")


@case
def states_that_are_codes():
    """LAMB's norms cross between the segment that writes moments and the one that reads them."""
    for name in ("AdamW", "FusedLamb"):
        compare(trained(name, "local", state_dtype="q8"), name)
    formats = {"exp_avg": "f8_e4m3", "exp_avg_sq": "q8"}
    compare(trained("AdamW, clipped", "local", overflow=2, state_dtype=formats), "skipped")


@case
def states_that_lie_elsewhere():
    """In the host's memory and on disk; LAMB's norms cross between two parts of a step."""
    before, placement.SMALL = placement.SMALL, 64
    try:
        with tempfile.TemporaryDirectory() as folder:
            for place in (st.Place("host"), st.Place("disk", path=folder, window_bytes=4096)):
                for name in ("AdamW", "FusedLamb"):
                    compare(trained(name, "local", place=place), f"{name}, {place.states}")
                more = {"place": place, "overflow": 2}
                compare(trained("AdamW, clipped", "reduced", **more), f"skipped, {place.states}")
    finally:
        placement.SMALL = before


@case
def a_file_that_fails_on_one_rank():
    """Before a round that others wait in: all ranks hear of it in that step."""
    rank = dist.get_rank()
    with on_device() as place, tempfile.TemporaryDirectory() as folder:
        mesh = place.mesh((4,), mesh_dim_names=("tp",))
        torch.manual_seed(0)
        param = torch.nn.Parameter(place.place(torch.randn(520, 192).chunk(4)[rank].contiguous()))
        optimizer = st.apex.FusedLAMB(
            [("up", param)],
            layouts=[(".*", st.Layout(mesh, [Shard(0)]))],
            place=st.Place("disk", path=folder, window_bytes=1 << 16),
        )
        for step in range(2):
            if step == 1 and rank == 2:
                os.ftruncate(file_of(folder), 1 << 16)
            param.grad = place.place(torch.randn(520, 192).chunk(4)[rank].contiguous())
            if step == 0:
                optimizer.step()
        with pytest.raises(errors.StoreError, match="the file has become shorter") as caught:
            optimizer.step()
        assert caught.value.torn and ("rank 2: " in str(caught.value)) == (rank != 2)
        place.cuda.failed.clear()


@case
def whole_states_that_lie_elsewhere():
    """Also of what was loaded and waits for the next step on the host."""
    before, placement.SMALL = placement.SMALL, 64
    try:
        with on_device() as place, tempfile.TemporaryDirectory() as folder:
            mesh = place.mesh((4,), mesh_dim_names=("dp",))
            torch.manual_seed(0)
            whole = torch.randn(520, 192)
            own = whole.chunk(4)[dist.get_rank()].contiguous()
            for where in (st.Place("host"), st.Place("disk", path=folder)):
                param = torch.nn.Parameter(place.place(own))
                layouts = [(".*", st.Layout(mesh, [Shard(0)]))]
                optimizer = st.AdamW([("up", param)], layouts=layouts, place=where)
                param.grad = place.place(own.clone())
                optimizer.step()
                optimizer.load_state_dict(optimizer.state_dict())
                found = optimizer.full_state_dict()["state"][0]["exp_avg"]
                assert found.device.type == "cpu" and found.shape == whole.shape
                torch.testing.assert_close(found, whole * 0.1)
    finally:
        placement.SMALL = before


@case
def the_mean_of_three_ranks_is_a_quotient():
    """And no product with a third, which rounds otherwise."""
    group = dist.new_group([0, 1, 2], use_local_synchronization=True) if dist.get_rank() < 3 else 0
    if group:
        compare(trained("SGD", "local", process_group=group), "three ranks")


def strided(master, writes):
    """A parameter that is no range of memory, written by others between steps."""

    def train(place):
        torch.manual_seed(0)
        value = (torch.randn(6, 5, 3) * 0.1).bfloat16()
        params = [torch.nn.Parameter(place.place(value.permute(2, 0, 1)))]
        assert not params[0].is_contiguous()
        optimizer = st.AdamW(params, lr=1e-2, zero=1, gradients="reduced", master=master)
        for step in range(4):
            torch.manual_seed(step)
            params[0].grad = place.place(torch.randn(3, 6, 5).bfloat16())
            with torch.no_grad():
                if step == 2:
                    writes(params[0])
            optimizer.step()
            yield contents(place, optimizer)

    return train


@case
def parameters_that_are_no_range_of_memory():
    """A remainder is forgotten where one was written. Of a write that moves no version it
    knows nothing, but the parameter is followed."""
    compare(strided("remainder", lambda param: param.mul_(0.5)), "written")
    compare(strided("remainder", lambda param: None), "not written")
    compare(strided(None, lambda param: param.data.add_(0.25)), "written past its version")


def inside_tensor_parallelism(name, kind):
    def train(place):
        torch.manual_seed(0)
        mesh = grid()
        at = mesh.get_local_rank("tp")
        made = {n: torch.randn(s) * 0.1 for n, s in PARTS.items()}
        params = [
            (n, torch.nn.Parameter(place.place(part(v, n, at).contiguous())))
            for n, v in made.items()
        ]
        more = {"zero": 1, "gradients": "local", "process_group": mesh["dp"].get_group()}
        optimizer = ALL[name](params, layouts=layouts(mesh if kind else mesh["tp"], kind), **more)
        for step in range(3):
            grads = [{n: torch.randint(-8, 9, s) / 16 for n, s in PARTS.items()} for _ in range(2)]
            for n, param in params:
                own = part(grads[mesh.get_local_rank("dp")][n], n, at).contiguous()
                gone = step == 1 and n == "up" and mesh.get_local_rank("dp") == 1
                param.grad = None if gone else place.place(own)
            optimizer.step()
            yield contents(place, optimizer)

    return train


@case
def rows_of_what_tensor_parallelism_has_cut():
    for name in ("AdamW", "hf.Adafactor", "CAME", "FusedLamb"):
        compare(inside_tensor_parallelism(name, ()), name)


def by_passes(name, passes=1, late=False, **more):
    """zero=2: gradients leave in the backward pass."""

    def train(place):
        torch.manual_seed(0)
        made, grads = values(steps=3 * passes)
        params = [torch.nn.Parameter(place.place(value)) for value in made]
        optimizer = ALL[name](params, zero=2, gradients="local", **{"bucket_bytes": SMALL} | more)
        for step in range(3):
            optimizer.zero_grad()
            for number, own in enumerate(grads[step * passes : (step + 1) * passes]):
                absent = {4} if step == 1 and dist.get_rank() == 1 else set()
                if late and number == 0:
                    with optimizer.no_sync():
                        backward(place, params, own[dist.get_rank()], absent)
                else:
                    backward(place, params, own[dist.get_rank()], absent)
                    assert all(param.grad is None for param in params)
            optimizer.step()
            yield contents(place, optimizer)

    return train


@case
def gradients_that_leave_in_the_backward_pass():
    for name in sample(NAMES, "cuda zero2", 2):
        compare(by_passes(name), name)
    compare(by_passes("CAME", passes=2), "micro-batches")
    compare(by_passes("AdamW", passes=2, late=True), "without sync")
    compare(by_passes("AdamW", overlap=False, reduce_dtype=torch.bfloat16), "without overlap")


@case
def whole_states_and_checkpoints():
    """Of the device into the processor's optimizer, and back."""
    made, grads = values()

    def go(optimizer, params, place, step):
        for i, param in enumerate(params):
            param.grad = place.place(mean(grads[step], i, torch.float32))
        optimizer.step()

    for name in ("AdamW", "CAME"):
        with on_device() as place:
            params = [torch.nn.Parameter(place.place(value)) for value in made]
            optimizer = ALL[name](params, zero=1, gradients="reduced")
            go(optimizer, params, place, 0)
            saved, own = optimizer.full_state_dict(), optimizer.state_dict()
            assert saved["state"][0]["exp_avg"].device.type == "cuda"
            again = ALL[name](params, zero=1, gradients="reduced")
            again.load_state_dict(own)
            go(again, params, place, 1)
            kept = [place.host(param) for param in params]
            moments = {
                number: {key: place.host(value) for key, value in state.items()}
                for number, state in saved["state"].items()
            }
        plain = parameters(made)
        reference = ALL[name](plain)
        host = Processor()
        go(reference, plain, host, 0)
        for number, state in reference.state_dict()["state"].items():
            for key, value in state.items():
                same_bits(moments[number][key].view(value.shape), value, f"{name}, {key}")
        go(reference, plain, host, 1)
        if name == "AdamW":
            for a, b in zip(kept, plain, strict=True):
                same_bits(a, b, name)


if __name__ == "__main__":
    main()
