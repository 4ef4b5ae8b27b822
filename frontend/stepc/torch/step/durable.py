# Part of Stepc, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Steps that outlive their process: ``place=Place("disk", durable=True)`` (docs/placement.md).

Behind each step the file of states gets all that belongs to it: states that lie there are there
already, what lies in memory is written beside them, large tensors as pieces of the file and the
rest in the note of the commit. So the file always has one step, and all of it.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch

from ... import errors
from ..._store import SMALL
from ..ranks.distributed import make_binding
from ..ranks.exchanges import within
from ..ranks.files import failure_of, least_step, refuse_failure
from ..ranks.local_tensors import Spread, local_of
from ..ranks.parts import is_distributed
from ..tensors.stored import StoredState
from .kept import Kept, as_bytes, from_bytes
from .modes import outside
from .noted import plain, refuse_unkept
from .saving import _LOAD_HOOKS, _SAVE_HOOKS

_PARAMETER = ""  # the name of a record that is no state


class Durable:
    """Mix-in of :class:`CompiledStep`."""

    _in_file: Kept | None = None
    # Of commits that were tried, by all ranks together; that all of them have made; and both of
    # what this rank's file has, which may be more, and may be less often committed.
    _number = 0
    _steps = 0
    _in_its_file = (0, 0)

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
        ranks = is_distributed(self)
        self._number += 1
        try:
            failure = failure_of(self._commit_own, every=ranks)
            if ranks:  # nobody begins the next step before all have this one
                refuse_failure(self._binding.torch_mesh, failure)
            elif failure is not None:
                raise failure
        except errors.StoreError as error:
            self._poison = f"the step was made, and is not in the file: {error}"
            raise
        except BaseException as error:
            if ranks:  # others may have it in their files
                self._poison = f"{type(error).__name__} came in a commit of several ranks"
            raise
        self._steps += 1

    @torch.no_grad()
    def _commit_own(self) -> None:
        self._store.commit(self._make_note())
        self._in_its_file = self._number, self._steps + 1

    def _make_note(self) -> bytes:
        kept, records, small, held = self._in_file or Kept(), [], [], {}
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
                small.append((key, value))
            else:
                records.append((*key, True, kept.write(key, value, self._store)))
        kept.drop_others({(number, name) for number, name, is_kept, _ in records if is_kept})
        where, lines = kept.write_small(small, self._store)
        sizes = [len(group["params"]) for group in self.param_groups]
        places = kept.write_places(
            (records, where, lines, spread, sizes),
            lambda: {
                "model": self._model(),
                "records": records,
                "small": (where, lines),
                "spread": spread,
            },
            self._store,
        )
        return as_bytes({
            "number": self._number,
            "steps": self._steps + 1,
            "before": self._in_its_file,
            "places": places,
            "groups": self._packed_groups(),
            "held": held,
            **self._more_in_note(),
        })  # fmt: skip

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
            yield (number, _PARAMETER), param
            for name, value in (self.state.get(param) or {}).items():
                yield (number, name), value

    def _model(self) -> dict:
        """What the file is of, for comparisons: see ``_refuse_other``."""
        interface = self._get_definition().interface()
        return {
            "optimizer": interface.name,
            "master": self._master,
            "states": sorted(interface.states),
            "parameters": [
                [(tuple(local_of(p.detach())[0].shape), str(p.dtype)) for p in group["params"]]
                for group in self.param_groups
            ],
        }

    # --- Its return -------------------------------------------------------------

    @torch._disable_dynamo
    def recover(self, step: int | None = None) -> int:
        """Goes on with the last step that the file of ``place=Place("disk", durable=True)`` has,
        of an earlier process or of this one: parameters, states, counts and the numbers in the
        groups are those behind it, to the bit.

        The optimizer is made as the one before was, of the same model. ``step``: which step it is
        to be, the last or, where nothing was written since, the one before: several optimizers of
        one model may have come to different ones. Returns how many steps the file has had; 0, with
        nothing changed, where it has none. What else belongs to a step, as the place in the data,
        a schedule of learning rates or a GradScaler, is the caller's to bring there. StoreError
        for a file that is in use, damaged, of another model or optimizer, or without that step,
        and StepcError inside ``averaged``; nothing has changed then.
        """
        if not self._is_durable():
            raise errors.StepcError(
                'recover() is for an optimizer with place=Place("disk", durable=True)'
            )
        self._refuse_averages()
        with self._locked(), within(self._timeout), outside(), torch.no_grad():
            mesh = make_binding(self).torch_mesh if is_distributed(self) else None
            return self._bring_back(mesh, step)

    def _bring_back(self, mesh, step: int | None) -> int:
        old, self._store = self._store, None
        note: dict = {}
        try:
            self._together(mesh, lambda: note.update(self._open_beside(old)))
            if mesh is not None:
                least = least_step(mesh, note["number"])
                words = f"and that of another rank has {least}"
                self._together(mesh, lambda: self._go_back(note, 0, least, words))
            if step is not None:
                words = f"and step {step} was asked for"
                self._together(mesh, lambda: self._go_back(note, 1, step, words))
        except BaseException:
            self._keep_old(old, note, None)
            raise
        if not note["steps"] and old is not None:
            self._keep_old(old, note, self._store)
        elif note["steps"]:
            self._drop_old(old)
            try:
                self._together(mesh, lambda: self._take(note))
            except BaseException:
                self._store.close()  # for others to open it
                self._store = None
                raise
        self._in_its_file = self._number, self._steps = note["number"], note["steps"]
        return self._steps

    def _together(self, mesh, call) -> None:
        """A part of ``recover`` that all ranks have come through before any goes on."""
        failure = failure_of(call, every=mesh is not None)
        if mesh is not None:
            refuse_failure(mesh, failure, unstepped=True)
        elif failure is not None:
            raise failure

    def _open_beside(self, old) -> dict:
        """Opens the file as it was committed, also where the optimizer has it already; its note."""
        if old is not None:
            old.unlock()
        self._open_store()
        if old is not None and old.generation and not self._store.generation:
            raise errors.StoreError(
                f"{self._file_of_states} is a new one: that with step {old.generation} is gone",
                "STEPC_STORE_ERROR",
            )
        return self._read_note()

    def _go_back(self, note: dict, which: int, wanted: int, words: str) -> None:
        """To the step whose number, or whose count of steps, is the one that is wanted. Of ranks
        that is what all have: they begin none before all have the one before it."""
        own, before = (note["number"], note["steps"])[which], note["before"][which]
        if own == wanted:
            return
        if before != wanted or not own:
            raise errors.StoreError(
                f"{self._file_of_states} has step {own}, {words}", "STEPC_STORE_ERROR"
            )
        self._store.retreat()
        note["went_back"] = True
        self._store.close()
        self._open_store()
        note.update(self._read_note())

    def _read_note(self) -> dict:
        if not self._store.generation:
            return {"number": 0, "steps": 0, "before": (0, 0)}
        file, store = self._file_of_states, self._store
        note = from_bytes(store.note(), file)
        note["kept"] = Kept()
        note.update(note["kept"].read_places(note["places"], file, store))
        self._refuse_other(note["model"])
        return note

    def _keep_old(self, old, note: dict, other) -> None:
        """With the store that was there before ``recover``, unless the file has gone back
        meanwhile, and its slots are others': then with the other one."""
        new, self._store = self._store, other if note.get("went_back") else None
        if new is not None and new is not self._store:
            new.close()  # for others to open it
        if note.get("went_back"):
            self._drop_old(old)
            return
        if old is None:
            return
        try:
            old.lock()
        except errors.StoreError:  # somebody was faster
            self._drop_old(old)
        else:
            self._store = old

    def _drop_old(self, old) -> None:
        """What was stepped since the file was committed."""
        if old is None:
            return
        self._keep_scalars(self._binding)
        self._binding, self._in_file = None, None
        for own in self.state.values():
            for name in [n for n, value in own.items() if isinstance(value, StoredState)]:
                del own[name]
        if self._backward is not None:
            self._backward.forget()
        old.close()

    def _refuse_other(self, found: dict) -> None:
        own, words = self._model(), None
        if found["optimizer"] != own["optimizer"]:
            words = f"of optimizer '{found['optimizer']}', and this one is '{own['optimizer']}'"
        elif found["master"] != own["master"]:
            words = f"with master={found['master']!r}, and this one has {own['master']!r}"
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
        store, kept = self._store, note["kept"]
        values: dict[tuple[int, str], object] = {
            **note["held"],
            **kept.read_small(*note["small"], store),
        }
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
