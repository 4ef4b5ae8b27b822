#!/usr/bin/env python3
"""A vision transformer with tensor, pipeline and data parallelism, as ColossalAI's tutorial has it.

The ViT of transformers learns the 1797 digits that scikit-learn contains. Its layers are cut by
torch.distributed.tensor.parallel, its stages run by torch.distributed.pipelining. The optimizer is
HybridAdam of stepc.torch with ZeRO over the remaining ranks, float16 parameters with float32
masters, a dynamic loss scale, and gradients clipped by the norm of the whole model.

    tools/examples/vit_hybrid.py --ranks 4           # tensor parallel 2 x pipeline 2
    tools/examples/vit_hybrid.py --ranks 8 --zero 2  # x 2 replicas, ZeRO-2
    tools/examples/vit_hybrid.py --ranks 1           # one process, no parallelism

Several ranks are compared with one process, step by step. Writes vit_hybrid.png and .json.

SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""

import argparse
import json
import tempfile
from pathlib import Path

import stepc.torch as st
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from sklearn.datasets import load_digits
from stepc.torch.colossal import DynamicGradScaler, HybridAdam
from stepc.torch.schedules import CosineAnnealingWarmupLR
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
from torch.distributed.tensor import Replicate
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.functional import cross_entropy
from tqdm import tqdm
from transformers import ViTConfig, ViTForImageClassification

AXES = ("pp", "dp", "tp")
MESHES = {1: (1, 1, 1), 4: (2, 1, 2), 8: (2, 2, 2)}  # stages, replicas, parts
LAYERS, BATCH, MICRO_BATCHES, TEST = 4, 96, 2, 384
PRECISIONS = {"fp16": torch.float16, "fp32": torch.float32}

# What tensor parallelism cuts of a layer, as Megatron-LM does.
PLAN = {
    **{f"attention.{name}_proj": ColwiseParallel() for name in "qkv"},
    "attention.o_proj": RowwiseParallel(),
    "mlp.fc1": ColwiseParallel(),
    "mlp.fc2": RowwiseParallel(),
}


class Stage(nn.Module):
    """The layers of one stage: the first has the embeddings, the last the classifier."""

    def __init__(self, model: ViTForImageClassification, at: int, stages: int):
        super().__init__()
        own = range(at * LAYERS // stages, (at + 1) * LAYERS // stages)
        self.embeddings = model.vit.embeddings if at == 0 else None
        self.layers = nn.ModuleDict({str(number): model.vit.layers[number] for number in own})
        self.norm = model.vit.layernorm if at == stages - 1 else None
        self.classifier = model.classifier if at == stages - 1 else None

    def forward(self, x):
        if self.embeddings is not None:
            x = self.embeddings(x)
        for layer in self.layers.values():
            x = layer(x)
        return x if self.classifier is None else self.classifier(self.norm(x)[:, 0])


def make_stage(at: int, stages: int, dtype: torch.dtype) -> Stage:
    torch.manual_seed(0)  # every rank makes the whole model and keeps its stage
    config = ViTConfig(
        image_size=8, patch_size=4, num_channels=1, num_labels=10, hidden_size=64,
        num_hidden_layers=LAYERS, num_attention_heads=4, intermediate_size=128,
    )  # fmt: skip
    return Stage(ViTForImageClassification(config), at, stages).to(dtype)


def digits(dtype: torch.dtype):
    """Images (n, 1, 8, 8) and labels, to train with and to test with, the same on all ranks."""
    found = load_digits()
    images = (torch.tensor(found.images, dtype=dtype) / 8 - 1)[:, None]
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(0))
    images, labels = images[order], torch.tensor(found.target)[order]
    return (images[TEST:], labels[TEST:]), (images[:TEST], labels[:TEST])


def make_optimizer(stage: Stage, chosen, **ranks) -> HybridAdam:
    return HybridAdam(
        stage.named_parameters(),
        lr=chosen.lr,
        weight_decay=0.1,
        master="f32",  # behind float16 parameters
        clip=st.ClipByNorm(1.0),  # the norm is that of all stages, parts and replicas
        loss_scale=DynamicGradScaler(
            initial_scale=2.0**16, growth_factor=2.0, backoff_factor=0.5, growth_interval=100,
            hysteresis=2, min_scale=1.0, max_scale=2.0**32,
        ),
        **ranks,
    )  # fmt: skip


class OneProcess:
    """The whole model, and nothing of torch.distributed."""

    at, of, speaks = 0, 1, True

    def __init__(self, chosen):
        self.stage = make_stage(0, 1, PRECISIONS[chosen.precision])
        self.optimizer = make_optimizer(self.stage, chosen)

    def loss_of(self, logits, labels):
        """Of a micro-batch: scaled, and a part of the mean."""
        loss = cross_entropy(logits.float(), labels, label_smoothing=0.1)
        return self.optimizer.scale(loss) / MICRO_BATCHES

    def train(self, images, labels) -> torch.Tensor:
        """Gradients of a batch; returns its loss."""
        losses = []
        for part in zip(images.chunk(MICRO_BATCHES), labels.chunk(MICRO_BATCHES), strict=True):
            losses.append(self.loss_of(self.stage(part[0]), part[1]))
            losses[-1].backward()
        return self.mean_loss(losses)

    def mean_loss(self, losses) -> torch.Tensor:
        return sum(loss.detach() for loss in losses) / self.optimizer.loss_scale

    def count_right(self, images, labels) -> torch.Tensor:
        return (self.stage(images).argmax(1) == labels).sum()

    def told(self, number: torch.Tensor) -> float:
        """What the last stages have found, added up over replicas."""
        return float(number)


class Hybrid(OneProcess):
    """A stage of the model, of which this rank has a part."""

    def __init__(self, chosen):
        self.mesh = init_device_mesh("cpu", MESHES[chosen.ranks], mesh_dim_names=AXES)
        stage, stages = self.mesh.get_local_rank("pp"), self.mesh["pp"].size()
        self.at, self.of = self.mesh.get_local_rank("dp"), self.mesh["dp"].size()
        self.speaks, self.is_last = dist.get_rank() == 0, stage == stages - 1
        self.stage = make_stage(stage, stages, PRECISIONS[chosen.precision])
        for layer in self.stage.layers.values():
            parallelize_module(layer, self.mesh["tp"], PLAN)
        pipe = PipelineStage(
            self.stage, stage, stages, torch.device("cpu"), group=self.mesh["pp"].get_group()
        )
        self.schedule = Schedule1F1B(pipe, MICRO_BATCHES, self.loss_of, scale_grads=False)
        # DTensors know of tensor parallelism; that stages have other tensors is said here.
        stages = st.Layout(self.mesh, ["distinct", Replicate(), Replicate()])
        replicas = {"process_group": self.mesh["dp"].get_group()}
        if chosen.zero == 1:
            replicas["gradients"] = "local"
        zero = st.Zero(chosen.zero, **replicas)
        self.optimizer = make_optimizer(self.stage, chosen, layouts=[(".*", stages)], zero=zero)

    def train(self, images, labels):
        losses = []
        self.schedule.step(images, target=labels, losses=losses, return_outputs=False)
        return self.mean_loss(losses) if self.is_last else torch.zeros(())

    def count_right(self, images, labels):
        logits = self.schedule.eval(images, target=labels)  # it wants labels, too
        return (logits.argmax(1) == labels).sum() if self.is_last else torch.zeros(())

    def told(self, number):
        total = number.double().clone()
        dist.all_reduce(total, group=self.mesh["pp"].get_group())
        dist.all_reduce(total, group=self.mesh["dp"].get_group())
        return float(total)


def accuracy(run, images, labels) -> float:
    right = 0
    with torch.no_grad():
        for first in range(0, len(labels), BATCH):
            own = slice(first, first + BATCH)
            own_images, own_labels = images[own].chunk(run.of), labels[own].chunk(run.of)
            right += run.told(run.count_right(own_images[run.at], own_labels[run.at]))
    return right / len(labels)


def train(chosen, run) -> dict:
    """All epochs; the losses, and the accuracy of the test images behind each epoch."""
    (images, labels), test = digits(PRECISIONS[chosen.precision])
    steps = chosen.steps or len(labels) // BATCH
    total = chosen.epochs * steps
    schedule = CosineAnnealingWarmupLR(
        run.optimizer, total, warmup_steps=max(1, total // 10), eta_min=0.02 * chosen.lr
    )
    found = {"losses": [], "rates": [], "scales": [], "norms": [], "accuracy": []}
    name = f"{chosen.ranks} ranks" if chosen.ranks > 1 else "one process"
    bar = tqdm(total=total, desc=name, disable=not run.speaks, mininterval=1)
    shuffled = torch.Generator().manual_seed(1)
    for _ in range(chosen.epochs):
        order = torch.randperm(len(labels), generator=shuffled)
        for batch in order[: steps * BATCH].chunk(steps):
            own = batch.chunk(run.of)[run.at]
            run.optimizer.zero_grad()
            loss = run.train(images[own], labels[own])
            run.optimizer.step()
            found["losses"].append(run.told(loss) / run.of)
            found["rates"].append(schedule.get_last_lr()[0])
            found["scales"].append(run.optimizer.last_step.loss_scale)
            found["norms"].append(run.optimizer.last_step.grad_norm)
            schedule.step()
            bar.update()
            bar.set_postfix(loss=f"{found['losses'][-1]:.4f}", scale=found["scales"][-1])
        found["accuracy"].append(accuracy(run, *test))
    bar.close()
    return found


def on_rank(rank: int, chosen, folder: str) -> None:
    store = dist.FileStore(f"{folder}/store", chosen.ranks)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=chosen.ranks)
    found = train(chosen, Hybrid(chosen))
    if rank == 0:
        Path(folder, "found.json").write_text(json.dumps(found))
    dist.destroy_process_group()


def train_on(ranks: int, chosen) -> dict:
    chosen = argparse.Namespace(**{**vars(chosen), "ranks": ranks})
    torch.set_num_threads(1)  # the layers are small
    if ranks == 1:
        return train(chosen, OneProcess(chosen))
    with tempfile.TemporaryDirectory() as folder:
        # Forked, they need not import everything again; no thread of torch's runs here yet.
        mp.start_processes(on_rank, (chosen, folder), ranks, start_method="fork")
        return json.loads(Path(folder, "found.json").read_text())


def draw(runs: dict, path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, (top, below) = pyplot.subplots(2, 1, figsize=(8, 6), layout="constrained")
    for (name, found), line in zip(runs.items(), ("-", "--"), strict=False):
        top.semilogy(found["losses"], line, label=name)
        below.plot(range(1, len(found["accuracy"]) + 1), found["accuracy"], line, label=name)
    top.set(xlabel="step", ylabel="training loss")
    below.set(xlabel="epoch", ylabel="test accuracy")
    top.legend()
    figure.savefig(path, dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", type=int, choices=MESHES, default=4)
    parser.add_argument("--zero", type=int, choices=(1, 2), default=1, help="stage of ZeRO")
    parser.add_argument("--precision", choices=PRECISIONS, default="fp16")
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--steps", type=int, help="of an epoch; by default all images are seen")
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--out", type=Path, default=Path("build/demo"))
    chosen = parser.parse_args()
    runs = {}
    if chosen.ranks > 1:
        runs[f"{chosen.ranks} ranks"] = train_on(chosen.ranks, chosen)
    runs["one process"] = train_on(1, chosen)
    for name, found in runs.items():
        print(f"{name}: loss {found['losses'][-1]:.5f}, test accuracy {found['accuracy'][-1]:.2%}")
    if len(runs) == 2:
        many, one = (found["losses"] for found in runs.values())
        apart = [abs(a - b) for a, b in zip(many, one, strict=True)]
        print(
            f"losses differ by {apart[0]:.2g} in the first step, {max(apart):.2g} at most:\n"
            f"where ranks have parts of a sum, each is rounded to {chosen.precision} first"
        )
    chosen.out.mkdir(parents=True, exist_ok=True)
    (chosen.out / "vit_hybrid.json").write_text(json.dumps(runs))
    draw(runs, chosen.out / "vit_hybrid.png")
    print(f"written: {chosen.out / 'vit_hybrid.png'}")


if __name__ == "__main__":
    main()
