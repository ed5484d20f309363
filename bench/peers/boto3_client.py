# SPDX-License-Identifier: Apache-2.0
"""boto3_client.py URL FILE PART_BYTES THREADS [crt]: upload_file without payload signature, kept
warm. crt: the transfer manager over AWS's C client that the newest boto3 uses. boto3 itself takes it
for AWS's own endpoints only (it gives it neither an endpoint nor plain HTTP), so it is made here as
boto3 makes it, with both. It sends a CRC32 behind each part, which no setting leaves out."""
import os
import sys

import boto3
from boto3.s3.transfer import TransferConfig
from botocore.config import Config
from loop import serve

url, path, part_bytes, threads = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
style = {"payload_signing_enabled": False, "addressing_style": "path"}


def classic():
    client = boto3.client("s3", endpoint_url=url,
                          config=Config(s3=style, max_pool_connections=threads))
    transfer = TransferConfig(multipart_threshold=part_bytes, multipart_chunksize=part_bytes,
                              max_concurrency=threads)
    return lambda: client.upload_file(path, "bench", "boto3", Config=transfer)


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
    return lambda: manager.upload(path, "bench", "boto3").result()


upload = crt() if sys.argv[5:] == ["crt"] else classic()


def put():
    upload()
    return os.stat(path).st_size


serve(put)
