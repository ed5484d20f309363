# SPDX-License-Identifier: Apache-2.0
"""Checkpoints of any size for bench/run, written by torch, and what was made of them, compared.

    zero.py write TEMPLATE DIR RANKS BYTES SUMS    a ZeRO-3 checkpoint of BYTES of parameters in F32,
                                              with (1) or without (0) the CRC-32 of what its files hold
    zero.py check FOLDER BYTES fp32|bf16      *.safetensors there hold these parameters, all of them
    zero.py hollow FILE TENSORS BYTES         a file of torch.save that has no tensor's bytes

TEMPLATE is the tag folder of a small checkpoint that DeepSpeed wrote: everything but the tensors,
their names and their number is taken from it, and what is written must have its structure. The
optimizer keeps nothing of a parameter (SGD), so the optimizer's files are the parameters, padding
and a few KiB. Parameter elements are numbers in [1, 2) that repeat after 8,388,593 of them.
"""
import enum
import glob
import json
import os
import sys
import types

import numpy
import torch

PERIOD = 8388593  # a prime, so that no two pieces of the same size are alike
LAYERS = 16


def pattern():
    """As integers: F32 bits."""
    numbers = numpy.arange(PERIOD, dtype=numpy.uint32) * numpy.uint32(2654435761)
    return (numbers >> numpy.uint32(9)) | numpy.uint32(0x3f800000)


def shapes(size):
    """A transformer of about so many bytes: (name, shape), the matrices and then the vectors."""
    width = max(8, round((size / 4 / 201) ** 0.5))
    hidden = width * 43 // 16
    matrices, vectors = [("embed.weight", (4 * width, width))], []
    for layer in range(LAYERS):
        own = "layers.%d." % layer
        matrices += [(own + name + ".weight", (width, width)) for name in "qkvo"]
        matrices += [(own + name + ".weight", (hidden, width)) for name in ("gate", "up")]
        matrices.append((own + "down.weight", (width, hidden)))
        vectors += [(own + name + ".weight", (width,)) for name in ("norm1", "norm2")]
    return matrices + [("head.weight", (4 * width, width))], vectors + [("norm.weight", (width,))]


def placed(size):
    """(name, shape, elements, number of its first element) of all, in order."""
    at = 0
    for name, shape in sum(shapes(size), []):
        count = int(numpy.prod(shape))
        yield name, shape, count, at
        at += count


# ---- a checkpoint ----


def stand_in(module, name, value):
    """Classes of DeepSpeed's that its files name, so that they are written without DeepSpeed."""
    for end in range(1, module.count(".") + 2):
        part = ".".join(module.split(".")[:end])
        sys.modules.setdefault(part, types.ModuleType(part))
    value.__module__ = module
    value.__qualname__ = name
    setattr(sys.modules[module], name, value)


def load_template(folder, pattern_of_name):
    (path,) = glob.glob(os.path.join(folder, pattern_of_name))
    return torch.load(path, weights_only=False)


def structure(value, omitted=("state", "param_groups")):
    """Keys and types of what a file holds; of a list its first item, of parameters by name none."""
    if isinstance(value, torch.Tensor):
        return [str(value.dtype), value.dim()]
    if isinstance(value, dict):
        if any("." in str(key) for key in value):
            return [type(value).__name__, None]
        return [type(value).__name__, {str(key): structure(item) for key, item in value.items()
                                       if key not in omitted}]
    if isinstance(value, (list, tuple)) and not isinstance(value, torch.Size):
        return [type(value).__name__, structure(value[0]) if value else None]
    return type(value).__name__


def fill(flat, numbers, first):
    """flat[:] = pattern from element `first` on."""
    view, at = flat.numpy().view(numpy.uint32), 0
    while at < len(view):
        begin = (first + at) % PERIOD
        some = min(PERIOD - begin, len(view) - at)
        view[at:at + some] = numbers[begin:begin + some]
        at += some


def partition(group, starts, rank, ranks, numbers):
    """What a rank has of a group: a slice of each parameter, zeros behind its end."""
    slices = [-(-int(numpy.prod(shape)) // ranks) for _, shape in group]
    flat, at = torch.zeros(sum(slices)), 0
    for (name, shape), part in zip(group, slices):
        own = max(0, min(part, int(numpy.prod(shape)) - rank * part))
        fill(flat[at:at + own], numbers, starts[name] + rank * part)
        at += part
    return flat


def write(template, folder, ranks, size, sums):
    torch.serialization.set_crc32_options(bool(sums))
    stage = enum.IntEnum("ZeroStageEnum", ["optimizer_states", "gradients", "weights"])
    # As in the template: Pythons from 3.11.0 to 3.11.3 alone write getattr(ZeroStageEnum, name).
    stage.__reduce_ex__ = lambda self, _: (type(self), (self.value,))
    stand_in("deepspeed.runtime.zero.config", "ZeroStageEnum", stage)
    stand_in("deepspeed.runtime.fp16.loss_scaler", "LossScaler", type("LossScaler", (), {}))
    model = load_template(template, "zero_pp_rank_0_*_model_states.pt")
    optimizer = load_template(template, "*zero_pp_rank_0_*_optim_states.pt")
    was = structure(model), structure(optimizer)
    groups, numbers = shapes(size), pattern()
    starts = {name: at for name, _, _, at in placed(size)}
    tag = os.path.join(folder, "global_step1")
    os.makedirs(tag)
    empty = torch.zeros(0, dtype=torch.bfloat16)
    names = [name for group in groups for name, _ in group]
    ordered = type(model["module"])
    model.update(module=ordered((name, empty) for name in names), dp_world_size=ranks,
                 param_shapes=[ordered((name, torch.Size(shape)) for name, shape in group)
                               for group in groups],
                 buffer_names=[], shared_params={}, frozen_param_shapes=None,
                 frozen_param_fragments=None)
    inner = optimizer["optimizer_state_dict"]
    inner["partition_count"] = ranks
    inner["optimizer_state_dict"]["state"] = {}
    for rank in range(ranks):
        inner["fp32_flat_groups"] = [partition(group, starts, rank, ranks, numbers)
                                     for group in groups]
        torch.save(model, os.path.join(tag, "zero_pp_rank_%d_mp_rank_00_model_states.pt" % rank))
        torch.save(optimizer, os.path.join(
            tag, "bf16_zero_pp_rank_%d_mp_rank_00_optim_states.pt" % rank))
    compare_structure(was, (structure(model), structure(optimizer)))
    with open(os.path.join(folder, "latest"), "w", encoding="ascii") as file:
        file.write("global_step1")
    print(json.dumps({"bytes": 4 * sum(count for _, _, count, _ in placed(size)),
                      "tensors": len(names)}))


NOT_HERE = {"frozen_param_shapes", "frozen_param_fragments", "shared_params", "buffer_names"}


def compare_structure(was, now):
    """Keys in the same order, values of the same types; what this model does not have (frozen
    parameters, aliases, buffers) is empty."""
    for old, new in zip(was, now):
        if list(old[1]) != list(new[1]):
            raise SystemExit("DeepSpeed writes %s, this is %s" % (list(old[1]), list(new[1])))
        for key in set(old[1]) - NOT_HERE:
            if old[1][key] != new[1][key]:
                raise SystemExit("%s: DeepSpeed writes %s, this is %s" % (key, old[1][key],
                                                                          new[1][key]))


# ---- what was made of it ----


def as_type(bits, dtype):
    if dtype == "fp32":
        return bits
    return ((bits + 0x7fff + (bits >> 16 & 1)) >> 16).astype(numpy.uint16)


def headers(folder):
    """name: (shape, elements as integers) of all safetensors files of a folder."""
    found = {}
    for path in glob.glob(os.path.join(folder, "*.safetensors")):
        with open(path, "rb") as file:
            size = int.from_bytes(file.read(8), "little")
            header = json.loads(file.read(size))
        header.pop("__metadata__", None)
        for name, entry in header.items():
            begin, end = entry["data_offsets"]
            kind = {"F32": numpy.uint32, "BF16": numpy.uint16}[entry["dtype"]]
            found[name] = entry["shape"], numpy.memmap(
                path, kind, "r", 8 + size + begin, ((end - begin) // kind().nbytes,))
    return found


def check(folder, size, dtype):
    numbers = as_type(pattern(), dtype)
    found = headers(folder)
    for name, shape, count, first in placed(size):
        got_shape, got = found.pop(name)
        if tuple(got_shape) != shape or len(got) != count or got.dtype != numbers.dtype:
            raise SystemExit("%s has another shape or type" % name)
        at = 0
        while at < count:
            begin = (first + at) % PERIOD
            some = min(PERIOD - begin, count - at)
            if not numpy.array_equal(got[at:at + some], numbers[begin:begin + some]):
                raise SystemExit("%s has other elements from %d on" % (name, at))
            at += some
    if found:
        raise SystemExit("%s should not be there" % sorted(found)[:3])


def hollow(path, tensors, size):
    state = {"layers.%d.weight" % i: torch.empty(size // tensors // 2, dtype=torch.bfloat16)
             for i in range(tensors)}
    with torch.serialization.skip_data():
        torch.save(state, path)


if __name__ == "__main__":
    verb, words = sys.argv[1], sys.argv[2:]
    if verb == "write":
        write(words[0], words[1], int(words[2]), int(words[3]), int(words[4]))
    elif verb == "check":
        check(words[0], int(words[1]), words[2])
    else:
        hollow(words[0], int(words[1]), int(words[2]))
