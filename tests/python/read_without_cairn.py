# SPDX-License-Identifier: Apache-2.0
"""Restore from a folder store by docs/format.md alone: no Cairn, only the standard library.

  read_without_cairn.py STORE                        list committed versions, newest first
  read_without_cairn.py STORE PROJECT/RUN[@REF]      print the version that REF means
  read_without_cairn.py STORE PROJECT/RUN[@REF] OUT  check it, write OUT/{shards,tensors}/*, OUT/meta.json

REF is a step, a version id or latest, the default. Exit status 3: there is none; 7: damage; 1: written by a newer release.
"""
import collections, hashlib, json, math, pathlib, re, struct, sys, uuid

# Element types by number: "NAME:bits".
DTYPES, DTYPE_BITS = zip(*((name, int(bits or 0)) for name, _, bits in (word.partition(":") for word in (
    "none BOOL:8 U8:8 I8:8 F8_E5M2:8 F8_E4M3:8 F8_E8M0:8 I16:16 U16:16 F16:16 BF16:16 I32:32 U32:32 F32:32"
    " F64:64 I64:64 U64:64 C64:64 F4:4 F6_E2M3:6 F6_E3M2:6 F8_E4M3FNUZ:8 F8_E5M2FNUZ:8 C32:32 C128:128"
    " I128:128 U128:128 F128:128 F8_E3M4:8 F8_E4M3_IEEE:8 F8_E4M3B11FNUZ:8 I4:4 U4:4 I2:2 U2:2 I1:1 U1:1"
    " QU4X2:4 QU2X4:2 F4X2:8 BITS1X8:8 BITS2X4:8 BITS4X2:8 BITS8:8 BITS16:16 QI8:8 QU8:8 QI32:32 I1X1:8"
    " I2X1:8 I3X1:8 I4X1:8 I5X1:8 I6X1:8 I7X1:8 U1X1:8 U2X1:8 U3X1:8 U4X1:8 U5X1:8 U6X1:8 U7X1:8 ITEM:8").split(" "))))
SHARDED, REPLICATED, ALIAS, LOCAL = 1, 2, 3, 4
CRC = [0] * 256
for i in range(256):
    crc = i
    for _ in range(8):
        crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    CRC[i] = crc

def crc32c(data):
    """CRC-32C (Castagnoli) of bytes, an integer below 2^32."""
    crc, table = 0xFFFFFFFF, CRC
    for byte in data:
        crc = table[(crc ^ byte) & 0xFF] ^ crc >> 8
    return crc ^ 0xFFFFFFFF

class Damage(Exception):
    """A document, block or tensor is missing or is not what proves it says: exit status 7."""

class Newer(Exception):
    """What only a later release can have written: exit status 1, and no damage."""

def must(good, what):
    if not good:
        raise Damage(what)

def known(good, what):
    if not good:
        raise Newer(f"written by a newer release: {what}")

def say(what):
    print(f"read_without_cairn: {what}", file=sys.stderr)

def document(path, kind):
    """A JSON document of that kind, or Damage."""
    try:
        found = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise Damage(f"{path}: {error}") from None
    number = found.get(kind) if isinstance(found, dict) else None
    known(not isinstance(number, int) or number <= 1, f"{path}: {kind} {number}, {found and found.get('needs', '')}")
    must(number == 1, f"{path}: no {kind} of format 1")
    return found

# ---- which version ----

def attempt_numbers(run):
    """Numbers of the attempts of which a record or its copy is there."""
    names = (re.fullmatch(r"([0-9]{12})(\.copy)?\.json", p.name) for p in run.glob("attempts/*"))
    return {int(name[1]) for name in names if name}

def attempt_records(run):
    """number -> record, from the copy where the record is lost."""
    records = {}
    for number in sorted(attempt_numbers(run)):
        for name in (f"{number:012}.json", f"{number:012}.copy.json"):
            try:
                record = document(run / "attempts" / name, "cairn_attempt")
                must(record["attempt"] == number, "another attempt")
                records[number] = record
                break
            except (Damage, KeyError):
                say(f"{run}/attempts/{name} is missing or damaged")
    return records

def superseded(run, records):
    """Ids of the superseded versions: the attempts are replayed by number, then the marks."""
    gone, changed = set(), collections.Counter()
    for number, record in sorted(records.items()):
        for version in record["superseded"]:
            gone.add(version)
            changed[version] = number
        if record.get("resume_version"):
            gone.discard(record["resume_version"])
            changed[record["resume_version"]] = number
    for mark in run.glob("*/ckpt_*/superseded-*.json"):
        if int(mark.name[11:23]) >= changed[mark.parent.name]:
            gone.add(mark.parent.name)
    return gone

def id_of(project, run, attempt, nonce, step, n):
    """The version id that these hash to (docs/format.md): a UUID of version 8 after ckpt_."""
    text = f"cairn-version-1\n{project}\n{run}\n{attempt}\n{nonce}\n{step}\n{n}\n"
    digest = bytearray(hashlib.sha256(text.encode()).digest()[:16])
    digest[6], digest[8] = digest[6] & 0x0F | 0x80, digest[8] & 0x3F | 0x80
    return f"ckpt_{uuid.UUID(bytes=bytes(digest))}"

def order(folder, records):
    """(line, step, attempt, n) of a committed version, and its record; None for what is damaged."""
    run, version = folder.parent.parent, folder.name
    name = (run.parent.name, run.name)
    try:
        record = document(folder / "committed.json", "cairn_committed")
        must(record["version"] == version and record["step"] == int(folder.parent.name), "another")
        attempt = records.get(record["attempt"]) or document(folder / "manifest.json", "cairn_manifest")
        must(id_of(*name, record["attempt"], attempt["nonce"], record["step"], record["n"]) == version,
             "another version's numbers")
        line = record.get("line", 0) or record["attempt"]
        must(line <= record["attempt"], "a line of a later attempt")
        return (line, record["step"], record["attempt"], record["n"]), record
    except (Damage, KeyError):
        pass
    try:  # the manifest has the same numbers, and the id proves them
        m = document(folder / "manifest.json", "cairn_manifest")
        must(id_of(*name, m["attempt"], m["nonce"], m["step"], m["n"]) == version, "another version")
        return (m["attempt"], m["step"], m["attempt"], m["n"]), None
    except (Damage, KeyError):
        return None, None

def committed(run):
    """Folders of the committed versions; a record without manifest and data is a deletion's rest."""
    return [p.parent for p in run.glob("*/ckpt_*/committed.json")
            if (p.parent / "manifest.json").exists() or (p.parent / "checksums.bin").exists()
            or (p.parent / "data").exists()]

def tell_lost(records, orders, marks, best):
    """Warns of attempts without a readable record that may have superseded or revived `best`."""
    newest = max([0, *records, *marks, *(o[2] for o in orders if o)])
    lost = [k for k in range(1, newest + 1) if k not in records]
    if lost and not (best and best[2] >= lost[-1]):
        say(f"warning: attempts {lost[-10:]} left no readable record: what they superseded or "
            "revived is not known; name a version to be sure")

def find(run, ref):
    """The folder of the version that ref means, or None."""
    if ref.startswith("ckpt_"):
        return next((folder for folder in committed(run) if folder.name == ref), None)
    records = attempt_records(run)
    gone, best, chosen, orders = superseded(run, records), None, None, []
    for folder in committed(run):
        if ref != "latest" and int(folder.parent.name) != int(ref):
            continue
        key, record = order(folder, records)
        orders.append(key)
        if folder.name in gone or (folder / "trashed.json").exists():
            continue
        must(key, f"{folder}: damaged, and may be the newest; name another version to get that")
        if best is None or key > best:
            best, chosen = key, (folder, record)
    marks = [int(m.name[11:23]) for m in run.glob("*/ckpt_*/superseded-*.json")]
    tell_lost(records, orders, [*marks, *attempt_numbers(run)], best)
    if not chosen:
        return None
    must(chosen[1], f"{chosen[0]}/committed.json: damaged")
    return chosen[0]

def manifest_of(folder):
    """The manifest, proven by its record, which is proven by the id."""
    record, path = document(folder / "committed.json", "cairn_committed"), folder / "manifest.json"
    must(path.exists(), f"{path} is missing")
    text = path.read_bytes()
    must(hashlib.sha256(text).hexdigest() == record["manifest_sha256"], f"{path}: digest")
    m = document(path, "cairn_manifest")
    known(m["checksum"] == "crc32c" and m["block_bytes"] == 1 << 20, f"{path}: checksums")
    must(m["version"] == folder.name == id_of(m["project"], m["run"], m["attempt"], m["nonce"], m["step"], m["n"])
         and (record["attempt"], record["n"]) == (m["attempt"], m["n"]), f"{path}: of another version")
    return m

def versions(store):
    """(manifest, its folder) of every committed version, those that count first, by attempt, step and n."""
    found = []
    for run in {p.parent.parent.parent for p in store.glob("*/*/*/ckpt_*/committed.json")}:
        gone = superseded(run, attempt_records(run))
        for folder in committed(run):
            manifest = manifest_of(folder)
            manifest["flags"] = ["superseded"] * (folder.name in gone)
            manifest["flags"] += ["trashed"] * (folder / "trashed.json").exists()
            found.append((manifest, folder))
    return sorted(found, key=lambda v: (not v[0]["flags"], v[0]["attempt"], v[0]["step"], v[0]["n"]), reverse=True)

# ---- its bytes ----

def read(path):
    """The bytes of a file; Damage where it is missing."""
    must(path.is_file(), f"{path} is missing")
    return path.read_bytes()

def shards(manifest, folder):
    """(name, bytes) of every shard; Damage where a size or a block's CRC-32C differs."""
    sums, block = read(folder / "checksums.bin"), manifest["block_bytes"]
    must(hashlib.sha256(sums).hexdigest() == manifest["checksums_sha256"], "checksums.bin: digest")
    for shard in manifest["shards"]:
        known(len(shard["extents"]) == (shard["size"] > 0), f"{shard['name']}: extents")
        must(shard["extents"] == [[0, shard["size"]]][:len(shard["extents"])], f"{shard['name']}: extents")
        data = read(folder / "data" / shard["name"])
        must(len(data) == shard["size"], f"{shard['name']}: size")
        for i in range(0, len(data), block):
            wanted = struct.unpack_from("<I", sums, 4 * (shard["first_block"] + i // block))[0]
            must(crc32c(data[i:i + block]) == wanted, f"{shard['name']}: block at byte {i}")
        yield shard["name"], data

def table_rows(table):
    """(rank, tensors) of the bytes of a rank table.

    A tensor is (name, alias or None, kind, index in DTYPES, shape in elements, fragments); a
    fragment is (shard, offset in bytes, size in bytes, form, start, count), whose start and count
    are elements for each dimension, or of form 1 a start in elements of the flattened tensor."""
    must(table[:7] == b"cairnRT", "rank table format")
    known(table[7:8] == b"1", "rank table format")
    rank, n_shard, n_tensor, n_fragment, n_pool, n_string, _, flags = struct.unpack_from("<8I", table, 8)
    known(not flags, "flags of a rank table")
    at = 40 + 16 * n_shard
    frag_at, pool_at = at + 24 * n_tensor, at + 24 * n_tensor + 32 * n_fragment
    pool = struct.unpack_from(f"<{n_pool}Q", table, pool_at)
    ends = (0,) + struct.unpack_from(f"<{n_string}I", table, pool_at + 8 * n_pool)
    text = table[pool_at + 8 * n_pool + 4 * n_string:]
    names = [text[ends[i]:ends[i + 1]].decode() for i in range(n_string)]
    objects = [names[struct.unpack_from("<I", table, 40 + 16 * i)[0]] for i in range(n_shard)]
    tensors = []
    for i in range(n_tensor):
        name, alias, kind, dtype, ndim, flags, shape, first, count = struct.unpack_from("<2I4B3I", table, at + 24 * i)
        known(kind <= LOCAL and dtype < len(DTYPES) and ndim <= 8 and not flags,
              f"{names[name]}: kind {kind}, element type {dtype}, {ndim} dimensions, flags {flags}")
        fragments = []
        for f in range(first, first + count):
            _, shard, form, p, offset, size = struct.unpack_from("<4I2Q", table, frag_at + 32 * f)
            known(form <= 2, f"{names[name]}: form {form}")
            n = 1 if form == 1 else ndim
            fragments.append((objects[shard], offset, size, form, pool[p:p + n], pool[p + n:p + 2 * n]))
        tensors.append((names[name], names[alias] if alias != 0xFFFFFFFF else None, kind, dtype,
                        pool[shape:shape + ndim], fragments))
    return rank, tensors

def tables(manifest, run_folder):
    """table_rows of each rank, in the order of the layout, whose digest is checked."""
    digest, writer = manifest["layout"]["digest"], manifest["layout"]["writer"]
    layout = read(run_folder / f"layouts/{digest}-{writer[5:].replace('-', '')[:16]}.layout")
    must(layout[:7] == b"cairnLY", "layout format")
    known(layout[7:8] == b"1" and not any(layout[20:24]), "layout format, or its flags")
    sha, found = hashlib.sha256(), []
    for i in range(struct.unpack_from("<I", layout, 8)[0]):
        offset, size = struct.unpack_from("<2Q", layout, 24 + 16 * i)
        found.append(layout[offset:offset + size])
        sha.update(found[-1][8:12] + hashlib.sha256(found[-1]).digest())
    must(sha.hexdigest() == digest, "layout: digest")
    return [table_rows(table) for table in found]

def place(out, bits, shape, fragment, data):
    """Copies the bytes of a fragment to their place in `out`, the whole tensor in row-major order
    with `bits` an element; returns how many bytes."""
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

def replica(name, count):
    """Index, below count, of the rank whose copy is read: FNV-1a of the name, mixed (docs/format.md)."""
    mask, value = (1 << 64) - 1, 0xCBF29CE484222325
    for byte in name.encode():
        value = (value ^ byte) * 0x100000001B3 & mask
    value = (value ^ value >> 33) * 0xFF51AFD7ED558CCD & mask
    return (value >> 33) % count

def tensors(rows, data):
    """name -> (name of the dtype, shape in elements, bytes) of every tensor.

    A local tensor is name@rank, an alias has what its target has; Damage where fragments do not
    cover a tensor exactly or an alias has no target."""
    whole, filled, aliases, copies = {}, {}, {}, {}
    for rank, listed in rows:
        for row in listed:
            if row[2] == REPLICATED:
                copies.setdefault(row[0], []).append(rank)
    for rank, listed in rows:
        for name, alias, kind, dtype, shape, fragments in listed:
            if kind == ALIAS:
                aliases[name, rank] = alias
                continue
            key = f"{name}@{rank}" if kind == LOCAL else name
            if kind == REPLICATED and rank != copies[name][replica(name, len(copies[name]))]:
                continue
            size = math.prod(shape) * DTYPE_BITS[dtype] // 8
            entry = whole.setdefault(key, (DTYPES[dtype], list(shape), bytearray(size)))
            for fragment in fragments:
                filled[key] = filled.get(key, 0) + place(entry[2], DTYPE_BITS[dtype], shape, fragment, data)
    for key, (_, _, content) in whole.items():
        must(filled.get(key, 0) == len(content), f"tensor {key}: not covered exactly")
    targets = {name: target for (name, _), target in aliases.items()}
    for name, rank in list(aliases):
        target, hops = targets[name], 0
        while target in targets and hops < 16:
            target, hops = targets[target], hops + 1
        key = target if target in whole else f"{target}@{rank}"
        must(key in whole, f"alias {name}: no tensor {target}")
        whole[name + key[len(target):]] = whole[key]
    return whole

def write_out(manifest, folder, out):
    """Writes shards/NAME, meta.json, tensors/NUMBER.bin and tensors.json: {name: file, dtype, shape}."""
    data = dict(shards(manifest, folder))
    for name, content in data.items():
        (out / "shards" / name).parent.mkdir(parents=True, exist_ok=True)
        (out / "shards" / name).write_bytes(content)
    (out / "meta.json").write_text(json.dumps(manifest["meta"]))
    if not manifest["layout"]:
        return
    index = {}
    found = tensors(tables(manifest, folder.parent.parent), data)
    (out / "tensors").mkdir(parents=True, exist_ok=True)
    for i, (name, (dtype, shape, content)) in enumerate(sorted(found.items())):
        (out / "tensors" / f"{i}.bin").write_bytes(content)
        index[name] = {"file": f"{i}.bin", "dtype": dtype, "shape": shape}
    (out / "tensors.json").write_text(json.dumps(index))

def main():
    if not 2 <= len(sys.argv) <= 4:
        say(__doc__)
        return 2
    store = pathlib.Path(sys.argv[1])
    document(store / ".cairn/store.json", "cairn_store")
    if len(sys.argv) == 2:
        for m, _ in versions(store):
            print(m["project"] + "/" + m["run"], m["step"], m["version"], m["bytes"], *m["flags"])
        return 0
    name, _, ref = sys.argv[2].partition("@")
    if not re.fullmatch("(latest|[0-9]+|ckpt_[0-9a-f-]{36})?", ref) or name.count("/") != 1:
        say(f"{sys.argv[2]} is not PROJECT/RUN[@STEP|@latest|@ckpt_...]")
        return 2
    folder = find(store / name, ref or "latest")
    if not folder:
        say("no such committed version")
        return 3
    manifest = manifest_of(folder)
    print(manifest["version"])
    if len(sys.argv) == 4:
        write_out(manifest, folder, pathlib.Path(sys.argv[3]))
    return 0

if __name__ == "__main__":
    try:
        sys.exit(main())
    except Newer as error:
        say(str(error))
        sys.exit(1)
    except (Damage, KeyError, IndexError, struct.error, UnicodeDecodeError) as error:
        say(f"damaged: {error}")
        sys.exit(7)
