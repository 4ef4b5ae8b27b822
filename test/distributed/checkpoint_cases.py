# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""States through torch.distributed.checkpoint, from every layout into every other, and
what ``state_dict`` has of a part."""

import copy
import io
import tempfile

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from on_ranks import case, main, same_bits, whole
from torch.distributed.checkpoint.state_dict import (
    get_optimizer_state_dict,
    set_optimizer_state_dict,
)
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard, distribute_tensor
from zoo import ALL

SHAPES = {"up": (10, 6), "down": (6, 10), "norm": (6,), "cube": (3, 5, 7)}


def values(steps=3):
    generator = torch.Generator().manual_seed(0)
    made = {n: torch.randn(s, generator=generator) for n, s in SHAPES.items()}
    grads = [
        {n: torch.randint(-8, 9, s, generator=generator) / 16.0 for n, s in SHAPES.items()}
        for _ in range(steps)
    ]
    return made, grads


class Model(torch.nn.Module):
    """Parameters as a layout has them; ``spread`` makes one of a whole tensor."""

    def __init__(self, made, spread=None):
        super().__init__()
        for name, value in made.items():
            own = value.clone() if spread is None else spread(name, value.clone())
            self.register_parameter(name, torch.nn.Parameter(own))


def mesh_of(kind):
    if kind == "fsdp2":
        return init_device_mesh("cpu", (4,), mesh_dim_names=("dp",))
    return init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))


def spread_of(kind):
    """How a layout makes a DTensor of a whole tensor; None where it is plain."""
    if kind not in ("fsdp2", "tp x fsdp2"):
        return None
    mesh = mesh_of(kind)
    tp = {"up": Shard(0), "down": Shard(1), "norm": Replicate(), "cube": Shard(2)}

    def spread(name, value):
        placements = [Shard(0)] if kind == "fsdp2" else [Shard(0), tp[name]]
        return distribute_tensor(value, mesh, placements)

    return spread


ARGUMENTS = {
    "zero1": {"zero": 1, "gradients": "reduced"},
    "zero2": {"zero": 2, "gradients": "local", "bucket_bytes": 300},
}
KINDS = ("single", "ddp", "zero1", "zero2", "fsdp2", "tp x fsdp2")


class Run:
    """A model and its optimizer under one layout."""

    def __init__(self, kind, made, make=ALL["AdamW"]):
        self.kind, self.spread = kind, spread_of(kind)
        self.model = Model(made, self.spread)
        params = list(self.model.named_parameters())
        if kind == "torch.optim":
            self.optimizer = torch.optim.AdamW(params, lr=1e-2)
        else:
            self.optimizer = make(params, **ARGUMENTS.get(kind, {}))

    def step(self, grads):
        self.optimizer.zero_grad()
        params = dict(self.model.named_parameters())
        if self.kind == "zero2":
            sum((p * grads[n]).sum() for n, p in params.items()).backward()
        else:
            for name, param in params.items():
                grad = grads[name].clone()
                param.grad = grad if self.spread is None else self.spread(name, grad)
        self.optimizer.step()

    @property
    def alone(self) -> bool:
        return self.kind in ("single", "torch.optim")

    def save(self, folder):
        saved = {"optim": get_optimizer_state_dict(self.model, self.optimizer)}
        if not self.alone:
            dcp.save(saved, checkpoint_id=folder)
        elif dist.get_rank() == 0:
            dcp.save(saved, checkpoint_id=folder, no_dist=True)
        dist.barrier()

    def load(self, folder):
        state = {"optim": get_optimizer_state_dict(self.model, self.optimizer)}
        dcp.load(state, checkpoint_id=folder, no_dist=self.alone)
        set_optimizer_state_dict(self.model, self.optimizer, state["optim"])

    def states(self):
        """Whole states, by the parameter's name."""
        optimizer = self.optimizer
        packed = (
            optimizer.full_state_dict()
            if hasattr(optimizer, "full_state_dict")
            else optimizer.state_dict()
        )
        return copy.deepcopy(dict(zip(SHAPES, packed["state"].values(), strict=True)))


def folder():
    made = [tempfile.mkdtemp() if dist.get_rank() == 0 else ""]
    dist.broadcast_object_list(made)
    return made[0]


def same_states(left, right, what):
    for name, own in right.items():
        assert set(left[name]) == set(own), (what, name, set(left[name]), set(own))
        for key, value in own.items():
            same_bits(left[name][key], value, f"{what}, {name} {key}")


def pairs(make, kinds, others):
    """Saved by each of ``kinds``, loaded by each of them and stepped; ``others`` only save
    and load, as they round otherwise."""
    made, grads = values()
    place = folder()
    runs = {kind: Run(kind, made, make) for kind in (*kinds, *others)}
    for kind, run in runs.items():
        for own in grads[:2]:
            run.step(own)
        run.save(f"{place}/{kind}")
    trained = {n: p.detach().clone() for n, p in runs["single"].model.named_parameters()}
    saved = {kind: run.states() for kind, run in runs.items()}
    for kind in kinds:
        same_states(saved[kind], saved["single"], kind)
    runs["single"].step(grads[2])
    expected = dict(runs["single"].model.named_parameters())
    for source in runs:
        for kind in runs:
            run, what = Run(kind, trained, make), f"{source} into {kind}"
            run.load(f"{place}/{source}")
            same_states(run.states(), saved[source], what)
            if source in kinds and kind in kinds:
                run.step(grads[2])
                for name, param in run.model.named_parameters():
                    same_bits(whole(param), expected[name], f"{what}, {name}")


@case
def every_layout_into_every_other():
    pairs(ALL["AdamW"], KINDS, ("torch.optim",))


@case
def rows_and_columns_too():
    """States that are not cut as the parameter is."""
    pairs(ALL["CAME"], ("single", "zero1", "zero2", "tp x fsdp2"), ())


@case
def a_checkpoint_has_the_shapes_and_names_of_the_whole():
    made, grads = values()
    place = folder()
    for kind in KINDS:
        run = Run(kind, made)
        run.step(grads[0])
        run.save(f"{place}/{kind}")
        found = dcp.FileSystemReader(f"{place}/{kind}").read_metadata().state_dict_metadata
        for name, shape in SHAPES.items():
            for key in ("exp_avg", "exp_avg_sq"):
                assert tuple(found[f"optim.state.{name}.{key}"].size) == shape, (kind, name)


def through_a_file(state):
    buffer = io.BytesIO()
    torch.save(state, buffer)
    buffer.seek(0)
    return torch.load(buffer, weights_only=True)


@case
def every_state_passes_weights_only():
    made, grads = values()
    for kind in KINDS:
        for name in ("AdamW", "CAME", "AdamW, clipped"):
            run, again = Run(kind, made, ALL[name]), Run(kind, made, ALL[name])
            run.step(grads[0])
            again.step(grads[0])
            again.optimizer.load_state_dict(through_a_file(run.optimizer.state_dict()))
            through_a_file(run.optimizer.full_state_dict())
            for one in (run, again):
                one.step(grads[1])
            for (key, a), b in zip(
                run.model.named_parameters(), again.model.parameters(), strict=True
            ):
                same_bits(whole(b), whole(a), f"{kind}, {name}, {key}")


@case
def a_state_dict_does_not_communicate():
    made, grads = values()
    for kind in ("zero1", "zero2", "fsdp2", "tp x fsdp2"):
        run = Run(kind, made, ALL["CAME"])
        run.step(grads[0])
        if dist.get_rank() == 2:  # the others are not there
            state = run.optimizer.state_dict()
            run.optimizer.load_state_dict(state)
            run.optimizer.state_dict()
            copy.deepcopy(state)
        dist.barrier()


def refused(run, state, words):
    before = run.states()
    try:
        run.optimizer.load_state_dict(state)
    except ValueError as error:
        assert words in str(error), error
    else:
        raise AssertionError(f"it was not refused: {words}")
    same_states(run.states(), before, "after what was refused")


@case
def parts_of_another_layout_are_refused():
    made, grads = values()
    runs = {kind: Run(kind, made) for kind in KINDS}
    for run in runs.values():
        run.step(grads[0])
    states = {kind: run.optimizer.state_dict() for kind, run in runs.items()}
    words = "this optimizer has elements ["
    refused(runs["zero1"], states["zero2"], words)
    refused(runs["zero2"], states["zero1"], words)
    for kind in ("single", "ddp"):
        refused(runs[kind], states["zero1"], "this optimizer has whole states")
    for kind in ("single", "ddp", "zero1", "zero2"):
        refused(runs[kind], states["fsdp2"], "is a DTensor with placements")
    refused(runs["fsdp2"], states["zero1"], "this optimizer has part (dim 0, ")
    refused(runs["fsdp2"], states["tp x fsdp2"], "the parameter has (Shard(dim=0),)")
    bare = copy.deepcopy(states["zero1"])
    for own in bare["state"].values():
        own["exp_avg"] = own["exp_avg"].clone()
    refused(runs["zero1"], bare, "is a part that does not say which")


if __name__ == "__main__":
    main()
