# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0
"""
What the references of a schema refer to. Nothing outside of the schema is ever fetched.

Servers compose schemas of others, and then references point to where a definition stood before: into the `$defs` of
what is now a property, to `definitions` that are called `$defs` now, or to nowhere.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final
from urllib.parse import quote, unquote, urljoin, urlsplit

from haystack_integrations.tools.mcp.convert.schema_texts import SCHEMAS_BY_NAME, SUBSCHEMAS

Path = tuple[str, ...]

# Keywords by which a schema is named for references. References by name are replaced with pointers, and then a name
# would only change what a pointer in its schema is relative to.
IDENTIFIERS: Final = frozenset(
    "$id $anchor $dynamicAnchor $dynamicRef $recursiveAnchor $recursiveRef $vocabulary".split()
)

# Where definitions are looked for by their names alone; OpenAPI has them under `components.schemas`.
_DEFINITIONS: Final = ("$defs", "definitions", "schemas")
_OF_ROOT: Final = frozenset({"$defs", "definitions"})
# Keywords whose values are data, even if they look like schemas.
_DATA: Final = frozenset({"default", "const", "enum", "examples", "example"})
_SCHEMA: Final = (dict, bool)


def pointer(path: Iterable[str]) -> str:
    """
    Write a JSON pointer for a message.

    :param path: The keys and positions, from the root.
    :returns: The pointer.
    """
    return "/".join(["#", *(part.replace("~", "~0").replace("/", "~1") for part in path)])


def reference_to(path: Iterable[str]) -> str:
    """
    Write a reference to a place in the same schema.

    :param path: The keys and positions, from the root.
    :returns: The reference: a JSON pointer as a URI fragment.
    """
    return quote(pointer(path), safe="#/~!$&'()*+,;=:@?", errors="surrogatepass")


def segments(ref: str) -> Path:
    """
    Read a JSON pointer in a URI fragment.

    :param ref: A reference.
    :returns: The keys and positions from the root; none if it is something else, or the root itself.
    """
    if not ref.startswith("#/"):
        return ()
    parts = (unquote(part, errors="surrogatepass") for part in ref.split("/")[1:])
    return tuple(part.replace("~1", "/").replace("~0", "~") for part in parts)


def subschemas(schema: Any) -> Iterator[tuple[Path, Any]]:
    """
    Find the schemas that stand directly in another.

    :param schema: The schema.
    :returns: Each with its place in the other.
    """
    if not isinstance(schema, dict):
        return
    for key, value in schema.items():
        if key in SCHEMAS_BY_NAME and isinstance(value, dict):
            yield from (((key, name), each) for name, each in value.items())
        elif key in SUBSCHEMAS and isinstance(value, list):
            yield from (((key, str(index)), each) for index, each in enumerate(value))
        elif key in SUBSCHEMAS:
            yield (key,), value


def all_subschemas(schema: dict[str, Any]) -> list[dict[str, Any]]:
    """
    Find all schemas in a schema, itself included, each object once.

    :param schema: The schema.
    :returns: Those that are objects, parents first.
    """
    found = {id(schema): schema}
    waiting = [schema]
    while waiting:
        for _, each in subschemas(waiting.pop()):
            if isinstance(each, dict) and id(each) not in found:
                found[id(each)] = each
                waiting.append(each)
    return list(found.values())


def schema_at(root: Any, path: Path) -> Any:
    """
    Follow a JSON pointer from schema to schema.

    :param root: The schema at the root.
    :param path: The pointer.
    :returns: The schema there; None if there is none, or none where JSON Schema has one.
    """
    node = root
    rest = path
    while rest:
        key, rest = rest[0], rest[1:]
        inner = node.get(key) if isinstance(node, dict) else None
        if key in SUBSCHEMAS and isinstance(inner, _SCHEMA):
            node = inner
            continue
        if not rest or key not in SCHEMAS_BY_NAME | SUBSCHEMAS:
            return None
        node, rest = _member(inner, rest[0]), rest[1:]
    return node if isinstance(node, _SCHEMA) else None


def _member(value: Any, key: str) -> Any:
    if isinstance(value, list) and key.isdecimal() and key.isascii() and int(key) < len(value):
        return value[int(key)]
    return value.get(key) if isinstance(value, dict) else None


class References:
    """
    Finds what references in a schema refer to.
    """

    def __init__(self, schema: dict[str, Any]) -> None:
        """
        Initialize the References.

        :param schema: The whole schema. Its places are noted, so it may be taken apart afterwards.
        """
        self._places: dict[Path, Any] = {}
        self._paths: dict[int, Path] = {}
        self._named: dict[str, Any] = {}
        self._anchors: dict[str, Any] = {}
        self._identified: dict[str, Path] = {}
        self._resources: set[Path] = set()
        self.schema: dict[str, Any] = schema
        self._base = schema["$id"] if isinstance(schema.get("$id"), str) else ""
        self._note((), schema)

    def _note(self, path: Path, value: Any) -> None:
        self._places[path] = value
        self._paths.setdefault(id(value), path)
        if path and path[-2:-1] and path[-2] in _DEFINITIONS and isinstance(value, _SCHEMA):
            self._named.setdefault(path[-1], value)
        if isinstance(value, list):
            for index, each in enumerate(value):
                self._note((*path, str(index)), each)
        if not isinstance(value, dict):
            return
        for key in ("$anchor", "$dynamicAnchor"):
            if isinstance(name := value.get(key), str):
                self._anchors.setdefault(name, value)
        if isinstance(name := value.get("$id"), str):
            self._identified.setdefault(self._absolute(name), path)
            self._resources.add(path)
        for key, each in value.items():
            if key not in _DATA:
                self._note((*path, key), each)

    def _absolute(self, ref: str) -> str:
        try:
            return urljoin(self._base, ref).removesuffix("#")
        except ValueError:
            return ref

    def place_of(self, found: Any) -> Path:
        """
        Tell where something stands that was found.

        :param found: A part of the schema.
        :returns: Its keys and positions, from the root.
        """
        return self._paths[id(found)]

    def is_embedded(self, holder: Any) -> bool:
        """
        Tell whether the references in a schema are relative to another one around it than that at the root.

        :param holder: The schema.
        :returns: Whether they are.
        """
        return self._resource_of(holder) != ()

    def _resource_of(self, holder: Any) -> Path:
        return next((path for path in self._around(holder) if path in self._resources), ())

    def _around(self, holder: Any) -> list[Path]:
        here = self._paths.get(id(holder), ())
        return [here[:length] for length in range(len(here), 0, -1)]

    def find(self, ref: str, holder: Any) -> Any:
        """
        Find the target of a reference.

        :param ref: The reference.
        :param holder: The schema that has it.
        :returns: The schema that is meant; None if it stands nowhere.
        """
        base, _, fragment = ref.partition("#")
        homes: list[Path] = []
        if base and (identified := self._identified.get(self._absolute(base))) is not None:
            homes, base = [identified], ""
        elif not base:
            # Of a schema that stood alone once, the pointers are relative to one of those around them.
            homes = [self._resource_of(holder), (), *self._around(holder)]
        if not base:
            for home in homes:
                for path in dict.fromkeys((segments(f"#{fragment}"), tuple(fragment.split("/")[1:]))):
                    if fragment[:1] in ("", "/") and isinstance(found := self._places.get((*home, *path)), _SCHEMA):
                        return found
            if fragment in self._anchors:
                return self._anchors[fragment]
        elif _names_a_host(base):
            return None
        return next((self._named[name] for name in _names(base, fragment) if name in self._named), None)


def _names_a_host(base: str) -> bool:
    try:
        return bool(urlsplit(base).netloc)
    except ValueError:
        return True


def _names(base: str, fragment: str) -> Iterator[str]:
    # Names of generic types contain slashes, brackets and percent signs, which not everybody escapes.
    for _, mark, name in (fragment.partition(f"/{each}/") for each in _DEFINITIONS):
        if mark:
            yield from (name, *segments(f"#/{name}")[-1:])
    name = (fragment or base).removeprefix("/")
    if "/" not in name:
        yield from (*segments(f"#/{name}"), name.removesuffix(".json"))


def mend_references(root: dict[str, Any], references: References, translate: Callable[[Path, Any], Any]) -> list[str]:
    """
    Make every reference of a schema one that can be followed from its root.

    What it refers to is moved to `$defs` if it stands where JSON Schema has no schema, or among the definitions of a
    part of the schema, which not all clients look at. A reference to nowhere, or only
    to itself, is removed: its place accepts anything.

    :param root: The schema, which is changed.
    :param references: Finds what is meant.
    :param translate: Makes a valid schema of what stands where no schema is, for a new place.
    :returns: The references that were removed because what they refer to is missing.
    """
    missing: list[str] = []
    moved: dict[int, str] = {}
    seen: set[int] = set()
    while holders := [each for each in all_subschemas(root) if "$ref" in each and id(each) not in seen]:
        for holder in holders:
            seen.add(id(holder))
            ref = holder["$ref"]
            is_valid = ref == "#" or (_is_usual(segments(ref)) and schema_at(root, segments(ref)) is not None)
            if is_valid and not references.is_embedded(holder):
                continue
            target = references.find(ref, holder)
            if target is None:
                del holder["$ref"]
                missing.append(ref)
            elif target is references.schema:
                holder["$ref"] = "#"
            else:
                if id(target) not in moved:
                    place = references.place_of(target)
                    was_schema = schema_at(references.schema, place) is target
                    if not _is_usual(place) or schema_at(root, place) is not target:
                        place = _free_place(root.setdefault("$defs", {}), ref)
                        root["$defs"][place[-1]] = target if was_schema else translate(place, target)
                    moved[id(target)] = reference_to(place)
                holder["$ref"] = moved[id(target)]
    for holder in all_subschemas(root):
        _break_circle(root, holder)
        if holder is not root:  # nothing refers to these any more
            for key in _OF_ROOT.intersection(holder):
                del holder[key]
    return list(dict.fromkeys(missing))


def _is_usual(place: Path) -> bool:
    return bool(place) and _OF_ROOT.isdisjoint(place[1:])


def _free_place(definitions: dict[str, Any], ref: str) -> Path:
    name = (segments(ref) or ("definition",))[-1]
    while name in definitions:
        name += "_"
    return "$defs", name


def _break_circle(root: dict[str, Any], holder: dict[str, Any]) -> None:
    passed = {id(holder)}
    target: Any = holder
    while isinstance(target, dict) and "$ref" in target:
        target = schema_at(root, segments(target["$ref"]))
        if id(target) in passed:
            del holder["$ref"]
            return
        passed.add(id(target))
