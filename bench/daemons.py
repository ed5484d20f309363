# SPDX-License-Identifier: Apache-2.0
"""A real server, uploader and trainer in a folder of their own, for figures of whole saves."""
import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
import urllib.request

from bench import peers
from bench.programs import Side, program

RUN = "bench/stall"


class Daemon:
    def __init__(self, command, log, ready, environment=None):
        self.command, self.log, self.ready = command, log, ready
        self.environment = environment or peers.environment()
        self.child = None

    def start(self):
        if os.path.exists(self.ready):
            os.unlink(self.ready)
        with open(self.log, "ab") as log:
            self.child = subprocess.Popen(self.command, stderr=log, stdout=log,
                                          env=self.environment)
        until = time.monotonic() + 30
        while not os.path.exists(self.ready):
            if self.child.poll() is not None or time.monotonic() > until:
                with open(self.log, encoding="utf-8", errors="replace") as log:
                    raise RuntimeError("%s did not start: %s" % (self.command[0],
                                                                  log.read()[-500:]))
            time.sleep(0.02)

    def stop(self, how=signal.SIGTERM):
        if self.child and self.child.poll() is None:
            self.child.send_signal(how)
            try:
                self.child.wait(40)
            except subprocess.TimeoutExpired:
                self.child.kill()
                self.child.wait()


class World:
    """Server and uploader over a folder store, and one trainer whose runs are its stalls; size None:
    the trainers are the figure's. more: arguments of the uploader. nodes: so many uploaders, whose sockets
    are `socket` with the node's number behind it, where there are several."""

    def __init__(self, lab, size, more=(), nodes=1):
        self.folder = tempfile.mkdtemp(prefix="world-", dir=lab.folder)
        self.store = os.path.join(self.folder, "store")
        os.makedirs(self.store, exist_ok=True)
        self.port = 7498
        self.url = "http://127.0.0.1:%d" % self.port
        self.socket = socket = os.path.join(self.folder, "s")
        self.server = Daemon(
            [program("cairn-server"), "--listen", "127.0.0.1:%d" % self.port, "--store", self.store,
             "--data-dir", os.path.join(self.folder, "data"), "--port-file",
             os.path.join(self.folder, "port")],
            os.path.join(self.folder, "server.log"), os.path.join(self.folder, "port"))
        self.uploaders = [self._uploader(str(node) if nodes > 1 else "", more) for node in range(nodes)]
        self.trainer = None
        self.saves = 0
        try:
            self.server.start()
            for uploader in self.uploaders:
                uploader.start()
            if size is None:
                return
            command = [program("bench_trainer"), "--socket", socket, "--run", RUN, "--bytes",
                       str(size)]
            environment = dict(os.environ, LD_LIBRARY_PATH=os.path.dirname(command[0]))
            self.trainer = Side(command, environment)
        except BaseException:
            self.close()
            raise

    def _uploader(self, node, more):
        run_dir = os.path.join(self.folder, "node" + node)
        os.makedirs(run_dir)
        ready = os.path.join(run_dir, "ready")
        return Daemon([program("cairn-uploader"), "--server", self.url, "--store", self.store, "--run-dir", run_dir,
                       "--socket", self.socket + node, "--state-dir", run_dir, "--node", "bench" + node,
                       "--memory-budget", "8GiB", "--ready-file", ready, *more],
                      os.path.join(run_dir, "uploader.log"), ready)

    def save(self):
        run = self.trainer.go()
        self.saves += 1
        return run

    def committed(self):
        with urllib.request.urlopen(self.url + "/v1/runs/" + RUN, timeout=10) as reply:
            return json.load(reply)["committed"]

    def settle(self):
        """All saves so far are committed: nothing is lost and nothing runs on."""
        until = time.monotonic() + 60
        while self.committed() < self.saves:
            if time.monotonic() > until:
                raise RuntimeError("%d of %d saves were committed" % (self.committed(),
                                                                      self.saves))
            time.sleep(0.05)

    def close(self):
        if self.trainer:
            self.trainer.close()
        for uploader in self.uploaders:
            uploader.stop()
        self.server.stop()
        shutil.rmtree(self.folder, ignore_errors=True)
