# SPDX-License-Identifier: Apache-2.0
"""Is an answer what api/openapi.yaml says of its route? Stricter than OpenAPI in one thing: where a
schema lists members and does not speak of others, a member that it does not list is an error."""
import json
import pathlib
import re

try:
    import yaml
except ImportError:
    yaml = None

PAGE = pathlib.Path(__file__).resolve().parents[2] / "api" / "openapi.yaml"
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)")
TYPES = {"object": dict, "array": list, "string": str, "boolean": bool, "integer": int,
         "number": (int, float), "null": type(None)}


class Page:
    def __init__(self):
        self.page = yaml.load(PAGE.read_text(), getattr(yaml, "CSafeLoader", yaml.SafeLoader))
        self.routes = [(re.compile(re.sub(r"\{[^}]*\}", "[^/]+", path)), item)
                       for path, item in self.page["paths"].items()]
        self.seen = set()  # (operationId, status)

    def resolve(self, node):
        while "$ref" in node:
            target = self.page
            for part in node["$ref"].removeprefix("#/").split("/"):
                target = target[part]
            node = target
        return node

    def is_type(self, name, value):
        if isinstance(value, bool):
            return name == "boolean"
        return isinstance(value, TYPES[name])

    def wrong(self, schema, value, at):
        """What is wrong with the value, or None."""
        schema = self.resolve(schema)
        for part in schema.get("allOf", []):
            if said := self.wrong(part, value, at):
                return said
        for options in (schema.get("oneOf"), schema.get("anyOf")):
            said = [self.wrong(option, value, at) for option in options or []]
            if said and all(said):
                return f"{at}: none of: {'; '.join(said)}"
        types = schema.get("type", [])
        types = types if isinstance(types, list) else [types]
        if types and not any(self.is_type(name, value) for name in types):
            return f"{at}: {json.dumps(value)[:100]} is no {types}"
        if value not in schema.get("enum", [value]) or value != schema.get("const", value):
            return f"{at}: {value} is not among {schema}"
        if isinstance(value, str) and not re.search(schema.get("pattern", ""), value):
            return f"{at}: {value} is not like {schema['pattern']}"
        if isinstance(value, str) and schema.get("format") == "date-time" and not TIME.fullmatch(value):
            return f"{at}: {value} is no time"
        if isinstance(value, list) and "items" in schema:
            return next(filter(None, (self.wrong(schema["items"], item, f"{at}/{i}")
                                      for i, item in enumerate(value))), None)
        return self.wrong_members(schema, value, at) if isinstance(value, dict) else None

    def wrong_members(self, schema, value, at):
        listed, others = schema.get("properties", {}), schema.get("additionalProperties")
        if missing := set(schema.get("required", [])) - value.keys():
            return f"{at}: without {sorted(missing)}"
        for name, member in value.items():
            if name in listed or isinstance(others, dict):
                if said := self.wrong(listed.get(name, others), member, f"{at}/{name}"):
                    return said
            elif listed and not others:
                return f"{at}/{name} is not described"
        return None

    def check(self, method, path, status, body):
        path = path.split("?")[0]
        item = max((item for route, item in self.routes if route.fullmatch(path)),
                   key=lambda item: method.lower() in item)
        operation = item[method.lower()]
        answers = operation["responses"]
        answer = self.resolve(answers.get(str(status)) or answers["default"])
        content = answer["content"]
        schema = (content.get("application/json") or content["application/problem+json"])["schema"]
        said = self.wrong(schema, body, f"{method} {path}: {status}: ")
        assert not said, said
        self.seen.add((operation["operationId"], status))
