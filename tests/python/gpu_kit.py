#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""gpu_kit.py BUILD: bench/gpu's folder, over the runtime without a GPU.

The rows that need no torch must come without a failure, and the runtime must open contexts and end
captures by the calls by which an H200 with CUDA 13 did (docs/bench.md). What the folder's programs and libraries
need is in it, or of glibc.
"""
import json
import os
import re
import subprocess
import sys
import tempfile

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir, os.pardir)
ROWS = ("machine", "contexts*", "bare", "open", "stage-gpu", "stage-async-gpu", "stage-convert", "restore-gpu",
        "capture-by-call")
OF_GLIBC = re.compile(r"(libc|libm|libresolv|libpthread|libdl|librt|ld-linux[^/]*)\.so")
OPEN_ONE = {"cudaEventCreateWithFlags", "cudaEventDestroy", "cudaEventRecord", "cudaFree",
            "cudaFree(NULL)", "cudaHostRegister", "cudaHostUnregister", "cudaMemcpyAsync",
            "cudaSetDevice", "cudaStreamCreateWithFlags", "cudaStreamDestroy",
            "cudaStreamSynchronize", "cudaStreamWaitEvent",
            "cudaThreadExchangeStreamCaptureMode"}
END_CAPTURES = {"cudaEventQuery", "cudaEventSynchronize", "cudaStreamSynchronize",
                "cudaHostRegister", "cudaHostUnregister", "cudaMalloc", "cudaFree"}


def environment(build):
    """Python has no sanitizer of its own: where the library needs one, it is loaded first."""
    found = dict(os.environ, CAIRN_BENCH_CUDA=os.path.join(build, "fake_cuda", "libcudart.so.13"))
    needed = subprocess.run(["ldd", os.path.join(build, "libcairn.so.1")], check=True,
                            capture_output=True, text=True).stdout.split()
    sanitizers = [word for word in needed if word.startswith("/") and "asan" in word]
    if any("tsan" in word for word in needed):
        print("skipped: python does not run under ThreadSanitizer")
        sys.exit(77)
    if sanitizers:
        found.update(LD_PRELOAD=sanitizers[0], ASAN_OPTIONS="detect_leaks=0")
    return found


def missing(kit):
    """What a bare machine lacks of what the objects of this folder name."""
    found = {}
    for folder in (kit, kit + "/lib"):
        for name in os.listdir(folder):
            done = subprocess.run(["readelf", "-d", os.path.join(folder, name)], capture_output=True, text=True,
                                  check=False)
            if not done.returncode:
                found[name] = re.findall(r"\(NEEDED\).*\[(.*)\]", done.stdout)
    return {need for needed in found.values() for need in needed if need not in found and not OF_GLIBC.match(need)}


def measured(build):
    with tempfile.TemporaryDirectory() as folder:
        pack = os.path.join(ROOT, "bench", "gpu", "pack")
        subprocess.run([pack, build, folder + "/kit"], check=True, stdout=subprocess.DEVNULL)
        if missing(folder + "/kit"):
            sys.exit("the folder lacks %s" % missing(folder + "/kit"))
        done = subprocess.run([sys.executable, folder + "/kit/run", "--gib", "0.02", *ROWS],
                              env=environment(build), capture_output=True, text=True, check=False)
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    problems = [line for line in lines if "failed" in line]
    if done.returncode or problems:
        sys.exit("the rows fail: %s\n%s" % (problems, done.stderr[-3000:]))
    return lines


def main():
    lines = measured(sys.argv[1])
    kernels = not any("skipped" in line for line in lines if line["row"] == "stage-convert")
    wrong = [row for row in ROWS if not any(
        line["row"].startswith(row.rstrip("*")) and "skipped" not in line for line in lines)]
    if wrong:
        sys.exit("no figures of %s" % wrong)
    by_call = next(line for line in lines if line["row"] == "contexts-by-call")
    if set(by_call["make_one"]) != OPEN_ONE or by_call["unanswered"]:
        sys.exit("other calls open a context: %s" % by_call)
    for line in lines:
        if line["row"] == "contexts" and (line["context_made_by"] or line["saved"] != "ok"):
            sys.exit("a session of %s memory opened a context: %s" % (line["memory"], line))
        if line["row"] == "capture-by-call":
            ended = {name for name, status, end in line["call_status_end"] if status or end}
            if ended != (set() if line["relaxed"] else END_CAPTURES):
                sys.exit("other calls end a capture: %s" % line)
    print("%d rows, %s kernels" % (len(lines), "with" if kernels else "without"))


if __name__ == "__main__":
    main()
