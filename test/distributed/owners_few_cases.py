# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""As owners_cases.py, on two or three ranks."""

import stepc.torch as st
import torch.distributed as dist
from on_ranks import case, main
from owners_cases import ONLY, compare
from torch.distributed.device_mesh import init_device_mesh


@case
def cut_over_all():
    mesh = init_device_mesh("cpu", (dist.get_world_size(),), mesh_dim_names=("dp",))
    compare("fsdp2", mesh)
    compare("fsdp2", mesh, ONLY)
    compare("fsdp2", mesh, more={"clip": st.ClipByNorm(0.5)})


if __name__ == "__main__":
    main()
