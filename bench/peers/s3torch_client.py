# SPDX-License-Identifier: Apache-2.0
"""s3torch_client.py put|get URL FILE: the client of s3torchconnector (AWS CRT from Rust), kept warm."""
import os
import sys

from loop import serve
from s3torchconnector import S3ClientConfig
from s3torchconnector._s3client import S3Client

PIECE_BYTES = 16 << 20
verb, url, path = sys.argv[1:4]
size = os.stat(path).st_size
config = S3ClientConfig(throughput_target_gbps=10.0, part_size=8 << 20, force_path_style=True)
client = S3Client(region="us-east-1", endpoint=url, s3client_config=config)
target = bytearray(size if verb == "get" else 0)


def put():
    writer = client.put_object("bench", "s3torch")
    with open(path, "rb") as file:
        while piece := file.read(PIECE_BYTES):
            writer.write(piece)
    writer.close()
    return size


def get():
    reader, at, view = client.get_object("bench", "served"), 0, memoryview(target)
    while at < size:
        got = reader.readinto(view[at:at + PIECE_BYTES])
        if not got:
            break
        at += got
    return at


def same():
    at = 0
    with open(path, "rb") as file:
        while piece := file.read(PIECE_BYTES):
            if piece != target[at:at + len(piece)]:
                return False
            target[at:at + len(piece)] = bytes(len(piece))
            at += len(piece)
    return at == size


serve(put) if verb == "put" else serve(get, same)
