"""Diagrams of the documents parse: every line of a sequence diagram is one that Mermaid knows. A page shows an
error instead of a diagram in which one arrow is wrong."""

import re

import repository

BLOCK = re.compile(r"^```mermaid\n(.*?)^```$", re.M | re.S)
PARTICIPANT = re.compile(r"(?:participant|actor) (\w+)(?: as .+)?")
ARROW = r"(?:<<)?--?>>?|--?[x)]"
MESSAGE = re.compile(rf"(\w+?)(?:{ARROW})[+-]?(\w+): [^;#]+")
NOTE = re.compile(r"Note (?:over|left of|right of) (\w+)(?:,(\w+))?: [^;#]+")
OTHER = re.compile(r"(?:loop|alt|else|opt|par|and|critical|option|break|rect) .+|autonumber|end")


def check(block: str) -> list[str]:
    """The lines that Mermaid would not understand."""
    first, *lines = [line.strip() for line in block.splitlines()]
    if first != "sequenceDiagram":
        return [f"{first}: no sequenceDiagram, which is all that is checked"]
    known = {match[1] for line in lines if (match := PARTICIPANT.fullmatch(line))}
    wrong = []
    for line in lines:
        speakers = MESSAGE.fullmatch(line) or NOTE.fullmatch(line)
        if speakers:
            wrong += [f"{line}: no participant {name}" for name in speakers.groups() if name and name not in known]
        elif not (PARTICIPANT.fullmatch(line) or OTHER.fullmatch(line)):
            wrong.append(line)
    return wrong


assert check("sequenceDiagram\nparticipant A\nA==>>A: x\nA->>B: y") == ["A==>>A: x", "A->>B: y: no participant B"]
folders = (*repository.CODE_FOLDERS, "models", "deploy", "README.md", "CONTRIBUTING.md")
blocks = [(page, block) for page in repository.source_files((".md",), folders)
          for block in BLOCK.findall((repository.root() / page).read_text())]
repository.finish([f"{page}: {line}" for page, block in blocks for line in check(block)], len(blocks), "diagrams")
