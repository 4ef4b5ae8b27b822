# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""In the loops of others: transformers' Trainer, Accelerate, and steps with a closure as
Lightning's. Beside torch's AdamW in the same loop."""

import pytest
import stepc.torch
import torch
from common import bits_equal, distance

pytest.importorskip("accelerate")

FEATURES = {"average": stepc.torch.EMA(0.9)}


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.a, self.b = torch.nn.Linear(8, 16), torch.nn.Linear(16, 1)

    def forward(self, x=None, y=None):
        out = self.b(torch.tanh(self.a(x)))[:, 0]
        return {"loss": ((out - y) ** 2).mean(), "logits": out}


def data():
    generator = torch.Generator().manual_seed(1)
    rows = torch.randn(32, 9, generator=generator)
    return [{"x": row[:8], "y": row[8]} for row in rows]


def net():
    return Net(), data()


def gpt2():
    """A language model of transformers, from a configuration and without dropout, so that
    optimizers alone can differ. The embedding is the head, too: one parameter in two places."""
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    config = GPT2Config(
        n_layer=1, n_embd=16, n_head=2, vocab_size=32, n_positions=16, bos_token_id=0,
        eos_token_id=0, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
    )  # fmt: skip
    tokens = torch.randint(32, (32, 16), generator=torch.Generator().manual_seed(1))
    return GPT2LMHeadModel(config), [{"input_ids": row, "labels": row} for row in tokens]


each_way = pytest.mark.parametrize("how", ["optimizers", "optimizer_cls_and_kwargs"])
each_task = pytest.mark.parametrize("task", [net, gpt2])


def trained(folder, kind, *, task=net, how="optimizers", steps=6, resume=False, **kwargs):
    """The model and optimizer after a run of the Trainer, saved after three steps."""
    from transformers import Trainer, TrainingArguments

    arguments = TrainingArguments(
        str(folder), max_steps=steps, save_steps=3, per_device_train_batch_size=4, report_to=[],
        use_cpu=True, logging_strategy="no", disable_tqdm=True, seed=0,
    )  # fmt: skip
    model, rows = task()
    given = {"optimizer_cls_and_kwargs": (kind, {"lr": 1e-2, **kwargs})}
    if how == "optimizers":
        optimizer = kind(model.parameters(), lr=1e-2, **kwargs)
        schedule = torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.5)
        given = {"optimizers": (optimizer, schedule)}
    trainer = Trainer(model, arguments, train_dataset=rows, **given)
    trainer.train(resume_from_checkpoint=resume)
    inner = trainer.optimizer
    return model, getattr(inner, "optimizer", inner)


@each_way
@each_task
def test_trainer(tmp_path, task, how):
    ours, optimizer = trained(tmp_path / "ours", stepc.torch.AdamW, task=task, how=how)
    theirs, _ = trained(tmp_path / "theirs", torch.optim.AdamW, task=task, how=how)
    assert type(optimizer) is stepc.torch.AdamW and optimizer.last_step is not None
    assert not bits_equal(list(ours.parameters()), list(task()[0].parameters()))
    assert distance(list(ours.parameters()), list(theirs.parameters())) < 1e4


@each_way
@each_task
def test_trainer_resumes(tmp_path, task, how):
    """From what it saved after three steps, to the bit; averages are saved with it."""
    folder = tmp_path / "ours"
    given = {"task": task, "how": how, **FEATURES}
    whole, first = trained(folder, stepc.torch.AdamW, **given)
    averages = [a.clone() for a in first.averaged_parameters()]
    again, second = trained(folder, stepc.torch.AdamW, resume=str(folder / "checkpoint-3"), **given)
    assert bits_equal(list(whole.parameters()), list(again.parameters()))
    assert bits_equal(averages, second.averaged_parameters())
    assert second.scalars["n_averaged"] == 6.0


def test_accelerate():
    """``prepare``, gradients of two batches in a step, and clipping by ``accelerator``."""
    from accelerate import Accelerator

    nets = []
    for kind in (stepc.torch.AdamW, torch.optim.AdamW):
        accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
        net = Net()
        optimizer = kind(net.parameters(), lr=1e-2)
        schedule = torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.5)
        loader = torch.utils.data.DataLoader(data(), batch_size=4)
        net, optimizer, loader, schedule = accelerator.prepare(net, optimizer, loader, schedule)
        for batch in loader:
            with accelerator.accumulate(net):
                accelerator.backward(net(**batch)["loss"])
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(net.parameters(), 0.5)
                optimizer.step()
                schedule.step()
                optimizer.zero_grad()
        assert optimizer.optimizer.state[next(net.parameters())]["step"] == 4
        nets.append(accelerator.unwrap_model(net))
    assert distance(*(list(net.parameters()) for net in nets)) < 1e4


class Wrapped:
    """As Lightning's ``LightningOptimizer``: what the optimizer has, but for ``step``, under a
    class that is a subclass of its class."""

    def __init__(self, optimizer):
        kept = {k: v for k, v in optimizer.__dict__.items() if k not in ("step", "__del__")}
        self.__dict__.update(kept)
        name = f"Lightning{type(optimizer).__name__}"
        self.__class__ = type(name, (type(self), type(optimizer)), {})
        self._optimizer = optimizer

    def step(self, closure=None, **kwargs):
        return self._optimizer.step(closure=closure, **kwargs)


@pytest.mark.parametrize("wrap", [lambda optimizer: optimizer, Wrapped])
def test_closure_of_lightning(wrap):
    """Its automatic optimization gives ``step`` a closure, which zeroes gradients, runs the
    model and differentiates, by way of a wrapper of the optimizer."""
    nets = []
    for kind in (stepc.torch.AdamW, torch.optim.AdamW):
        net = Net()
        inner = kind(net.parameters(), lr=1e-2)
        optimizer = wrap(inner)
        assert isinstance(optimizer, kind)
        schedule = torch.optim.lr_scheduler.StepLR(inner, 3, 0.5)
        losses = []
        for row in range(0, 32, 4):
            batch = {k: torch.stack([d[k] for d in data()[row : row + 4]]) for k in ("x", "y")}

            def closure(net=net, optimizer=optimizer, batch=batch):
                loss = net(**batch)["loss"]
                optimizer.zero_grad()
                loss.backward()
                return loss

            losses.append(optimizer.step(closure=closure).item())
            schedule.step()
        assert optimizer.param_groups[0]["lr"] == 1e-2 / 4
        assert optimizer.state[next(net.parameters())]["step"] == 8
        assert float(optimizer.state_dict()["state"][0]["step"]) == 8
        nets.append((net, losses))
    (ours, left), (theirs, right) = nets
    assert distance(list(ours.parameters()), list(theirs.parameters())) < 1e4
    assert left == pytest.approx(right, rel=1e-4)


@pytest.fixture(scope="module")
def lightning():
    return pytest.importorskip("lightning")


def run_of_lightning(lightning, folder, kind, steps, resume=None):
    """The real Lightning, on the processor: a schedule and clipping. All batches are alike: where a
    run is resumed it does not say at which its loader begins."""

    class Module(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.net = Net()

        def training_step(self, batch, _):
            return self.net(**batch)["loss"]

        def configure_optimizers(self):
            optimizer = kind(self.parameters(), lr=1e-2)
            schedule = torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.5)
            return {
                "optimizer": optimizer,
                "lr_scheduler": {"scheduler": schedule, "interval": "step"},
            }

    module = Module()
    keeps = lightning.pytorch.callbacks.ModelCheckpoint(
        folder, "{step}", save_top_k=-1, every_n_train_steps=3
    )
    trainer = lightning.Trainer(
        accelerator="cpu", devices=1, max_steps=steps, logger=False, enable_progress_bar=False,
        enable_model_summary=False, default_root_dir=folder, callbacks=[keeps],
        gradient_clip_val=0.5, use_distributed_sampler=False,
    )  # fmt: skip
    loader = torch.utils.data.DataLoader(data()[:4] * 8, batch_size=4)
    trainer.fit(module, loader, ckpt_path=resume)
    return trainer, module


@pytest.mark.filterwarnings("ignore")
def test_lightning(lightning, tmp_path):
    """Beside torch's AdamW; and resumed from its checkpoint, to the bit."""
    trainer, ours = run_of_lightning(lightning, tmp_path / "ours", stepc.torch.AdamW, 6)
    _, theirs = run_of_lightning(lightning, tmp_path / "theirs", torch.optim.AdamW, 6)
    assert type(trainer.optimizers[0]) is stepc.torch.AdamW
    assert trainer.optimizers[0].last_step is not None
    assert distance(list(ours.parameters()), list(theirs.parameters())) < 1e4
    half = str(tmp_path / "ours" / "step=3.ckpt")
    again, resumed = run_of_lightning(lightning, tmp_path, stepc.torch.AdamW, 6, half)
    assert float(next(iter(again.optimizers[0].state.values()))["step"]) == 6
    assert bits_equal(list(ours.parameters()), list(resumed.parameters()))


def test_galore_groups_in_the_trainer(tmp_path):
    """In place of ``optim="galore_adamw"`` and ``optim_target_modules``: groups of the model's
    matrices in ``optimizer_cls_and_kwargs``."""
    from stepc.torch.colossal import get_galore_param_groups
    from transformers import Trainer, TrainingArguments

    model = Net()
    groups = get_galore_param_groups(model, weight_decay=0.1, rank=2, update_proj_gap=2)
    arguments = TrainingArguments(
        str(tmp_path), max_steps=4, per_device_train_batch_size=4, report_to=[], use_cpu=True,
        logging_strategy="no", disable_tqdm=True, seed=0,
    )  # fmt: skip
    given = (stepc.torch.GaLoreAdamW, {"params": groups, "lr": 1e-2})
    trainer = Trainer(model, arguments, train_dataset=data(), optimizer_cls_and_kwargs=given)
    trainer.train()
    optimizer = getattr(trainer.optimizer, "optimizer", trainer.optimizer)
    assert type(optimizer) is stepc.torch.GaLoreAdamW and len(optimizer.param_groups) == 3
    assert optimizer.state[model.a.weight]["exp_avg"].shape == (16, 2)
