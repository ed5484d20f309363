# SPDX-License-Identifier: Apache-2.0
"""Signs random S3 requests with botocore and lets the C tests compare every stage.

    sigv4_oracle.py --program tests_s3 [--count 600] [--seed N]   compare now
    sigv4_oracle.py --write tests/vectors/sigv4/botocore.json      renew the stored cases

Each case holds the decoded request, the key material (made up) and botocore's canonical request,
string to sign and signature. Exit status 77 means that botocore is not installed.
"""
import argparse
import datetime
import hashlib
import json
import os
import random
import subprocess
import sys
import tempfile
import urllib.parse

SKIPPED = 77
KEY_PIECES = ["a", "B7", " ", "+", "=", "%", "%2F", "é", "日本", "/", "//", "..", ".", "~", "'",
              "(", ")", "*", "!", "&", "?", "#", "@", ":", ",", ";", "$", "_", "-", '"', "<", "🚀"]
PARAMETERS = ["partNumber", "uploadId", "uploads", "list-type", "prefix", "max-keys", "marker",
              "continuation-token", "Param", "Param-3", "param", "ü", "x y", "a+b", "versionId"]


def text(rng, low, high):
    return "".join(rng.choice(KEY_PIECES) for _ in range(rng.randint(low, high)))


def make_request(rng, index):
    headers = [["host", rng.choice(["b.s3.amazonaws.com", "127.0.0.1:9000", "s3.example"])]]
    for name, values in [("x-amz-checksum-crc32c", ["AAAAAA=="]), ("range", ["bytes=0-99"]),
                         ("x-amz-meta-cairn-upload", ["  two   words "]), ("content-md5", ["x=="]),
                         ("if-none-match", ["*"]), ("x-amz-storage-class", ["STANDARD_IA"])]:
        if rng.random() < 0.4:
            headers.append([name, rng.choice(values)])
    rng.shuffle(headers)
    query = [[name, text(rng, 0, 4)] for name in rng.sample(PARAMETERS, rng.randint(0, 5))]
    body = bytes(rng.randrange(256) for _ in range(rng.randint(0, 20)))
    moment = datetime.datetime(2024, 1, 1) + datetime.timedelta(seconds=rng.randrange(10**8))
    return {
        "name": f"random-{index}", "method": rng.choice(["GET", "PUT", "POST", "HEAD", "DELETE"]),
        "path": "/" + text(rng, 0, 12), "query": query, "headers": headers,
        "payload": rng.choice(["UNSIGNED-PAYLOAD", hashlib.sha256(body).hexdigest()]),
        "time": moment.strftime("%Y%m%dT%H%M%SZ"), "service": "s3",
        "region": rng.choice(["us-east-1", "eu-central-1", "garage"]),
        "access_key": "AKID" + str(rng.randrange(10**6)), "secret": "made/up+" + str(rng.random()),
        "token": rng.choice([None, None, "tok/en+with=signs=="]),
        "expires": rng.choice([None, None, None, 1, 3600, 604800]),
    }


def botocore_request(case):
    import botocore.awsrequest
    import botocore.config
    host = dict(case["headers"])["host"]
    url = "http://" + host + urllib.parse.quote(case["path"], safe="/~")
    if case["query"]:
        url += "?" + "&".join(urllib.parse.quote(n, safe="~") + "=" + urllib.parse.quote(v, safe="~")
                              for n, v in case["query"])
    request = botocore.awsrequest.AWSRequest(case["method"], url, data=b"")
    for name, value in case["headers"]:
        request.headers[name] = value
    return request


def sign(case):
    """Adds botocore's answer for every stage."""
    import botocore.auth
    import botocore.credentials
    moment = datetime.datetime.strptime(case["time"], "%Y%m%dT%H%M%SZ")
    botocore.auth.get_current_datetime = lambda *_, **__: moment
    credentials = botocore.credentials.Credentials(case["access_key"], case["secret"], case["token"])
    presigned = case["expires"] is not None
    kind = botocore.auth.S3SigV4QueryAuth if presigned else botocore.auth.S3SigV4Auth
    extra = {"expires": case["expires"]} if presigned else {}
    seen = {}

    class Recorder(kind):
        def payload(self, request):
            return "UNSIGNED-PAYLOAD" if presigned else case["payload"]

        def canonical_request(self, request):
            seen["canonical"] = super().canonical_request(request)
            return seen["canonical"]

        def string_to_sign(self, request, canonical_request):
            seen["string_to_sign"] = super().string_to_sign(request, canonical_request)
            return seen["string_to_sign"]

        def signature(self, string_to_sign, request):
            seen["signature"] = super().signature(string_to_sign, request)
            return seen["signature"]

    Recorder(credentials, case["service"], case["region"], **extra).add_auth(botocore_request(case))
    return {**case, **seen}


def make_cases(seed, count):
    rng = random.Random(seed)
    return [sign(make_request(rng, index)) for index in range(count)]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--program")
    parser.add_argument("--write")
    parser.add_argument("--count", type=int, default=600)
    parser.add_argument("--seed", type=int, default=random.randrange(2**32))
    options = parser.parse_args()
    try:
        import botocore.auth  # noqa: F401
    except ImportError as error:
        print(f"skipped: botocore is not installed ({error})")
        return SKIPPED
    if options.write:
        with open(options.write, "w", encoding="utf-8") as file:
            lines = ",\n".join(json.dumps(case, ensure_ascii=False, sort_keys=True)
                               for case in make_cases(20240101, 48))
            file.write("[\n" + lines + "\n]\n")
        return 0
    print(f"seed {options.seed}, {options.count} requests")
    with tempfile.NamedTemporaryFile("w", suffix=".json", encoding="utf-8") as file:
        json.dump(make_cases(options.seed, options.count), file)
        file.flush()
        environment = {**os.environ, "CAIRN_SIGV4_CASES": file.name}
        return subprocess.run([options.program, "s3/sigv4"], env=environment).returncode


if __name__ == "__main__":
    sys.exit(main())
