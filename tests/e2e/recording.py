# SPDX-License-Identifier: Apache-2.0
"""What daemons asked of files and sockets (tests/support/librecord.c), read again: the events in
their order, the disk as it was at each of them, and what a power cut would have left of it.

The disk keeps what was synced and nothing else: of a file its bytes at the begin of its last fsync
or fdatasync (attributes with fsync alone), of a folder its names at the begin of its last fsync.
Real file systems may keep more, never less; `Disk.tree` gives the least, or more than that."""
import dataclasses
import os
import pathlib
import struct

from build_folder import preload

HEAD = struct.Struct("<IIiiQQQQqIIII")
MAGIC = 0x31524543
KINDS = (None, "create", "write", "truncate", "xattr", "sync", "synced", "link", "rename", "unlink",
         "mkdir", "send", "sent")
# SQLite writes it past the calls that are recorded, and makes it anew after a crash.
SHARED_MEMORY = "-shm"


def environment(log, root):
    """Of a process that is recorded."""
    return {**preload("record"), "LIBRECORD_LOG": str(log),
            "LIBRECORD_ROOT": str(root),
            "ASAN_OPTIONS": os.environ.get("ASAN_OPTIONS", "") + ":verify_asan_link_order=0"}


@dataclasses.dataclass
class Event:
    kind: str
    thread: tuple  # (process, thread)
    file: tuple  # (inode, time of birth) of a file, or of the folder that a name is in
    other: tuple  # of what was made, or of the second folder
    at: int  # offset, length, result, or the ports of a connection
    name: str
    other_name: str
    data: bytes


def read_events(path):
    raw, at, events = pathlib.Path(path).read_bytes(), 0, []
    while at < len(raw):
        (magic, kind, pid, tid, inode, born, inode2, born2, value, name_bytes, other_bytes,
         data_bytes, _) = HEAD.unpack_from(raw, at)
        assert magic == MAGIC, f"the recording is damaged at {at}"
        parts, at = [], at + HEAD.size
        for size in (name_bytes, other_bytes, data_bytes):
            parts.append(raw[at:at + size])
            at += size
        events.append(Event(KINDS[kind], (pid, tid), (inode, born), (inode2, born2), value,
                            parts[0].decode(), parts[1].decode(), parts[2]))
    return events


class Node:
    """A file or folder: as processes see it, and as it was when it was last synced."""

    def __init__(self, folder, path):
        self.folder, self.path = folder, path
        self.bytes, self.attributes, self.names = bytearray(), {}, {}
        self.kept = ({} if folder else (b"", {}))
        self.running, self.syncs, self.newest = {}, 0, 0  # thread -> (number, what its sync keeps)

    def content(self):
        return dict(self.names) if self.folder else (bytes(self.bytes), dict(self.attributes))


class Disk:
    """The folder `root`. What is there before the recording counts as synced."""

    def __init__(self, root):
        self.nodes, self.changes = {}, 0  # changes: of what a power cut would leave
        self.root = self._look(pathlib.Path(root), "")

    def _look(self, real, path):
        status = os.stat(real)
        node = self.nodes[(status.st_ino, None)] = Node(real.is_dir(), path)
        assert node.folder or not status.st_size, f"{real} is there before the recording"
        for name in os.listdir(real) if node.folder else ():
            node.names[name] = self._look(real / name, f"{path}/{name}".lstrip("/"))
        node.kept = node.content()
        return node

    def node(self, identity):
        """Python tells no time of birth, so what was there before is known by its inode alone."""
        if identity not in self.nodes and (identity[0], None) in self.nodes:
            self.nodes[identity] = self.nodes.pop((identity[0], None))
        return self.nodes.get(identity)

    # ---- what an event does; each gives the node that it is about ----

    def do(self, event):
        apply = getattr(self, f"_{event.kind}", None)
        return apply(event) if apply else None

    def _made(self, event, folder):
        parent = self.node(event.file)
        node = self.nodes[event.other] = Node(folder, f"{parent.path}/{event.name}".lstrip("/"))
        parent.names[event.name] = node
        return node

    def _create(self, event):
        known = self.node(event.other)
        if known is None:
            return self._made(event, False)
        return self._cut(known, 0) if event.at == 0 and known.bytes else known

    def _mkdir(self, event):
        return self._made(event, True)

    def _write(self, event):
        node = self.node(event.file)
        node.bytes.extend(bytes(max(0, event.at - len(node.bytes))))
        node.bytes[event.at:event.at + len(event.data)] = event.data
        return node

    def _cut(self, node, length):
        del node.bytes[length:]
        node.bytes.extend(bytes(length - len(node.bytes)))
        return node

    def _truncate(self, event):
        return self._cut(self.node(event.file), event.at)

    def _xattr(self, event):
        node = self.node(event.file)
        node.attributes[event.name] = event.data
        return node

    def _sync(self, event):
        node = self.node(event.file)
        content = node.content()
        if not node.folder and not event.at:  # fdatasync
            content = (content[0], node.kept[1])
        node.syncs += 1
        node.running[event.thread] = (node.syncs, content)
        return node

    def _synced(self, event):
        node = self.node(event.file)
        number, content = node.running.pop(event.thread)
        if number < node.newest:  # of two that overlap, the one that began last knows more
            return node
        node.newest = number
        if content != node.kept:
            node.kept = content
            self.changes += 1
        return node

    def _link(self, event):
        to = self.node(event.other)
        node = to.names[event.other_name] = self.node(event.file).names[event.name]
        node.path = f"{to.path}/{event.other_name}".lstrip("/")
        return node

    def _rename(self, event):
        node, folder = self._link(event), self.node(event.file)
        del folder.names[event.name]
        return node

    def _unlink(self, event):
        folder = self.node(event.file)
        return folder.names.pop(event.name, None)  # a socket's name is made by bind

    # ---- what is there ----

    def kept(self, path):
        """What a power cut would leave of it: bytes of a file, names of a folder, None: nothing."""
        node = self.root
        for name in path.split("/"):
            node = node.kept.get(name) if node.folder else None
            if node is None:
                return None
        return node.kept if node.folder else node.kept[0]

    def tree(self, names=False, content=False, torn=None):
        """{path: (bytes, attributes), or None for a folder} that a power cut leaves: at least; with
        all names; with all bytes, too; torn: but for this node, of which these bytes."""
        found = {}

        def walk(node, path):
            inside = node.names if names else node.kept
            for name, inner in inside.items():
                place = f"{path}/{name}".lstrip("/")
                if inner.folder:
                    found[place] = None
                    walk(inner, place)
                elif name.endswith(SHARED_MEMORY):
                    found[place] = (b"", {})
                elif torn and inner is torn[0]:
                    found[place] = (torn[1], inner.attributes)
                else:
                    found[place] = inner.content() if content else inner.kept

        walk(self.root, "")
        return found


def write_tree(tree, to):
    to = pathlib.Path(to)
    to.mkdir(mode=0o700)
    for path, content in tree.items():  # a folder comes before what is in it
        if content is None:
            (to / path).mkdir(mode=0o700)
            continue
        (to / path).write_bytes(content[0])
        (to / path).chmod(0o600)
        for name, value in content[1].items():
            os.setxattr(to / path, name, value)


def read_tree(root, but=()):
    """The real folder as `Disk.tree` gives it, without attributes."""
    found = {}
    for path in pathlib.Path(root).rglob("*"):
        place = str(path.relative_to(root))
        if path.is_socket() or place in but:
            continue
        found[place] = None if path.is_dir() else path.read_bytes()
    return found
