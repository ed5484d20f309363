# SPDX-License-Identifier: Apache-2.0
"""boto3_client.py put|get URL FILE PART_BYTES THREADS [newest|crt]: boto3's transfers, kept warm.

put sends FILE without a payload signature; get receives into touched memory and compares with FILE
outside the clock. newest: without the CRC32 that today's boto3 adds and checks unless it is told
`when_required`. crt: the transfer manager over AWS's C client that the newest boto3 uses. boto3 itself
takes it for AWS's own endpoints only (it gives it neither an endpoint nor plain HTTP), so it is made
here as boto3 makes it, with both. It sends a CRC32 behind each part, which no setting leaves out.
"""
import io
import os
import sys

import boto3
from boto3.s3.transfer import TransferConfig
from botocore.config import Config
from loop import serve

COMPARE_BYTES = 16 << 20
verb, url, path = sys.argv[1:4]
part_bytes, threads = int(sys.argv[4]), int(sys.argv[5])
kind = sys.argv[6] if len(sys.argv) > 6 else ""
style = {"payload_signing_enabled": False, "addressing_style": "path"}
size = os.stat(path).st_size
target = bytearray(size if verb == "get" else 0)


class Memory(io.RawIOBase):
    """A file in memory that has its length already; transfers seek in it and write."""

    def __init__(self):
        super().__init__()
        self.at = 0

    def seekable(self):
        return True

    def writable(self):
        return True

    def seek(self, offset, whence=0):
        self.at = offset if whence == 0 else (self.at if whence == 1 else size) + offset
        return self.at

    def tell(self):
        return self.at

    def write(self, data):
        memoryview(target)[self.at:self.at + len(data)] = data
        self.at += len(data)
        return len(data)


def classic():
    more = {"request_checksum_calculation": "when_required",
            "response_checksum_validation": "when_required"} if kind == "newest" else {}
    client = boto3.client("s3", endpoint_url=url,
                          config=Config(s3=style, max_pool_connections=threads, **more))
    transfer = TransferConfig(multipart_threshold=part_bytes, multipart_chunksize=part_bytes,
                              max_concurrency=threads)
    if verb == "put":
        return lambda: client.upload_file(path, "bench", "boto3", Config=transfer)
    return lambda: client.download_fileobj("bench", "served", Memory(), Config=transfer)


def crt():
    import botocore.session
    from s3transfer import crt as made
    region = os.environ["AWS_REGION"]
    session = botocore.session.Session()
    keys = made.BotocoreCRTCredentialsWrapper(session.get_credentials())
    serializer = made.BotocoreCRTRequestSerializer(
        session, {"region_name": region, "endpoint_url": url, "config": Config(s3=style)})
    client = made.create_s3_crt_client(
        region=region, crt_credentials_provider=keys.to_crt_credentials_provider(), use_ssl=False,
        part_size=part_bytes)
    manager = made.CRTTransferManager(client, serializer)
    if verb == "put":
        return lambda: manager.upload(path, "bench", "boto3").result()
    return lambda: manager.download("bench", "served", Memory()).result()


transfer_once = crt() if kind == "crt" else classic()


def move():
    transfer_once()
    return size


def same():
    at = 0
    with open(path, "rb") as file:
        while piece := file.read(COMPARE_BYTES):
            if piece != target[at:at + len(piece)]:
                return False
            target[at:at + len(piece)] = bytes(len(piece))
            at += len(piece)
    return at == size


serve(move) if verb == "put" else serve(move, same)
