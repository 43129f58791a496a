#!/usr/bin/env python3
"""schemas.py FOLDER FILE...: are the objects in these files what the published OpenAPI documents in FOLDER describe?

FOLDER is api/openapi-spec/v3 of a release of Kubernetes; each FILE holds JSON objects one after another (a List counts as its items).
Fields that the release does not know are errors, as are missing ones, other types than described, values beside an enumeration, and
keys that stand twice. Nothing of a schema is passed over in silence: a keyword that is not known here ends the program.
"""
import json
import re
import sys
from pathlib import Path

SAYS_NOTHING = {"description", "default", "x-kubernetes-group-version-kind", "x-kubernetes-patch-merge-key", "x-kubernetes-patch-strategy",
                "x-kubernetes-list-type", "x-kubernetes-list-map-keys", "x-kubernetes-map-type", "x-kubernetes-unions"}
KNOWN = {"$ref", "allOf", "oneOf", "type", "format", "enum", "properties", "required", "items", "additionalProperties"}
TYPES = {"object": dict, "array": list, "string": str, "boolean": bool, "integer": int, "number": (int, float)}
RANGES = {"int32": 2**31, "int64": 2**63}
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)")


def problems(schema, value, at, schemas):
    """Sentences about what is wrong with a value."""
    unknown = schema.keys() - KNOWN - SAYS_NOTHING
    if unknown:
        sys.exit(f"schemas.py does not know what {sorted(unknown)} at {at} asks for")
    if "$ref" in schema:
        yield from problems(schemas[schema["$ref"].rsplit("/", 1)[1]], value, at, schemas)
    for part in schema.get("allOf", []):
        yield from problems(part, value, at, schemas)
    if "oneOf" in schema and sum(not any(problems(part, value, at, schemas)) for part in schema["oneOf"]) != 1:
        yield f"{at}: expected one of {', '.join(part.get('type', '?') for part in schema['oneOf'])}, not {value!r}"
    kind = schema.get("type")
    # A truth value is a number in Python, and in no other sense.
    if kind and (not isinstance(value, TYPES[kind]) or (isinstance(value, bool) and kind != "boolean")):
        yield f"{at}: expected {'an' if kind[0] in 'aio' else 'a'} {kind}, not {value!r}"
        return
    if "enum" in schema and value not in schema["enum"]:
        yield f"{at}: expected one of {schema['enum']}, not {value!r}"
    form = schema.get("format")
    if form in RANGES and not -RANGES[form] <= value < RANGES[form]:
        yield f"{at}: {value} is beyond {form}"
    if form == "date-time" and not TIME.fullmatch(value):
        yield f"{at}: {value!r} is no time"
    if kind == "array":
        for number, item in enumerate(value):
            yield from problems(schema["items"], item, f"{at}[{number}]", schemas)
    if kind == "object":
        fields, others = schema.get("properties", {}), schema.get("additionalProperties")
        for name in schema.get("required", []):
            if name not in value:
                yield f"{at}.{name}: is missing"
        for name, field in value.items():
            if name in fields:
                yield from problems(fields[name], field, f"{at}.{name}", schemas)
            elif isinstance(others, dict):
                yield from problems(others, field, f"{at}.{name}", schemas)
            # An object without any description may hold everything.
            elif others is not True and ("properties" in schema or "x-kubernetes-group-version-kind" in schema):
                yield f"{at}.{name}: this version knows no such field"


def once(pairs):
    """A JSON object whose keys stand once."""
    names = [name for name, _ in pairs]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        sys.exit(f"keys that stand twice: {twice}")
    return dict(pairs)


def objects(path):
    """The objects of a file."""
    decoder, text, at = json.JSONDecoder(object_pairs_hook=once), Path(path).read_text(), 0
    while text[at:].strip():
        value, at = decoder.raw_decode(text, at + len(text[at:]) - len(text[at:].lstrip()))
        yield from value["items"] if value.get("kind") == "List" else [value]


def of_kind(folder, value):
    """The schema of an object with all that it refers to; none where there is none."""
    version, kind = value.get("apiVersion", ""), value.get("kind", "")
    group, _, number = version.rpartition("/")
    path = folder / (f"apis__{group}__{number}_openapi.json" if group else f"api__{number}_openapi.json")
    schemas = json.loads(path.read_text())["components"]["schemas"] if path.exists() else {}
    meant = {"group": group, "kind": kind, "version": number}
    return next((s for s in schemas.values() if meant in s.get("x-kubernetes-group-version-kind", [])), None), schemas


def main(folder, *files):
    failed, checked = False, 0
    for file in files:
        for value in objects(file):
            checked += 1
            schema, schemas = of_kind(folder, value)
            what = f"{value.get('apiVersion')} {value.get('kind')}"
            name = f"{folder.name}: {Path(file).name}: {value.get('kind')} {value.get('metadata', {}).get('name')}"
            wrong = [f"this version knows no {what}"] if schema is None else problems(schema, value, "", schemas)
            for problem in wrong:
                print(f"{name}: {problem.lstrip('.')}")
                failed = True
    if not checked:
        sys.exit("there is nothing to check")
    if not failed:
        print(f"  {folder.name}: {checked} objects, nothing that it does not know")
    return failed


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), *sys.argv[2:]))
