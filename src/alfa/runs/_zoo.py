"""The pretrained models that come with the package."""

import tomllib
from dataclasses import dataclass
from pathlib import Path

from alfa.errors import ConfigError

MODELS = Path(__file__).parent / "models"


@dataclass(frozen=True)
class Expected:
    """The expected accuracy of a pretrained model."""

    tasks: str
    batch_norm: str  # the mode of batch normalization
    accuracy: float  # the mean over the tasks
    interval: float  # half the width of its 95 % interval


@dataclass(frozen=True)
class ModelCard:
    """The description of a pretrained model.

    Attributes:
        name: the name that replaces the path of a run folder.
        title: the images that the model is for.
        method: the method that trained it.
        data: the training data.
        license: the license of the weights and of the training data.
        use: the intended use.
        limits: the known limits.
        command: the command that trained it.
        expected: the expected accuracies.
    """

    name: str
    title: str
    method: str
    data: str
    license: str
    use: str
    limits: str
    command: str
    expected: tuple[Expected, ...]

    @property
    def path(self) -> Path:
        """The run folder in the package."""
        return MODELS / self.name

    @property
    def num_bytes(self) -> int:
        """The size of the run folder."""
        return sum(file.stat().st_size for file in self.path.rglob("*") if file.is_file())


def model_names() -> list[str]:
    """List the names of the pretrained models.

    Examples:
        >>> from alfa.runs import model_names
        >>> model_names()
        ['cifar-fs', 'cifar-fs-l2f', 'strokes']
    """
    return sorted(card.parent.name for card in MODELS.glob("*/card.toml"))


def model_card(name: str) -> ModelCard:
    """Read the card of a pretrained model.

    Raises:
        ConfigError: there is no model of this name.
    """
    if name not in model_names():
        raise ConfigError(f"`name` must be one of {', '.join(model_names())}, got {name!r}.")
    content = tomllib.loads((MODELS / name / "card.toml").read_text(encoding="utf-8"))
    expected = tuple(Expected(**row) for row in content.pop("expected"))
    return ModelCard(name=name, expected=expected, **content)


def find_run(path: Path | str) -> Path:
    """Return the folder of a run; the name of a pretrained model stands for its folder.

    An existing run folder has precedence over a model of the same name, but other folders do not,
    such as a folder `photos` with photos.
    """
    path = Path(path)
    is_model = str(path) in model_names() and not (path / "config.toml").exists()
    return MODELS / path if is_model else path
