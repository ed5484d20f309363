# SPDX-License-Identifier: Apache-2.0
"""obstore_client.py put|get URL FILE: obstore (Rust's object_store), kept warm, payload not signed.

put sends FILE in parts of 8 MiB, 12 at once; get receives ranges of 8 MiB, all asked for at once, and
compares with FILE outside the clock.
"""
import os
import sys

import obstore
from loop import serve
from obstore.store import S3Store

PART_BYTES, AT_ONCE = 8 << 20, 12
verb, url, path = sys.argv[1:4]
size = os.stat(path).st_size
store = S3Store("bench", endpoint=url, region="us-east-1", access_key_id="benchbenchbench",
                secret_access_key="nothing-secret", unsigned_payload=True,
                virtual_hosted_style_request=False, client_options={"allow_http": True})
received = []


def put():
    with open(path, "rb") as file:
        obstore.put(store, "obstore", file, chunk_size=PART_BYTES, max_concurrency=AT_ONCE,
                    use_multipart=True)
    return size


def get():
    starts = list(range(0, size, PART_BYTES))
    ends = [min(size, start + PART_BYTES) for start in starts]
    received[:] = obstore.get_ranges(store, "served", starts=starts, ends=ends)
    return size


def same():
    with open(path, "rb") as file:
        good = all(file.read(len(part)) == bytes(part) for part in map(memoryview, received))
    received.clear()
    return good


serve(put) if verb == "put" else serve(get, same)
