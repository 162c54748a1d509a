# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Values of Haystack as JSON.

* Documents and ChatMessages have the form of `Document.to_dict(flatten=False)` and `ChatMessage.to_dict()`, from which
  `from_dict` makes them again. Embeddings and binary data are left out, unless they were asked for.
* A ByteStream is an object with `mime_type`, `meta` and `size`, and with `data` in base64 if that was asked for.
* Pydantic models have the fields of their JSON schema, by their aliases if it says `serialize_by_alias`.
* Enum members are their values, paths, UUIDs and dates texts, sets lists. Numbers that JSON has not (NaN, infinity) are
  null, and so are Secrets. Half a surrogate pair, which is no text, is the replacement character.
"""

from __future__ import annotations

import dataclasses
import re
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date, time, timedelta
from decimal import Decimal
from enum import Enum
from math import isfinite
from typing import Any
from uuid import UUID

from haystack.dataclasses import ByteStream, ChatMessage, Document, FileContent, ImageContent
from haystack.utils import Secret
from pydantic import BaseModel
from pydantic_core import to_jsonable_python

from haystack_integrations.tools.mcp.serving.model_fields import fields_of, writes_itself
from haystack_integrations.tools.mcp.serving.options import ServeOptions

# Of these, nobody could read a part.
_UNCUT = (UUID, date, time, timedelta)
_EMBEDDINGS = ("embedding", "sparse_embedding")


@dataclass
class JsonWriter:
    """
    Turns values into JSON, within the limits of the options.

    :param options: What to leave out.
    :param whole: Texts that are never cut, because the output schema allows no others where they are.
    :param notes: What was left out because of a limit, for the client.
    """

    options: ServeOptions
    whole: frozenset[str] = frozenset()
    notes: list[str] = field(default_factory=list)
    _cut_texts: int = 0

    def write(self, value: Any) -> Any:
        """
        Turn a value into JSON.

        :param value: Any value.
        :returns: What `json.dumps` takes: dictionaries, lists, texts, numbers, booleans and None.
        """
        written = self._json(value)
        if self._cut_texts:
            self.notes.append(
                f"{self._cut_texts} text(s) are cut to {self.options.max_characters} characters, marked with '...'."
            )
            self._cut_texts = 0
        return written

    def _json(self, value: Any, declared: Any = Any) -> Any:
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, Enum):
            # A value of an Enum is one of a few: a part of it is none of them.
            return well_formed(value.value) if isinstance(value.value, str) else self._json(value.value)
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, int):
            return int(value)
        if isinstance(value, float):
            return float(value) if isfinite(value) else None
        if isinstance(value, Mapping):
            return {_key(key): self._json(each, declared) for key, each in value.items()}
        if isinstance(value, list | tuple | set | frozenset):
            return self._list(list(value), declared)
        if isinstance(value, bytes | bytearray | memoryview):
            return b64encode(value).decode()
        return self._object(value, declared)

    def text(self, text: str) -> str:
        """
        Cut a text, if it is too long. What was cut is counted for `notes` at the end of `write`.

        :param text: The text.
        :returns: The text, or its beginning.
        """
        text = well_formed(text)
        limit = self.options.max_characters
        if limit is None or len(text) <= limit or text in self.whole:
            return text
        self._cut_texts += 1
        return f"{text[:limit]}..."

    def _list(self, values: list[Any], declared: Any) -> list[Any]:
        limit = self.options.max_documents
        if limit is not None and len(values) > limit and all(isinstance(each, Document) for each in values):
            self.notes.append(f"{limit} of {len(values)} documents are returned.")
            values = values[:limit]
        return [self._json(each, declared) for each in values]

    def _object(self, value: Any, declared: Any) -> Any:
        if isinstance(value, Document):
            return self._document(value)
        if isinstance(value, ChatMessage):
            return self._message(value)
        if isinstance(value, ByteStream):
            return self._byte_stream(value)
        if isinstance(value, ImageContent | FileContent):
            return self._media(value.to_dict())
        if isinstance(value, Secret):
            return None
        if isinstance(value, BaseModel):
            return self._model(value, declared)
        if isinstance(value, Decimal):
            return str(value) if value.is_finite() else None
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            return self._fields(value, declared)
        for conversion in ("tolist", "to_dict"):  # of arrays and numbers of NumPy and its kin; of Haystack's classes
            convert = getattr(value, conversion, None)
            if callable(convert) and not isinstance(value, type):
                return self._json(convert())
        written = to_jsonable_python(value, bytes_mode="base64", fallback=_shown)
        return self.text(written) if isinstance(written, str) and not isinstance(value, _UNCUT) else written

    def _model(self, model: Any, declared: Any) -> Any:
        if isinstance(model, BaseModel) and writes_itself(model):
            return self._json(model.model_dump(mode="json"))
        written: dict[str, Any] = {}
        for name, value, field_type in fields_of(model, declared):
            if name is None:
                return self._json(value, field_type)
            written[_key(name)] = self._json(value, field_type)
        return written

    def _fields(self, value: Any, declared: Any) -> dict[str, Any]:
        if hasattr(value, "__pydantic_fields__"):
            written: dict[str, Any] = self._model(value, declared)
            return written
        return {each.name: self._json(getattr(value, each.name)) for each in dataclasses.fields(value)}

    def _document(self, document: Document) -> dict[str, Any]:
        left_out: set[str] = set()
        if not self.options.include_embeddings:
            left_out.update(_EMBEDDINGS)
        if not self.options.include_blobs:
            left_out.add("blob")
        # The id whole, however long: it is what the document is found by.
        return {
            each.name: well_formed(document.id) if each.name == "id" else self._json(getattr(document, each.name))
            for each in dataclasses.fields(document)
            if each.name not in left_out
        }

    def _message(self, message: ChatMessage) -> dict[str, Any]:
        written = message.to_dict()
        for part in written["content"]:
            part.update({kind: self._media(part[kind]) for kind in ("image", "file") if kind in part})
        as_json: dict[str, Any] = self._json(written)
        return as_json

    def _media(self, fields: dict[str, Any]) -> dict[str, Any]:
        data = {name: each for name, each in fields.items() if name.startswith("base64_")}
        described = self._json({name: each for name, each in fields.items() if name not in data})
        return {**described, **data} if self.options.include_blobs else described

    def _byte_stream(self, stream: ByteStream) -> dict[str, Any]:
        written = {"mime_type": stream.mime_type, "meta": self._json(stream.meta), "size": len(stream.data)}
        return {**written, "data": b64encode(stream.data).decode()} if self.options.include_blobs else written


def well_formed(text: str) -> str:
    """
    Make a text that can be sent of one that may have halves of surrogate pairs: models write them, one chunk each.

    :param text: The text.
    :returns: The text with whole pairs joined, and with U+FFFD for each other half.
    """
    text = str(text)
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


# An escape in JSON: a pair of surrogates, half of one, or anything else.
_ESCAPE = re.compile(
    rb"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(u[dD][89a-fA-F][0-9a-fA-F]{2})|.)", re.DOTALL
)


def well_formed_json(text: bytes) -> bytes:
    """
    Make JSON that every parser reads of JSON that may have halves of surrogate pairs, which some clients send.

    :param text: The JSON, or anything else.
    :returns: It, as long, with U+FFFD for each half.
    """
    if b"\\ud" not in text and b"\\uD" not in text:
        return text
    return _ESCAPE.sub(lambda escape: rb"\ufffd" if escape[1] else escape[0], text)


def _key(key: Any) -> str:
    if isinstance(key, Enum):
        key = key.value
    return well_formed(key if isinstance(key, str) else str(key))


def _shown(value: Any) -> str:
    # Not the default form, which has an address in memory and helps nobody.
    kind: Any = type(value)
    is_default = kind.__str__ is object.__str__ and kind.__repr__ is object.__repr__
    return f"<{kind.__name__}>" if is_default else str(value)
