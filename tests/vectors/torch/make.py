#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the torch files beside it, with torch itself, and expected.json: what torch says they hold.

Needs torch (2.1 or newer); run it again only to add a case. The versions are in expected.json.
"""
import argparse
import collections
import json
import pathlib
import pickle
import sys

import torch

HERE = pathlib.Path(__file__).resolve().parent
DTYPES = {torch.float32: "F32", torch.float64: "F64", torch.float16: "F16", torch.bfloat16: "BF16",
          torch.int64: "I64", torch.int32: "I32", torch.int16: "I16", torch.int8: "I8",
          torch.uint8: "U8", torch.bool: "BOOL", torch.complex64: "C64", torch.uint16: "U16",
          torch.uint32: "U32", torch.uint64: "U64", torch.float8_e4m3fn: "F8_E4M3",
          torch.float8_e5m2: "F8_E5M2"}


# Types that have no class of storage; torch cannot read them back from its own old form.
NEWER = ("U16", "U32", "U64", "F8_E4M3", "F8_E5M2")


def content(newer=True):
    torch.manual_seed(7)
    whole = torch.arange(24, dtype=torch.float32).reshape(4, 6)
    model = torch.nn.Sequential(torch.nn.Linear(8, 4), torch.nn.BatchNorm1d(4))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    model(torch.randn(5, 8)).sum().backward()
    optimizer.step()
    return {
        "model": model.state_dict(), "optimizer": optimizer.state_dict(),
        "every": {name: (torch.arange(6) % 2).to(dtype) for dtype, name in DTYPES.items()
                  if newer or name not in NEWER},
        "tied": whole, "tied_again": whole, "rows": whole[1:3], "steps": whole[1:3, ::2],
        "turned": whole.t(), "stretched": torch.ones(1).expand(3, 2),
        "scalar": torch.tensor(5), "none": torch.zeros(0, 4), "deep": whole.reshape(2, 1, 2, 3, 2),
        "parameter": torch.nn.Parameter(torch.ones(2, 2)),
        "epoch": 3, "rate": 1e-3, "large": 2 ** 80, "negative": -70000, "text": 'caf\u00e9 "q"\n',
        "nothing": None, "yes": True, "no": False, "far": float("inf"), "size": torch.Size([2, 3]),
        "type": torch.float16, "options": argparse.Namespace(depth=12, ratio=0.5),
        "list": [1, 2, [3, torch.ones(2)]], "pair": (1, "x"), "bytes": b"abc",
        "lists": collections.defaultdict(list, {"k": [1]}), "empty": {}, 7: "by number",
    }


def walk(value, path=()):
    """(path, leaf), as formats/torch/torch.h walks."""
    if isinstance(value, argparse.Namespace):
        value = vars(value)
    if isinstance(value, dict) and value:
        for key, item in value.items():
            yield from walk(item, path + (str(key),))
    elif isinstance(value, (list, tuple, torch.Size)) and len(value):
        for index, item in enumerate(value):
            yield from walk(item, path + (str(index),))
    else:
        yield ".".join(path), value


def plain(value):
    if isinstance(value, float) and value in (float("inf"), float("-inf")):
        return "inf" if value > 0 else "-inf"
    if isinstance(value, torch.dtype):
        return str(value)
    if isinstance(value, bytes):
        return f"(bytes of {len(value)} bytes)"
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) >= 1 << 63:
        return f"(number of {value.bit_length() // 8 + 1} bytes)"
    return value


def describe(value):
    tensors, values = [], []
    for path, leaf in walk(value):
        if isinstance(leaf, torch.Tensor):
            leaf = leaf.detach()
            raw = leaf.contiguous().reshape(-1).view(torch.uint8) if leaf.numel() else leaf
            tensors.append({"name": path, "dtype": DTYPES[leaf.dtype], "shape": list(leaf.shape),
                            "hex": bytes(raw.tolist()).hex() if leaf.numel() else ""})
        else:
            values.append({"name": path, "value": plain(leaf)})
    return {"tensors": tensors, "values": values}


class Command:
    """What a pickle may ask for, and no reader may do."""

    def __reduce__(self):
        import os
        return (os.system, ("touch /tmp/a-pickle-was-run",))


def main():
    expected = {"torch": torch.__version__, "python": sys.version.split()[0], "files": {}}
    small = {"weight": torch.arange(6, dtype=torch.float32).reshape(2, 3), "step": 10}

    def write(name, value, **options):
        torch.save(value, HERE / name, **options)
        expected["files"][name] = describe(torch.load(HERE / name, weights_only=False))

    write("everything.pt", content())
    write("everything_legacy.pt", content(newer=False), _use_new_zipfile_serialization=False)
    for protocol in (2, 3, 4, 5):
        write(f"protocol{protocol}.pt", small, pickle_protocol=protocol)
    write("legacy.pt", small, _use_new_zipfile_serialization=False)
    torch.serialization.set_crc32_options(False)
    write("without_crc.pt", small)
    torch.serialization.set_crc32_options(True)
    torch.save({"weight": small["weight"], "command": Command()}, HERE / "command.pt")
    for protocol in (0, 1, 2, 3, 4, 5):
        values = {"a": [1, -2, 2 ** 40, 2.5, None, True, False], "b": ("x\u20ac\n'\"\\", (), [], {}),
                  "c": {1: {2: [3]}}, "d": "latin \u00e9", "e": ["again"] * 3}
        values["f"] = values["a"]
        (HERE / f"plain{protocol}.pkl").write_bytes(pickle.dumps(values, protocol=protocol))
    expected["plain"] = describe(values)
    (HERE / "expected.json").write_text(json.dumps(expected, indent=1) + "\n")


if __name__ == "__main__":
    main()
