# SPDX-License-Identifier: Apache-2.0
"""Looks at s3fault with boto3, a client that shares no line with Cairn or with s3fault.

    s3fault_boto3.py --program s3fault

What boto3 signs must be accepted, and what is wrong in one place must be refused. Exit status 77
means that boto3 is not installed.
"""
import argparse
import base64
import concurrent.futures
import hashlib
import json
import os
import random
import subprocess
import sys
import tempfile
import time
import traceback
import urllib.error
import urllib.request

import read_without_cairn

SKIPPED = 77
HANG_S = float(os.environ.get("CAIRN_TEST_WAIT_S", 300))
MIB = 1 << 20
ACCESS, SECRET, TOKEN = "canary-access", "canary/secret+key", "canary+token=="
tests = []


def test(function):
    tests.append(function)
    return function


def crc32c(data):
    return base64.b64encode(read_without_cairn.crc32c(data).to_bytes(4, "big")).decode()


def comes(what):
    """Waits until it is true, however long a busy machine takes."""
    end = time.monotonic() + HANG_S
    while not what():
        if time.monotonic() > end:
            raise AssertionError(f"never came: line {what.__code__.co_firstlineno}")
        time.sleep(0.01)  # step of a poll


class Server:
    def __init__(self, program, *options):
        self.folder = tempfile.TemporaryDirectory()
        port_file = os.path.join(self.folder.name, "port")
        self.process = subprocess.Popen(
            [program, "--port-file", port_file, "--bucket", "lab", "--access-key", ACCESS,
             "--secret-key", SECRET, *options], stdout=subprocess.DEVNULL)
        comes(lambda: os.path.exists(port_file) and open(port_file).read())
        self.url = "http://127.0.0.1:" + open(port_file).read().strip()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait()
        self.folder.cleanup()

    def control(self, path, body=None):
        data = None if body is None else body.encode()
        with urllib.request.urlopen(self.url + "/-/" + path, data=data) as answer:
            return answer.read().decode()

    def rules(self, text):
        self.control("rules", text)

    def clock(self, ahead_s):
        self.control("clock", str(ahead_s))

    def state(self):
        return json.loads(self.control("state"))

    def journal(self):
        return [json.loads(line) for line in self.control("journal").splitlines()]

    def client(self, access=ACCESS, secret=SECRET, token=None, region="us-east-1", style="path", attempts=1):
        import boto3
        import botocore.config
        config = botocore.config.Config(
            s3={"addressing_style": style}, retries={"total_max_attempts": attempts},
            signature_version="s3v4", request_checksum_calculation="when_required",
            response_checksum_validation="when_required", proxies={}, read_timeout=HANG_S)
        return boto3.client("s3", endpoint_url=self.url, aws_access_key_id=access,
                            aws_secret_access_key=secret, aws_session_token=token,
                            region_name=region, config=config)


def code_of(call, **arguments):
    import botocore.exceptions
    try:
        call(**arguments)
    except botocore.exceptions.ClientError as problem:
        return problem.response["Error"]["Code"]
    return "ok"


def equal(seen, wanted):
    if seen != wanted:
        raise AssertionError(f"{seen!r} instead of {wanted!r}")


@test
def an_object_comes_back_with_its_headers(server):
    s3 = server.client()
    key = "a b+c/ü&=%41~(1)!/'x'"
    put = s3.put_object(Bucket="lab", Key=key, Body=b"hello world", Metadata={"cairn-upload": "t1"},
                        ContentType="text/x", ChecksumCRC32C=crc32c(b"hello world"))
    equal(put["ChecksumCRC32C"], crc32c(b"hello world"))
    got = s3.get_object(Bucket="lab", Key=key, ChecksumMode="ENABLED")
    equal(got["Body"].read(), b"hello world")
    equal(got["Metadata"], {"cairn-upload": "t1"})
    equal(got["ContentType"], "text/x")
    equal(got["ETag"], '"' + hashlib.md5(b"hello world").hexdigest() + '"')
    head = s3.head_object(Bucket="lab", Key=key, ChecksumMode="ENABLED")
    equal((head["ContentLength"], head["ChecksumCRC32C"]), (11, crc32c(b"hello world")))
    s3.delete_object(Bucket="lab", Key=key)
    equal(code_of(s3.get_object, Bucket="lab", Key=key), "NoSuchKey")
    equal(code_of(s3.head_object, Bucket="lab", Key=key), "404")


@test
def ranges_and_conditions_hold(server):
    s3 = server.client()
    etag = s3.put_object(Bucket="lab", Key="k", Body=b"0123456789")["ETag"]
    for text, wanted in [("bytes=0-0", b"0"), ("bytes=2-4", b"234"), ("bytes=8-99", b"89"),
                         ("bytes=7-", b"789"), ("bytes=-3", b"789"), ("bytes=-99", b"0123456789")]:
        got = s3.get_object(Bucket="lab", Key="k", Range=text, IfMatch=etag)
        equal(got["Body"].read(), wanted)
        equal(got["ResponseMetadata"]["HTTPStatusCode"], 206)
    equal(s3.get_object(Bucket="lab", Key="k", Range="bytes=2-4")["ContentRange"], "bytes 2-4/10")
    for text in ["bytes=10-11", "bytes=-0"]:
        equal(code_of(s3.get_object, Bucket="lab", Key="k", Range=text), "InvalidRange")
    equal(code_of(s3.get_object, Bucket="lab", Key="k", IfMatch='"other"'), "PreconditionFailed")
    equal(code_of(s3.get_object, Bucket="lab", Key="k", IfNoneMatch=etag), "304")
    equal(code_of(s3.put_object, Bucket="lab", Key="k", Body=b"x", IfNoneMatch="*"), "PreconditionFailed")
    equal(code_of(s3.put_object, Bucket="lab", Key="new", Body=b"x", IfNoneMatch="*"), "ok")


@test
def wrong_keys_and_signatures_are_refused(server):
    good = server.client()
    equal(code_of(good.list_objects_v2, Bucket="lab"), "ok")
    equal(code_of(server.client(secret="x" + SECRET).list_objects_v2, Bucket="lab"), "SignatureDoesNotMatch")
    equal(code_of(server.client(access="nobody").list_objects_v2, Bucket="lab"), "InvalidAccessKeyId")
    equal(code_of(server.client(token="extra").list_objects_v2, Bucket="lab"), "InvalidToken")
    code_of(server.client(region="eu-central-1").put_object, Bucket="lab", Key="k", Body=b"x")
    equal([line["code"] for line in server.journal() if line["key"] == "k"][0], "AuthorizationHeaderMalformed")
    for name in ["authorization", "x-amz-date", "x-amz-content-sha256", "path"]:
        client = server.client()

        def tamper(request, name=name, **_):
            if name == "path":
                request.url += "x"
            elif name == "authorization":
                value = request.headers["Authorization"]
                last = b"0" if value[-1:] != b"0" else b"1"
                request.headers["Authorization"] = value[:-1] + last
            else:
                value = request.headers[name]
                flipped = value[:-3] + (b"01Z" if value[-3:] != b"01Z" else b"02Z")
                request.headers[name] = flipped
        client.meta.events.register("before-send.s3", tamper)
        equal(code_of(client.put_object, Bucket="lab", Key="k", Body=b"x") != "ok", True)


@test
def session_tokens_and_expired_keys_are_told_apart(server):
    server.control("keys", f"temp tempsecret {TOKEN}")
    s3 = server.client("temp", "tempsecret", TOKEN)
    equal(code_of(s3.put_object, Bucket="lab", Key="k", Body=b"x"), "ok")
    equal(code_of(server.client("temp", "tempsecret").head_bucket, Bucket="lab"), "400")
    server.rules("op=put : expire-keys")
    equal(code_of(s3.put_object, Bucket="lab", Key="k", Body=b"x"), "ExpiredToken")
    server.rules("")
    equal(code_of(s3.get_object, Bucket="lab", Key="k"), "ExpiredToken")
    equal(code_of(server.client().get_object, Bucket="lab", Key="k"), "ok")
    server.rules("op=head nth=1 : clock=+1200")
    code_of(server.client().head_object, Bucket="lab", Key="k")
    equal(code_of(server.client().get_object, Bucket="lab", Key="k"), "RequestTimeTooSkewed")


@test
def presigned_urls_work_until_they_are_changed_or_old(server):
    s3 = server.client()
    s3.put_object(Bucket="lab", Key="a/b c", Body=b"presigned")
    url = s3.generate_presigned_url("get_object", {"Bucket": "lab", "Key": "a/b c"}, ExpiresIn=60)

    def fetch(url, data=None, headers=None):
        request = urllib.request.Request(url, data=data, headers=headers or {}, method="PUT" if data else "GET")
        try:
            with urllib.request.urlopen(request) as answer:
                return answer.status, answer.read()
        except urllib.error.HTTPError as problem:
            return problem.code, b""
    equal(fetch(url), (200, b"presigned"))
    equal(fetch(url, headers={"Range": "bytes=3-5"}), (206, b"sig"))
    equal(fetch(url.replace("Expires=60", "Expires=61"))[0], 403)
    equal(fetch(url[:-1] + ("0" if url[-1] != "0" else "1"))[0], 403)
    put = s3.generate_presigned_url("put_object", {"Bucket": "lab", "Key": "p"}, ExpiresIn=60)
    equal(fetch(put, b"by url", {"Content-Type": ""})[0], 200)
    equal(s3.get_object(Bucket="lab", Key="p")["Body"].read(), b"by url")
    short = s3.generate_presigned_url("get_object", {"Bucket": "lab", "Key": "p"}, ExpiresIn=60)
    equal(fetch(short)[0], 200)
    server.clock(61)
    equal(fetch(short)[0], 403)
    server.clock(0)


@test
def wrong_digests_are_refused(server):
    s3 = server.client()
    wrong = base64.b64encode(hashlib.md5(b"other").digest()).decode()
    equal(code_of(s3.put_object, Bucket="lab", Key="k", Body=b"x", ContentMD5=wrong), "BadDigest")
    equal(code_of(s3.put_object, Bucket="lab", Key="k", Body=b"x", ContentMD5="short"), "InvalidDigest")
    equal(code_of(s3.put_object, Bucket="lab", Key="k", Body=b"x", ChecksumCRC32C="AAAAAA=="), "BadDigest")
    equal(code_of(s3.put_object, Bucket="lab", Key="k", Body=b"x", ChecksumCRC32C="AA"), "InvalidRequest")
    server.rules("op=put : req-flip@0")
    equal(code_of(s3.put_object, Bucket="lab", Key="k", Body=b"x"), "XAmzContentSHA256Mismatch")
    server.rules("")
    equal(server.state()["objects"], [])


def upload(s3, key, pieces, composite=False, **create):
    kind = "COMPOSITE" if composite else "FULL_OBJECT"
    begun = s3.create_multipart_upload(Bucket="lab", Key=key, ChecksumAlgorithm="CRC32C", ChecksumType=kind, **create)
    parts = []
    for number, piece in enumerate(pieces, 1):
        sent = s3.upload_part(Bucket="lab", Key=key, UploadId=begun["UploadId"], PartNumber=number,
                              Body=piece, ChecksumCRC32C=piece_crc(piece))
        parts.append({"PartNumber": number, "ETag": sent["ETag"], "ChecksumCRC32C": sent["ChecksumCRC32C"]})
    return begun["UploadId"], parts


known = {}


def piece_crc(piece):
    key = hashlib.md5(piece).digest()
    if key not in known:
        known[key] = crc32c(piece)
    return known[key]


@test
def multipart_uploads_follow_the_rules(server):
    s3 = server.client()
    big, small = bytes(5 * MIB), b"tail"
    known[hashlib.md5(big).digest()] = server.zeros
    upload_id, parts = upload(s3, "m", [big, small], Metadata={"cairn-upload": "uuid"})
    page = s3.list_parts(Bucket="lab", Key="m", UploadId=upload_id, MaxParts=1)
    equal((len(page["Parts"]), page["IsTruncated"], page["NextPartNumberMarker"]), (1, True, 1))
    page = s3.list_parts(Bucket="lab", Key="m", UploadId=upload_id, PartNumberMarker=1)
    equal([(p["PartNumber"], p["Size"]) for p in page["Parts"]], [(2, 4)])

    def complete(parts, **more):
        return code_of(s3.complete_multipart_upload, Bucket="lab", Key="m", UploadId=upload_id,
                       MultipartUpload={"Parts": parts}, **more)
    equal(complete(parts[::-1]), "InvalidPartOrder")
    equal(complete([]), "MalformedXML")
    equal(complete([dict(parts[0], ETag='"other"'), parts[1]]), "InvalidPart")
    equal(complete([dict(parts[0], ChecksumCRC32C="AAAAAA=="), parts[1]]), "InvalidPart")
    equal(complete(parts[:1] + [dict(parts[1], PartNumber=3)]), "InvalidPart")
    equal(complete(parts, ChecksumCRC32C="AAAAAA==", ChecksumType="FULL_OBJECT"), "BadDigest")
    equal(complete(parts, MpuObjectSize=7), "InvalidRequest")
    equal([u["Key"] for u in s3.list_multipart_uploads(Bucket="lab", Prefix="m")["Uploads"]], ["m"])
    equal(complete(parts, ChecksumType="FULL_OBJECT", MpuObjectSize=5 * MIB + 4), "ok")
    equal(complete(parts), "ok")
    head = s3.head_object(Bucket="lab", Key="m", ChecksumMode="ENABLED")
    equal((head["ContentLength"], head["Metadata"]), (5 * MIB + 4, {"cairn-upload": "uuid"}))
    got = s3.get_object(Bucket="lab", Key="m", Range=f"bytes={5 * MIB - 2}-{5 * MIB + 1}")
    equal(got["Body"].read(), b"\0\0ta")
    equal(s3.list_multipart_uploads(Bucket="lab").get("Uploads"), None)
    upload_id, parts = upload(s3, "m", [small, small])
    equal(complete(parts), "EntityTooSmall")
    s3.abort_multipart_upload(Bucket="lab", Key="m", UploadId=upload_id)
    equal(complete(parts), "NoSuchUpload")
    equal(code_of(s3.abort_multipart_upload, Bucket="lab", Key="m", UploadId=upload_id), "NoSuchUpload")
    upload_id, parts = upload(s3, "m", [small], True)
    equal(complete([{"PartNumber": 1, "ETag": parts[0]["ETag"]}]), "InvalidRequest")
    equal(complete(parts, IfNoneMatch="*"), "PreconditionFailed")
    equal(complete(parts), "ok")
    equal(s3.head_object(Bucket="lab", Key="m", ChecksumMode="ENABLED")["ChecksumCRC32C"][-2:], "-1")


@test
def listings_come_in_pages_and_deletions_in_batches(server):
    s3 = server.client()
    names = [f"p/{i:03d} &<é>" for i in range(25)] + ["q"]
    for name in names:
        s3.put_object(Bucket="lab", Key=name, Body=b"")
    pages = list(s3.get_paginator("list_objects_v2").paginate(
        Bucket="lab", Prefix="p/", PaginationConfig={"PageSize": 10}))
    equal([len(page["Contents"]) for page in pages], [10, 10, 5])
    equal([entry["Key"] for page in pages for entry in page["Contents"]], names[:25])
    answer = s3.delete_objects(Bucket="lab", Delete={"Objects": [{"Key": n} for n in names[:3]]})
    equal([entry["Key"] for entry in answer["Deleted"]], names[:3])
    server.rules("op=delete-many : delete-error=AccessDenied")
    answer = s3.delete_objects(Bucket="lab", Delete={"Objects": [{"Key": n} for n in names[3:5]]})
    equal([(e["Key"], e["Code"]) for e in answer["Errors"]], [(names[3], "AccessDenied")])
    equal([entry["Key"] for entry in answer["Deleted"]], names[4:5])
    for i in range(3):
        s3.create_multipart_upload(Bucket="lab", Key=f"u{i // 2}")
    pages = list(s3.get_paginator("list_multipart_uploads").paginate(Bucket="lab", PaginationConfig={"PageSize": 1}))
    equal([u["Key"] for page in pages for u in page.get("Uploads", [])], ["u0", "u0", "u1"])


def versions_of(s3, prefix, **more):
    """(key, id, is a marker, is the latest), in the order of the pages."""
    answer = s3.list_object_versions(Bucket="lab", Prefix=prefix, **more)
    both = answer.get("Versions", []) + answer.get("DeleteMarkers", [])
    return [(v["Key"], v["VersionId"], "Size" not in v, v["IsLatest"]) for v in both]


@test
def a_bucket_with_versioning_keeps_what_is_deleted(server):
    s3 = server.client()
    before = s3.put_object(Bucket="lab", Key="v/old", Body=b"1")
    equal(before.get("VersionId"), None)
    server.control("versioning", "<VersioningConfiguration><Status>Enabled</Status>"
                                 "</VersioningConfiguration>")
    equal(s3.get_bucket_versioning(Bucket="lab")["Status"], "Enabled")
    first = s3.put_object(Bucket="lab", Key="v/a", Body=b"one")["VersionId"]
    second = s3.put_object(Bucket="lab", Key="v/a", Body=b"three")["VersionId"]
    equal(s3.head_object(Bucket="lab", Key="v/a")["VersionId"], second)
    gone = s3.delete_object(Bucket="lab", Key="v/a")
    equal(gone["DeleteMarker"], True)
    equal(code_of(s3.head_object, Bucket="lab", Key="v/a"), "404")
    equal(sorted(versions_of(s3, "v/a")), sorted([("v/a", gone["VersionId"], True, True),
                                                  ("v/a", second, False, False),
                                                  ("v/a", first, False, False)]))
    # Whoever removes the marker first brings the object back.
    s3.delete_object(Bucket="lab", Key="v/a", VersionId=gone["VersionId"])
    equal(s3.get_object(Bucket="lab", Key="v/a")["Body"].read(), b"three")
    s3.delete_object(Bucket="lab", Key="v/a", VersionId=second)
    equal(s3.get_object(Bucket="lab", Key="v/a")["Body"].read(), b"one")
    marker = s3.delete_objects(Bucket="lab", Delete={"Objects": [{"Key": "v/a"}]})["Deleted"][0]
    equal((marker["Key"], marker["DeleteMarker"]), ("v/a", True))
    answer = s3.delete_objects(Bucket="lab", Delete={"Objects": [
        {"Key": "v/a", "VersionId": first},
        {"Key": "v/a", "VersionId": marker["DeleteMarkerVersionId"]},
        {"Key": "v/old", "VersionId": "null"}]})
    equal(len(answer["Deleted"]), 3)
    equal(versions_of(s3, "v/"), [])
    for i in range(25):
        s3.put_object(Bucket="lab", Key=f"w/{i // 2:02d} &<é>", Body=b"")
    pages = list(s3.get_paginator("list_object_versions").paginate(
        Bucket="lab", Prefix="w/", PaginationConfig={"PageSize": 10}))
    equal([len(page["Versions"]) for page in pages], [10, 10, 5])
    equal(len({(v["Key"], v["VersionId"]) for page in pages for v in page["Versions"]}), 25)
    server.control("versioning", "<VersioningConfiguration><Status>Suspended</Status>"
                                 "</VersioningConfiguration>")
    s3.put_object(Bucket="lab", Key="x", Body=b"1")
    s3.put_object(Bucket="lab", Key="x", Body=b"2")
    equal(versions_of(s3, "x"), [("x", "null", False, True)])
    s3.delete_object(Bucket="lab", Key="x")
    equal(versions_of(s3, "x"), [("x", "null", True, True)])


@test
def what_is_locked_is_not_deleted_by_its_id(server):
    s3 = server.client()
    server.control("versioning", "<VersioningConfiguration><Status>Enabled</Status>"
                                 "</VersioningConfiguration>")
    first = s3.put_object(Bucket="lab", Key="l/a", Body=b"1")["VersionId"]
    server.control("hold", "l/*")
    s3.delete_object(Bucket="lab", Key="l/a")
    equal(code_of(s3.delete_object, Bucket="lab", Key="l/a", VersionId=first), "AccessDenied")
    answer = s3.delete_objects(Bucket="lab", Delete={"Objects": [{"Key": "l/a", "VersionId": first}]})
    equal([(e["Key"], e["VersionId"], e["Code"]) for e in answer["Errors"]], [("l/a", first, "AccessDenied")])
    server.control("hold", "")
    s3.delete_object(Bucket="lab", Key="l/a", VersionId=first)
    server.control("object-lock", "<ObjectLockConfiguration><Rule><DefaultRetention><Mode>"
                                  "GOVERNANCE</Mode><Days>1</Days></DefaultRetention></Rule>"
                                  "</ObjectLockConfiguration>")
    equal(code_of(s3.put_object, Bucket="lab", Key="l/b", Body=b"1"), "InvalidRequest")  # as AWS: only with a checksum
    sums = base64.b64encode(hashlib.md5(b"1").digest()).decode()
    second = s3.put_object(Bucket="lab", Key="l/b", Body=b"1", ContentMD5=sums)["VersionId"]
    equal(code_of(s3.delete_object, Bucket="lab", Key="l/b", VersionId=second), "AccessDenied")


@test
def buckets_are_there_or_not(server):
    s3 = server.client()
    s3.create_bucket(Bucket="second")
    equal([b["Name"] for b in s3.list_buckets()["Buckets"]], ["lab", "second"])
    equal(s3.head_bucket(Bucket="second")["BucketRegion"], "us-east-1")
    equal(s3.get_bucket_versioning(Bucket="second").get("Status"), None)
    equal(code_of(s3.get_bucket_lifecycle_configuration, Bucket="lab"), "NoSuchLifecycleConfiguration")
    s3.delete_bucket(Bucket="second")
    equal(code_of(s3.list_objects_v2, Bucket="second"), "NoSuchBucket")


@test
def faults_come_where_the_rules_say(server):
    import botocore.exceptions
    s3 = server.client()
    s3.put_object(Bucket="lab", Key="k", Body=b"x" * 100)

    def read():
        return s3.get_object(Bucket="lab", Key="k")["Body"].read()

    def fails(rule):
        server.rules(rule)
        try:
            read()
        except (botocore.exceptions.BotoCoreError, botocore.exceptions.ClientError,
                botocore.exceptions.HTTPClientError) as problem:
            return type(problem).__name__
        return "ok"
    equal(fails("op=get nth=2 : status=503/SlowDown"), "ok")
    equal(code_of(s3.get_object, Bucket="lab", Key="k"), "SlowDown")
    equal(fails("op=get nth=2 : status=503/SlowDown"), "ok")
    for rule in ["rst@h0", "rst@50%", "fin@99", "rst@h20", "rst@h-1"]:
        equal(fails("op=get : " + rule) != "ok", True)
    server.rules("op=get : flip@7")
    equal(read(), b"x" * 7 + b"y" + b"x" * 92)
    server.rules("op=get : stall@50/200, slow=2000")
    start = time.monotonic()
    equal(read(), b"x" * 100)
    equal(0.2 <= time.monotonic() - start, True)
    server.rules("op=get : held")
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        reading = pool.submit(read)
        comes(lambda: server.state()["rules"][0]["acted"])
        equal(reading.done(), False)
        s3.put_object(Bucket="lab", Key="k", Body=b"z" * 100)
        server.rules("")
        equal(reading.result(), b"x" * 100)  # of the object that was there when it came
    s3.put_object(Bucket="lab", Key="k", Body=b"x" * 100)
    server.rules("op=put : lose-reply")
    try:
        s3.put_object(Bucket="lab", Key="lost", Body=b"there")
        raise AssertionError("a lost reply was a success")
    except botocore.exceptions.BotoCoreError:
        pass
    equal(s3.get_object(Bucket="lab", Key="lost")["Body"].read(), b"there")
    server.rules("op=put : apply-late=200")
    equal(code_of(s3.put_object, Bucket="lab", Key="late", Body=b"there"), "InternalError")
    equal(code_of(s3.get_object, Bucket="lab", Key="late"), "NoSuchKey")
    comes(lambda: code_of(s3.get_object, Bucket="lab", Key="late") == "ok")
    equal([(line["status"], line["note"]) for line in server.journal()
           if line["key"] == "late" and line["op"] == "put"], [(500, ""), (200, "late")])
    try:
        server.rules("op=get : no-such-action")
        raise AssertionError("a bad rule was taken")
    except urllib.error.HTTPError as problem:
        equal("no-such-action" in problem.read().decode(), True)


@test
def chance_repeats_with_the_seed(server):
    s3 = server.client()
    s3.put_object(Bucket="lab", Key="k", Body=b"x")

    def run():
        server.rules("op=get p=0.3 : status=503/SlowDown")
        return [code_of(s3.get_object, Bucket="lab", Key="k") for _ in range(60)]
    first = run()
    equal(5 < first.count("SlowDown") < 35, True)
    equal(run(), first)


def crc_of_zeros(server):
    """CRC32C of 5 MiB of zeros, as the server itself computed it: slow in Python."""
    server.client().put_object(Bucket="lab", Key="zeros", Body=bytes(5 * MIB))
    hexadecimal = server.state()["objects"][0]["crc32c"]
    server.control("reset", "")
    return base64.b64encode(bytes.fromhex(hexadecimal)).decode()


def run_profiles(program):
    for profile, again, refused in [("minio", "NoSuchUpload", "ok"), ("radosgw", "ok", "ok"),
                                    ("b2", None, "InvalidArgument")]:
        with Server(program, "--profile", profile) as server:
            s3 = server.client()
            equal(code_of(s3.put_object, Bucket="lab", Key="k", Body=b"x", ChecksumCRC32C=crc32c(b"x")), refused)
            if again is None:
                continue
            begun = s3.create_multipart_upload(Bucket="lab", Key="m")["UploadId"]
            sent = s3.upload_part(Bucket="lab", Key="m", UploadId=begun, PartNumber=1, Body=b"x")
            arguments = {"Bucket": "lab", "Key": "m", "UploadId": begun, "MultipartUpload": {
                "Parts": [{"PartNumber": 1, "ETag": sent["ETag"]}]}}
            equal(code_of(s3.complete_multipart_upload, **arguments), "ok")
            equal(code_of(s3.complete_multipart_upload, **arguments), again)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--program", required=True)
    parser.add_argument("--only", default="")
    arguments = parser.parse_args()
    try:
        import boto3  # noqa: F401
    except ImportError:
        print("boto3 is not installed")
        return SKIPPED
    os.environ["AWS_EC2_METADATA_DISABLED"] = "true"
    failed = 0
    seed = random.randrange(1 << 32)
    with Server(arguments.program, "--seed", str(seed)) as server:
        server.zeros = crc_of_zeros(server)
        for function in tests:
            if arguments.only not in function.__name__:
                continue
            server.control("reset", "")
            try:
                function(server)
                print("ok     ", function.__name__)
            except Exception as problem:  # pylint: disable=broad-except
                failed += 1
                print("FAILED ", function.__name__, "seed", seed, repr(problem))
                traceback.print_exc()
    run_profiles(arguments.program)
    print("ok      profiles differ as they should")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
