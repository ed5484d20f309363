# SPDX-License-Identifier: Apache-2.0
"""sbom.py VERSION FOLDER LIBRARIES: what the packages in FOLDER are made of and what they need, as SPDX 2.3 JSON. Each
package with its SHA-256, and each that it depends on with the version that is installed where it was built; the
tar, and the libraries that are in it, of which the file LIBRARIES has package and version on each line."""
import datetime
import hashlib
import json
import os
import pathlib
import re
import subprocess
import sys


def field(deb, name):
    return subprocess.run(["dpkg-deb", "-f", deb, name], text=True, check=True, capture_output=True).stdout.strip()


def installed(package):
    done = subprocess.run(["dpkg-query", "-W", "-f", "${Version}", package], text=True, check=False, capture_output=True)
    return done.stdout.strip() or "NOASSERTION"


def entry(identity, name, version, **more):
    return {"SPDXID": identity, "name": name, "versionInfo": version, "downloadLocation": "NOASSERTION",
            "filesAnalyzed": False, "licenseConcluded": "NOASSERTION", "copyrightText": "NOASSERTION", **more}


def digest(path):
    return [{"algorithm": "SHA256", "checksumValue": hashlib.sha256(path.read_bytes()).hexdigest()}]


def main(version, folder, libraries):
    made = datetime.datetime.fromtimestamp(int(os.environ.get("SOURCE_DATE_EPOCH", "1")), datetime.timezone.utc)
    debs = sorted(pathlib.Path(folder).glob("*.deb"))
    names = {field(deb, "Package"): deb for deb in debs}
    packages, relations, needed = [], [], {}
    for name, deb in names.items():
        packages.append(entry(f"SPDXRef-{name}", name, field(deb, "Version"), licenseDeclared="Apache-2.0",
                              packageFileName=deb.name, checksums=digest(deb)))
        relations.append(("SPDXRef-DOCUMENT", "DESCRIBES", f"SPDXRef-{name}"))
        for one in filter(None, re.split(r"\s*,\s*", field(deb, "Depends"))):
            of = one.split()[0].split(":")[0]
            if of not in names:
                needed[of] = installed(of)
            relations.append((f"SPDXRef-{name}", "DEPENDS_ON", f"SPDXRef-{of}"))
    tar = next(pathlib.Path(folder).glob("cairn-*.tar.gz"))
    packages.append(entry("SPDXRef-tar", "cairn-tar", version, licenseDeclared="Apache-2.0", packageFileName=tar.name,
                          checksums=digest(tar)))
    relations.append(("SPDXRef-DOCUMENT", "DESCRIBES", "SPDXRef-tar"))
    for line in pathlib.Path(libraries).read_text().splitlines():
        of, needed_version = line.split()
        needed[of] = needed_version
        relations.append(("SPDXRef-tar", "CONTAINS", f"SPDXRef-{of}"))
    packages += [entry(f"SPDXRef-{name}", name, found, licenseDeclared="NOASSERTION") for name, found in sorted(needed.items())]
    seed = hashlib.sha256("".join(sorted(p["checksums"][0]["checksumValue"] for p in packages if "checksums" in p)).encode())
    print(json.dumps({
        "spdxVersion": "SPDX-2.3", "dataLicense": "CC0-1.0", "SPDXID": "SPDXRef-DOCUMENT", "name": f"cairn-{version}",
        "documentNamespace": f"urn:cairn:{version}:{seed.hexdigest()[:32]}",
        "creationInfo": {"created": made.strftime("%Y-%m-%dT%H:%M:%SZ"), "creators": ["Organization: The Cairn authors"]},
        "packages": packages,
        "relationships": [{"spdxElementId": a, "relationshipType": b, "relatedSpdxElement": c} for a, b, c in relations]},
        indent=1))


if __name__ == "__main__":
    main(*sys.argv[1:])
