# SPDX-License-Identifier: Apache-2.0
"""Restore from a folder store by docs/format.md alone: no Cairn, only the standard library.

  read_without_cairn.py STORE                          list committed versions, newest first
  read_without_cairn.py STORE PROJECT/RUN[@STEP] OUT   check it, write OUT/shards/* and OUT/tensors/*
"""
import hashlib, json, math, pathlib, struct, sys

DTYPE_BITS = [0, 8, 8, 8, 8, 8, 8, 16, 16, 16, 16, 32, 32, 32, 64, 64, 64, 64, 4, 6, 6, 8, 8]
DTYPES = (" BOOL U8 I8 F8_E5M2 F8_E4M3 F8_E8M0 I16 U16 F16 BF16 I32 U32 F32 F64 I64 U64 C64 F4 F6_E2M3"
          " F6_E3M2 F8_E4M3FNUZ F8_E5M2FNUZ").split(" ")
SHARDED, REPLICATED, ALIAS, LOCAL = 1, 2, 3, 4
CRC = [0] * 256
for i in range(256):
    crc = i
    for _ in range(8):
        crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    CRC[i] = crc

def crc32c(data):
    crc, table = 0xFFFFFFFF, CRC
    for byte in data:
        crc = table[(crc ^ byte) & 0xFF] ^ crc >> 8
    return crc ^ 0xFFFFFFFF

def must(good, what):
    if not good:
        sys.exit(f"read_without_cairn: {what}")

def versions(store):
    """(manifest, its folder) of every committed version, newest first."""
    must(json.loads((store / ".cairn/store.json").read_bytes())["cairn_store"] == 1, "store format")
    gone, found = set(), []
    for path in store.glob("*/*/attempts/*.json"):
        gone.update(json.loads(path.read_bytes())["superseded"])
    for path in store.glob("*/*/*/ckpt_*/committed.json"):
        record, manifest = json.loads(path.read_bytes()), path.parent / "manifest.json"
        if not manifest.exists():
            continue  # what is left of a deletion
        text = manifest.read_bytes()
        must(hashlib.sha256(text).hexdigest() == record["manifest_sha256"], f"{manifest}: digest")
        manifest = json.loads(text)
        must(manifest["cairn_manifest"] == 1 and manifest["checksum"] == "crc32c", f"{path}: format")
        manifest["superseded"] = manifest["version"] in gone
        found.append((manifest, path.parent))
    return sorted(found, key=lambda v: (not v[0]["superseded"], v[0]["attempt"], v[0]["step"], v[0]["n"]),
                  reverse=True)

def shards(manifest, folder):
    """Every shard's bytes, each block checked."""
    sums, block = (folder / "checksums.bin").read_bytes(), manifest["block_bytes"]
    must(hashlib.sha256(sums).hexdigest() == manifest["checksums_sha256"], "checksums.bin: digest")
    for shard in manifest["shards"]:
        must(shard["extents"] == ([[0, shard["size"]]] if shard["size"] else []), "unknown extents")
        data = (folder / "data" / shard["name"]).read_bytes()
        must(len(data) == shard["size"], f"{shard['name']}: size")
        for i in range(0, len(data), block):
            wanted = struct.unpack_from("<I", sums, 4 * (shard["first_block"] + i // block))[0]
            must(crc32c(data[i:i + block]) == wanted, f"{shard['name']}: block at byte {i}")
        yield shard["name"], data

def table_rows(table):
    """(rank, tensors) of a rank table; a tensor is (name, alias, kind, dtype, shape, fragments)."""
    must(table[:8] == b"cairnRT1", "rank table format")
    rank, n_shard, n_tensor, n_fragment, n_pool, n_string, _, _ = struct.unpack_from("<8I", table, 8)
    at = 40 + 16 * n_shard
    frag_at, pool_at = at + 24 * n_tensor, at + 24 * n_tensor + 32 * n_fragment
    pool = struct.unpack_from(f"<{n_pool}Q", table, pool_at)
    ends = (0,) + struct.unpack_from(f"<{n_string}I", table, pool_at + 8 * n_pool)
    text = table[pool_at + 8 * n_pool + 4 * n_string:]
    names = [text[ends[i]:ends[i + 1]].decode() for i in range(n_string)]
    objects = [names[struct.unpack_from("<I", table, 40 + 16 * i)[0]] for i in range(n_shard)]
    tensors = []
    for i in range(n_tensor):
        name, alias, kind, dtype, ndim, _, shape, first, count = struct.unpack_from("<2I4B3I", table, at + 24 * i)
        fragments = []
        for f in range(first, first + count):
            _, shard, form, p, offset, size = struct.unpack_from("<4I2Q", table, frag_at + 32 * f)
            n = 1 if form == 1 else ndim
            fragments.append((objects[shard], offset, size, form, pool[p:p + n], pool[p + n:p + 2 * n]))
        tensors.append((names[name], names[alias] if alias != 0xFFFFFFFF else None, kind, dtype,
                        pool[shape:shape + ndim], fragments))
    return rank, tensors

def tables(manifest, run_folder):
    digest, writer = manifest["layout"]["digest"], manifest["layout"]["writer"]
    layout = (run_folder / f"layouts/{digest}-{writer[5:].replace('-', '')[:16]}.layout").read_bytes()
    must(layout[:8] == b"cairnLY1", "layout format")
    sha, rows = hashlib.sha256(), []
    for i in range(struct.unpack_from("<I", layout, 8)[0]):
        offset, size = struct.unpack_from("<2Q", layout, 24 + 16 * i)
        table = layout[offset:offset + size]
        rows.append(table_rows(table))
        sha.update(struct.pack("<I", rows[-1][0]) + hashlib.sha256(table).digest())
    must(sha.hexdigest() == digest, "layout: digest")
    return rows

def place(out, bits, shape, fragment, data):
    """Copy a fragment's bytes to where they belong in the whole tensor; returns how many."""
    shard, offset, size, form, start, count = fragment
    piece = data[shard][offset:offset + size]
    if form == 1:
        out[start[0] * bits // 8:start[0] * bits // 8 + size] = piece
        return size
    strides = [math.prod(shape[d + 1:]) for d in range(len(shape))]
    run = count[-1] * bits // 8
    for row in range(math.prod(count[:-1])):
        index, left = start[-1], row
        for d in range(len(count) - 2, -1, -1):
            index, left = index + (start[d] + left % count[d]) * strides[d], left // count[d]
        out[index * bits // 8:index * bits // 8 + run] = piece[row * run:(row + 1) * run]
    return size

def tensors(rows, data):
    """name -> (dtype, shape, bytes); local ones as name@rank; aliases as their targets."""
    whole, filled, aliases = {}, {}, {}
    for rank, listed in rows:
        for name, alias, kind, dtype, shape, fragments in listed:
            if kind == ALIAS:
                aliases[name] = alias
                continue
            key = f"{name}@{rank}" if kind == LOCAL else name
            if kind == REPLICATED and key in whole:
                continue  # one copy is enough
            size = math.prod(shape) * DTYPE_BITS[dtype] // 8
            entry = whole.setdefault(key, (DTYPES[dtype], list(shape), bytearray(size)))
            for fragment in fragments:
                filled[key] = filled.get(key, 0) + place(entry[2], DTYPE_BITS[dtype], shape, fragment, data)
    for key, (_, _, content) in whole.items():
        must(filled.get(key, 0) == len(content), f"tensor {key}: not covered exactly")
    for name, target in aliases.items():
        while target in aliases:
            target = aliases[target]
        for key in [k for k in whole if k == target or k.startswith(target + "@")]:
            whole[name + key[len(target):]] = whole[key]
    return whole

def main():
    must(len(sys.argv) in (2, 4), __doc__)
    found = versions(pathlib.Path(sys.argv[1]))
    if len(sys.argv) == 2:
        for m, _ in found:
            print(m["project"] + "/" + m["run"], m["step"], m["version"], m["bytes"], "superseded" * m["superseded"])
        return
    run, _, step = sys.argv[2].partition("@")
    found = [v for v in found if f"{v[0]['project']}/{v[0]['run']}" == run and step in ("", str(v[0]["step"]))]
    must(found and (step or not found[0][0]["superseded"]), "no such committed version")
    (manifest, folder), out = found[0], pathlib.Path(sys.argv[3])
    data = dict(shards(manifest, folder))
    for name, content in data.items():
        (out / "shards" / name).parent.mkdir(parents=True, exist_ok=True)
        (out / "shards" / name).write_bytes(content)
    if manifest["layout"]:
        index = {}
        (out / "tensors").mkdir(parents=True, exist_ok=True)
        for i, (name, (dtype, shape, content)) in enumerate(sorted(tensors(tables(manifest, folder.parent.parent), data).items())):
            (out / "tensors" / f"{i}.bin").write_bytes(content)
            index[name] = {"file": f"{i}.bin", "dtype": dtype, "shape": shape}
        (out / "tensors.json").write_text(json.dumps(index))
    print(manifest["version"])

if __name__ == "__main__":
    main()
