# SPDX-License-Identifier: Apache-2.0
# ctest: engines=again
"""Worker threads take the network interfaces that are named in turn: a save over two virtual cards in
a network namespace of its own, with the store in another. Skipped where no namespace can be made."""
import collections
import os
import pathlib
import shutil
import subprocess
import sys
import unittest

import cases
from s3world import ACCESS, BUCKET, SECRET, TOKEN, S3Fault, S3World, wait_until
from world import Daemon, Job

STORE = "10.77.9.9"
# interface here, its address, interface there
CARDS = (("eth2", "10.77.2.1", "far2"), ("eth3", "10.77.3.1", "far3"))
MIB, ROWS = 1 << 20, 40
INSIDE = "CAIRN_TEST_INSIDE"


def ip(*words, inside=None):
    enter = ["nsenter", "-t", str(inside), "-n"] if inside else []
    subprocess.run([*enter, "ip", *words], check=True, capture_output=True)


def lay_cables(far):
    """Both cards lead to the store's address, which lives in the namespace of process `far`."""
    ip("link", "set", "lo", "up")
    ip("link", "set", "lo", "up", inside=far)
    ip("addr", "add", f"{STORE}/32", "dev", "lo", inside=far)
    for metric, (here, address, there) in enumerate(CARDS, 1):
        ip("link", "add", here, "type", "veth", "peer", "name", there, "netns", str(far))
        ip("addr", "add", f"{address}/32", "dev", here)
        ip("link", "set", here, "up")
        ip("link", "set", there, "up", inside=far)
        ip("route", "add", f"{address}/32", "dev", there, inside=far)
        ip("route", "add", f"{STORE}/32", "dev", here, "metric", str(metric))


class FarS3(S3Fault):
    """The server in the other namespace."""

    def __init__(self, folder, far):
        self.folder, self.bucket = folder, BUCKET
        port = folder / "s3fault.port"
        self.daemon = Daemon(
            "s3fault", ["--port", "0", "--port-file", port, "--bucket", BUCKET, "--access-key",
                        ACCESS, "--secret-key", SECRET, "--session-token", TOKEN, "--parent",
                        os.getpid(), "--address", STORE], port, folder / "s3fault.log")
        self.daemon.command = ["nsenter", "-t", str(far), "-n", *self.daemon.command]
        self.daemon.start()
        self.port = int(port.read_text().split()[0])
        self.url = f"http://{STORE}:{self.port}"


class Interfaces(cases.Case):
    def setUp(self):
        far = subprocess.Popen(["unshare", "-n", "sleep", "600"])
        self.addCleanup(far.wait)
        self.addCleanup(far.kill)
        wait_until(lambda: os.readlink(f"/proc/{far.pid}/ns/net") != os.readlink("/proc/self/ns/net"))
        lay_cables(far.pid)
        self.s3 = FarS3(self.folder, far.pid)
        self.addCleanup(self.s3.stop)

    def sources(self, daemon):
        """{local address: connections} of its connections to the store."""
        inodes, found = set(), collections.Counter()
        for fd in pathlib.Path(f"/proc/{daemon.process.pid}/fd").iterdir():
            try:
                inodes.add(os.readlink(fd).removeprefix("socket:[").removesuffix("]"))
            except FileNotFoundError:
                pass
        for line in pathlib.Path("/proc/net/tcp").read_text().splitlines()[1:]:
            words = line.split()
            if words[9] in inodes and int(words[2].split(":")[1], 16) == self.s3.port:
                octets = bytes.fromhex(words[1].split(":")[0])[::-1]
                found[".".join(map(str, octets))] += 1
        return found

    def sent_bytes(self):
        lines = pathlib.Path("/proc/net/dev").read_text().splitlines()
        columns = {line.split(":")[0].strip(): line.split(":")[1].split() for line in lines[2:]}
        return {here: int(columns[here][8]) for here, _, _ in CARDS}

    def test_two_workers_leave_by_two_interfaces_and_an_unknown_one_is_refused(self):
        options = ["--allow-plain-http"]
        world = S3World(self.s3, debug=False, server_arguments=options, uploader_arguments=[
            *options, "--part-size", "5MiB", "--heartbeat", "200ms", "--no-hedge", "--workers",
            "2", "--interfaces", "eth2,eth3"], case=self)
        self.s3.rules("op=part : delay=300")
        before, seen, runs = self.sent_bytes(), collections.Counter(), []
        for turn in range(6):  # on a busy machine one of them may take all that there is
            jobs = [Job(world, f"{name}{turn}", 1, [1], run=f"{name}{turn}/run", rows=ROWS) for name in "abc"]
            runs += [f"{name}{turn}/run" for name in "abc"]
            while any(process.poll() is None for job in jobs for process in job.processes):
                seen |= self.sources(world.uploaders[0])
            for job in jobs:
                job.succeeds()
            sent = {here: count - before[here] for here, count in self.sent_bytes().items()}
            if min(sent.values()) > len(jobs) * ROWS * MIB // 10:
                break
        else:
            self.fail(f"one of them sends nothing: {sent}")
        self.assertEqual(set(seen), {address for _, address, _ in CARDS})
        for _, address, _ in CARDS:
            self.assertGreaterEqual(seen[address], 2, seen)
        self.s3.rules("")
        world.env["CAIRN_ALLOW_PLAIN_HTTP"] = "true"
        for run in runs:
            world.cairn("verify", f"{run}@1")
        world.audit()
        world.uploader_arguments += ["--interfaces", "eth2,nosuchcard7"]
        with self.assertRaisesRegex(AssertionError, "no network interface is called .nosuchcard7"):
            world.make_uploader(1).start()


def enter_namespace():
    """This program again, where it may make networks; 77: nobody may here."""
    flags = ["-n"] if os.geteuid() == 0 else ["-r", "-n"]
    probe = "ip link add probe0 type veth peer name probe1"
    if not all(map(shutil.which, ("unshare", "nsenter", "ip"))) or \
            subprocess.run(["unshare", *flags, *probe.split()], capture_output=True,
                           check=False).returncode:
        print("no network namespace with virtual cards can be made here: skipped")
        sys.exit(77)
    os.execvpe("unshare", ["unshare", *flags, sys.executable, *sys.argv], {**os.environ, INSIDE: "1"})


if __name__ == "__main__":
    if os.environ.get(INSIDE) != "1":
        enter_namespace()
    unittest.main(verbosity=2)
