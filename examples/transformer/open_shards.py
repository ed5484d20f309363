# SPDX-License-Identifier: Apache-2.0
"""Opens every tensors shard below a folder store with the official safetensors library."""
import pathlib
import sys

from safetensors import safe_open


def main():
    shards = sorted(pathlib.Path(sys.argv[1]).rglob("rank-*.safetensors"))
    tensors = 0
    for shard in shards:
        with safe_open(str(shard), framework="np") as opened:
            names = list(opened.keys())
            tensors += len(names)
            for name in names:
                opened.get_slice(name).get_shape()
    if not shards:
        sys.exit("no tensors shard found")
    print(f"{len(shards)} shards opened, {tensors} tensors in them")


main()
