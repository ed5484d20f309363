# SPDX-License-Identifier: Apache-2.0
"""awscrt_client.py put|get HOST FILE PART_BYTES TARGET_GBPS: the AWS CRT S3 client, kept warm.

put sends FILE; get receives into touched memory, as a restore would, and compares with FILE.
The Debian version (0.16) ignores the endpoint's port and always uses 80.
"""
import mmap
import os
import sys

from awscrt import auth, io, s3
from awscrt.http import HttpHeaders, HttpRequest
from loop import serve

COMPARE_BYTES = 16 << 20
verb, host, path = sys.argv[1:4]
part_bytes, target = int(sys.argv[4]), float(sys.argv[5])
size = os.stat(path).st_size


def make_client():
    group = io.EventLoopGroup()
    bootstrap = io.ClientBootstrap(group, io.DefaultHostResolver(group))
    keys = auth.AwsCredentialsProvider.new_static("benchbenchbench", "nothing-secret")
    return s3.S3Client(bootstrap=bootstrap, region="us-east-1", credential_provider=keys,
                       tls_mode=s3.S3RequestTlsMode.DISABLED, part_size=part_bytes,
                       throughput_target_gbps=target)


client = make_client()


def put():
    headers = HttpHeaders([("Host", host), ("Content-Length", str(size)),
                           ("Content-Type", "application/octet-stream")])
    request = HttpRequest("PUT", "/bench/awscrt", headers)
    client.make_request(type=s3.S3RequestType.PUT_OBJECT, request=request,
                        send_filepath=path).finished_future.result(600)
    return size


if verb == "get":
    target_memory = mmap.mmap(-1, size)
    target_memory.madvise(mmap.MADV_HUGEPAGE)
    for at in range(0, size, 4096):
        target_memory[at] = 1


def on_body(chunk, offset, **_):
    target_memory[offset:offset + len(chunk)] = chunk


def get():
    request = HttpRequest("GET", "/bench/served", HttpHeaders([("Host", host)]))
    client.make_request(type=s3.S3RequestType.GET_OBJECT, request=request,
                        on_body=on_body).finished_future.result(600)
    return size


def same():
    with open(path, "rb") as file:
        for at in range(0, size, COMPARE_BYTES):
            if file.read(COMPARE_BYTES) != target_memory[at:at + COMPARE_BYTES]:
                return False
    for at in range(0, size, 4096):  # so that the next run cannot pass on these bytes
        target_memory[at] = 0
    return True


if verb == "put":
    serve(put)
else:
    serve(get, same)
