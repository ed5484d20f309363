# SPDX-License-Identifier: Apache-2.0
"""A proxy that passes each request on with a connection of its own, and answers 502, as one does whose server is being started
again, where the path ends with a name that is to be lost: so often as is said. (A browser repeats by itself what a
closed connection leaves without an answer, and so would hide it now and then.)"""
import contextlib
import re
import socket
import socketserver
import threading


class Caller(socketserver.BaseRequestHandler):
    def handle(self):
        head = b""
        while b"\r\n\r\n" not in head:
            came = self.request.recv(65536)
            if not came:
                return
            head += came
        path = head.split()[1].decode().split("?")[0]
        if self.server.loses(path):
            self.request.sendall(b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
            return
        head = re.sub(rb"(?i)\r\nconnection: [^\r]*", b"\r\nConnection: close", head)
        with socket.create_connection(self.server.target) as there:
            there.sendall(head)
            back = threading.Thread(target=self.pass_on, args=(self.request, there), daemon=True)
            back.start()
            self.pass_on(there, self.request)

    @staticmethod
    def pass_on(taken, given):
        with contextlib.suppress(OSError):
            while came := taken.recv(65536):
                given.sendall(came)
        for one in (taken, given):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)


class LosingProxy(socketserver.ThreadingTCPServer):
    daemon_threads = True

    def __init__(self, port):
        super().__init__(("127.0.0.1", 0), Caller)
        self.target, self.lost, self.lock = ("127.0.0.1", port), {}, threading.Lock()
        self.url = f"http://127.0.0.1:{self.server_address[1]}"
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def lose(self, name, times):
        """So many of the next requests for what is called so are answered 502."""
        with self.lock:
            self.lost[name] = times

    def loses(self, path):
        name = path.rsplit("/", 1)[-1]
        with self.lock:
            if not self.lost.get(name):
                return False
            self.lost[name] -= 1
            return True

    def close(self):
        self.shutdown()
        self.server_close()
