# SPDX-License-Identifier: Apache-2.0
"""A mount namespace of a test's own, in which it may mount file systems."""
import os
import subprocess
import sys
import unittest

INSIDE = "CAIRN_TEST_MOUNTED"


def mount(folder, what, *flags):
    return subprocess.run(["mount", *flags, what, str(folder)], check=False, capture_output=True).returncode == 0


def unmount(folder):
    subprocess.run(["umount", "-l", str(folder)], check=False)


def fill(folder, left_over_bytes=0):
    """A file that takes the room there is, but for so many bytes."""
    filler, room = folder / "somebody-elses", os.statvfs(folder)
    with open(filler, "wb") as file:
        os.posix_fallocate(file.fileno(), 0, room.f_bavail * room.f_bsize - left_over_bytes)
    return filler


def main():
    """The tests of the program that calls, started again where it may mount; 77: nobody may here."""
    if os.environ.get(INSIDE) != "1":
        flags = ["-m"] if os.geteuid() == 0 else ["-r", "-m"]
        probe = subprocess.run(["unshare", *flags, "mount", "-t", "tmpfs", "tmpfs", "/mnt"],
                               capture_output=True, check=False)
        if probe.returncode:
            print("nothing can be mounted here: skipped")
            sys.exit(77)
        os.execvpe("unshare", ["unshare", *flags, sys.executable, *sys.argv], {**os.environ, INSIDE: "1"})
    unittest.main(verbosity=2)
