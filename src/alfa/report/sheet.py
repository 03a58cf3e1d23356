"""One episode as a picture: what a model learns from, and what it is judged on."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import matplotlib as mpl
import numpy as np
from PIL import Image, ImageDraw, ImageFont
from torch import Tensor

from alfa.data import FewShot, ImageSet, Split, Varied
from alfa.train.files import write_atomic

_PAPER, _TEXT, _FAINT = (238, 240, 243), (36, 41, 51), (112, 120, 133)
_MARGIN, _GAP, _ROW_GAP, _BETWEEN = 24, 4, 16, 36
_RIGHT, _WRONG, _FRAME = (58, 125, 68), (190, 49, 68), 3
_TITLE_SIZE, _TEXT_SIZE = 22, 15
_LEAST_SIDE, _MOST_IN_LINE, _WIDEST_NAME = 64, 15, 260


def contact_sheet(
    tasks: FewShot | Varied,
    path: Path,
    *,
    split: Split = "test",
    index: int = 0,
    seed: int = 0,
    predictions: Tensor | None = None,
    note: str = "",
) -> None:
    """Draw one episode as a PNG, as a model sees it: one row for each class.

    Args:
        tasks: where the episode comes from.
        path: the file to write.
        split: of the episode.
        index: its number.
        seed: with `split` and `index`, decides the episode.
        predictions: a class for each query, ``[query]``; right ones get a green frame, wrong ones
            a red one and the number of the class that they were taken for.
        note: what else to say, at the top.

    Raises:
        DataError: there are no such tasks.
    """
    episode = tasks.episode(index, num_tasks=1, split=split, seed=seed)
    if isinstance(tasks, Varied):
        images, drawn = tasks.draw(index, split=split, seed=seed)
        classes, size = drawn.classes, f"{drawn.num_support.sum()} support images"
        num_query = drawn.num_query
    else:
        images, num_query, size = tasks.images, tasks.num_query, f"{tasks.shot}-shot"
        (classes,), _ = tasks.draw(index, num_tasks=1, split=split, seed=seed)
    names = [images.splits[split].names[number] for number in classes]
    support, query = (_pixels(images, x[0]) for x in (episode.support_x, episode.query_x))
    support_y, query_y = episode.support_y[0].numpy(), episode.query_y[0].numpy()
    rows = [
        _Row(name, support[support_y == label], query[query_y == label])
        for label, name in enumerate(names)
    ]
    if predictions is not None:
        guesses = predictions.numpy()
        rows = [
            replace(
                row,
                name=f"{number + 1}: {row.name}",
                marks=_marks(number, guesses[query_y == number].tolist()),
            )
            for number, row in enumerate(rows)
        ]
    title = f"{images.name}, {split} split: {len(names)}-way {size}, {num_query} queries per class"
    told = ", ".join(filter(None, [note, f"episode {index}, seed {seed}"]))
    sheet = _Sheet(rows).draw(title, note=told)
    buffer = io.BytesIO()
    sheet.save(buffer, "png")
    write_atomic(path, buffer.getvalue())


@dataclass(frozen=True)
class _Row:
    """A class: its name, its images, uint8 ``[image, height, width, 3]``, and marks on queries."""

    name: str
    support: np.ndarray
    query: np.ndarray
    marks: Sequence[str] = ()


def _marks(own: int, guesses: Sequence[int]) -> list[str]:
    """Nothing for a query that was known, and otherwise the class it was taken for."""
    return ["" if guess == own else str(guess + 1) for guess in guesses]


def _pixels(images: ImageSet, x: Tensor) -> np.ndarray:
    """Inputs as they were before normalisation, ``[image, height, width, 3]``."""
    mean, std = (np.reshape(v, (-1, 1, 1)) for v in (images.mean, images.std))
    values = np.clip(x.double().numpy() * std + mean, 0, 1)
    pixels: np.ndarray = np.round(255 * values).astype(np.uint8)
    # More than three channels can only be shown in part.
    colours = pixels[:, :3] if pixels.shape[1] >= 3 else pixels[:, :1].repeat(3, axis=1)
    return colours.transpose(0, 2, 3, 1)


class _Sheet:
    """Where everything lies."""

    def __init__(self, rows: Sequence[_Row]) -> None:
        self.rows = rows
        height, width = rows[0].support.shape[1:3]
        # Small images grow by a whole factor, so that their pixels stay sharp squares.
        self.factor = max(1, -(-_LEAST_SIDE // max(height, width)))
        self.cell = np.array([width, height]) * self.factor + _GAP
        self.font, self.title_font = _font(_TEXT_SIZE), _font(_TITLE_SIZE)
        self.names = [_fitting(row.name, self.font) for row in rows]
        lines = [line for lines in self.names for line in lines]
        self.name_width = int(max(self.font.getlength(line) for line in [*lines, "class"]))
        # Classes need not have equally many images.
        most = [max(len(row.support) for row in rows), max(len(row.query) for row in rows)]
        grids = [_grid(count) for count in most]
        (self.support_columns, _), (self.query_columns, _) = grids
        self.num_lines = max(num_lines for _, num_lines in grids)
        self.row_height = self.num_lines * int(self.cell[1]) - _GAP
        self.row_height = max(self.row_height, 2 * _line_height(self.font))
        self.left = _MARGIN + self.name_width + _MARGIN
        self.middle = self.left + self.support_columns * int(self.cell[0]) - _GAP + _BETWEEN
        self.right = self.middle + self.query_columns * int(self.cell[0]) - _GAP + _MARGIN
        self.top = _MARGIN + 3 * _line_height(self.title_font)

    def draw(self, title: str, *, note: str) -> Image.Image:
        title_end = 2 * _MARGIN + int(self.title_font.getlength(title))
        note_length = int(self.font.getlength(note))
        width = max(self.right, title_end + note_length + _MARGIN)
        step = self.row_height + _ROW_GAP
        height = self.top + len(self.rows) * step - _ROW_GAP + _MARGIN
        sheet = Image.new("RGB", (width, height), _PAPER)
        pen = ImageDraw.Draw(sheet)
        baseline = _MARGIN + _TITLE_SIZE
        pen.text((_MARGIN, baseline), title, _TEXT, self.title_font, anchor="ls")
        pen.text((width - _MARGIN, baseline), note, _FAINT, self.font, anchor="rs")
        for x, text in ((_MARGIN, "class"), (self.left, "support"), (self.middle, "query")):
            pen.text((x, self.top - 10), text, _FAINT, self.font, anchor="ls")
        for number, row in enumerate(self.rows):
            y = self.top + number * step
            self._write_name(pen, self.names[number], y)
            self._paste(sheet, row.support, (self.left, y), self.support_columns)
            self._paste(sheet, row.query, (self.middle, y), self.query_columns)
            for query, mark in enumerate(row.marks):
                self._mark(pen, mark, (self.middle, y), query)
        line = self.middle - _BETWEEN // 2
        pen.line((line, self.top - 10 - _TEXT_SIZE, line, height - _MARGIN), _FAINT, 1)
        return sheet

    def _write_name(self, pen: ImageDraw.ImageDraw, lines: Sequence[str], y: int) -> None:
        middle = y + self.row_height / 2
        for number, line in enumerate(lines):
            offset = (number - (len(lines) - 1) / 2) * _line_height(self.font)
            pen.text((_MARGIN, middle + offset), line, _TEXT, self.font, anchor="lm")

    def _paste(
        self, sheet: Image.Image, images: np.ndarray, corner: tuple[int, int], columns: int
    ) -> None:
        for number, pixels in enumerate(images):
            down, right = divmod(number, columns)
            place = np.array(corner) + self.cell * (right, down)
            picture = Image.fromarray(pixels).resize(
                (int(self.cell[0]) - _GAP, int(self.cell[1]) - _GAP), Image.Resampling.NEAREST
            )
            sheet.paste(picture, (int(place[0]), int(place[1])))

    def _mark(
        self, pen: ImageDraw.ImageDraw, mark: str, corner: tuple[int, int], number: int
    ) -> None:
        """Frame a query, and say what it was taken for."""
        down, right = divmod(number, self.query_columns)
        x, y = (int(v) for v in np.array(corner) + self.cell * (right, down))
        width, height = (int(v) - _GAP for v in self.cell)
        color = _WRONG if mark else _RIGHT
        pen.rectangle((x - 1, y - 1, x + width, y + height), outline=color, width=_FRAME)
        if mark:
            box = pen.textbbox((x + 5, y + 4), mark, self.font)
            pen.rectangle((x, y, box[2] + 4, box[3] + 3), fill=color)
            pen.text((x + 5, y + 4), mark, (255, 255, 255), self.font)


def _grid(num_images: int) -> tuple[int, int]:
    """Columns and lines of the images of one class; lines are about equally long."""
    num_lines = -(-num_images // _MOST_IN_LINE)
    return -(-num_images // num_lines), num_lines


def _font(size: int) -> ImageFont.FreeTypeFont:
    # matplotlib brings a font that has the letters of most alphabets.
    return ImageFont.truetype(Path(mpl.get_data_path(), "fonts", "ttf", "DejaVuSans.ttf"), size)


def _line_height(font: ImageFont.FreeTypeFont) -> int:
    return sum(font.getmetrics())


def _fitting(name: str, font: ImageFont.FreeTypeFont) -> list[str]:
    """A class's name in lines, one for each part of a path, cut where they are too long."""
    lines = []
    for line in name.split("/"):
        cut = line
        while font.getlength(cut) > _WIDEST_NAME:
            cut = cut.removesuffix("…")[:-1] + "…"
        lines.append(cut)
    return lines
