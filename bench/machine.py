# SPDX-License-Identifier: Apache-2.0
"""The machine that a figure was measured on: its CPU, the features that choose code paths, its disk."""
import os

# Those that common/crc.c and formats/convert.c choose by.
FEATURES = ("sse4_2", "pclmulqdq", "avx2", "f16c", "vpclmulqdq", "avx512f", "avx512bw", "avx512_bf16", "crc32", "pmull")


def cpu():
    """As "AMD EPYC 7R13, 2 cores: sse4_2 pclmulqdq avx2"."""
    fields = {}
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        for line in file:
            name, _, value = line.partition(":")
            fields.setdefault(name.strip(), value.strip())
    there = set(fields.get("flags", fields.get("Features", "")).split())
    return "%s, %d cores: %s" % (fields.get("model name", os.uname().machine), os.cpu_count(),
                                 " ".join(name for name in FEATURES if name in there))


def mount_of(path):
    """(device number, type of file system, source) of the mount that holds path."""
    best = ("", "?", "?", "?")
    path = os.path.realpath(path)
    with open("/proc/self/mountinfo", encoding="utf-8") as file:
        for line in file:
            left, _, right = line.partition(" - ")
            number, where = left.split()[2], left.split()[4]
            kind, source = right.split()[:2]
            inside = path == where or path.startswith(where.rstrip("/") + "/")
            if inside and len(where) >= len(best[0]):
                best = (where, number, kind, source)
    return best[1:]


def read(path):
    try:
        with open(path, encoding="utf-8") as file:
            return file.read().strip()
    except OSError:
        return ""


def disk_of(path):
    """As "ext4 on vda (virtio_blk, 100 GiB)"."""
    number, kind, source = mount_of(path)
    device = os.path.realpath("/sys/dev/block/" + number)
    if os.path.exists(os.path.join(device, "partition")):
        device = os.path.dirname(device)
    if not os.path.isdir(os.path.join(device, "queue")):
        return "%s on %s" % (kind, source)
    driver = os.path.basename(os.path.realpath(os.path.join(device, "device", "driver")))
    size = int(read(os.path.join(device, "size")) or 0) * 512 >> 30
    return "%s on %s (%s, %d GiB)" % (kind, os.path.basename(device),
                                      read(os.path.join(device, "device", "model")) or driver, size)
