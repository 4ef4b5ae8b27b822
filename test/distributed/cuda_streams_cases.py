# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Steps over ranks on devices of the double: what waits, graphs, and what is refused."""

import stepc.torch as st
import torch
import torch.distributed as dist
from layouts_cases import megatron, parts, values
from on_cuda import backward, compare, contents, on_device
from on_ranks import case, main
from samples import sample
from stepc import errors
from torch.distributed.tensor import DTensor, Replicate, Shard
from zoo import ALL


def on_layouts(name, **more):
    def make(place):
        mesh = place.mesh((4,), mesh_dim_names=("tp",))
        own = parts(values()[0], dist.get_rank(), 4)
        params = [(n, torch.nn.Parameter(place.place(v))) for n, v in own.items()]
        return ALL[name](params, layouts=megatron(mesh), **more)

    return make


def on_zero(name, mode, **more):
    def make(place):
        params = [torch.nn.Parameter(place.place(v)) for v in values()[0].values()]
        return ALL[name](params, zero=1, gradients=mode, **more)

    return make


def on_dtensors(name):
    def make(place):
        mesh = place.mesh((4,), mesh_dim_names=("dp",))
        params = [
            torch.nn.Parameter(
                DTensor.from_local(place.place(v), mesh, [Shard(0)], run_check=False)
            )
            for v in values()[0].values()
        ]
        return ALL[name](params)

    return make


BY_LINES = "local, by lines"
MADE = {
    "layouts": on_layouts("AdamW"),
    "layouts, with norms": on_layouts("FusedLamb"),
    "layouts, skipping": on_layouts("AdamW, clipped"),
    "reduced": on_zero("AdamW", "reduced"),
    "local": on_zero("CAME", "local"),
    BY_LINES: on_zero("AdamW", "local", bucket_bytes=300),
    "local, skipping": on_zero("AdamW, clipped", "local"),
    "DTensors": on_dtensors("CAME"),
    "DTensors, skipping": on_dtensors("AdamW, clipped"),
}


def give(place, optimizer, step, of_rank=False):
    """A gradient for each parameter: new memory, or other values in what is there."""
    generator = torch.Generator().manual_seed(step + 100 * of_rank * dist.get_rank())
    for group in optimizer.param_groups:
        for param in group["params"]:
            local = getattr(param, "_local_tensor", param)
            grad = place.place(torch.randint(-8, 9, local.shape, generator=generator) / 16)
            if local is not param:
                mesh, placements = param.device_mesh, param.placements
                grad = DTensor.from_local(grad, mesh, placements, run_check=False)
            if param.grad is None:
                param.grad = grad
            else:
                with torch.no_grad():
                    own = getattr(param.grad, "_local_tensor", param.grad)
                    own.copy_(getattr(grad, "_local_tensor", grad))


@case
def a_step_waits_for_nothing_on_the_device():
    """The host reads nothing that lies there, and waits for no stream, in a step like the one
    before it; what crosses ranks is on the stream with the kernels."""
    for name, make in sample(MADE.items(), "waits", 2):
        with on_device() as place:
            cuda, optimizer = place.cuda, make(place)
            for step in range(4):
                give(place, optimizer, step)
                before = cuda.reads, cuda.double.calls("cuStreamSynchronize")
                optimizer.step()
                now = cuda.reads, cuda.double.calls("cuStreamSynchronize")
                if step > 1:
                    assert now == before, (name, step, before, now)
                    # The double does torch's own operations, of zero=, at once.
                    pending = cuda.double.lib.cudaDoublePending()
                    assert pending > 0 or "zero" in make.__qualname__, name


def with_graph(make):
    """Two steps, then a graph of one, which is launched with other gradients and rates; then
    steps beside it."""

    def train(place):
        optimizer = make(place)
        for step in range(2):
            give(place, optimizer, step)
            optimizer.step()
            yield contents(place, optimizer)
        launch = place.captured(optimizer)
        for step in range(2, 5):
            optimizer.param_groups[0]["lr"] /= 2
            give(place, optimizer, step)
            launch()
            yield contents(place, optimizer)
        give(place, optimizer, 5)
        optimizer.step()
        yield contents(place, optimizer)

    return train


@case
def graphs():
    for name, make in sample(MADE.items(), "graphs", 2):
        if name != BY_LINES:
            compare(with_graph(make), name)
    compare(with_graph(on_zero("AdamW", "local", bucket_bytes=300, overlap=False)), "lines")


def refused(kind, words, function, *arguments):
    try:
        function(*arguments)
    except kind as error:
        assert words in str(error), error
    else:
        raise AssertionError(f"it was not refused: {words}")


def refused_in_a_graph(place, optimizer, words):
    with place.cuda.capture():
        refused(errors.StepcError, words, optimizer.step)


@case
def steps_that_no_graph_can_have():
    with on_device() as place:
        for make in (on_layouts("FusedLamb"), on_zero("AdamW", "local")):
            optimizer = make(place)
            give(place, optimizer, 0)
            words = "the first step, or one after a change, cannot be captured in a CUDA graph"
            refused_in_a_graph(place, optimizer, words)
            optimizer.step()
        optimizer = MADE[BY_LINES](place)
        for step in range(2):
            give(place, optimizer, step)
            optimizer.step()
        words = "other tensors have gradients than in the last step; call upload() before"
        refused_in_a_graph(place, optimizer, words)
        optimizer.step()
        optimizer.upload()
        place.captured(optimizer)()
        params = [torch.nn.Parameter(place.place(v)) for v in values()[0].values()]
        optimizer = st.AdamW(params, zero=2, gradients="local")
        for _ in range(2):
            backward(place, params, [torch.ones(p.shape) for p in params])
            optimizer.step()
        words = "a step with zero=2 cannot be captured in a CUDA graph"
        refused_in_a_graph(place, optimizer, words)
        backward(place, params, [torch.ones(p.shape) for p in params])
        optimizer.step()


@case
def a_collective_that_fails_poisons():
    """By the words of torch.distributed, and what it was."""
    kinds = [
        ("layouts", "all_reduce", "of parameter 'norm' could not be summed: a cable"),
        ("DTensors", "all_reduce", "a cable is loose"),
        ("local", "all_to_all_single", "and 3 more: could not cross ranks: a cable is loose"),
        ("reduced", "broadcast", "and 3 more: could not cross ranks: a cable is loose"),
    ]
    for name, collective, words in kinds:
        with on_device() as place:
            optimizer = MADE[name](place)
            give(place, optimizer, 0)
            if name == "reduced":  # whose first step compares them
                optimizer.step()
            place.cuda.failing = collective
            refused(errors.CommunicationError, words, optimizer.step)
            place.cuda.failing = None
            refused(errors.StatusError, "an earlier step failed midway", optimizer.step)


@case
def ranks_that_differ():
    """Hyper-parameters, and where parameters lie: named before anything crosses."""
    rank = dist.get_rank()
    with on_device() as place:
        optimizer = on_layouts("FusedLamb")(place)
        for step in range(2):
            give(place, optimizer, step)
            optimizer.step()
        optimizer.param_groups[0]["lr"] = 0.5 if rank == 2 else 0.25
        begun = len(place.cuda.collectives)
        here, there = (0.5, 0.25) if rank == 2 else (0.25, 0.5)
        words = f"here lr={here} of group 0, there lr={there} of group 0"
        refused(errors.CommunicationError, words, optimizer.step)
        assert len(place.cuda.collectives) == begun
        if rank == 1:
            place.place = lambda tensor: tensor.detach().clone()
        optimizer = on_layouts("SGD")(place)  # on which they have not agreed before
        give(place, optimizer, 0)
        refused(errors.CommunicationError, "parameters on 'cpu'", optimizer.step)


@case
def devices_that_nothing_steps():
    with on_device() as place:
        mesh = place.mesh((4,), mesh_dim_names=("tp",))
        one, two = torch.ones(3), place.place(torch.ones(3))
        for params in ([one, two], [two, one]):
            params = [(f"w{i}", torch.nn.Parameter(p)) for i, p in enumerate(params)]
            for _, param in params:
                param.grad = torch.ones_like(param)
            optimizer = st.Lion(params, layouts=[(".*", st.Layout(mesh, [Replicate()]))])
            (_, a), (_, b) = params
            words = f"is on device '{b.device}', "
            refused(errors.TensorError, words, optimizer.step)
            optimizer = st.Lion(params, zero=1, gradients="reduced")
            refused(errors.TensorError, f"on '{a.device}'; a step is of one", optimizer.step)


@case
def gradients_that_some_ranks_have():
    """Zeros on ranks with other parts of a tensor, the same on those with the same part."""
    for name in ("FusedLamb", "CAME"):

        def train(place, name=name):
            mesh = place.mesh((2, 2), mesh_dim_names=("dp", "tp"))
            params = [
                torch.nn.Parameter(
                    DTensor.from_local(
                        place.place(v), mesh, [Replicate(), Shard(0)], run_check=False
                    )
                )
                for v in list(values()[0].values())[:2]
            ]
            optimizer = ALL[name](params)
            for step in range(3):
                for param in params:
                    param.grad = None
                give(place, optimizer, step)
                for i, param in enumerate(params):
                    if step == 1 and dist.get_rank() in ((2,), (1, 3))[i]:
                        param.grad = None
                optimizer.step()
                yield contents(place, optimizer)

        compare(train, name)


def binds_anew(ranks):
    """In the third step, as gradients of some ranks are of another type."""

    def train(place):
        optimizer = on_layouts("AdamW, clipped")(place)
        for step in range(4):
            give(place, optimizer, step)
            if step == 2 and dist.get_rank() in ranks:
                param = optimizer.param_groups[0]["params"][0]
                wide, param.grad = param.grad, None  # exact in 16 bits
                param.grad_dtype = None
                param.grad = wide.bfloat16()
            optimizer.step()
            assert optimizer.scalars["growth_tracker"] == step + 1  # it goes on
            yield contents(place, optimizer)
            for param in optimizer.param_groups[0]["params"]:
                param.grad = None

    return train


@case
def a_rank_that_binds_anew_alone():
    """The others have nothing to compare."""
    compare(binds_anew({1}), "another type")


@case
def ranks_that_bind_anew_together():
    compare(binds_anew({0, 1, 2, 3}), "another type")


if __name__ == "__main__":
    main()
