# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The table of layouts and optimizers that docs/distributed.md shows: what it says of each
is what works_cases.py, and works_of_eight_cases.py on eight ranks, train, a case for each row,
and assert.

Imports nothing, so that the documents can be made without torch.
"""

from __future__ import annotations

from dataclasses import dataclass, field

OPTIMIZERS = ("AdamW", "Adafactor", "CAME", "Lamb", "GaLore")
FILES = {"works_cases.py": 4, "works_of_eight_cases.py": 8}  # and on how many ranks they run


@dataclass(frozen=True)
class Row:
    """A layout. ``how``: what the user says. ``no_sync``: by what passes are left out of the
    reduction of gradients; "" where no pass reduces any. ``refused``: by optimizer what the
    error says; the others have the bits of one process. ``ranks``: how many train it."""

    name: str
    how: str
    no_sync: str = ""
    colossal: str = ""
    refused: dict[str, str] = field(default_factory=dict)
    ranks: int = 4

    def cells(self) -> list[str]:
        """By optimizer, then with micro-batches and without sync."""
        own = [self.refused.get(name, "") for name in OPTIMIZERS]
        found = [f'refused: "{words}"' if words else "bits" for words in own]
        return [*found, "bits", f"{self.no_sync}: bits" if self.no_sync else "-"]


SET_SYNC = "`set_requires_gradient_sync`"
OURS = "`opt.no_sync()`"
MASTER = "use zero=Zero(1, ...) or Zero(2) of this optimizer in its place"
PARTITION = "use zero=Zero(1, ...) or Zero(2) of this optimizer"

ROWS = {
    "ddp": Row("DDP", "nothing to say", "`ddp.no_sync()`", "TorchDDP"),
    "zero1_over_ddp": Row(
        "ZeRO-1 over DDP", '`Zero(1, gradients="reduced")`', "`ddp.no_sync()`", "LowLevelZero, 1"
    ),
    "zero1": Row("ZeRO-1", '`Zero(1, gradients="local")`', "", "LowLevelZero, 1"),
    "zero2": Row("ZeRO-2", "`Zero(2)`", OURS, "LowLevelZero, 2"),
    "fsdp2": Row("FSDP2 (ZeRO-3)", "DTensors", SET_SYNC, "Gemini"),
    "fsdp2_of_the_last_dim": Row("FSDP2 by `Shard(1)`", "DTensors", SET_SYNC, "Gemini"),
    "hsdp": Row("HSDP", "DTensors", SET_SYNC, "Gemini"),
    "tp_of_dim_0": Row("TP of dim 0", "DTensors"),
    "tp_of_dim_1": Row("TP of dim 1", "DTensors"),
    "tp_of_plain_parts": Row("TP of plain parts", "`layouts`", "", "HybridParallel"),
    "tp_with_fsdp2": Row("TP x FSDP2", "DTensors", SET_SYNC),
    "tp_with_zero1": Row(
        "TP x ZeRO-1", "DTensors, `Zero(1, process_group=)`", "", "HybridParallel"
    ),
    "tp_with_zero2": Row(
        "TP x ZeRO-2", "DTensors, `Zero(2, process_group=)`", OURS, "HybridParallel"
    ),
    "pp": Row("PP, a tied tensor", "`layouts`, `shared_over`", "", "HybridParallel"),
    "pp_with_tp": Row("PP x TP", "`layouts`", "", "HybridParallel"),
    "pp_with_tp_of_dtensors": Row(
        "PP x TP of torch", "DTensors, `layouts` of stages", "", "HybridParallel"
    ),
    "pp_with_zero1": Row(
        "PP x ZeRO-1", "`layouts`, `Zero(1, process_group=)`", "", "HybridParallel"
    ),
    "pp_with_zero2": Row(
        "PP x ZeRO-2", "`layouts`, `Zero(2, process_group=)`", OURS, "HybridParallel"
    ),
    "hybrid": Row(
        "PP x ZeRO-1 x TP",
        "`layouts`, `Zero(1, process_group=)`",
        "",
        "HybridParallel, all axes",
        ranks=8,
    ),
    "hybrid_of_zero2": Row(
        "PP x ZeRO-2 x TP",
        "`layouts`, `Zero(2, process_group=)`",
        OURS,
        "HybridParallel, all axes",
        ranks=8,
    ),
    "hybrid_of_dtensors": Row(
        "PP x ZeRO-1 x TP of torch",
        "DTensors, `layouts` of stages, `Zero(1, process_group=)`",
        "",
        "HybridParallel, all axes",
        ranks=8,
    ),
    "hybrid_of_dtensors_and_zero2": Row(
        "PP x ZeRO-2 x TP of torch",
        "DTensors, `layouts` of stages, `Zero(2, process_group=)`",
        OURS,
        "HybridParallel, all axes",
        ranks=8,
    ),
    "ep": Row("EP", '`layouts`, `"distinct"`', "", "MoeHybrid"),
    "ep_with_zero1": Row(
        "EP x ZeRO-1", '`layouts`, `"distinct"`, `Zero(1, process_group=)`', "", "MoeHybrid"
    ),
    "ep_with_zero2": Row(
        "EP x ZeRO-2", '`layouts`, `"distinct"`, `Zero(2, process_group=)`', OURS, "MoeHybrid"
    ),
    "colossal_tp": Row(
        "TP x DDP inside of ColossalAI", "`setup_distributed(...)`", "", "HybridParallel"
    ),
    "colossal_zero": Row(
        "ZeRO inside of ColossalAI",
        "`setup_distributed(...)`",
        "",
        "LowLevelZero, 1",
        {"GaLore": MASTER},
    ),
    "colossal_tp_with_zero": Row(
        "TP x ZeRO inside of ColossalAI",
        "`setup_distributed(...)`",
        "",
        "HybridParallel",
        {"GaLore": MASTER},
    ),
    "deepspeed_flat": Row(
        "DeepSpeed's flat partitions",
        "nothing to say",
        "",
        "",
        dict.fromkeys(("Adafactor", "CAME", "Lamb", "GaLore"), PARTITION),
    ),
}


def table() -> str:
    """In Markdown."""
    head = ["layout", "of ColossalAI", "how", *OPTIMIZERS, "2 micro-batches", "without sync"]
    lines = [head, ["---"] * len(head)]
    lines += [[row.name, row.colossal or "-", row.how, *row.cells()] for row in ROWS.values()]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


# Of ColossalAI's page of distributed optimizers: its classes and ours, and plugins.
COLOSSAL = {
    "`DistributedLamb`": ("the same, `colossal.Lamb`", "Lamb"),
    "`DistGaloreAwamW`": ("the same", "GaLore"),
    "`DistributedAdaFactor`": ("the same, `hf.Adafactor`", "Adafactor"),
    "`DistributedCAME`": ("the same, `colossal.CAME`", "CAME"),
}
PLUGINS = {
    "HybridParallel": "TP, PP, DDP, ZeRO",
    "LowLevelZero": "ZeRO-1, ZeRO-2",
    "TorchDDP": "DDP",
    "Gemini": "FSDP2",
    "MoeHybrid": "EP, ZeRO",
}


def of_plugin(plugin: str, optimizer: str) -> str:
    """What the rows say of it together."""
    rows = [row for row in ROWS.values() if row.colossal.startswith(plugin)]
    inside = [row for row in rows if "setup_distributed" in row.how]
    own = [row for row in rows if row not in inside]
    if any(optimizer in row.refused for row in own):
        return "refused"
    if any(optimizer in row.refused for row in inside):
        return f"bits, {len(own)} ways; inside of its own ZeRO refused"
    return f"bits, {len(rows)} ways" if len(rows) > 1 else "bits"


def colossal_table() -> str:
    """ColossalAI's table of optimizers and plugins, in Markdown."""
    head = ["ColossalAI", "here", *(f"{name} ({how})" for name, how in PLUGINS.items())]
    lines = [head, ["---"] * len(head)]
    for theirs, (ours, optimizer) in COLOSSAL.items():
        lines.append([theirs, ours, *(of_plugin(plugin, optimizer) for plugin in PLUGINS)])
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)
