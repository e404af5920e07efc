"""mutate.py SOURCE COPY (FIND REPLACE)...: a copy of a source with a fault put in. Each FIND must be
there exactly once, so that the fault cannot get lost when the source changes."""

import pathlib
import sys

source, copy, *changes = sys.argv[1:]
text = pathlib.Path(source).read_text()
for find, replace in zip(changes[::2], changes[1::2], strict=True):
    if text.count(find) != 1:
        sys.exit(f"{source}: {find!r} is there {text.count(find)} times, expected once")
    text = text.replace(find, replace)
pathlib.Path(copy).parent.mkdir(parents=True, exist_ok=True)
pathlib.Path(copy).write_text(text)
