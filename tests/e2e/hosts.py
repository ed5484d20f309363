# SPDX-License-Identifier: Apache-2.0
"""Hosts of our own: each is a network namespace with one link to a switch, which can be pulled.

enter() starts the program anew in a network and a PID namespace, so that whatever it has started,
and every namespace and link, is gone when it ends, however it ends. That namespace is the host of
the server and the store; Hosts makes the others."""
import os
import pathlib
import shutil
import subprocess
import sys

INSIDE = "CAIRN_TEST_HOSTS_INSIDE"
HUB, SWITCH = "10.77.0.1", "switch0"


def run(*command):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False)
    if done.returncode:
        raise OSError(f"{' '.join(map(str, command))}: {done.stderr.strip()}")
    return done.stdout


def enter():
    """Returns inside; does not return outside. Ends with 77 where the machine does not allow it."""
    if os.environ.get(INSIDE):
        return
    reason = [f"there is no program {name}" for name in ("ip", "unshare", "nsenter") if not shutil.which(name)]
    for who in ([], ["--user", "--map-root-user"]) if not reason else ():
        unshare = ["unshare", *who, "--net", "--pid", "--fork", "--kill-child", "--mount-proc"]
        tried = subprocess.run([*unshare, sys.executable, __file__], capture_output=True, text=True, check=False)
        if tried.returncode == 0:
            os.execvpe(unshare[0], [*unshare, sys.executable, *sys.argv], {**os.environ, INSIDE: "1"})
        reason = tried.stderr.strip().splitlines()[-1:]
    print(f"skipped: no hosts of our own can be made here: {' '.join(reason)}")
    sys.exit(77)


class Hosts:
    """As many as wanted, host N at address(N), all on one switch with HUB."""

    def __init__(self, count):
        self.holders = []
        try:
            run("ip", "link", "set", "lo", "up")
            run("ip", "link", "add", SWITCH, "type", "bridge")
            run("ip", "address", "add", f"{HUB}/24", "dev", SWITCH)
            run("ip", "link", "set", SWITCH, "up")
            for number in range(count):
                self.add(number)
        except BaseException:
            self.close()
            raise

    def add(self, number):
        """The namespace lives as long as a process in it."""
        holder = subprocess.Popen(["unshare", "--net", "sh", "-c", "echo; exec cat"], stdin=subprocess.PIPE,
                                  stdout=subprocess.PIPE)
        self.holders.append(holder)
        holder.stdout.readline()  # it is inside
        run("ip", "link", "add", f"end{number}", "type", "veth", "peer", "name", "eth0", "netns", holder.pid)
        run("ip", "link", "set", f"end{number}", "master", SWITCH, "up")
        for words in (("link", "set", "lo", "up"), ("address", "add", f"{self.address(number)}/24", "dev", "eth0"),
                      ("link", "set", "eth0", "up")):
            run(*self.within(number), "ip", *words)

    def close(self):
        for holder in self.holders:
            holder.kill()
            holder.communicate()
        subprocess.run(["ip", "link", "del", SWITCH], capture_output=True, check=False)
        for number in range(len(self.holders)):
            subprocess.run(["ip", "link", "del", f"end{number}"], capture_output=True, check=False)

    def address(self, number):
        return f"10.77.0.{10 + number}"

    def within(self, number):
        """The beginning of a command line that runs there, and whose process is the program's own."""
        return ["nsenter", f"--net=/proc/{self.holders[number].pid}/ns/net"]

    def slow(self, milliseconds):
        """Every packet between the hosts takes so long more; False: this kernel cannot do that."""
        for number in range(len(self.holders)):
            try:
                run("tc", "qdisc", "replace", "dev", f"end{number}", "root", "netem", "delay", f"{milliseconds}ms")
            except OSError:
                return False
        return True

    def cut(self, number):
        """Nothing comes through any more, and nobody is told: the link stays up at both ends."""
        run("ip", "link", "set", f"end{number}", "nomaster")

    def mend(self, number):
        run("ip", "link", "set", f"end{number}", "master", SWITCH)

    def sent_bytes(self):
        """What the hub has sent to the others, as its interface counts it."""
        line = next(line for line in pathlib.Path("/proc/net/dev").read_text().splitlines() if SWITCH in line)
        return int(line.split(":")[1].split()[8])


if __name__ == "__main__":
    Hosts(1).close()  # whether that can be done (enter)
