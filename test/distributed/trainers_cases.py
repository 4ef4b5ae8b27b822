# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Hugging Face's Trainer and Accelerate on four ranks, with DDP and FSDP2: the lines that
docs/coming-from.md has for them, beside torch's AdamW in the same loop."""

import copy
import os
import tempfile

import stepc.torch as st
import torch
import torch.distributed as dist
from on_ranks import case, main, same_bits, whole
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_optimizer_state_dict,
    set_optimizer_state_dict,
)
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

KINDS = {"ours": st.AdamW, "torch's": torch.optim.AdamW}


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.a, self.b = torch.nn.Linear(8, 16), torch.nn.Linear(16, 1)

    def forward(self, x=None, y=None):
        out = self.b(torch.tanh(self.a(x)))[:, 0]
        return {"loss": ((out - y) ** 2).mean(), "logits": out}


def rows():
    made = torch.randn(96, 9, generator=torch.Generator().manual_seed(1))
    return [{"x": row[:8], "y": row[8]} for row in made]


def as_launched():
    """What torchrun tells Accelerate; a state of one process is forgotten."""
    from accelerate.state import AcceleratorState, GradientState, PartialState

    os.environ |= {"LOCAL_RANK": os.environ["RANK"], "MASTER_ADDR": "localhost"}
    os.environ |= {"MASTER_PORT": "0", "ACCELERATE_USE_CPU": "true"}
    os.environ.pop("ACCELERATE_USE_FSDP", None)  # which Accelerate leaves behind
    for state in (AcceleratorState, GradientState, PartialState):
        state._reset_state()


def sharded(net):
    mesh = init_device_mesh("cpu", (4,), mesh_dim_names=("dp",))
    for layer in (net.a, net.b, net):
        fully_shard(layer, mesh=mesh)
    return net


def shared_folder():
    """One for all ranks."""
    names = [tempfile.mkdtemp() if dist.get_rank() == 0 else None]
    dist.broadcast_object_list(names)
    return names[0]


def near(left, right, what):
    for a, b in zip(left, right, strict=True):
        assert torch.allclose(a, b, rtol=1e-4, atol=1e-6), what


def trained(folder, kind, resume=False, shards=False, net=None, **said):
    from transformers import Trainer, TrainingArguments

    as_launched()
    arguments = TrainingArguments(
        folder, max_steps=6, save_steps=3, per_device_train_batch_size=4, report_to=[],
        use_cpu=True, logging_strategy="no", disable_tqdm=True, seed=0, learning_rate=1e-2,
        ddp_backend="gloo", **said,
    )  # fmt: skip
    net = net or Net()
    given = {"optimizer_cls_and_kwargs": (kind, {"lr": 1e-2})}
    kind_of_trainer = with_fsdp2(Trainer) if shards else Trainer
    trainer = kind_of_trainer(net, arguments, train_dataset=rows(), **given)
    trainer.train(resume_from_checkpoint=resume)
    assert trainer.accelerator.num_processes == 4
    return trainer, net


def with_fsdp2(trainer):
    """A Trainer whose Accelerate takes FSDP2 for the processor, too. It does so on accelerators
    alone, AcceleratorState.__init__ of 1.15: what the user has said is left out elsewhere."""

    class OfProcessors(trainer):
        def create_accelerator_and_postprocess(self):
            from accelerate import DistributedType

            super().create_accelerator_and_postprocess()
            assert not self.is_fsdp_enabled  # else this class is of no use any more
            state = self.accelerator.state
            state.distributed_type, state.fsdp_plugin = DistributedType.FSDP, fsdp2()
            self.is_fsdp_enabled = True

    return OfProcessors


@case
def the_trainer_over_ddp():
    nets = {}
    for name, kind in KINDS.items():
        trainer, nets[name] = trained(shared_folder(), kind)
    assert type(trainer.model_wrapped) is torch.nn.parallel.DistributedDataParallel
    near(nets["ours"].parameters(), nets["torch's"].parameters(), "the trainer")


@case
def the_trainer_over_ddp_resumes():
    """To the bit, behind what it saved after three steps."""
    folder = shared_folder()
    _, first = trained(folder, st.AdamW)
    _, again = trained(folder, st.AdamW, resume=f"{folder}/checkpoint-3")
    for a, b in zip(first.parameters(), again.parameters(), strict=True):
        same_bits(a, b, "after resuming")


FSDP2 = {"shards": True, "fsdp": True, "fsdp_config": {"version": 2}}


@case
def the_trainer_over_fsdp2():
    nets = {}
    for name, kind in KINDS.items():
        trainer, net = trained(shared_folder(), kind, **FSDP2)
        assert all(hasattr(param, "full_tensor") for param in net.parameters())
        nets[name] = [whole(param.detach()) for param in net.parameters()]
    near(*nets.values(), "the trainer with FSDP2")
    replicated = trained(shared_folder(), st.AdamW)[1].parameters()
    near(nets["ours"], replicated, "beside DDP")


@case
def the_trainer_over_fsdp2_resumes():
    """To the bit, from the shards that it saved after three steps."""
    folder = shared_folder()
    _, first = trained(folder, st.AdamW, **FSDP2)
    assert os.path.isdir(f"{folder}/checkpoint-3/optimizer_0")
    trainer, again = trained(folder, st.AdamW, resume=f"{folder}/checkpoint-3", **FSDP2)
    for a, b in zip(first.parameters(), again.parameters(), strict=True):
        same_bits(whole(a.detach()), whole(b.detach()), "after resuming")
    (state, *_) = trainer.optimizer.optimizer.state.values()
    assert float(state["step"]) == 6


@case
def the_trainer_with_a_model_that_is_sharded():
    """By its caller, or by transformers' ``from_pretrained(distributed_config=...)``, which says so
    by two attributes. The Trainer neither wraps it nor saves its optimizer; Accelerate is not
    asked."""
    nets = {}
    for name, kind in KINDS.items():
        net = sharded(Net())
        net.is_distributed_loading_by_transformers = net._is_fsdp_managed_module = True
        trainer, _ = trained(shared_folder(), kind, net=net, save_strategy="no")
        assert trainer.model_wrapped is net
        nets[name] = [whole(param.detach()) for param in net.parameters()]
    near(*nets.values(), "the trainer with a sharded model")
    near(nets["ours"], trained(shared_folder(), st.AdamW)[1].parameters(), "beside DDP")


class Accelerated:
    """A loop of Accelerate: steps of two micro-batches, a schedule, clipping."""

    def __init__(self, kind, plugin=None, **more):
        from accelerate import Accelerator, DistributedType

        as_launched()
        self.accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
        if plugin is not None:  # which it takes on accelerators alone; its code runs here, too
            self.accelerator.state.distributed_type = DistributedType.FSDP
            self.accelerator.state.fsdp_plugin = plugin
        net = Net()
        optimizer = kind(net.parameters(), lr=1e-2, **more)
        schedule = torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.5)
        loader = torch.utils.data.DataLoader(rows(), batch_size=2)
        made = self.accelerator.prepare(net, optimizer, loader, schedule)
        self.net, self.optimizer, self.loader, self.schedule = made

    def train(self, first, last):
        """Steps from ``first`` to before ``last``."""
        for batch in list(self.loader)[2 * first : 2 * last]:
            with self.accelerator.accumulate(self.net):
                self.accelerator.backward(self.net(**batch)["loss"])
                if self.accelerator.sync_gradients:
                    self.accelerator.clip_grad_norm_(self.net.parameters(), 0.5)
                self.optimizer.step()
                self.schedule.step()
                self.optimizer.zero_grad()
        return self

    def parts(self):
        return self.net, self.optimizer, self.schedule

    def weights(self):
        return [whole(param.detach()) for param in self.net.parameters()]


@case
def accelerate_over_ddp():
    found = {name: Accelerated(kind).train(0, 6).weights() for name, kind in KINDS.items()}
    near(*found.values(), "accelerate")
    sharded = Accelerated(st.AdamW, zero=st.Zero(1, gradients="reduced")).train(0, 6)
    for a, b in zip(found["ours"], sharded.weights(), strict=True):
        same_bits(a, b, "with zero=1")


def fsdp2():
    from accelerate import FullyShardedDataParallelPlugin

    return FullyShardedDataParallelPlugin(
        fsdp_version=2, reshard_after_forward=True, auto_wrap_policy="size_based_wrap",
        min_num_params=1, state_dict_type="SHARDED_STATE_DICT",
    )  # fmt: skip


@case
def accelerate_over_fsdp2():
    found = {name: Accelerated(kind, fsdp2()).train(0, 6) for name, kind in KINDS.items()}
    near(*(run.weights() for run in found.values()), "accelerate with FSDP2")
    ours = found["ours"]
    assert all(hasattr(param, "full_tensor") for param in ours.net.parameters())
    assert ours.optimizer.optimizer.last_step is not None


@case
def accelerate_over_fsdp2_resumes():
    """To the bit, from this rank's states after three steps."""
    run = Accelerated(st.AdamW, fsdp2()).train(0, 3)
    saved = copy.deepcopy([part.state_dict() for part in run.parts()])
    again = Accelerated(st.AdamW, fsdp2())
    for part, state in zip(again.parts(), saved, strict=True):
        part.load_state_dict(state)
    before = again.weights()
    for a, b in zip(run.train(3, 6).weights(), again.train(3, 6).weights(), strict=True):
        same_bits(a, b, "after resuming")
    assert not any(a.equal(b) for a, b in zip(before, again.weights(), strict=True))


class OptimizersContainer(torch.optim.Optimizer):
    """As torchtitan's: an optimizer for each part of the model, whose states are flat and go by
    the parameters' names."""

    def __init__(self, model_parts, kind, **more):
        self.model_parts = model_parts
        self.optimizers = [kind(part.parameters(), **more) for part in model_parts]
        params = [param for part in model_parts for param in part.parameters()]
        super().__init__(params, more)

    def step(self):
        for optimizer in self.optimizers:
            optimizer.step()

    def zero_grad(self):
        for optimizer in self.optimizers:
            optimizer.zero_grad()

    def state_dict(self):
        found = {}
        for part, optimizer in zip(self.model_parts, self.optimizers, strict=True):
            found |= get_optimizer_state_dict(part, optimizer, options=FLAT)
        return found

    def load_state_dict(self, state):
        for part, optimizer in zip(self.model_parts, self.optimizers, strict=True):
            set_optimizer_state_dict(part, optimizer, state, options=FLAT)


FLAT = StateDictOptions(flatten_optimizer_state_dict=True)


def run_of_titan(kind, steps, saved=None):
    net = sharded(Net())
    container = OptimizersContainer([net], kind, lr=1e-2)
    if saved is not None:
        net.load_state_dict(saved[0])
        container.load_state_dict(saved[1])
    batches = list(torch.utils.data.DataLoader(rows(), batch_size=4))
    for batch in batches[steps]:
        net(**batch)["loss"].backward()
        container.step()
        container.zero_grad()
    return net, container


@case
def the_container_of_torchtitan():
    found = {name: run_of_titan(kind, slice(6)) for name, kind in KINDS.items()}
    nets = {
        name: [whole(param.detach()) for param in net.parameters()]
        for name, (net, _) in found.items()
    }
    near(nets["ours"], nets["torch's"], "the container")
    states = {name: container.state_dict() for name, (_, container) in found.items()}
    assert "state.a.weight.exp_avg" in states["ours"]
    # What torch's has beside are arguments that make no difference.
    assert {key for key in states["torch's"] if key.startswith("state.")} == {
        key for key in states["ours"] if key.startswith("state.")
    }
    half = run_of_titan(st.AdamW, slice(3))
    saved = copy.deepcopy((half[0].state_dict(), half[1].state_dict()))
    net, _ = run_of_titan(st.AdamW, slice(3, 6), saved)
    for a, b in zip(nets["ours"], net.parameters(), strict=True):
        same_bits(a, whole(b.detach()), "after resuming")


if __name__ == "__main__":
    main()
