# SPDX-License-Identifier: Apache-2.0
"""A PostgreSQL of the test's own: started from Debian's package in a new folder, answers on a socket
in that folder alone, never one that is found running. It ends, and its folder goes, with the test,
also when that is killed (tests/support/postgres.sh).

With CAIRN_TEST_CATALOG=postgresql each world keeps its catalog in a schema of its own, in one server
for the whole program.
"""
import atexit
import contextlib
import itertools
import os
import pathlib
import pwd
import signal
import subprocess
import sys
import tempfile
import time
import unittest

from patience import HANG_S
from build_folder import BIN, preload

SCRIPT = BIN / "tests/postgres.sh"
NOSYNC = (BIN / "tests/libnosync.so").exists()  # figures are measured without it
SKIPPED = 77
SETTINGS = {"listen_addresses": "", "shared_buffers": "16MB", "max_connections": "200",
            "dynamic_shared_memory_type": "mmap"}


def wanted():
    return os.environ.get("CAIRN_TEST_CATALOG") == "postgresql"


def missing():
    """Why there can be none here; None: there can."""
    found = subprocess.run(["sh", SCRIPT, "programs"], text=True, capture_output=True, check=False)
    if found.returncode not in (0, SKIPPED):
        raise AssertionError(f"{SCRIPT}: {found.stderr}")
    return found.stdout.strip() if found.returncode else None


def needed():
    """Skips the test where there can be none."""
    why = missing()
    if why:
        raise unittest.SkipTest(why)


def programs():
    return pathlib.Path(subprocess.run(["sh", SCRIPT, "programs"], text=True, check=True,
                                       stdout=subprocess.PIPE).stdout.strip())


def sql(text, url, check=True):
    """Rows of the last statement, columns separated by |."""
    done = subprocess.run(
        [programs() / "psql", "-X", "-q", "-t", "-A", "-v", "ON_ERROR_STOP=1", "-d", url, "-c",
         text], text=True, capture_output=True, check=False, timeout=HANG_S,
        env={**os.environ, "PGCONNECT_TIMEOUT": "5"})
    if check and done.returncode:
        raise AssertionError(f"{text}: {done.stderr}")
    return done.stdout.strip()


class Postgres:
    """One server. Its data folder is `data`, or a further one beside another server's."""

    def __init__(self, settings=None, beside=None, name="data"):
        self.programs = programs()
        self.settings = {**SETTINGS, **(settings or {})}
        # Part of the name of the socket in the folder.
        self.port = str(5432 + (1 + len(beside.beside) if beside else 0))
        self.beside = []
        self.schemas = itertools.count(1)
        self.process, self.guard = None, None
        self.owner = pwd.getpwnam("nobody") if os.geteuid() == 0 else None
        if beside:
            self.folder = beside.folder
        else:
            self.folder = pathlib.Path(tempfile.mkdtemp(prefix="cairn-postgres-"))
            if self.owner:
                os.chown(self.folder, self.owner.pw_uid, self.owner.pw_gid)
            atexit.register(self.end)
            end, self.guard = os.pipe()
            subprocess.run(["sh", SCRIPT, "guard", self.folder], stdin=end, check=True)
            os.close(end)
        self.data, self.log = self.folder / name, self.folder / f"{name}.log"

    def as_owner(self):
        """Options of subprocess: PostgreSQL refuses to run as root."""
        who = {"user": self.owner.pw_uid, "group": self.owner.pw_gid, "extra_groups": []} if self.owner else {}
        return {"cwd": self.folder, **who}

    def make(self):
        subprocess.run(["sh", SCRIPT, "data", self.data.parent, self.data.name], check=True)
        return self

    def standby(self, **settings):
        """One that follows this one, in the same folder."""
        other = Postgres({**settings, "primary_conninfo": f"host={self.folder} port={self.port} "
                          "user=cairn"}, beside=self, name="standby")
        subprocess.run([self.programs / "pg_basebackup", "-h", self.folder, "-p", self.port, "-U",
                        "cairn", "-D", other.data, "-R", "-X", "stream", "-c", "fast",
                        "--no-sync"], check=True, **self.as_owner())
        self.beside.append(other)
        return other.start()

    def start(self):
        """Returns when it answers."""
        flags = [f"-c{name}={value}" for name, value in self.settings.items()]
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(
                [self.programs / "postgres", "-D", self.data, "-k", self.folder, "-p", self.port,
                 *flags], stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                env={**os.environ, **(preload("nosync") if NOSYNC else {})},
                **self.as_owner())
        until = time.monotonic() + HANG_S
        while not self.answers():
            if self.process.poll() is not None or time.monotonic() > until:
                raise AssertionError(f"PostgreSQL does not answer: {self.tail()}")
            time.sleep(0.05)  # step of a poll
        return self

    def answers(self):
        return not subprocess.run([self.programs / "pg_isready", "-q", "-h", self.folder, "-p",
                                   self.port, "-d", "postgres", "-U", "cairn"],
                                  check=False).returncode

    def stop(self, how=signal.SIGINT):
        """SIGINT: in order, without waiting for anybody."""
        self.process.send_signal(how)
        return self.process.wait(HANG_S)

    def signal(self, how):
        """To all its processes."""
        for pid in self.processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, how)

    def kill(self):
        """SIGKILL of all its processes."""
        self.signal(signal.SIGKILL)
        self.process.wait(HANG_S)
        until = time.monotonic() + HANG_S
        while self.processes() and time.monotonic() < until:
            time.sleep(0.01)  # step of a poll

    def processes(self):
        """Of all that work in the data folder, the postmaster first."""
        found = []
        for entry in pathlib.Path("/proc").glob("[0-9]*"):
            try:
                if os.readlink(entry / "cwd") == str(self.data):
                    found.append(int(entry.name))
            except OSError:
                pass
        return sorted(found, key=lambda pid: pid != self.process.pid)

    def tail(self):
        return self.log.read_text(errors="replace")[-2000:] if self.log.exists() else ""

    def end(self):
        """The guard does it, as it does when nobody calls this."""
        if self.guard is None:
            return
        os.close(self.guard)
        self.guard = None
        until = time.monotonic() + HANG_S
        while self.folder.exists() and time.monotonic() < until:
            for one in (self, *self.beside):
                if one.process:
                    one.process.poll()
            time.sleep(0.02)  # step of a poll

    # ---- databases ----

    def url(self, user="cairn", database="postgres", schema=None, more=""):
        options = f"&options=-csearch_path%3D{schema}" if schema else ""
        return (f"postgresql://{user}@/{database}?host={self.folder}&port={self.port}"
                f"{options}{more}")

    def sql(self, text, url=None, check=True):
        return sql(text, url or self.url(), check)

    def catalog(self):
        """A new schema, as the setting `catalog` names it."""
        schema = f"catalog_{next(self.schemas)}"
        self.sql(f"CREATE SCHEMA {schema}")
        return self.url(schema=schema)

    def empty(self, url):
        """Loses all that is in it."""
        schema = url.rsplit("%3D", 1)[1].split("&")[0]
        self.sql(f"DROP SCHEMA {schema} CASCADE; CREATE SCHEMA {schema}")


_shared = []


def shared():
    """The one of this program."""
    if not _shared:
        _shared.append(Postgres().make().start())
    return _shared[0]


def catalog():
    """Where a world is to keep its catalog, if it is to be told; else None."""
    return shared().catalog() if wanted() else None


def needed_by_program():
    """Ends the program as skipped where there can be none."""
    why = missing()
    if why:
        print(f"SKIPPED: {why}")
        sys.exit(SKIPPED)


if wanted():
    needed_by_program()
