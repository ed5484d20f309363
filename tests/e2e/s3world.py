# SPDX-License-Identifier: Apache-2.0
"""A world whose store is an S3 bucket: of s3fault, or of the server that AWS_* variables name."""
import contextlib
import datetime
import hashlib
import hmac
import json
import os
import re
import subprocess
import urllib.parse
import urllib.request
import xml.etree.ElementTree

import cases
import held
from world import BIN, Daemon, HANG_S, wait_until, World

# Nobody else has these; any trace of them outside of the environment is a leak.
ACCESS, SECRET, TOKEN = "AKIDCANARYACCESS", "canary/Secret+Zx81Qp", "canary-token-77aXq=="
BUCKET = "lab"
LEAKS = (SECRET, TOKEN, "X-Amz-Signature=", "Signature=", "X-Amz-Credential=")


def signed(env, path, method="GET", body=b"", **query):
    """What the endpoint that the AWS_* variables of env name answers to a request. Signed here in the
    plainest way, so that a look at a store needs nobody's client."""
    endpoint, region = env["AWS_ENDPOINT_URL"], env.get("AWS_REGION", "us-east-1")
    now = datetime.datetime.now(datetime.timezone.utc).strftime("%Y%m%dT%H%M%SZ")
    scope = f"{now[:8]}/{region}/s3/aws4_request"
    text = "&".join(f"{urllib.parse.quote(name, safe='')}={urllib.parse.quote(value, safe='')}"
                    for name, value in sorted(query.items()))
    headers = {"host": endpoint.split("://")[1],
               "x-amz-content-sha256": hashlib.sha256(body).hexdigest(), "x-amz-date": now}
    if env.get("AWS_SESSION_TOKEN"):
        headers["x-amz-security-token"] = env["AWS_SESSION_TOKEN"]
    names, path = ";".join(headers), urllib.parse.quote(path)
    lines = "".join(f"{name}:{value}\n" for name, value in headers.items())
    canonical = f"{method}\n{path}\n{text}\n{lines}\n{names}\n{headers['x-amz-content-sha256']}"
    wanted = f"AWS4-HMAC-SHA256\n{now}\n{scope}\n{hashlib.sha256(canonical.encode()).hexdigest()}"
    key = b"AWS4" + env["AWS_SECRET_ACCESS_KEY"].encode()
    for part in (*scope.split("/"), wanted):
        key = hmac.new(key, part.encode(), "sha256").digest()
    headers["authorization"] = f"AWS4-HMAC-SHA256 Credential={env['AWS_ACCESS_KEY_ID']}/{scope}, " \
                               f"SignedHeaders={names}, Signature={key.hex()}"
    headers["content-type"] = "application/octet-stream"  # else it were a form, which moto reads itself
    request = urllib.request.Request(f"{endpoint}{path}{'?' + text if text else ''}",
                                     data=body or None, method=method, headers=headers)
    with urllib.request.urlopen(request, timeout=HANG_S) as reply:
        return reply.read()


class S3Fault:
    """The scripted S3 server of tests/support/s3fault, with canary keys."""

    access_keys = (ACCESS, SECRET, TOKEN)

    def __init__(self, folder, arguments=(), keys=access_keys, case=None):
        self.folder, self.bucket, self.access_keys = folder, BUCKET, keys
        self.daemon = Daemon(
            "s3fault",
            ["--port", "0", "--port-file", folder / "s3fault.port", "--bucket", BUCKET,
             "--access-key", keys[0], "--secret-key", keys[1], "--session-token", keys[2],
             "--parent", os.getpid(), *arguments],
            folder / "s3fault.port", folder / "s3fault.log").start()
        self.port = int((folder / "s3fault.port").read_text().split()[0])
        self.url = f"http://127.0.0.1:{self.port}"
        if case:
            cases.at_the_end(case, self.stop)

    def env(self):
        access, secret, token = self.access_keys
        return {"AWS_ACCESS_KEY_ID": access, "AWS_SECRET_ACCESS_KEY": secret,
                "AWS_SESSION_TOKEN": token, "AWS_ENDPOINT_URL": self.url,
                "AWS_REGION": "us-east-1", "AWS_EC2_METADATA_DISABLED": "true"}

    def ask(self, what, body=None):
        data = body.encode() if body is not None else None
        with urllib.request.urlopen(f"{self.url}/-/{what}", data=data, timeout=HANG_S) as reply:
            return reply.read().decode()

    def rules(self, text):
        self.ask("rules", text)

    def state(self):
        return json.loads(self.ask("state"))

    def journal(self, **wanted):
        lines = [json.loads(line) for line in self.ask("journal").splitlines()]
        return [line for line in lines if all(line.get(key) == value for key, value in wanted.items())]

    def acted(self, rule=0):
        return self.state()["rules"][rule]["acted"]

    def stop(self):
        self.daemon.end()

    def flip(self, prefix, name, offset):
        """The lowest bit of one byte of the one object of that name below there."""
        key, = [key for key in self.keys(prefix) if key.endswith(f"/{name}")]
        data = bytearray(signed(self.env(), f"/{self.bucket}/{key}"))
        data[offset] ^= 1
        signed(self.env(), f"/{self.bucket}/{key}", "PUT", bytes(data))

    # What an auditor looks at; the same names as in RealS3.
    def keys(self, prefix):
        return {o["key"]: o["size"] for o in self.state()["objects"] if o["key"].startswith(prefix)}

    def uploads(self, prefix):
        return [u["key"] for u in self.state()["uploads"] if u["key"].startswith(prefix)]


class RealS3:
    """The endpoint that AWS_* variables name; CAIRN_TEST_BUCKET or lab."""

    def __init__(self):
        self.bucket = os.environ.get("CAIRN_TEST_BUCKET", BUCKET)
        self.endpoint = os.environ["AWS_ENDPOINT_URL"]

    def env(self):
        return {}

    def ask(self, **query):
        """The root element of GET bucket?query."""
        root = xml.etree.ElementTree.fromstring(signed(os.environ, f"/{self.bucket}", **query))
        for element in root.iter():
            element.tag = element.tag.split("}")[-1]
        return root

    def keys(self, prefix):
        found, query = {}, {"list-type": "2", "prefix": prefix}
        while True:
            root = self.ask(**query)
            found.update({c.findtext("Key"): int(c.findtext("Size")) for c in root.findall("Contents")})
            if root.findtext("IsTruncated") != "true":
                return found
            query["continuation-token"] = root.findtext("NextContinuationToken")

    def uploads(self, prefix):
        return [u.findtext("Key") for u in self.ask(uploads="", prefix=prefix).findall("Upload")]

    def stop(self):
        pass


class S3World(World):
    """server, uploaders and command on s3://BUCKET/PREFIX, everything logged at debug level."""

    def __init__(self, s3, prefix="cairn", bucket=BUCKET, debug=True, **options):
        self.s3, self.prefix = s3, prefix
        level = ["--log-level", "debug", "--trace-store"] if debug else []
        options["server_arguments"] = [*options.get("server_arguments", ()), *level]
        # What is kept for restores goes soon after its trainer: an audit demands that it does.
        options["uploader_arguments"] = ["--memory-tier-time", "1s", *options.get("uploader_arguments", ()), *level]
        options["env"] = {**s3.env(), **options.get("env", {})}
        super().__init__(**{"store": f"s3://{bucket}/{prefix}", **options})

    def keys(self, part=""):
        return {key: size for key, size in self.s3.keys(self.prefix + "/").items() if part in key}

    def make_uploader(self, number):
        """One that remembers what it held when it had just started."""
        daemon = super().make_uploader(number)
        daemon.begin = daemon.start

        def start():
            daemon.begin()
            # One that is struck at its very first steps is gone already; the next start has a baseline.
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                daemon.baseline = held.baseline_of(daemon)
            return daemon
        daemon.start = start
        return daemon

    def audit(self):
        """After it went quiet: no open upload, no object of a version that is not committed, no
        test object; no slab, no descriptor and no journal entry of a save that has ended."""
        try:
            wait_until(self.is_clean, 40, 0.2)
        except AssertionError:
            raise AssertionError(f"left over: {self.findings}") from None

    def is_clean(self):
        self.findings = self.find_leftovers()
        return not self.findings

    def find_leftovers(self):
        keys = self.keys()
        committed = {version_of(key) for key in keys if key.endswith("/committed.json")}
        found = [("upload", key) for key in self.s3.uploads(self.prefix + "/")]
        found += [("orphan", key) for key in keys if version_of(key) and version_of(key) not in committed]
        found += [("test object", key) for key in keys if "/.cairn/doctor" in key]
        found += [("held by the server", kind) for kind in held.memory(self.server)]
        for number, uploader in enumerate(self.uploaders):
            found += self.find_held(number, uploader) if uploader.process.poll() is None else []
        return found

    def server_ports(self):
        """Where an uploader may keep connections to the server."""
        return [self.port]

    def find_held(self, number, uploader):
        ports = [*self.server_ports(), urllib.parse.urlsplit(self.env.get("AWS_ENDPOINT_URL") or
                                                  os.environ["AWS_ENDPOINT_URL"]).port]
        grown = held.grown(uploader, uploader.baseline, ports)
        entries = held.journal_entries(self.root / f"uploader-{number}", f"node-{number}", self.store, self.env)
        return ([("held by the uploader", kind) for kind in held.memory(uploader)] +
                [("held since its start", kind, count) for kind, count in grown.items()] +
                [("in the journal", line) for line in entries])

    def logs(self):
        """Without the trace of the protocol: what is left tells the story."""
        return "\n".join(
            f"--- {path.name}\n" + "\n".join(
                [line for line in path.read_text(errors="replace").splitlines()
                 if " http.line " not in line][-60:])
            for path in sorted(self.root.glob("*.log")))

    def leaks(self):
        """Lines of any log, and arguments of any process, that hold a secret."""
        found, secrets = [], [*LEAKS, self.env.get("AWS_SECRET_ACCESS_KEY", SECRET),
                              os.environ.get("AWS_SECRET_ACCESS_KEY") or SECRET]
        for path in self.root.rglob("*.log"):
            for line in path.read_text(errors="replace").splitlines():
                found += [f"{path.name}: {line}" for secret in secrets if secret and secret in line]
        for daemon in [self.server, *self.uploaders]:
            with contextlib.suppress(OSError):
                with open(f"/proc/{daemon.process.pid}/cmdline", "rb") as file:
                    text = file.read().decode(errors="replace")
                found += [text for secret in secrets if secret and secret in text]
        return found


def version_of(key):
    match = re.search(r"/(ckpt_[^/]+)/", key)
    return match.group(1) if match else None


def run(arguments, **options):
    return subprocess.run([str(a) for a in arguments], capture_output=True, text=True, check=False,
                          **{"timeout": HANG_S, **options})


__all__ = ["ACCESS", "BIN", "BUCKET", "RealS3", "S3Fault", "S3World", "SECRET", "TOKEN", "run",
           "version_of", "wait_until"]
