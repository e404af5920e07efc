"""The numbered steps [PD-n] of the README are exactly those tagged in the code."""

import re

import repository

TAG = re.compile(r"\[PD-(\d+)\]")
sources = [f for f in repository.source_files((".h", ".cc")) if f.parts[0] != "tests"]
in_code: dict[int, list[str]] = {}
for file in sources:
    for tag in TAG.findall((repository.root() / file).read_text()):
        in_code.setdefault(int(tag), []).append(file.as_posix())
in_readme = {int(tag) for tag in TAG.findall((repository.root() / "README.md").read_text())}

problems = [f"[PD-{n}] stands in README.md but tags no code" for n in sorted(in_readme - set(in_code))]
problems += [f"[PD-{n}] tags {in_code[n][0]} but is not in README.md"
             for n in sorted(set(in_code) - in_readme)]
repository.finish(problems, len(in_readme), "steps")
