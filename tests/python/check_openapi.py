# SPDX-License-Identifier: Apache-2.0
"""api/openapi.yaml says what api/routes.def and api/messages.def say; it is valid OpenAPI 3.1.

  check_openapi.py PRINT_API OPENAPI_YAML      exits with 77 when python3-yaml is missing
"""
import json
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


def shapes(document, schema):
    """The alternatives of a schema that are objects: (properties, required) each."""
    schema = resolve(document, schema)
    parts = [shapes(document, part) for part in schema.get("allOf", [])]
    if "oneOf" in schema or "anyOf" in schema:
        return [shape for option in schema.get("oneOf", schema.get("anyOf")) for shape in shapes(document, option)]
    properties, required = {}, set()
    for part in [*parts, [(schema.get("properties", {}), set(schema.get("required", [])))]]:
        for some, due in part:
            properties, required = {**properties, **some}, required | due
    return [(properties, required)] if properties else []


def options(document, schema):
    """The plain schemas that a value may fit, without null."""
    schema = resolve(document, schema)
    found = [option for part in schema.get("oneOf", schema.get("anyOf", [])) for option in options(document, part)]
    kinds = schema.get("type", [])
    kinds = [kinds] if isinstance(kinds, str) else kinds
    if not found and kinds != ["null"]:
        found = [{**schema, "type": [kind for kind in kinds if kind != "null"]}]
    return found


def takes_null(document, schema):
    schema = resolve(document, schema)
    kinds = schema.get("type", [])
    parts = schema.get("oneOf", schema.get("anyOf", []))
    return "null" in ([kinds] if isinstance(kinds, str) else kinds) or any(takes_null(document, part) for part in parts)


def compare_field(document, place, field, schema):
    for option in options(document, schema):
        kind = "string" if "enum" in option or "const" in option else (option["type"] or ["object"])[0]
        if kind != field["kind"]:
            yield f"{place}: {kind} in openapi.yaml, {field['kind']} in messages.def"
        for bound in ("maxLength", "maximum"):
            if bound in option and field["max"] and option[bound] != field["max"]:
                yield f"{place}: {bound} {option[bound]} in openapi.yaml, {field['max']} in messages.def"


def compare_form(document, forms, name, schema, seen):
    """A body, and what the server packs by its form, have exactly the fields of the form; of anything
    else the form may have fewer. seen: the schemas that a form was compared with."""
    form = forms[name]
    fields = form["fields"]
    must = {key for key, field in fields.items() if field["presence"] == "MUST"}
    if form["group"] == "WHOLE":  # written always; a reader may be told less by an older server
        must = {key for key, field in fields.items() if field["presence"] not in ("OMITS", "MAY")}
    found = [(some, due) for some, due in shapes(document, schema)
             if (fields.keys() == some.keys() if form["group"] in ("BODY", "WHOLE") else fields.keys() <= some.keys())]
    if not found:
        yield f"{name}: no schema of these fields: {sorted(fields)}"
    if form["group"] != "REPLY":  # which is what a program reads of it, not all of it
        seen.update(id(one) for properties, _ in found for one in properties.values())
    for properties, required in found:
        if form["group"] != "REPLY" and must != required & fields.keys():
            yield f"{name}: required {sorted(required)} in openapi.yaml, MUST {sorted(must)} in messages.def"
        if form["group"] == "REPLY" and not must <= required:
            yield f"{name}: {sorted(must - required)} is MUST in messages.def, not required in openapi.yaml"
        for key, field in fields.items():
            yield from compare_field(document, f"{name}.{key}", field, properties[key])
            if form["group"] in ("WHOLE", "BODY") and takes_null(document, properties[key]) != (field["presence"] == "NULLS"):
                yield f"{name}.{key}: is null in one of openapi.yaml and messages.def alone"
            if field["item"] != "none":
                inner = resolve(document, properties[key])
                yield from compare_form(document, forms, field["item"], inner.get("items", inner), seen)


def json_of(part):
    return part.get("content", {}).get("application/json", {}).get("schema")


def check_messages(document, forms):
    named = {operation["operationId"]: operation for _, _, _, operation in operations(document)}
    described, seen = set(), set()
    for name, form in forms.items():
        if form["group"] not in ("BODY", "REPLY", "WHOLE") or not form["text"]:
            continue
        operation = named.get(form["text"])
        if not operation:
            schemas = [document["components"]["schemas"][form["text"]]]
        elif form["group"] == "BODY":
            described.add(form["text"])
            schemas = [json_of(resolve(document, operation["requestBody"]))]
        else:
            answers = [resolve(document, answer) for status, answer in operation["responses"].items() if status[0] == "2"]
            schemas = [json_of(answer) for answer in answers if json_of(answer)]
        for schema in schemas:
            yield from compare_form(document, forms, name, schema, seen)
    for name, operation in named.items():
        if json_of(resolve(document, operation.get("requestBody", {}))) and name not in described:
            yield f"{name}: its body is no row of messages.def"
    for name, operation in named.items():
        for status, answer in operation["responses"].items():
            if status[0] == "2":
                yield from unwritten(document, f"{name} {status}", json_of(resolve(document, answer)), seen)


# api/wire/policy.c reads and writes policies; what a problem has beside `refusal` is the call's own.
DOCUMENTS = {"Policy", "Problem"}


def unwritten(document, place, schema, seen):
    """Objects of an answer that no WHOLE row of messages.def writes."""
    if not schema or schema.get("$ref", "").rpartition("/")[2] in DOCUMENTS:
        return
    schema = resolve(document, schema)
    for part in schema.get("oneOf", schema.get("anyOf", [])):
        yield from unwritten(document, place, part, seen)
    yield from unwritten(document, place, schema.get("items"), seen)
    properties = schema.get("properties", {})
    page = properties.keys() == {"items", "next_cursor"}
    if not page and any(id(one) not in seen for one in properties.values()):
        yield f"{place}: {sorted(properties)} is no WHOLE row of messages.def"
    for key, inner in properties.items():
        yield from unwritten(document, f"{place}.{key}", inner, seen)


def read_forms(rows):
    forms = {}
    for row in rows:
        if row[0] == "form":
            forms[row[1]] = {"group": row[2], "text": row[3] if len(row) > 3 else "", "fields": {}}
        if row[0] == "field":
            forms[row[1]]["fields"][row[2]] = {"presence": row[3], "kind": row[4], "max": int(row[5]), "item": row[6]}
    return forms


def statuses(document):
    """Generated clients give a type to what has a status of its own, so each error is listed by it."""
    problems = []
    for method, path, item, operation in operations(document):
        if not path.startswith("/v1") or method == "HEAD":
            continue
        wanted = {"400", "401", "403", "500", "503"}
        if "requestBody" in operation:
            wanted |= {"411", "413", "415"}
        if "{project}" in path:  # also what is there and may not be seen
            wanted.add("404")
        if missing := wanted - operation["responses"].keys():
            problems.append(f"{method} {path}: no response {sorted(missing)}")
    return problems


def stumbles(node, where):
    """What generators stumble over: arrays of nothing, members beside allOf, words of an answer that
    could never grow, ends of comments, a default beside $ref, numbers that are wider than clients take them."""
    problems = []
    if isinstance(node, list):
        return [p for i, one in enumerate(node) for p in stumbles(one, f"{where}/{i}")]
    if not isinstance(node, dict):
        return []
    if node.get("type") == "array" and "items" not in node:
        problems.append(f"{where}: an array without items")
    if "*/" in (node.get("description") or ""):
        problems.append(f"{where}: */ in a description ends the comment that Java and C make of it")
    if "allOf" in node and node.keys() - {"allOf", "description"}:
        problems.append(f"{where}: members beside allOf")
    if "$ref" in node and node.keys() - {"$ref", "description", "summary"}:
        problems.append(f"{where}: {sorted(node.keys() - {'$ref'})} beside $ref")
    kinds = node.get("type") if isinstance(node.get("type"), list) else [node.get("type")]
    if "integer" in kinds and node.get("maximum", 1 << 62) >= 1 << 31 and node.get("format") != "int64":
        problems.append(f"{where}: an integer of more than 31 bits without `format: int64`")
    if "number" in kinds and node.get("format") != "double":
        problems.append(f"{where}: a number without `format: double`")
    answer = "/schemas/" in where or "/responses/" in where
    asked = "/schemas/Begin/" in where
    if answer and not asked and "enum" in node:
        problems.append(f"{where}: a closed list of words; `x-extensible-enum` is one that may grow")
    return problems + [p for key, one in node.items() for p in stumbles(one, f"{where}/{key}")]


def objects(node, where):
    """Every schema of an object, with its place; parameters, which people type, are none."""
    if isinstance(node, list):
        for i, one in enumerate(node):
            yield from objects(one, f"{where}/{i}")
    elif isinstance(node, dict):
        if isinstance(node.get("properties"), dict):
            yield where, node["properties"]
        for key, one in node.items():
            if key != "parameters":
                yield from objects(one, f"{where}/{key}")


DURATION = r"^[0-9]+(\.[0-9]+)?(ms|s|min|h|d)$"  # of components/schemas/Duration


def misnamed(document):
    """Names and units of docs/http.md, "Names and units"."""
    for where, properties in objects(document, ""):
        for name, schema in properties.items():
            plain = options(document, schema)
            kinds = {kind for option in plain for kind in option["type"]}
            number, moment = kinds & {"integer", "number"}, any(o.get("format") == "date-time" for o in plain)
            words = set(name.split("_"))
            if number and words & {"bytes", "byte", "size", "memory", "rate"} and \
                    name != "world_size" and not (name == "bytes" or name.endswith(("_bytes", "_bytes_per_s"))):
                yield f"{where}/{name}: a size is bytes or *_bytes, a rate *_bytes_per_s"
            if moment != (name == "at" or name.endswith("_at")):
                yield f"{where}/{name}: a moment, and nothing else, is at or *_at"
            if name.endswith(("_ms", "_s")) and not kinds <= {"integer", "number", "object"}:
                yield f"{where}/{name}: a duration is a number"
            if any(o.get("pattern") == DURATION for o in plain):
                yield f"{where}/{name}: a duration as a text"
            if words & {"who", "user"} or name == "made_by":
                yield f"{where}/{name}: who did something is actor"
            if name == "run" and "string" in kinds and "project" not in properties:
                yield f"{where}/{name}: a run is project and run"


def check(document, routes, queries, codes):
    problems = []
    listed = {(method, path): operation["operationId"] for method, path, _, operation in operations(document)}
    for key in routes.keys() | listed.keys():
        if routes.get(key) != listed.get(key):
            problems.append(f"{key}: {routes.get(key)} in routes.def, {listed.get(key)} in openapi.yaml")
    for method, path, item, operation in operations(document):
        parameters = [resolve(document, p) for p in item.get("parameters", []) + operation.get("parameters", [])]
        named = {p["name"] for p in parameters if p["in"] == "path"}
        asked = {p["name"] for p in parameters if p["in"] == "query"}
        if asked != queries.get((method, path)):
            problems.append(f"{method} {path}: query {asked}, {queries.get((method, path))} in routes.def")
        wanted = {part[1:-1] for part in path.split("/") if part.startswith("{")}
        if named != wanted:
            problems.append(f"{method} {path}: describes {named}, takes {wanted}")
        if path.startswith("/v1") and "default" not in operation["responses"]:
            problems.append(f"{method} {path}: no problem response")
        if not operation.get("summary"):
            problems.append(f"{method} {path}: no summary")
    problems += statuses(document) + stumbles(document, "") + list(misnamed(document))
    described = set(document["components"]["schemas"]["Code"]["x-extensible-enum"])
    if described != codes:
        problems.append(f"codes that differ: {sorted(described ^ codes)}")
    return problems


def main():
    text = subprocess.run([sys.argv[1]], check=True, capture_output=True, text=True).stdout
    rows = [line.split() for line in text.splitlines()]
    routes = {(row[1], row[2]): row[3] for row in rows if row[0] == "route"}
    queries = {(row[1], row[2]): {name.strip(",") for name in row[4:]} for row in rows if row[0] == "route"}
    codes = {row[1] for row in rows if row[0] == "code"}
    document = load(sys.argv[2])
    served = subprocess.run(sys.argv[1:3], check=True, capture_output=True, text=True).stdout
    forms = read_forms(rows)
    problems = check(document, routes, queries, codes) + list(check_messages(document, forms))
    if json.loads(served) != document:
        problems.append("/openapi.json is another document")
    try:
        from openapi_spec_validator import validate
    except ImportError:
        print("openapi_spec_validator is not installed: only compared with the tables")
    else:
        validate(document)
    for problem in problems:
        print(problem)
    print(f"{len(routes)} routes, {len(codes)} codes, {len(forms)} messages, {len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
