"""Reads the golden vectors (tests/golden) without third-party packages."""

import array
import dataclasses
import json
import pathlib
import struct


@dataclasses.dataclass(frozen=True)
class Case:
    name: str
    prompt: list[int]
    tokens: list[int]  # greedy continuation
    output: str        # its text
    found: bool        # the continuation answers the prompt's question


def load_cases(path: pathlib.Path) -> list[Case]:
    """Shortest prompt first."""
    content = path.read_bytes()
    (header_bytes,) = struct.unpack_from("<Q", content)
    header = json.loads(content[8:8 + header_bytes])

    def ids(tensor: str) -> list[int]:
        begin, end = header[tensor]["data_offsets"]
        return list(array.array("i", content[8 + header_bytes + begin:8 + header_bytes + end]))

    described = json.loads(header["__metadata__"]["cases"])
    cases = [Case(name, ids(f"{name}.ids"), ids(f"{name}.out"), case["output"],
                  case["found"] is True)
             for name, case in described.items()]
    return sorted(cases, key=lambda case: len(case.prompt))
