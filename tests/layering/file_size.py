"""Files stay small: 500 lines for sources, 1000 for tests, 120 for README contracts."""

import repository

SOURCE_LIMIT, TEST_LIMIT, README_LIMIT = 500, 1000, 120

problems = []
files = repository.source_files()
for file in files:
    limit = TEST_LIMIT if file.parts[0] == "tests" else SOURCE_LIMIT
    lines = len((repository.root() / file).read_text().splitlines())
    if lines > limit:
        problems.append(f"{file}: {lines} lines, at most {limit}")
for readme in repository.source_files((".md",)):
    lines = len((repository.root() / readme).read_text().splitlines())
    if readme.name == "README.md" and lines > README_LIMIT:
        problems.append(f"{readme}: {lines} lines, at most {README_LIMIT}")
repository.finish(problems, len(files), "files")
