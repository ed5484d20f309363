# SPDX-License-Identifier: Apache-2.0
"""torch.distributed.checkpoint over Cairn's own tensors: no files, no `.metadata`, no pickle of tensors.

    cairn.dcp.save(state, run, step)               no collective at all
    save = cairn.dcp.async_save(state, run, step)

or with torch's own calls, where a program has them:

    dcp.save(state, storage_writer=cairn.dcp.Writer(run, step))
    dcp.async_save(state, storage_writer=cairn.dcp.Writer(run, step))     the writer is the stager, too
    dcp.load(state, storage_reader=cairn.dcp.Reader(run, step))

The server counts the ranks, so nothing is planned or gathered: each rank tells which boxes its DTensors are, and
libcairn divides what several ranks hold alike by computing alone. Whatever saved a version, dcp.load reads it into
any layout."""
from __future__ import annotations

import concurrent.futures
import io
import re
from collections.abc import Callable
from typing import Any, Protocol, cast

import torch
from torch.distributed.checkpoint import _nested_dict
from torch.distributed.checkpoint.default_planner import DefaultSavePlanner
from torch.distributed.checkpoint.metadata import (BytesStorageMetadata, ChunkStorageMetadata, Metadata,
                                                   TensorProperties, TensorStorageMetadata)
from torch.distributed.checkpoint.planner import (LoadItemType, LoadPlan, LoadPlanner, ReadItem, SavePlan, SavePlanner)
from torch.distributed.checkpoint.staging import AsyncStager
from torch.distributed.checkpoint.storage import StorageReader, StorageWriter, WriteResult
from torch.futures import Future

from . import _lib, _torch, errors
from ._arrays import Box
from ._run import Run, parse_name, run as open_run
from ._saves import Save
from ._state import Node, Unflatten, is_own
from ._version import Version
from .checkpoint import version_of


def save(state: Any, run: Run | str, step: int, **options: Any) -> Save:
    """Saves a state of tensors and DTensors, and waits for the commit."""
    made = async_save(state, run, step, **options)
    made.committed.result()
    return made


def async_save(state: Any, run: Run | str, step: int, **options: Any) -> Save:
    return (open_run(run) if isinstance(run, str) else run).async_save(step, state, **options)


def load(state: Any, run: Run | str, ref: int | str | None = None, **options: Any) -> Any:
    """Loads into the state's own tensors, whatever layout they have."""
    opened = open_run(run) if isinstance(run, str) else run
    found = opened.latest() if ref is None else opened.at(ref)
    if found is None:
        raise errors.make(f"run {opened.name} has no checkpoint yet", code="not-found", run=opened.name)
    with found:
        return found.load(into=state, **options)


def _validate(checkpoint_id: Any) -> bool:
    return str(checkpoint_id).startswith("cairn://")


class _Place:
    """Run and step of a checkpoint id `cairn://project/run/STEP`."""

    def __init__(self, run: Run | str | None, step: int | str | None) -> None:
        self.run = open_run(run) if isinstance(run, str) else run
        self.step = step

    def reset(self, checkpoint_id: Any) -> None:
        if checkpoint_id is None:
            return
        text = str(checkpoint_id)
        if _validate(text):
            name, self.step = parse_name(text)
            if self.run is None or self.run.name != name:
                self.run = open_run(name)
            return
        digits = re.search(r"(\d+)\D*$", text)
        if not digits:
            raise errors.make(f"checkpoint_id {text!r} has no step number", code="invalid",
                              hint="cairn://project/run/STEP, or Writer(run, step)")
        self.step = int(digits[1])

    def needs(self) -> tuple[Run, int | str]:
        if self.run is None or self.step is None:
            raise errors.make("the writer knows no run or no step", code="invalid",
                              hint="Writer(run, step), writer.at(step), or checkpoint_id='cairn://project/run/STEP'")
        return self.run, self.step


class Writer(StorageWriter, AsyncStager):
    """Writes one checkpoint after another; at(step) says which is next. As a stager it copies into the uploader's
    memory, so dcp.async_save plans nothing and holds no copy."""

    _synchronize_after_execute = False

    def __init__(self, run: Run | str | None = None, step: int | None = None, *, background: bool = False,
                 **options: Any) -> None:
        self._place, self._options, self._background = _Place(run, step), options, background
        self._staged: Save | None = None
        self.last: Save | None = None

    def __reduce__(self) -> Any:
        raise errors.make("a cairn.dcp.Writer belongs to its process", code="unsupported",
                          hint="dcp.async_save with AsyncCheckpointerType.THREAD: bytes are sent by the uploader's process")

    def at(self, step: int) -> Writer:
        self._place.step = step
        return self

    @property
    def checkpoint_id(self) -> str | None:
        run, step = self._place.run, self._place.step
        return f"cairn://{run.name}/{step}" if run and step is not None else None

    # ---- the stager ----

    def stage(self, state_dict: Any) -> Any:
        run, step = self._place.needs()
        self._staged = run.async_save(int(step), state_dict, background=self._background, **self._options)
        return {}

    def synchronize_staging(self) -> None:
        if self._staged:
            self._staged.staged.result()

    def close(self) -> None:
        self.synchronize_staging()

    # ---- the writer ----

    def reset(self, checkpoint_id: Any = None) -> None:
        if not self._staged:
            self._place.reset(checkpoint_id)

    def set_up_storage_writer(self, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        pass

    def prepare_local_plan(self, plan: SavePlan) -> SavePlan:
        return plan

    def prepare_global_plan(self, plans: list[SavePlan]) -> list[SavePlan]:
        return plans

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> Future[list[WriteResult]]:
        made, self._staged = self._staged, None
        if made is None:
            run, step = self._place.needs()
            made = run.async_save(int(step), _state_of(planner), **self._options)
        self.last = made
        results = [WriteResult(index=item.index, size_in_bytes=0, storage_data=None) for item in plan.items]
        future: Future[Any] = Future()  # its set_exception has the type of a result

        def done(durable: concurrent.futures.Future[Save]) -> None:
            error = durable.exception()
            if error is None:
                future.set_result(results)
            else:
                future.set_exception(error)
        made.durable.add_done_callback(done)
        return future

    def finish(self, metadata: Metadata, results: list[list[WriteResult]]) -> None:
        if self.last:
            self.last.committed.result()

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: Any) -> bool:
        return _validate(checkpoint_id)


Stager = Writer


class _Planned(Protocol):
    """What DefaultSavePlanner has once it is set up."""
    state_dict: dict[str, Any]
    mappings: dict[str, tuple[Any, ...]]
    flatten_state_dict: bool


def _state_of(planner: SavePlanner) -> dict[str, Any]:
    """The state that a planner was set up with. One that changes what is saved is not passed over."""
    own = type(planner)
    for name in ("resolve_data", "lookup_object", "transform_object"):
        if not isinstance(planner, DefaultSavePlanner) or getattr(own, name) is not getattr(DefaultSavePlanner, name):
            raise errors.make(f"{own.__name__} changes what is saved ({name})", code="unsupported",
                              hint="use DefaultSavePlanner, or checkpoint_id='cairn://project/run/STEP' without a writer")
    planned = cast(_Planned, planner)
    # torch's own inverse of what its planner does to a state; it has no public name.
    unflatten: Callable[[Any, Any], dict[str, Any]] = getattr(_nested_dict, "unflatten_state_dict")
    return unflatten(planned.state_dict, planned.mappings) if planned.flatten_state_dict else planned.state_dict


class Reader(StorageReader):
    """Reads a version into any layout; also one that no torch program saved."""

    def __init__(self, run: Run | str | None = None, ref: int | str | None = None, *,
                 weights_only: bool = True) -> None:
        self._place = _Place(open_run(run, read_only=True) if isinstance(run, str) else run, ref)
        self._weights_only = weights_only
        self._version: Version | None = None
        self._plain: dict[str, Callable[[], Any]] = {}

    def reset(self, checkpoint_id: Any = None) -> None:
        self._place.reset(checkpoint_id)
        self._version = None

    def _opened(self) -> Version:
        if self._version is None:
            run = self._place.run
            if run is None:
                raise errors.make("the reader knows no run", code="invalid", hint="Reader(run, step)")
            found = run.latest() if self._place.step is None else run.at(self._place.step)
            if found is None:
                raise errors.make(f"run {run.name} has no checkpoint yet", code="not-found", run=run.name)
            self._version = version_of(found)
        return self._version

    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:
        found = self._opened()
        rows: dict[str, Any] = {}
        for name, tensor in found.tensors.items():
            if tensor.dtype == "ITEM":
                continue
            rows[name] = TensorStorageMetadata(
                properties=TensorProperties(dtype=_torch.dtype_of(tensor.dtype)), size=torch.Size(tensor.shape),
                chunks=[ChunkStorageMetadata(offsets=torch.Size([0] * len(tensor.shape)),
                                             sizes=torch.Size(tensor.shape))])
        self._plain = _plain_values(found, set(rows), self._weights_only)
        rows.update({name: BytesStorageMetadata() for name in self._plain})
        return Metadata(state_dict_metadata=rows)

    def set_up_storage_reader(self, metadata: Metadata, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        pass

    def prepare_local_plan(self, plan: LoadPlan) -> LoadPlan:
        return plan

    def prepare_global_plan(self, plans: list[LoadPlan]) -> list[LoadPlan]:
        return plans

    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> Future[None]:
        found = self._opened()
        reads: list[_lib.Read] = []
        targets: list[tuple[ReadItem, torch.Tensor]] = []
        if not self._plain and any(item.type == LoadItemType.BYTE_IO for item in plan.items):
            self.read_metadata()  # the coordinator's metadata was sent to this rank
        for item in plan.items:
            name = item.storage_index.fqn
            if item.type == LoadItemType.BYTE_IO:
                data = io.BytesIO()
                torch.save(self._plain[name](), data)
                data.seek(0)
                planner.load_bytes(item, data)
                continue
            target = planner.resolve_tensor(item).detach()
            tensor = found.known(name)
            source = _torch.describe_plain(target)
            base = tuple(item.storage_index.offset or (0,) * len(tensor.shape))
            box = Box(tensor.shape, tuple(a + b for a, b in zip(base, item.storage_offsets)), tuple(item.lengths))
            if source.bytes:
                owner, _ = found.part_of(tensor)
                reads.append(found.request(name, source, tensor.dtype, box if tensor.shape else None, owner))
            targets.append((item, target))
        found.read(reads)
        for item, target in targets:
            planner.commit_tensor(item, target)
        future: Future[None] = Future()
        future.set_result(None)
        return future

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: Any) -> bool:
        return _validate(checkpoint_id)


def _plain_values(found: Version, tensors: set[str], weights_only: bool) -> dict[str, Callable[[], Any]]:
    """What is no tensor, by the names that DCP has for it: lists without tensors and dicts are one value."""
    saved = found.saved_state()
    if saved is None:
        return {name: (lambda name=name: found.item(name)) for name, tensor in found.tensors.items()
                if tensor.dtype == "ITEM" and not is_own(name)}
    tree, values = saved
    build = Unflatten(values, found.whole, found.item, weights_only)
    rows: dict[str, Callable[[], Any]] = {}

    def look(node: Node, path: str) -> None:
        if isinstance(node, dict) or node[0] == "d":
            pairs = node if isinstance(node, dict) else {build.build(key): entry for key, entry in node[1:]}
            for key, entry in pairs.items():
                look(entry, f"{path}.{key}" if path else str(key))
        elif node[0] == "a":
            return
        elif node[0] == "l" and not _is_terminal(node):
            for at, entry in enumerate(node[1:]):
                look(entry, f"{path}.{at}")
        else:
            rows[path] = lambda: build.build(node)
    look(tree, "")
    return {name: value for name, value in rows.items() if name not in tensors}


def _is_terminal(node: Node) -> bool:
    if isinstance(node, dict) or node[0] == "d":
        return False
    if node[0] != "l":
        return True
    entries: list[Node] = node[1:]
    return all(isinstance(entry, list) and entry[0] not in ("a", "d") and (entry[0] != "l" or _is_terminal(entry))
               for entry in entries)


__all__ = ["Reader", "Stager", "Writer", "async_save", "load", "save"]
