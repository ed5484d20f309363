#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes corpus/folder out of the checkpoints in tests/vectors, as fuzz_folder.c unpacks them. CRCs of
zip entries become 0, as where torch computes none: a changed pickle is read, not refused by its CRC."""
import pathlib
import struct

HERE = pathlib.Path(__file__).resolve().parent
VECTORS = HERE.parent / "vectors"
FOLDERS = ("dcp/single", "deepspeed/stage1_fp32/step2", "deepspeed/stage3/step2",
           "deepspeed/parallel/tensor_parallel/step2", "deepspeed/parallel/experts/step2",
           "deepspeed/parallel/experts_dp4/step2", "deepspeed/parallel/pipeline/step2",
           "deepspeed/parallel/experts_pipeline/step2", "deepspeed/parallel/megatron/step2",
           "torch_ranks/placed", "torch_ranks/fsdp2-tp", "torch_ranks/fsdp1")
INPUT_BYTES_MAX = 64 << 10


def without_crc(data):
    data, at = bytearray(data), 0
    while (at := data.find(b"PK\x01\x02", at)) >= 0:
        data[at + 16:at + 20] = bytes(4)
        at += 4
    return bytes(data)


for folder in FOLDERS:
    packed = b""
    for path in sorted((VECTORS / folder).iterdir()):
        name, data = path.name.encode(), without_crc(path.read_bytes())
        packed += bytes([len(name)]) + name + struct.pack("<I", len(data)) + data
    out = HERE / "corpus" / "folder" / folder.replace("/", "-").removesuffix("-step2")
    out.parent.mkdir(exist_ok=True)
    assert len(packed) <= INPUT_BYTES_MAX, (folder, len(packed))
    out.write_bytes(packed)
