"""`tokenize` in plain Python, for a tokenizer of whole words."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from .dtypes import PlanError, RecordError, Type, Value, array

WORDS = ["[UNK]", "[BEGIN]", "[END]", "a", "b", "c", "abc", "x", "y", "z", "\u00e9", "text", "yx"]
NAME = "words.json"


def write(directory: Path) -> str:
    """Writes the file of the tokenizer; its path relative to the directory."""
    special = {token: {"id": token, "ids": [WORDS.index(token)], "tokens": [token]} for token in WORDS[1:3]}
    pieces = [
        {"SpecialToken": {"id": "[BEGIN]", "type_id": 0}},
        {"Sequence": {"id": "A", "type_id": 0}},
        {"SpecialToken": {"id": "[END]", "type_id": 0}},
    ]
    description = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [],
        "normalizer": None,
        "pre_tokenizer": {"type": "CharDelimiterSplit", "delimiter": " "},
        "post_processor": {
            "type": "TemplateProcessing",
            "single": pieces,
            "pair": [*pieces, {"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": special,
        },
        "decoder": None,
        "model": {
            "type": "WordLevel",
            "vocab": {word: i for i, word in enumerate(WORDS)},
            "unk_token": "[UNK]",
        },
    }
    (directory / NAME).write_text(json.dumps(description))
    return NAME


def tokenize(attrs: dict, types: dict[str, Type]):
    """The new type, and a function of a value."""
    if types[attrs["component"]].dtype != "bytes":
        raise PlanError("tokenize: no text")
    truncation = attrs["truncation"]
    limit = truncation[0] if isinstance(truncation, list) and truncation else truncation

    def apply(value: Value, _draw) -> Value:
        try:
            text = bytes(value.data).decode()
        except UnicodeDecodeError as error:
            raise RecordError("tokenize: no UTF-8") from error
        special = attrs["add_special_tokens"]
        ids = [WORDS.index(word) if word in WORDS else 0 for word in text.split(" ") if word]
        if limit:
            ids = ids[: limit - 2 * special]
        return array("int32", np.array([1, *ids, 2] if special else ids, np.int32))

    return Type("int32", (None,)), apply
