# SPDX-License-Identifier: Apache-2.0
"""A network of our own, and a DNS server in it that answers as a test wants.

enter() starts the program anew in a network and a mount namespace in which there is nothing but a
loopback interface, and in which every name is asked of 127.0.0.53. Nothing outside is changed, and
no port outside can be taken."""
import fcntl
import os
import pathlib
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time

SERVER = "127.0.0.53"
INSIDE = "CAIRN_TEST_NAMES_INSIDE"
A, AAAA = 1, 28
SERVFAIL, NXDOMAIN = 2, 3
SIOCGIFFLAGS, SIOCSIFFLAGS, IFF_UP = 0x8913, 0x8914, 1


def enter():
    """Returns inside; does not return outside. Ends with 77 where the machine does not allow it."""
    if os.environ.get(INSIDE):
        furnish()
        return
    reason = ""
    for unshare in (["unshare"], ["unshare", "--map-root-user"]):
        unshare += ["--net", "--mount"]
        try:
            tried = subprocess.run([*unshare, "mount", "--bind", "/dev/null", "/etc/resolv.conf"],
                                   capture_output=True, text=True, check=False)
        except FileNotFoundError as error:
            reason = str(error)
            break
        if tried.returncode == 0:
            os.execvpe(unshare[0], [*unshare, sys.executable, *sys.argv], {**os.environ, INSIDE: "1"})
        reason = tried.stderr.strip()
    print(f"skipped: no network of our own can be made: {reason}")
    sys.exit(77)


def furnish():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        request = struct.pack("16sh14x", b"lo", 0)
        flags, = struct.unpack("16xh14x", fcntl.ioctl(probe, SIOCGIFFLAGS, request))
        fcntl.ioctl(probe, SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", flags | IFF_UP))
    folder = pathlib.Path(tempfile.mkdtemp(prefix="cairn-names-"))
    texts = {"resolv.conf": f"nameserver {SERVER}\noptions timeout:1 attempts:1\n",
             "nsswitch.conf": "passwd: files\ngroup: files\nhosts: dns\n"}
    for name, text in texts.items():
        (folder / name).write_text(text)
        if pathlib.Path("/etc", name).exists():
            subprocess.run(["mount", "--bind", folder / name, f"/etc/{name}"], check=True)
    if pathlib.Path("/run/nscd").is_dir():  # it would answer from outside
        subprocess.run(["mount", "-t", "tmpfs", "none", "/run/nscd"], check=True)
    shutil.rmtree(folder)  # what is mounted stays


class DnsServer:
    """Answers for one name; every other one does not exist. All is said with a TTL of 5 s, as S3
    says it."""

    def __init__(self, name):
        self.name = name.lower()
        self.asked = []  # (time.monotonic(), what the answer was, addresses) of each A question
        self.lock = threading.Lock()
        self.says([])
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.bind((SERVER, 53))
        self.thread = threading.Thread(target=self.serve, daemon=True)
        self.thread.start()

    def says(self, what, each=None):
        """A list of addresses, of which every answer has the next `each` ones (all of them when it
        is not given); "nxdomain", "servfail" or "silence"."""
        with self.lock:
            self.what, self.each, self.turn = what, each or len(what), 0

    def since(self, moment):
        with self.lock:
            return [line for line in self.asked if line[0] >= moment]

    def stop(self):
        self.socket.close()

    def serve(self):
        while True:
            try:
                question, peer = self.socket.recvfrom(4096)
                answer = self.answer(question)
                if answer:
                    self.socket.sendto(answer, peer)
            except OSError:
                return

    def chosen(self):
        addresses = [self.what[(self.turn + i) % len(self.what)] for i in range(self.each)]
        self.turn = (self.turn + self.each) % len(self.what)
        return addresses

    def answer(self, question):
        labels, at = [], 12
        while question[at]:
            labels.append(question[at + 1:at + 1 + question[at]].decode(errors="replace"))
            at += 1 + question[at]
        kind, = struct.unpack("!H", question[at + 1:at + 3])
        with self.lock:
            code, records = self.judge(".".join(labels).lower(), kind)
        if code is None:
            return None
        # The answer bit, the bit that was asked for, "recursion available", and the code.
        flags = 0x8080 | (question[2] & 1) << 8 | code
        head = question[:2] + struct.pack("!5H", flags, 1, len(records), 0, 0)
        return head + question[12:at + 5] + b"".join(
            struct.pack("!HHHIH4s", 0xc00c, A, 1, 5, 4, socket.inet_aton(address))
            for address in records)

    def judge(self, name, kind):
        if name != self.name:
            return NXDOMAIN, []
        failures = {"nxdomain": NXDOMAIN, "servfail": SERVFAIL, "silence": None}
        if isinstance(self.what, str):
            if kind == A:
                self.asked.append((time.monotonic(), self.what, []))
            return failures[self.what], []
        records = self.chosen() if kind == A and self.what else []
        if kind == A:
            self.asked.append((time.monotonic(), "answer", records))
        return 0, records


def calls_without_answer():
    """How many connections this network has dropped because a queue was full."""
    lines = pathlib.Path("/proc/net/netstat").read_text().splitlines()
    names, values = [line.split() for line in lines if line.startswith("TcpExt:")]
    return int(values[names.index("ListenDrops")])


class Silence:
    """An address that answers nothing, not even that nobody is there: its queue of connections is
    full, and the kernel drops what more comes."""

    def __init__(self, address, port):
        self.listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        self.listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.listener.bind((address, port))
        self.listener.listen(0)
        self.callers = []
        for _ in range(8):
            caller = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
            caller.setblocking(False)
            caller.connect_ex((address, port))
            self.callers.append(caller)

    def stop(self):
        for end in [self.listener, *self.callers]:
            end.close()


__all__ = ["DnsServer", "Silence", "calls_without_answer", "enter"]
