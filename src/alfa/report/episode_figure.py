"""One episode as an image: the support and query images of every class."""

import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import matplotlib as mpl
import numpy as np
from PIL import Image, ImageDraw, ImageFont
from torch import Tensor

from alfa._io import write_atomic
from alfa.data import AnyImages, FewShot, Split, Varied

_BACKGROUND, _TEXT, _FAINT, _WHITE = (238, 240, 243), (36, 41, 51), (112, 120, 133), (255, 255, 255)
_CORRECT, _WRONG, _FRAME_WIDTH = (58, 125, 68), (190, 49, 68), 3
_MARGIN, _GAP, _ROW_GAP, _COLUMN_GAP = 24, 4, 16, 36
_TITLE_SIZE, _TEXT_SIZE = 22, 15
_MIN_SIZE, _MAX_IN_LINE, _MAX_NAME_WIDTH = 64, 15, 260


def episode_figure(
    tasks: FewShot | Varied,
    path: Path,
    *,
    split: Split = "test",
    index: int = 0,
    seed: int = 0,
    predictions: Tensor | None = None,
    note: str = "",
) -> None:
    """Draw episode `index` of a split as a PNG file, with one row per class.

    With `predictions`, the predicted class of each query ``[query]``, correct queries get a green
    frame, and wrong ones get a red frame and the number of the predicted class. `note` is a text
    for the top of the figure. Raises DataError if the split has no such tasks.
    """
    # A figure of features shows their photos.
    tasks = tasks.with_photos()
    episode = tasks.episode(index, num_tasks=1, split=split, seed=seed)
    images: AnyImages
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
    rows = []
    for label, name in enumerate(names):
        guesses: list[int] = []
        if predictions is not None:
            name = f"{label + 1}: {name}"
            guesses = predictions.numpy()[query_y == label].tolist()
        marks = ["" if guess == label else str(guess + 1) for guess in guesses]
        rows.append(_Row(name, support[support_y == label], query[query_y == label], marks))
    title = f"{images.name}, {split} split: {len(names)}-way {size}, {num_query} queries per class"
    note = ", ".join(filter(None, [note, f"episode {index}, seed {seed}"]))
    buffer = io.BytesIO()
    _Layout(rows).draw(title, note).save(buffer, "png")
    write_atomic(path, buffer.getvalue())


@dataclass(frozen=True)
class _Row:
    """A class, with its images as bytes ``[image, height, width, 3]``."""

    name: str
    support: np.ndarray
    query: np.ndarray
    marks: Sequence[str]  # for each query, the number of a wrong prediction; empty if correct


def _pixels(images: AnyImages, x: Tensor) -> np.ndarray:
    """Undo the normalization of images; return ``[image, height, width, 3]``."""
    mean, std = (np.reshape(v, (-1, 1, 1)) for v in (images.mean, images.std))
    values = np.clip(x.double().numpy() * std + mean, 0, 1)
    pixels: np.ndarray = np.round(255 * values).astype(np.uint8)
    # Channels after the third are not shown.
    colors = pixels[:, :3] if pixels.shape[1] >= 3 else pixels[:, :1].repeat(3, axis=1)
    return colors.transpose(0, 2, 3, 1)


class _Layout:
    """The positions of all elements."""

    def __init__(self, rows: Sequence[_Row]) -> None:
        self.rows = rows
        height, width = rows[0].support.shape[1:3]
        # Small images are enlarged by an integer factor, so that their pixels stay sharp squares.
        factor = max(1, -(-_MIN_SIZE // max(height, width)))
        self.width, self.height = width * factor, height * factor
        self.font, self.title_font = _font(_TEXT_SIZE), _font(_TITLE_SIZE)
        self.line_height = sum(self.font.getmetrics())
        self.names = [_lines(row.name, self.font) for row in rows]
        texts = ["class", *(line for lines in self.names for line in lines)]
        # Classes may differ in their number of images.
        counts = [max(len(row.support) for row in rows), max(len(row.query) for row in rows)]
        num_lines = [-(-count // _MAX_IN_LINE) for count in counts]
        self.columns = [-(-count // lines) for count, lines in zip(counts, num_lines, strict=True)]
        images_height = max(num_lines) * (self.height + _GAP) - _GAP
        self.step = max(images_height, 2 * self.line_height) + _ROW_GAP
        support_width, query_width = (n * (self.width + _GAP) - _GAP for n in self.columns)
        self.left = 2 * _MARGIN + int(max(map(self.font.getlength, texts)))
        self.middle = self.left + support_width + _COLUMN_GAP
        self.right = self.middle + query_width + _MARGIN
        self.top = _MARGIN + 3 * sum(self.title_font.getmetrics())

    def draw(self, title: str, note: str) -> Image.Image:
        title_end = 2 * _MARGIN + int(self.title_font.getlength(title))
        width = max(self.right, title_end + int(self.font.getlength(note)) + _MARGIN)
        height = self.top + len(self.rows) * self.step - _ROW_GAP + _MARGIN
        image = Image.new("RGB", (width, height), _BACKGROUND)
        pen = ImageDraw.Draw(image)
        baseline = _MARGIN + _TITLE_SIZE
        pen.text((_MARGIN, baseline), title, _TEXT, self.title_font, anchor="ls")
        pen.text((width - _MARGIN, baseline), note, _FAINT, self.font, anchor="rs")
        for x, text in ((_MARGIN, "class"), (self.left, "support"), (self.middle, "query")):
            pen.text((x, self.top - 10), text, _FAINT, self.font, anchor="ls")
        for number, (row, lines) in enumerate(zip(self.rows, self.names, strict=True)):
            y = self.top + number * self.step
            for i, line in enumerate(lines):
                offset = (i - (len(lines) - 1) / 2) * self.line_height
                center = (_MARGIN, y + (self.step - _ROW_GAP) / 2 + offset)
                pen.text(center, line, _TEXT, self.font, anchor="lm")
            self._paste(image, row.support, self.left, y, self.columns[0])
            positions = self._paste(image, row.query, self.middle, y, self.columns[1])
            for position, mark in zip(positions, row.marks, strict=False):
                self._mark(pen, mark, *position)
        x = self.middle - _COLUMN_GAP // 2
        pen.line((x, self.top - 10 - _TEXT_SIZE, x, height - _MARGIN), _FAINT, 1)
        return image

    def _paste(
        self, image: Image.Image, pictures: np.ndarray, x: int, y: int, columns: int
    ) -> list[tuple[int, int]]:
        """Paste enlarged pictures in lines; return their positions."""
        positions = []
        for number, pixels in enumerate(pictures):
            down, across = divmod(number, columns)
            positions.append((x + across * (self.width + _GAP), y + down * (self.height + _GAP)))
            size = (self.width, self.height)
            enlarged = Image.fromarray(pixels).resize(size, Image.Resampling.NEAREST)
            image.paste(enlarged, positions[-1])
        return positions

    def _mark(self, pen: ImageDraw.ImageDraw, mark: str, x: int, y: int) -> None:
        """Frame a query, and write the number of a wrong prediction."""
        color = _WRONG if mark else _CORRECT
        box = (x - 1, y - 1, x + self.width, y + self.height)
        pen.rectangle(box, outline=color, width=_FRAME_WIDTH)
        if mark:
            _, _, right, bottom = pen.textbbox((x + 5, y + 4), mark, self.font)
            pen.rectangle((x, y, right + 4, bottom + 3), fill=color)
            pen.text((x + 5, y + 4), mark, _WHITE, self.font)


def _font(size: int) -> ImageFont.FreeTypeFont:
    # matplotlib includes a font that covers most alphabets.
    return ImageFont.truetype(Path(mpl.get_data_path(), "fonts", "ttf", "DejaVuSans.ttf"), size)


def _lines(name: str, font: ImageFont.FreeTypeFont) -> list[str]:
    """Split the name of a class at slashes, and cut long lines."""
    lines = []
    for line in name.split("/"):
        while font.getlength(line) > _MAX_NAME_WIDTH:
            line = line.removesuffix("…")[:-1] + "…"
        lines.append(line)
    return lines
