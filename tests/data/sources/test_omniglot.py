import pytest

from alfa.data.sources import SOURCES
from alfa.errors import ConfigError

PARTS = {"images_background": "train", "images_evaluation": "test"}
VINYALS = {"train": (1028, 1028), "val": (172, 172), "test": (423, 423)}
LAKE = {"train": (964, 964), "test": (659, 659)}


@pytest.fixture(scope="module")
def parts(tmp_path_factory, png):
    """One drawing of every character, in the two folders of the publisher."""
    root = tmp_path_factory.mktemp("data") / "omniglot"
    for part, split in PARTS.items():
        for name in source("lake").class_list().splits[split]:
            (root / part / name).mkdir(parents=True)
            (root / part / name / "0.png").write_bytes(png)
    return root


def source(scheme="vinyals"):
    return SOURCES.get("omniglot")(scheme=scheme)


@pytest.mark.parametrize(("scheme", "expected"), [("vinyals", VINYALS), ("lake", LAKE)])
def test_both_schemes(parts, find, counts, fatal, scheme, expected):
    for path in (parts, parts.parent):
        listing = find(source(scheme), path)
        assert counts(listing) == expected
        assert fatal(listing) == []
    item = listing.classes["train"]["Greek/character01"][0]
    assert item.name == "Greek/character01/0.png"
    assert item.read().startswith(b"\x89PNG")


def test_the_archives(tmp_path, find, pack, make_classes):
    lake = {split: names[:40] for split, names in source("lake").class_list().splits.items()}
    raw = tmp_path / "omniglot"
    for part, split in PARTS.items():
        make_classes(raw / part, lake[split], count=1)
    # First one is packed and the other is not, then both are.
    for part in PARTS:
        (tmp_path / "in").mkdir()
        (raw / part).rename(tmp_path / "in" / part)
        pack(raw / f"{part}.zip", tmp_path / "in")
        for path in (raw, tmp_path):
            listing = find(source("lake"), path)
            assert {split: list(found) for split, found in listing.classes.items()} == {
                split: lake[split] for split in ("train", "test")
            }
    alone = find(source("lake"), raw / "images_evaluation.zip")
    assert list(alone.classes) == ["test"]


def test_half_of_it(parts, find, counts, fatal, notes):
    listing = find(source("lake"), parts / "images_background")
    assert counts(listing) == {"train": (964, 964)}
    assert fatal(listing) == []
    listing = find(source(), parts / "images_background")
    absent = [told for told in fatal(listing) if "is missing" in told]
    assert list(counts(listing)) == ["train", "val"]
    assert len(absent) == 1028 - counts(listing)["train"][0]
    told = "test: 0 images in 0 classes, but the published split has 8,460 in 423"
    assert told in notes(listing)


def test_all_alphabets_in_one_folder(tmp_path, parts, find, counts):
    (tmp_path / "all").mkdir()
    for part in PARTS:
        for alphabet in (parts / part).iterdir():
            (tmp_path / "all" / alphabet.name).symlink_to(alphabet)
    assert counts(find(source(), tmp_path / "all")) == VINYALS
    assert counts(find(source("lake"), tmp_path / "all")) == LAKE


def test_an_unknown_scheme():
    with pytest.raises(ConfigError, match=r"`scheme` is 'lakes'.*Did you mean 'lake'\?"):
        source("lakes")
