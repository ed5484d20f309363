# SPDX-License-Identifier: Apache-2.0
"""Files as torch.save and torch.distributed.checkpoint write them, made without torch: pickles that name
torch's classes and functions, and storages of given bytes."""
import collections
import io
import pickle
import struct
import sys
import types
import zipfile

MAGIC = 0x1950a86a20f9469cfc6c
STORAGES = {"float32": "FloatStorage", "float64": "DoubleStorage", "float16": "HalfStorage",
            "bfloat16": "BFloat16Storage", "int64": "LongStorage", "int32": "IntStorage", "int16": "ShortStorage",
            "int8": "CharStorage", "uint8": "ByteStorage", "bool": "BoolStorage",
            "complex64": "ComplexFloatStorage", "complex128": "ComplexDoubleStorage", "qint8": "QInt8Storage"}
WIDTHS = {"float32": 4, "float64": 8, "float16": 2, "bfloat16": 2, "int64": 8, "int32": 4, "int16": 2, "int8": 1,
          "uint8": 1, "bool": 1, "complex64": 8, "complex128": 16, "complex32": 4, "qint8": 1,
          "float8_e4m3fn": 1, "float8_e5m2": 1, "float8_e4m3fnuz": 1, "float8_e5m2fnuz": 1, "uint16": 2,
          "uint32": 4, "uint64": 8}


def named(module, name, kind=None):
    """A class, or what else is given, that a pickle calls module.name, with no such module installed."""
    parts = module.split(".")
    for i in range(1, len(parts) + 1):
        sys.modules.setdefault(".".join(parts[:i]), types.ModuleType(".".join(parts[:i])))
    there = getattr(sys.modules[module], name, None)
    if there is None or kind is not None:
        there = kind if kind is not None else type(name, (), {})
        there.__module__, there.__qualname__, there.__name__ = module, name, name
        setattr(sys.modules[module], name, there)
    return there


def made(module, name, state=None, **members):
    """An instance of module.name with these members, or with a state of another kind."""
    kind = named(module, name)
    value = kind.__new__(kind)
    value.__dict__.update(members)
    if state is not None:
        kind.__getstate__ = lambda self: self.__dict__["state"]
        value.state = state
    return value


class Call:
    """What a pickle makes by calling module.name."""

    def __init__(self, module, name, *arguments, state=None):
        self.function, self.arguments, self.state = named(module, name), arguments, state

    def __reduce__(self):
        return (self.function, self.arguments) + ((self.state,) if self.state is not None else ())


class Storage:
    def __init__(self, dtype, data, count=None):
        self.kind = STORAGES.get(dtype)
        self.data = bytes(data)
        self.count = count if count is not None else len(self.data) // (WIDTHS[dtype] if self.kind else 1)


def strides(shape):
    steps = []
    for d in range(len(shape)):
        step = 1
        for count in shape[d + 1:]:
            step *= count
        steps.append(step)
    return tuple(steps)


def tensor(dtype, shape, data, stride=None, offset=0, **metadata):
    """data: bytes, or the Storage of another tensor."""
    storage = data if isinstance(data, Storage) else Storage(dtype, data)
    place = (storage, offset, tuple(shape), tuple(stride or strides(shape)), False, collections.OrderedDict())
    more = (metadata,) if metadata else ()
    if storage.kind:
        return Call("torch._utils", "_rebuild_tensor_v2", *place, *more)
    return Call("torch._utils", "_rebuild_tensor_v3", *place, Dtype(dtype), *more)


def slots(module, name, **members):
    """An instance of a class with __slots__: its state is a pair."""
    return made(module, name, state=(None, members))


def placed(kind, dim=None, **more):
    """Shard, _StridedShard, Replicate or Partial."""
    members = {} if dim is None else {"dim": dim}
    return made("torch.distributed.tensor.placement_types", kind, **members, **more)


def wrapped(module, name, dtype, shape, state):
    kind = named(module, name)
    arguments = (kind, Dtype(dtype), tuple(shape), strides(shape), 0, None, None, False)
    return Call("torch._tensor", "_rebuild_from_type_v2", named("torch._utils", "_rebuild_wrapper_subclass"), kind,
                arguments, state)


def mesh_of(sizes, place, form="axes"):
    """A DeviceMesh as torch 2.13 writes it (axes), 2.9 (shape), or those before it (tensor)."""
    module = "torch.distributed._mesh_layout"
    if form == "axes":
        axes = tuple(made(module, "_FlatLayout", shape=(size,), stride=(1,)) for size in sizes)
        what = {"_layout": made(module, "_MeshLayout", axes=axes)}
    elif form == "shape":
        what = {"_layout": made(module, "_MeshLayout", shape=tuple(sizes), stride=strides(sizes))}
    else:
        count = 1
        for size in sizes:
            count *= size
        what = {"mesh": tensor("int64", sizes, struct.pack(f"<{count}q", *range(count)))}
    return made("torch.distributed.device_mesh", "DeviceMesh", _coordinate_on_dim=place and list(place), **what)


def dtensor(dtype, shape, local, mesh, placements, module="torch.distributed.tensor", **more):
    spec = made("torch.distributed.tensor._dtensor_spec", "DTensorSpec", mesh=mesh, placements=tuple(placements),
                **more)
    return wrapped(module, "DTensor", dtype, shape, (None, {"_local_tensor": local, "_spec": spec}))


def sharded_tensor(dtype, shape, pieces):
    """pieces: (offsets, sizes, tensor)."""
    own = [slots("torch.distributed._shard.sharded_tensor.shard", "Shard", tensor=piece, metadata=slots(
        "torch.distributed._shard.metadata", "ShardMetadata", shard_offsets=list(start), shard_sizes=list(size)))
        for start, size, piece in pieces]
    kind = "torch.distributed._shard.sharded_tensor.api"
    group = Call("builtins", "getattr", named(kind, "ShardedTensor"), "ProcessGroupState")
    return wrapped(kind, "ShardedTensor", dtype, shape, (own, None, group, None, True))


class Dtype:
    """torch.float32 as a pickle has it."""

    def __init__(self, name):
        self.name = name

    def __reduce__(self):
        named("torch", self.name, type(self.name, (), {}))
        return self.name  # a global of module torch

    @property
    def __module__(self):
        return "torch"


class Pickler(pickle._Pickler):  # the one in Python, since it takes dtypes by their names
    def __init__(self, file, protocol, legacy):
        super().__init__(file, protocol)
        self.storages, self.legacy, self.modules = {}, legacy, set()

    def persistent_id(self, value):
        if self.legacy and isinstance(value, type) and value.__module__.startswith("torch.nn") and value not in self.modules:
            self.modules.add(value)  # the class of a module, once with its source
            return "module", value, "linear.py", "class Linear(Module): ..."
        if not isinstance(value, Storage):
            return None
        key = self.storages.setdefault(id(value), (str(len(self.storages)), value))[0]
        kind = named("torch", value.kind) if value.kind else named("torch.storage", "UntypedStorage")
        return ("storage", kind, key, "cpu", value.count) + ((None,) if self.legacy else ())

    def save(self, value, save_persistent_id=True):
        if isinstance(value, Dtype):
            dtype = named("torch", value.name)
            known = self.memo.get(id(dtype))
            return self.write(self.get(known[0])) if known else self.save_global(dtype, value.name)
        return super().save(value, save_persistent_id)


def pickled(value, protocol=2, legacy=False):
    """The pickle, and its storages by key."""
    file = io.BytesIO()
    pickler = Pickler(file, protocol, legacy)
    pickler.dump(value)
    return file.getvalue(), dict(pickler.storages.values())


def save(file, value, protocol=2, compression=zipfile.ZIP_STORED):
    data, storages = pickled(value, protocol)
    with zipfile.ZipFile(file, "w", compression) as archive:
        archive.writestr("archive/data.pkl", data)
        archive.writestr("archive/byteorder", "little")
        for key, storage in storages.items():
            archive.writestr(f"archive/data/{key}", storage.data)
        archive.writestr("archive/version", "3\n")


def save_legacy(path, value, protocol=2):
    data, storages = pickled(value, protocol, legacy=True)
    head = [MAGIC, 1001, {"protocol_version": 1001, "little_endian": True}]
    with open(path, "wb") as file:
        for part in head:
            file.write(pickle.dumps(part, protocol))
        file.write(data + pickle.dumps(sorted(storages), protocol))
        for key in sorted(storages):
            file.write(struct.pack("<q", storages[key].count) + storages[key].data)


PROPERTIES = "torch.distributed.checkpoint.metadata"


def save_dcp(folder, chunks, objects=(), properties=PROPERTIES):
    """chunks: {name: (dtype, shape, [(offsets, tensor of save)])}; each piece as torch's writer has it."""
    folder.mkdir()
    states, places, data = {}, {}, b""
    metadata = "torch.distributed.checkpoint.metadata"
    size = lambda sizes: Call("torch", "Size", tuple(sizes))
    for name, (dtype, shape, pieces) in chunks.items():
        layout = made(properties, "TensorProperties", state=(Dtype(dtype), Call("torch.serialization",
                      "_get_layout", "torch.strided"), False, 0, False))
        rows = []
        for offsets, piece in pieces:
            file = io.BytesIO()
            save(file, piece)
            rows.append(made(metadata, "ChunkStorageMetadata", offsets=size(offsets), sizes=size(piece.arguments[2])))
            key = made(metadata, "MetadataIndex", fqn=name, offset=size(offsets), index=None)
            places[key] = made("torch.distributed.checkpoint.filesystem", "_StorageInfo",
                               relative_path="__0_0.distcp", offset=len(data), length=len(file.getvalue()))
            data += file.getvalue()
        states[name] = made(metadata, "TensorStorageMetadata", properties=layout, size=size(shape), chunks=rows)
    for name, value in dict(objects).items():
        file = io.BytesIO()
        save(file, value)
        states[name] = made(metadata, "BytesStorageMetadata")
        key = made(metadata, "MetadataIndex", fqn=name, offset=None, index=None)
        places[key] = made("torch.distributed.checkpoint.filesystem", "_StorageInfo",
                           relative_path="__0_0.distcp", offset=len(data), length=len(file.getvalue()))
        data += file.getvalue()
    whole = made(metadata, "Metadata", state_dict_metadata=states, planner_data=None, storage_data=places)
    (folder / ".metadata").write_bytes(pickled(whole, 4)[0])
    (folder / "__0_0.distcp").write_bytes(data)
