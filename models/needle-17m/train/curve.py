"""The course of a training: a line on the terminal, a table and a drawing."""

import csv
import pathlib
import sys
import time

import torch

FIGURES = ("loss", "answer", "other", "mtp", "index", "recalled")
SHOW_SECONDS_TERMINAL, SHOW_SECONDS_FILE = 0.5, 10.0
WIDTH, HEIGHT, MARGIN = 640, 320, 40
COLOURS = {"answer": "#b33", "other": "#37a", "mtp": "#999"}


class Log:
    def __init__(self):
        self._rows: list[tuple[int, int, int, torch.Tensor]] = []  # step, phase, tokens so far, figures
        self._times: list[float] = []
        self._shown, self._shown_rows = time.monotonic(), 0

    def add(self, step: int, phase: int, tokens: int, figures: torch.Tensor) -> None:
        so_far = self._rows[-1][2] if self._rows else 0
        self._rows.append((step, phase, so_far + tokens, figures))
        self._times.append(time.monotonic())

    def time_of(self, step: int) -> float:
        return self._times[step]

    def show(self, title: str, done: int, steps: int | None) -> None:
        """Now and then; each time waits for the GPU."""
        on_terminal = sys.stderr.isatty()
        now = time.monotonic()
        if now - self._shown < (SHOW_SECONDS_TERMINAL if on_terminal else SHOW_SECONDS_FILE) and done != steps:
            return
        recent = len(self._rows) - self._shown_rows
        pace = 1000 * (now - self._shown) / recent
        self._shown, self._shown_rows = now, len(self._rows)
        filled = round(20 * done / steps) if steps else 0
        figures = "  ".join(f"{name} {value:.3f}" for name, value in zip(FIGURES, self._rows[-1][3].tolist()))
        line = f"{title} [{'#' * filled}{'.' * (20 - filled)}] {done}/{steps or '?'} {pace:.0f} ms a step  {figures}"
        print(line, end="\r" if on_terminal and done != steps else "\n", file=sys.stderr, flush=True)

    def write(self, folder: pathlib.Path) -> None:
        rows = [(step, phase, tokens, *figures.tolist()) for step, phase, tokens, figures in self._rows]
        with (folder / "curve.csv").open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(("step", "phase", "tokens", *FIGURES))
            writer.writerows([*row[:3], *(f"{value:.4f}" for value in row[3:])] for row in rows)
        (folder / "curve.svg").write_text(draw(rows))


def draw(rows: list[tuple]) -> str:
    """Losses in nats over millions of tokens, each point the mean of its neighbourhood."""
    tokens = [row[2] for row in rows]
    top = max(row[3 + FIGURES.index(name)] for row in rows for name in COLOURS)
    window = max(1, len(rows) // 160)

    def place(x: float, y: float) -> str:
        return f"{MARGIN + x / tokens[-1] * (WIDTH - 2 * MARGIN):.1f},{HEIGHT - MARGIN - y / top * (HEIGHT - 2 * MARGIN):.1f}"

    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" '
             'font-size="11">', f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>']
    for level in range(int(top) + 1):
        parts.append(f'<polyline points="{place(0, level)} {place(tokens[-1], level)}" stroke="#ddd"/>'
                     f'<text x="8" y="{place(0, level).split(",")[1]}">{level}</text>')
    for before, row in zip(rows, rows[1:]):
        if before[1] != row[1]:
            parts.append(f'<polyline points="{place(row[2], 0)} {place(row[2], top)}" stroke="#bbb" stroke-dasharray="4"/>')
    for i, (name, colour) in enumerate(COLOURS.items()):
        values = [row[3 + FIGURES.index(name)] for row in rows]
        points = []
        for begin in range(0, len(rows), window):
            part = values[begin:begin + window]
            points.append(place(tokens[min(begin + window // 2, len(rows) - 1)], sum(part) / len(part)))
        parts.append(f'<polyline points="{" ".join(points)}" fill="none" stroke="{colour}" stroke-width="1.5"/>'
                     f'<text x="{WIDTH - 130}" y="{50 + 14 * i}" fill="{colour}">{name} tokens, loss</text>')
    parts.append(f'<text x="{MARGIN}" y="{HEIGHT - 10}">0</text><text x="{WIDTH - 2 * MARGIN}" y="{HEIGHT - 10}">'
                 f"{tokens[-1] / 1e6:.1f} M tokens</text></svg>\n")
    return "\n".join(parts)
