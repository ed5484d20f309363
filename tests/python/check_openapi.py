# SPDX-License-Identifier: Apache-2.0
"""api/openapi.yaml and api/routes.def say the same; the document is valid OpenAPI 3.1.

  check_openapi.py PRINT_ROUTES OPENAPI_YAML      exits with 77 when python3-yaml is missing
"""
import subprocess
import sys

try:
    import yaml
except ImportError:
    print("skipped: python3-yaml is not installed")
    sys.exit(77)

METHODS = {"get", "put", "post", "delete", "head", "patch", "options", "trace"}


def unique_keys(loader, node):
    keys = [loader.construct_object(key) for key, _ in node.value]
    assert len(keys) == len(set(keys)), f"a key twice in {sorted(map(str, keys))}{node.start_mark}"
    return yaml.SafeLoader.construct_mapping(loader, node, deep=True)


def load(path):
    loader = type("Loader", (yaml.SafeLoader,), {})
    loader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, unique_keys)
    with open(path, encoding="utf-8") as file:
        return yaml.load(file, loader)


def resolve(document, node):
    while "$ref" in node:
        target = document
        for part in node["$ref"].removeprefix("#/").split("/"):
            target = target[part]
        node = target
    return node


def operations(document):
    for path, item in document["paths"].items():
        for method in METHODS & item.keys():
            yield method.upper(), path, item, item[method]


def check(document, routes, codes):
    problems = []
    listed = {(method, path): operation["operationId"] for method, path, _, operation in operations(document)}
    for key in routes.keys() | listed.keys():
        if routes.get(key) != listed.get(key):
            problems.append(f"{key}: {routes.get(key)} in routes.def, {listed.get(key)} in openapi.yaml")
    for method, path, item, operation in operations(document):
        parameters = [resolve(document, p) for p in item.get("parameters", []) + operation.get("parameters", [])]
        named = {p["name"] for p in parameters if p["in"] == "path"}
        wanted = {part[1:-1] for part in path.split("/") if part.startswith("{")}
        if named != wanted:
            problems.append(f"{method} {path}: describes {named}, takes {wanted}")
        if path.startswith("/v1") and "default" not in operation["responses"]:
            problems.append(f"{method} {path}: no problem response")
        if not operation.get("summary"):
            problems.append(f"{method} {path}: no summary")
    described = set(document["components"]["schemas"]["Code"]["enum"])
    if described != codes:
        problems.append(f"codes that differ: {sorted(described ^ codes)}")
    return problems


def main():
    text = subprocess.run([sys.argv[1]], check=True, capture_output=True, text=True).stdout
    rows = [line.split() for line in text.splitlines()]
    routes = {(row[1], row[2]): row[3] for row in rows if row[0] == "route"}
    codes = {row[1] for row in rows if row[0] == "code"}
    document = load(sys.argv[2])
    problems = check(document, routes, codes)
    try:
        from openapi_spec_validator import validate
    except ImportError:
        print("openapi_spec_validator is not installed: only compared with the route table")
    else:
        validate(document)
    for problem in problems:
        print(problem)
    print(f"{len(routes)} routes, {len(codes)} codes, {len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
