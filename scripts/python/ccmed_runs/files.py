"""JSON files of a run folder, read with the file and line in every error."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

Object = dict[str, Any]


class ReadError(ValueError):
    """A folder or file cannot be read: one sentence with its place and the remedy."""


def read_object(path: Path, schema: int, remedy: str) -> Object:
    """Reads a file that holds one JSON object of at most this schema."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ReadError(f"{path} is not there; {remedy}") from None
    found = _object(text, str(path))
    version = found.get("schema")
    if not isinstance(version, int) or version > schema:
        raise ReadError(f"{path} has schema {version!r} and this version reads up to {schema}; use a newer ccmed_runs")
    return found


def read_lines(path: Path) -> Iterator[Object]:
    """Reads a JSON object a line. A last line without its end is left out: the run was killed while it wrote it."""
    with path.open(encoding="utf-8", newline="\n") as lines:
        for number, line in enumerate(lines, 1):
            if line.endswith("\n"):
                yield _object(line, f"{path}, line {number}")


def _object(text: str, place: str) -> Object:
    try:
        found = json.loads(text)
    except ValueError as error:
        raise ReadError(f"{place}: {error}; `ccmed runs verify` tells what is damaged") from error
    if not isinstance(found, dict):
        raise ReadError(f"{place}: no JSON object; `ccmed runs verify` tells what is damaged")
    return found
