# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Optimizers under ColossalAI's plugins, which call ``setup_distributed``: on four ranks,
against one process. What the plugins do is imitated; ColossalAI needs GPUs."""

import inspect
from types import SimpleNamespace

import stepc.torch as st
import torch
import torch.distributed as dist
from named_values import named_values
from on_ranks import case, main, same_bits
from stepc import errors
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard
from zoo import ALL

# Rows of a tensor that tp has cut divide by dp; others need not.
SHAPES = {
    "up": (8, 6),
    "down": (6, 10),
    "bias": (8,),
    "norm": (7,),
    "experts": (4, 5, 8),
    "scale": (),
}
CUT = {"up": 0, "bias": 0, "down": 1, "experts": 2}


def working_of(made, group):
    """Parameters of the model, of which tensor parallelism says how it has cut them."""
    found = {}
    for name, value in made.items():
        own = value
        if group is not None and name in CUT:
            world, rank = dist.get_world_size(group), dist.get_rank(group)
            own = value.chunk(world, CUT[name])[rank]
        param = found[name] = torch.nn.Parameter(own.clone())
        if own is not value:
            spec = SimpleNamespace(dim_partition_dict={CUT[name]: [0]})
            param.dist_layout = SimpleNamespace(sharding_spec=spec, global_shape=value.shape)
    return found


class LowLevelZero:
    """What ``LowLevelZeroOptimizer`` does to an optimizer: masters in its groups, reduced
    gradients in them, in each step a list of those that have one, and the parameters made
    from them."""

    def __init__(self, optim, dp_group):
        self.optim, self.group = optim, dp_group
        self.world, self.rank = dist.get_world_size(dp_group), dist.get_rank(dp_group)
        self.master_to_working_param, self.padding, self.masters = {}, {}, []
        for group in optim.param_groups:
            made = []
            for working in group["params"]:
                padding = -working.numel() % self.world
                line = torch.nn.functional.pad(working.data.view(-1), [0, padding])
                master = line.chunk(self.world)[self.rank].detach().clone().float()
                self.master_to_working_param[id(master)] = working
                self.padding[id(working)] = padding
                made.append(master)
            group["params"] = made
            self.masters.append(made)

    def pieces(self, tensor):
        line = tensor.detach().reshape(-1)
        return torch.nn.functional.pad(line, [0, -len(line) % self.world]).chunk(self.world)

    def step(self):
        for group, masters in zip(self.optim.param_groups, self.masters, strict=True):
            real = []
            for master in masters:
                working = self.master_to_working_param[id(master)]
                if working.grad is not None:
                    mean = working.grad / self.world
                    dist.all_reduce(mean, group=self.group)
                    master.grad = self.pieces(mean)[self.rank].clone()
                    real.append(master)
            group["params"] = real
        self.optim.step()
        for group, masters in zip(self.optim.param_groups, self.masters, strict=True):
            for master in group["params"]:
                working = self.master_to_working_param[id(master)]
                parts = [torch.empty_like(master) for _ in range(self.world)]
                dist.all_gather(parts, master, group=self.group)
                line = torch.cat(parts)[: working.numel()]
                working.data.copy_(line.view(working.shape))
                master.grad = None
            group["params"] = masters


def plugin(name, made, tp_group, dp_group, zero):
    """As ``HybridParallelPlugin.configure`` with zero_stage 0 or 2."""
    working = working_of(made, tp_group)
    optim = ALL[name](list(working.values()))
    wrapped, shards, padding = None, {}, {}
    if zero:
        wrapped = LowLevelZero(optim, dp_group)
        shards, padding = wrapped.master_to_working_param, wrapped.padding
    optim.setup_distributed(tp_group, dp_group, shards, padding, zero)
    return working, optim, wrapped


def groups(tp, dp):
    mesh = init_device_mesh("cpu", (dp, tp), mesh_dim_names=("dp", "tp"))
    return mesh["tp"].get_group() if tp > 1 else None, mesh["dp"].get_group()


def part(value, name, group):
    if group is None or name not in CUT:
        return value
    return value.chunk(dist.get_world_size(group), CUT[name])[dist.get_rank(group)]


def run(name, tp, dp, zero=True, missing=()):
    tp_group, dp_group = groups(tp, dp)
    made, grads = named_values(SHAPES, 4, 4)
    plain = {key: torch.nn.Parameter(value.clone()) for key, value in made.items()}
    reference = ALL[name](list(plain.values()))
    working, optim, wrapped = plugin(name, made, tp_group, dp_group, zero)
    for step, own in enumerate(grads):
        absent = missing if step == 1 else ()
        for key, param in plain.items():
            mean = sum(own[rank][key] for rank in range(dp)) / dp
            param.grad = None if key in absent else mean
            mine = own[dist.get_rank(dp_group)][key] if zero else mean
            working[key].grad = None if key in absent else part(mine, key, tp_group).clone()
        reference.step()
        (wrapped or optim).step()
        for key, param in working.items():
            expected = part(plain[key].detach(), key, tp_group)
            same_bits(param, expected, f"{name}, tp={tp}, dp={dp}, step {step}, {key}")
    return reference, optim, wrapped, working


NAMES = ("AdamW", "hf.Adafactor", "CAME", "FusedLamb", "LARS", "FusedAdam", "AdamW, clipped")


@case
def zero_alone():
    for name in NAMES:
        run(name, 1, 4, missing=("up", "norm"))


@case
def tensor_parallel_with_zero():
    for name in NAMES:
        run(name, 2, 2, missing=("down",))


@case
def tensor_parallel_alone():
    """The plugin without zero gives the groups and no masters."""
    for name in NAMES:
        run(name, 2, 2, zero=False)
    run("CAME", 4, 1, zero=False)


@case
def masters_that_nothing_cuts():
    """As ColossalAI's test of Adafactor has them: flat, over one rank."""
    made, grads = named_values(SHAPES, 4, 4)
    tp_group, _ = groups(4, 1)
    working = working_of({"up": made["up"]}, tp_group)["up"]
    master = torch.nn.Parameter(working.detach().clone().flatten())
    optim = ALL["hf.Adafactor"]([master])
    optim.setup_distributed(
        tp_group=tp_group,
        dp_group=None,
        shard_to_working_param={id(master): working},
        use_zero=False,
    )
    plain = torch.nn.Parameter(made["up"].clone())
    reference = ALL["hf.Adafactor"]([plain])
    for own in grads:
        plain.grad = own[0]["up"]
        master.grad = part(own[0]["up"], "up", tp_group).flatten()
        reference.step()
        optim.step()
    expected = part(plain.detach(), "up", tp_group).flatten()
    same_bits(master, expected, "up")


@case
def states_go_where_they_are_wanted():
    """Whole ones to one process and back; padded pieces, as ColossalAI loads them."""
    for name in ("AdamW", "CAME"):
        for tp, dp in ((1, 4), (2, 2)):
            reference, optim, wrapped, working = run(name, tp, dp)
            full = optim.full_state_dict()
            for (key, own), expected in zip(
                full["state"].items(), reference.state_dict()["state"].values(), strict=True
            ):
                for state, value in expected.items():
                    same_bits(own[state], value, f"{name}, {key}, {state}")
            tp_group, dp_group = groups(tp, dp)
            whole = {key: torch.nn.Parameter(p.detach().clone()) for key, p in working.items()}
            for key, param in working.items():
                whole[key].__dict__.update(vars(param))
            again = ALL[name](list(whole.values()))
            other = LowLevelZero(again, dp_group)
            again.setup_distributed(
                tp_group, dp_group, other.master_to_working_param, other.padding, True
            )
            pieces = {"state": {}, "param_groups": full["param_groups"]}
            for (key, own), param in zip(full["state"].items(), working, strict=True):
                cut = {}
                for state, value in own.items():
                    alike = isinstance(value, torch.Tensor) and value.shape == SHAPES[param]
                    if alike and state != "step":
                        local = part(value, param, tp_group)
                        value = other.pieces(local)[other.rank].clone()
                    cut[state] = value
                pieces["state"][key] = cut
            again.load_state_dict(pieces if tp == 1 else full)
            _, grads = named_values(SHAPES, 4, 5)
            for each, params in ((wrapped, working), (other, whole)):
                for key, param in params.items():
                    mine = grads[4][dist.get_rank(dp_group)][key]
                    param.grad = part(mine, key, tp_group).clone()
                each.step()
            for key, param in working.items():
                same_bits(whole[key], param, f"{name}, tp={tp}, {key} after loading")


def refused(words, function, kind=errors.TensorError):
    try:
        function()
    except kind as error:
        assert words in str(error), error
    else:
        raise AssertionError("it was not refused")


@case
def what_is_refused():
    tp_group, dp_group = groups(2, 2)
    # Fifteen elements, of rows of six.
    working = working_of({"down": torch.ones(5, 12)}, tp_group)
    optim = ALL["CAME"](list(working.values()))
    wrapped = LowLevelZero(optim, dp_group)
    optim.setup_distributed(tp_group, dp_group, wrapped.master_to_working_param, None, True)
    for param in working.values():
        param.grad = torch.ones_like(param)
    refused("not whole rows; use zero=Zero(1, ...) or Zero(2) of this optimizer", wrapped.step)
    working = working_of({"up": torch.ones(8, 6)}, tp_group)
    param = working["up"]
    param.dist_layout.sharding_spec.dim_partition_dict[1] = [1]
    optim = ALL["CAME"]([param])
    optim.setup_distributed(tp_group)
    param.grad = torch.ones_like(param)
    refused("is cut in dims [0, 1]", optim.step)
    optim = ALL["CAME"](list(working_of({"up": torch.ones(8, 6)}, None).values()))
    wrapped = LowLevelZero(optim, dp_group)
    optim.setup_distributed(None, dist.group.WORLD, wrapped.master_to_working_param)
    wrapped.masters[0][0].grad = torch.ones(24)
    refused("has 24 elements, expected 12: a part of (8, 6) over 4 ranks", optim.step)
    optim = ALL["CAME"]([torch.nn.Parameter(torch.ones(2))], zero=1, gradients="local")
    refused("of no use with zero or layouts", optim.setup_distributed, ValueError)
    # Without the call, a master would be taken for a vector.
    optim = ALL["CAME"](list(working_of({"up": torch.ones(8, 6)}, None).values()))
    LowLevelZero(optim, dp_group).masters[0][0].grad = torch.ones(24)
    refused("or with ColossalAI's setup_distributed", optim.step)


@case
def clipping_under_a_plugin_of_tensor_parallelism():
    """The norm is that of all parts, so both ranks of tp step what both have alike, with the bits
    of one process; with ZeRO over the replicas and without."""
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("tp", "dp"))
    made, grads = named_values(SHAPES, 4, 2)
    grads = [[{n: 8 * v for n, v in own.items()} for own in step] for step in grads]
    group = mesh["tp"].get_group()
    layouts = [
        (n, st.Layout(mesh["tp"], [Shard(CUT[n]) if n in CUT else Replicate()])) for n in SHAPES
    ]
    for stage in (0, 1, 2):
        plain = {n: torch.nn.Parameter(v.clone()) for n, v in made.items()}
        reference = st.SGD(plain.items(), lr=0.1, clip=st.ClipByNorm(1.0))
        params = {n: torch.nn.Parameter(part(v, n, group).clone()) for n, v in made.items()}
        given = st.colossal.configure(
            "HybridParallelPlugin", tp_size=2, pp_size=1, zero_stage=stage, precision="fp32",
            max_norm=1.0, layouts=layouts, process_group=mesh["dp"].get_group(),
        )  # fmt: skip
        optimizer = st.SGD(params.items(), lr=0.1, **given)
        for ranks in grads:
            for name, param in plain.items():
                param.grad = ranks[0][name].clone()
            reference.step()
            sum((p * part(ranks[0][n], n, group)).sum() for n, p in params.items()).backward()
            optimizer.step()
            optimizer.zero_grad()
            assert optimizer.last_step.grad_norm == reference.last_step.grad_norm > 1
        for name, param in params.items():
            same_bits(param, part(plain[name].detach(), name, group), f"stage {stage}: {name}")
            if name not in CUT:
                ranks = [torch.empty_like(param) for _ in range(2)]
                dist.all_gather(ranks, param.detach(), group=group)
                same_bits(ranks[0], ranks[1], f"stage {stage}: {name} of both ranks of tp")


@case
def the_arguments_of_colossalai():
    """In its order, so that its plugins' call binds them."""
    names = list(inspect.signature(st.colossal.Lamb.setup_distributed).parameters)
    assert names[1:6] == [
        "tp_group", "dp_group", "shard_to_working_param", "padding_map", "is_zero",
    ]  # fmt: skip


@case
def arguments_of_plugins():
    """``configure`` with ZeRO of both stages, and over the replicas of a mesh, beside the same
    arguments written by hand; what ranks must be told is refused."""
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("tp", "dp"))
    replicas = mesh["dp"].get_group()
    both = [(".*", st.Layout(mesh["tp"], [Replicate()]))]
    made, grads = named_values(SHAPES, 4, 2)
    for plugin, key, more, group in (
        ("LowLevelZeroPlugin", "stage", {}, None),
        ("HybridParallelPlugin", "zero_stage", {"tp_size": 2, "layouts": both}, replicas),
    ):
        for stage in (1, 2):
            said = {key: stage, "precision": "bf16", "max_norm": 1.0, **more}
            own_layouts = {name: more[name] for name in more if name == "layouts"}
            zero = st.Zero(stage, gradients="local", process_group=group)
            found = []
            for given in (
                st.colossal.configure(plugin, process_group=group, **said),
                {"master": "remainder", "clip": st.ClipByNorm(1.0), "zero": zero, **own_layouts},
            ):
                params = {n: torch.nn.Parameter(v.bfloat16()) for n, v in made.items()}
                optimizer = st.colossal.HybridAdam(params.items(), lr=0.1, **given)
                assert optimizer._zero.stage == stage
                for ranks in grads:
                    own = ranks[dist.get_rank()]
                    sum((p * own[n].bfloat16()).sum() for n, p in params.items()).backward()
                    optimizer.step()
                    optimizer.zero_grad()
                found.append(params)
            for name, param in found[0].items():
                same_bits(param, found[1][name], f"{plugin}, stage {stage}: {name}")
    words = "tp_size is 2, and process_group is None, expected that of the replicas"
    refused(
        words,
        lambda: st.colossal.configure(
            "HybridParallelPlugin", tp_size=2, pp_size=1, zero_stage=1, layouts=()
        ),
        ValueError,
    )


if __name__ == "__main__":
    main()
