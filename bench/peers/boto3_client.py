# SPDX-License-Identifier: Apache-2.0
"""boto3_client.py URL FILE PART_BYTES THREADS [crt]: upload_file without payload signature, kept
warm. crt: the newest, told to use AWS's C client and to send no checksum that S3 does not ask for."""
import os
import sys

import boto3
from boto3.s3.transfer import TransferConfig
from botocore.config import Config
from loop import serve

url, path, part_bytes, threads = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
more, how = {}, {}
if sys.argv[5:] == ["crt"]:
    more = {"request_checksum_calculation": "when_required",
            "response_checksum_validation": "when_required"}
    how = {"preferred_transfer_client": "crt"}
config = Config(s3={"payload_signing_enabled": False, "addressing_style": "path"},
                max_pool_connections=threads, **more)
client = boto3.client("s3", endpoint_url=url, config=config)
transfer = TransferConfig(multipart_threshold=part_bytes, multipart_chunksize=part_bytes,
                          max_concurrency=threads, **how)


def put():
    client.upload_file(path, "bench", "boto3", Config=transfer)
    return os.stat(path).st_size


serve(put)
