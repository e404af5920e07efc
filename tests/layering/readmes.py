"""Every box has a README.md, and what the READMEs link to exists."""

import re

import repository

BOXES = ("proto", "common", "kernels", "engine", "kvtransfer", "worker", "prefill", "decode",
         "router", "cli", "models", "tests")
LINK = re.compile(r"\]\(([^)#]+)(?:#[^)]*)?\)")

problems = [f"{box}/README.md is missing" for box in BOXES
            if not (repository.root() / box / "README.md").is_file()]
folders = (*repository.CODE_FOLDERS, "models", "deploy", "README.md", "CONTRIBUTING.md")
readmes = repository.source_files((".md",), folders)
for readme in readmes:
    for target in LINK.findall((repository.root() / readme).read_text()):
        if "://" not in target and not (repository.root() / readme.parent / target).exists():
            problems.append(f"{readme}: link to {target}, which does not exist")
repository.finish(problems, len(readmes), "READMEs")
