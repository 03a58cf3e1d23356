import pytest

from alfa.errors import ConfigError
from alfa.inits import INITS
from alfa.registry import Registry
from alfa.rules import RULES


@pytest.fixture
def shapes():
    registry = Registry("shape")

    @registry.register("circle")
    class Circle:
        def __init__(self, middle=0, *, radius: "float" = 1.0, filled: "bool" = False):
            self.radius = radius

    @registry.register("border")
    class Border:
        def __init__(self, shape, *, width: int):
            self.shape = shape

    return registry


def test_a_registered_class_is_found_and_unchanged(shapes):
    class Square:
        pass

    assert shapes.register("square")(Square) is Square
    assert shapes.get("square") is Square
    assert "square" in shapes
    assert "triangle" not in shapes


def test_names_are_sorted(shapes):
    assert list(shapes) == ["border", "circle"]


def test_an_unknown_name_gets_a_list_and_a_hint(shapes):
    with pytest.raises(
        ConfigError, match=r"unknown shape 'cirle'; known: border, circle\. Did you mean 'circle'"
    ):
        shapes.get("cirle")


def test_a_name_without_similar_names_gets_no_hint(shapes):
    with pytest.raises(ConfigError, match=r"known: border, circle\.$"):
        shapes.get("xyz")


def test_two_classes_cannot_share_a_name(shapes):
    class Disc:
        pass

    with pytest.raises(ConfigError, match=r"shape 'circle' is already taken by .*Circle.*Disc"):
        shapes.register("circle")(Disc)
    assert shapes.get("circle").__name__ == "Circle"


def test_a_redefined_class_replaces_itself(shapes):
    def define():
        @shapes.register("square")
        class Square:
            pass

        return Square

    define()
    latest = define()
    assert shapes.get("square") is latest


def test_options_are_the_keyword_only_arguments(shapes):
    options = shapes.options("circle")
    assert list(options) == ["radius", "filled"]
    assert options["radius"].default == 1.0
    assert options["radius"].annotation is float


def test_a_part_can_wrap_another(shapes):
    assert shapes.wraps("border", "shape")
    assert not shapes.wraps("circle", "shape")


def test_registries_are_separate():
    assert "sgd" in RULES
    assert "sgd" not in INITS


def test_unresolved_annotations_are_rejected(shapes):
    @shapes.register("ring")
    class Ring:
        def __init__(self, *, width: "Millimetres" = 1.0):  # noqa: F821
            self.width = width

    with pytest.raises(ConfigError, match=r"shape 'ring' have annotations .*Millimetres"):
        shapes.options("ring")
