# SPDX-License-Identifier: Apache-2.0
"""The text format 0.0.4 of Prometheus, read strictly: what its own parser would let pass as a sample
of something else is an error here."""
import math
import re

NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\["\\n])*)"(,|$)')
SUFFIXES = {"counter": ("",), "gauge": ("",), "histogram": ("_bucket", "_sum", "_count")}
UNITS = ("_seconds", "_bytes")


class Family:
    def __init__(self, name, text):
        self.name, self.help, self.kind = name, text, None
        self.samples = {}  # (suffix, labels) -> value

    def value(self, suffix="", **labels):
        return self.samples.get((suffix, tuple(sorted(labels.items()))))

    def total(self, suffix=""):
        return sum(value for (of, _), value in self.samples.items() if of == suffix)

    def label_names(self):
        """Of all samples but for le; None where there is no sample."""
        names = {tuple(sorted(name for name, _ in labels if name != "le")) for _, labels in self.samples}
        if len(names) > 1:
            raise ValueError(f"{self.name}: samples with different labels: {names}")
        return names.pop() if names else None


def labels_of(text):
    found, at = [], 0
    while at < len(text):
        match = LABEL.match(text, at)
        if not match or (match[3] == "," and match.end() == len(text)):
            raise ValueError(f"labels: {text}")
        found.append((match[1], re.sub(r"\\(.)", lambda m: "\n" if m[1] == "n" else m[1], match[2])))
        at = match.end()
    if len({name for name, _ in found}) != len(found):
        raise ValueError(f"a label twice: {text}")
    return tuple(sorted(found))


def add_sample(family, line):
    match = re.fullmatch(r"([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? (\S+)", line)
    if not match or not family or not match[1].startswith(family.name):
        raise ValueError(f"no sample of {family and family.name}: {line}")
    suffix, value = match[1][len(family.name):], float(match[3])
    if not family.kind or suffix not in SUFFIXES[family.kind] or math.isnan(value):
        raise ValueError(f"no sample of {family.name}: {line}")
    if match[2] == "" or (family.kind == "counter" and value < 0):
        raise ValueError(line)
    key = (suffix, labels_of(match[2] or ""))
    if key in family.samples:
        raise ValueError(f"twice: {line}")
    family.samples[key] = value


def check_name(family):
    if not family.name.startswith("cairn_") or not family.kind or not family.help:
        raise ValueError(f"{family.name}: no prefix, type or help")
    if (family.kind == "counter") != family.name.endswith("_total"):
        raise ValueError(f"{family.name}: a counter ends in _total, and nothing else does")
    if family.kind == "histogram" and not family.name.endswith(UNITS):
        raise ValueError(f"{family.name}: no unit")


def check_histogram(family):
    series = {}
    for (suffix, labels), value in family.samples.items():
        rest = tuple(pair for pair in labels if pair[0] != "le")
        one = series.setdefault(rest, {"le": []})
        if suffix == "_bucket":
            one["le"].append((float(dict(labels)["le"]), value))
        else:
            one[suffix] = value
    for labels, one in series.items():
        bounds, counts = zip(*one["le"])
        if list(bounds) != sorted(set(bounds)) or not math.isinf(bounds[-1]):
            raise ValueError(f"{family.name}{labels}: bounds {bounds}")
        if list(counts) != sorted(counts) or counts[-1] != one["_count"] or one["_sum"] < 0:
            raise ValueError(f"{family.name}{labels}: counts {counts}, {one}")


def parse(text):
    """{name: Family}; ValueError names the line that is wrong."""
    families, family = {}, None
    if not text.endswith("\n"):
        raise ValueError("the last line has no end")
    for line in text[:-1].split("\n"):
        words = line.split(" ", 3)
        if line.startswith("# HELP ") and len(words) == 4 and NAME.fullmatch(words[2]):
            if words[2] in families:
                raise ValueError(f"twice: {line}")
            family = families[words[2]] = Family(words[2], words[3])
        elif line.startswith("# TYPE ") and len(words) == 4:
            if not family or words[2] != family.name or family.kind or family.samples:
                raise ValueError(f"in the wrong place: {line}")
            if words[3] not in SUFFIXES:
                raise ValueError(line)
            family.kind = words[3]
        else:
            add_sample(family, line)
    for one in families.values():
        check_name(one)
        one.label_names()
        if one.kind == "histogram":
            check_histogram(one)
    return families
