# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""``zero=`` with parameters on devices of the double: the bits of the processor's engine."""

import stepc.torch as st
import torch
import torch.distributed as dist
from on_cuda import compare, contents
from on_ranks import case, main
from zero_values import mean, values
from zoo import ALL

NAMES = ("AdamW", "hf.Adafactor", "CAME", "FusedLamb", "AdamW, clipped")


def trained(name, mode, dtype=torch.float32, stage=1, absent=(), **more):
    """Steps of ``zero``, where one in which gradients are missing is among them."""

    def train(place):
        torch.manual_seed(0)
        made, grads = values(dtype)
        params = [torch.nn.Parameter(place.place(value)) for value in made]
        optimizer = ALL[name](params, zero=stage, gradients=mode, **more)
        for step, own in enumerate(grads):
            for i, param in enumerate(params):
                grad = own[dist.get_rank()][i] if mode == "local" else mean(own, i, dtype)
                gone = step == 2 and i in (1, 4)
                gone |= step == 1 and mode == "local" and i == dist.get_rank()
                param.grad = None if gone else place.place(grad)
            optimizer.param_groups[0]["lr"] /= 2
            optimizer.step()
            yield contents(place, optimizer)

    return train


@case
def local_gradients():
    for name in NAMES:
        compare(trained(name, "local"), name)


if __name__ == "__main__":
    main()
