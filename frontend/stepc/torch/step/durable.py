# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Steps that outlive their process: ``place=Place("disk", durable=True)`` (docs/placement.md).

Behind each step the file of states gets all that belongs to it: states that lie there are there
already, what lies in memory is written beside them, large tensors as pieces of the file and the
rest in the note of the commit. So the file always has one step, and all of it.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Iterator

import torch

from ... import errors
from ..._store import SMALL
from ..ranks.distributed import make_binding
from ..ranks.exchanges import within
from ..ranks.files import failure_of, least_step, refuse_failure
from ..ranks.local_tensors import Spread, local_of
from ..ranks.parts import is_distributed
from ..tensors.stored import StoredState, StoredStates
from .modes import outside
from .noted import plain, refuse_unkept
from .saving import _LOAD_HOOKS, _SAVE_HOOKS

_PARAMETER = ""  # the name of a record that is no state
_UNIT = 16  # bytes that a small tensor begins at a multiple of


class _Kept:
    """What the file has of tensors in memory."""

    def __init__(self):
        self.pieces: dict[tuple[int, str], StoredState] = {}

    def write(self, key: tuple[int, str], value: torch.Tensor, store) -> StoredState:
        like = torch.empty_like(value, device="meta", requires_grad=False)
        known = self.pieces.get(key)
        layout = like.dtype, like.shape, like.stride()
        if known is None or (known.dtype, known.shape, known.stride()) != layout:
            self.pieces[key] = known = StoredStates(store).make(like)
        known.write(value)
        return known


class Durable:
    """Mix-in of :class:`CompiledStep`."""

    _in_file: _Kept | None = None

    def _is_durable(self) -> bool:
        return self._placed is not None and self._placed.durable

    def _refuse_unkept(self) -> None:
        """Ahead of a step what the file could not have behind it."""
        if self._is_durable():
            refuse_unkept(self.param_groups)

    # --- Behind a step ----------------------------------------------------------

    def _commit_step(self) -> None:
        """Has the file have the step that was made; StoreError, with the file at the one before,
        and the optimizer steps no more."""
        if not self._is_durable() or self._store is None or self._binding is None:
            return
        if self._binding.was_skipped():
            return
        try:
            failure = failure_of(lambda: self._store.commit(self._make_note()))
            if is_distributed(self):  # nobody begins the next step before all have this one
                refuse_failure(self._binding.torch_mesh, failure)
            elif failure is not None:
                raise failure
        except errors.StoreError as error:
            self._poison = f"the step was made, and is not in the file: {error}"
            raise

    def _make_note(self) -> bytes:
        kept, records, small, held = self._in_file or _Kept(), [], _Small(), {}
        self._in_file, spread = kept, {}
        for key, value in self._tensors():
            value, how = local_of(value)
            if how is not None and key[1] != _PARAMETER:
                spread[key] = how.packed()
            if isinstance(value, StoredState):
                records.append((*key, False, value.layout_in_file))
            elif not isinstance(value, torch.Tensor):
                held[key] = plain(value, f"state '{key[1]}' of parameter {key[0]}")
            elif value.numel() <= SMALL:
                small.add(key, value)
            else:
                records.append((*key, True, kept.write(key, value, self._store).layout_in_file))
        alive = {(number, name) for number, name, is_kept, _ in records if is_kept}
        kept.pieces = {key: piece for key, piece in kept.pieces.items() if key in alive}
        note = {
            "model": self._model(),
            "groups": self._packed_groups(),
            "records": records,
            "small": small.packed(),
            "held": held,
            "spread": spread,
            **self._more_in_note(),
        }
        stream = io.BytesIO()
        torch.save(note, stream)
        return stream.getvalue()

    def _more_in_note(self) -> dict:
        """What else belongs to the step that was made; a class that has such takes it back in its
        ``_take``."""
        return {}

    def _packed_groups(self) -> list[dict]:
        """As ``state_dict`` has them."""
        states, self.state = self.state, {}
        try:
            with self._without(_SAVE_HOOKS):
                packed = self.state_dict()["param_groups"]
        finally:
            self.state = states
        return [plain(group, f"a value of group {n}") for n, group in enumerate(packed)]

    def _tensors(self) -> Iterator[tuple[tuple[int, str], object]]:
        """Parameters and what is in their states, each with its place: number and name."""
        params = (param for group in self.param_groups for param in group["params"])
        for number, param in enumerate(params):
            yield (number, _PARAMETER), param.detach()
            for name, value in (self.state.get(param) or {}).items():
                yield (number, name), value

    def _model(self) -> dict:
        """What the file is of, for comparisons: see ``_refuse_other``."""
        interface = self._get_definition().interface()
        return {
            "optimizer": interface.name,
            "states": sorted(interface.states),
            "parameters": [
                [(tuple(local_of(p.detach())[0].shape), str(p.dtype)) for p in group["params"]]
                for group in self.param_groups
            ],
        }

    # --- Its return -------------------------------------------------------------

    @torch._disable_dynamo
    def recover(self) -> int:
        """Goes on with the last step that the file of ``place=Place("disk", durable=True)`` has,
        of an earlier process or of this one: parameters, states, counts and the numbers in the
        groups are those behind it, to the bit.

        The optimizer is made as the one before was, of the same model. Returns how many steps the
        file has had; 0, with nothing changed, where it has none. What else belongs to a step, as
        the place in the data, a schedule of learning rates or a GradScaler, is the caller's to
        bring there. StoreError for a file that is in use, damaged, or of another model or
        optimizer; nothing has changed then.
        """
        if not self._is_durable():
            raise errors.StepcError(
                'recover() is for an optimizer with place=Place("disk", durable=True)'
            )
        with self._locked(), within(self._timeout), outside(), torch.no_grad():
            mesh = make_binding(self).torch_mesh if is_distributed(self) else None
            self._together(mesh, self._reopen)
            step = store_step = self._store.generation
            if mesh is not None:
                step = least_step(mesh, store_step)
                self._together(mesh, lambda: self._go_back(store_step, step))
            if not step:
                return 0
            note: dict = {}
            self._together(mesh, lambda: note.update(self._read_note()))
            self._take(note)
            return step

    def _together(self, mesh, call) -> None:
        """A part of ``recover`` that all ranks have come through before any goes on."""
        try:
            failure = failure_of(call)
            if mesh is not None:
                refuse_failure(mesh, failure, unstepped=True)
            elif failure is not None:
                raise failure
        except BaseException:
            if self._store is not None:
                self._store.close()  # for others to open it
                self._store = None
            raise

    def _go_back(self, own: int, step: int) -> None:
        """To the step that all ranks have; they begin none before all have the one before it."""
        if own == step:
            return
        if own != step + 1:
            raise errors.StoreError(
                f"{self._file_of_states} has step {own}, and that of another rank has {step}",
                "STEPC_STORE_ERROR",
            )
        self._store.retreat()
        self._store.close()
        self._open_store()

    def _read_note(self) -> dict:
        try:
            note = torch.load(io.BytesIO(self._store.note()), weights_only=True)
        except pickle.UnpicklingError as error:
            raise errors.StoreError(
                f"{self._file_of_states} has a note that cannot be read: {error}",
                "STEPC_STORE_ERROR",
            ) from None
        self._refuse_other(note["model"])
        return note

    def _reopen(self) -> None:
        """The file as it was committed; what was stepped since is dropped."""
        if self._store is not None:
            self._keep_scalars(self._binding)
            self._binding, self._in_file = None, None
            for own in self.state.values():
                for name in [n for n, value in own.items() if isinstance(value, StoredState)]:
                    del own[name]
            if self._backward is not None:
                self._backward.forget()
            self._store.close()
            self._store = None
        self._open_store()

    def _refuse_other(self, found: dict) -> None:
        own, words = self._model(), None
        if found["optimizer"] != own["optimizer"]:
            words = f"of optimizer '{found['optimizer']}', and this one is '{own['optimizer']}'"
        elif found["states"] != own["states"]:
            words = f"with states {found['states']}, and this optimizer has {own['states']}"
        else:
            there, here = ([len(g) for g in one["parameters"]] for one in (found, own))
            if there != here:
                words = f"of groups of {there} parameters, and this optimizer has {here}"
            else:
                words = next(_differences(found["parameters"], own["parameters"]), None)
        if words is not None:
            raise errors.StoreError(f"{self._file_of_states} is {words}", "STEPC_STORE_ERROR")

    def _take(self, note: dict) -> None:
        """Gives parameters and states what the file has of them."""
        store, kept = self._store, _Kept()
        values: dict[tuple[int, str], object] = {**note["held"], **_Small.unpacked(note["small"])}
        for number, name, is_kept, layout in note["records"]:
            piece = StoredState.at(store, *layout)
            if is_kept:
                kept.pieces[number, name] = piece
            values[number, name] = piece.read() if is_kept and name != _PARAMETER else piece
        params = [param for group in self.param_groups for param in group["params"]]
        with self._without(_LOAD_HOOKS):
            self.load_state_dict({"state": {}, "param_groups": note["groups"]})
        self._poison = "parameters were being read from the file"  # should one fail
        for (number, name), value in values.items():
            param = params[number]
            if name == _PARAMETER:
                read = value.read() if isinstance(value, StoredState) else value
                local_of(param.detach())[0].copy_(read)
            else:
                how = note["spread"].get((number, name))
                self.state[param][name] = (
                    value if how is None else Spread.of(how).of_param(value, param)
                )
        self._poison, self._in_file = None, kept

    @property
    def _name_of_file(self) -> str:
        """Each of several ranks has one of its own."""
        name = self._placed.name
        if not is_distributed(self) or not torch.distributed.is_initialized():
            return name
        return f"{name}.{torch.distributed.get_rank()}-of-{torch.distributed.get_world_size()}"


def _differences(found: list, own: list) -> Iterator[str]:
    for group, (there, here) in enumerate(zip(found, own, strict=True)):
        for place, (one, other) in enumerate(zip(there, here, strict=True)):
            if one != other:
                yield (
                    f"of another model: parameter {place} of group {group} has shape {one[0]} and "
                    f"dtype {one[1]} there, and {other[0]} and {other[1]} here"
                )


class _Small:
    """Tensors, all in one; each has its place there, dtype and shape."""

    def __init__(self):
        self._lines: list[torch.Tensor] = []
        self._places: list[tuple] = []
        self._size = 0

    def add(self, key: tuple[int, str], value: torch.Tensor) -> None:
        line = value.detach().cpu().contiguous().view(-1).view(torch.uint8)
        self._places.append((*key, value.dtype, tuple(value.shape), self._size, line.numel()))
        padding = -line.numel() % _UNIT
        self._lines += [line, torch.zeros(padding, dtype=torch.uint8, device="cpu")]
        self._size += line.numel() + padding

    def packed(self) -> tuple:
        lines = self._lines or [torch.zeros(0, dtype=torch.uint8, device="cpu")]
        return torch.cat(lines), self._places

    @staticmethod
    def unpacked(packed: tuple) -> dict[tuple[int, str], torch.Tensor]:
        line, places = packed
        return {
            (number, name): line[at : at + size].clone().view(dtype).view(shape)
            for number, name, dtype, shape, at, size in places
        }
