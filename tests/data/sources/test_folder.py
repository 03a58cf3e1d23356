import itertools
import json
import os
import shutil
import sys
import unicodedata

import pytest

from alfa.data.sources import SOURCES, Folder
from alfa.data.sources._folder import split_by_ratio
from alfa.errors import ConfigError, DataError

PETS = [f"pet{n:02}" for n in range(25)]


def names(listing):
    return {split: list(classes) for split, classes in listing.classes.items()}


@pytest.fixture
def pets(tmp_path, make_classes):
    return make_classes(tmp_path / "pets", PETS)


@pytest.fixture
def split_pets(tmp_path, make_splits):
    return make_splits(
        tmp_path / "pets", {"train": PETS[:20], "val": PETS[20:22], "test": PETS[22:]}
    )


def test_split_folders(split_pets, find, counts):
    for path in (split_pets, split_pets.parent):
        for split in ("auto", "folders"):
            listing = find(Folder(split=split), path)
            assert counts(listing) == {"train": (20, 40), "val": (2, 4), "test": (3, 6)}
            assert not listing.problems


def test_a_class_in_two_split_folders(split_pets, find, make_classes, counts, fatal):
    make_classes(split_pets / "test", [PETS[0], PETS[20]])
    listing = find(Folder(), split_pets)
    assert fatal(listing) == [
        f"{PETS[0]}: the class is in train and test, but must be in only one split",
        f"{PETS[20]}: the class is in val and test, but must be in only one split",
    ]
    assert counts(listing) == {"train": (19, 38), "val": (1, 2), "test": (3, 6)}


def test_split_folders_that_are_not_there(pets, find):
    with pytest.raises(DataError, match=r"`split` is 'folders', but .* without the folders train"):
        find(Folder(split="folders"), pets)


def test_by_ratio(pets, find, counts):
    listing = find(Folder(), pets)
    assert counts(listing) == {"train": (16, 32), "val": (4, 8), "test": (5, 10)}
    assert names(listing) == names(find(Folder(split="ratio", seed=0), pets))
    assert names(listing) != names(find(Folder(seed=1), pets))
    assert sorted(itertools.chain(*names(listing).values())) == PETS
    half = find(Folder(split="ratio", ratio=[0.5, 0, 0.5]), pets)
    assert {split: num for split, (num, _) in counts(half).items()} == {"train": 13, "test": 12}
    assert not half.problems


def test_chance_is_the_same_everywhere():
    drawn = split_by_ratio(["ant", "bee", "cat", "dog", "elk", "fox"], [0.5, 0.2, 0.3], 0)
    assert drawn == {"train": ["elk", "dog", "fox"], "val": ["bee"], "test": ["ant", "cat"]}
    # All classes are equally likely, and all draws differ.
    train = [tuple(split_by_ratio(PETS, [0.4, 0.2, 0.4], seed)["train"]) for seed in range(500)]
    assert len(set(train)) == 500
    often = [sum(name in chosen for chosen in train) for name in PETS]
    # The standard deviation of a count is sqrt(500 * 0.4 * 0.6) = 11.
    assert all(abs(count - 200) < 5 * 11 for count in often)


@pytest.mark.parametrize("number", [1, 2, 3, 7, 10, 99])
@pytest.mark.parametrize("ratio", [(0.64, 0.16, 0.2), (1, 0, 0), (1 / 3, 1 / 3, 1 / 3)])
def test_shares_are_rounded_and_nothing_is_lost(number, ratio):
    drawn = split_by_ratio([str(n) for n in range(number)], ratio, 3)
    assert sorted(itertools.chain(*drawn.values()), key=int) == [str(n) for n in range(number)]
    for share, chosen in zip(ratio, drawn.values(), strict=True):
        assert abs(len(chosen) - share * number) < 1


def test_a_split_that_gets_nothing(tmp_path, find, make_classes, notes):
    listing = find(Folder(), make_classes(tmp_path / "few", PETS[:3]))
    assert notes(listing) == ["val: this split gets none of the 3 classes"]


def test_small_classes_are_left_out_before_the_others_are_shared_out(
    tmp_path, find, make_classes, counts, notes
):
    path = make_classes(tmp_path / "pets", PETS)
    (path / "tiny").mkdir()
    shutil.copy(next((path / PETS[0]).iterdir()), path / "tiny/0.png")
    listing = find(Folder(min_images=2), path)
    assert counts(listing) == {"train": (16, 32), "val": (4, 8), "test": (5, 10)}
    assert notes(listing) == ["tiny: skipped, because it has 1 of 2 images"]
    assert sum(num for num, _ in counts(find(Folder(), path)).values()) == 26


def test_a_class_without_images_is_a_mistake_however_many_are_wanted(pets, find, fatal):
    (pets / "empty").mkdir()
    for min_images in (1, 2):
        listing = find(Folder(min_images=min_images), pets)
        assert [line.split(": ")[1] for line in fatal(listing)] == ["the class has no images"]


def test_a_class_without_images_replaces_no_other(pets, find, counts, fatal):
    for name in ("empty", "hollow", "void"):
        (pets / name).mkdir()
    listing = find(Folder(), pets)
    assert counts(listing) == {"train": (16, 32), "val": (4, 8), "test": (5, 10)}
    assert fatal(listing) == [f"{n}: the class has no images" for n in ("empty", "hollow", "void")]


def test_folders_inside_a_class_folder_are_skipped_with_a_note(
    pets, find, counts, notes, make_classes
):
    make_classes(pets / PETS[0], ["old", "new"])
    listing = find(Folder(split="test"), pets)
    assert counts(listing) == {"test": (25, 50)}
    assert notes(listing) == [f"{PETS[0]}: skipped folders inside the class folder: new, old"]


@pytest.mark.parametrize("split", ["train", "val", "test"])
def test_all_in_one_split(pets, find, counts, split):
    assert counts(find(Folder(split=split), pets)) == {split: (25, 50)}


def test_all_in_one_split_wherever_they_lie(split_pets, find, make_classes, counts):
    make_classes(split_pets / "test", [PETS[0]])
    listing = find(Folder(split="test"), split_pets)
    assert counts(listing) == {"test": (25, 52)}


def write_split(path, table):
    if path.suffix == ".json":
        path.write_text(json.dumps(table))
    else:
        rows = [f"{name},{split}" for split, chosen in table.items() for name in chosen]
        path.write_text("\n".join(["class,split", *rows]))
    return path


@pytest.mark.parametrize("suffix", [".json", ".csv"])
@pytest.mark.parametrize("split", ["auto", "file"])
def test_a_split_file(tmp_path, pets, find, fatal, suffix, split):
    table = {"train": PETS[:10], "valid": PETS[10:15], "novel": PETS[15:]}
    file = write_split(tmp_path / f"split{suffix}", table)
    listing = find(Folder(split=split, split_file=file), pets)
    assert names(listing) == {"train": PETS[:10], "val": PETS[10:15], "test": PETS[15:]}
    assert not listing.problems


@pytest.mark.parametrize("suffix", [".json", ".csv"])
def test_all_problems_of_a_split_file_are_reported(tmp_path, pets, find, fatal, suffix):
    table = {
        "train": [*PETS[:10], "pett03", "wholly-else"],
        "val": PETS[9:15],
        "tset": PETS[15:17],
        "test": PETS[17:],
    }
    file = write_split(tmp_path / f"split{suffix}", table)
    listing = find(Folder(split_file=file), pets)
    wanted = {
        f"train/pett03: the class in {file.name} has no folder. Did you mean 'pet03'?",
        f"train/wholly-else: the class in {file.name} has no folder",
        "pet09: the class is in train and val, but must be in only one split",
        f"pet15: {file.name} has no split for this class",
        f"pet16: {file.name} has no split for this class",
    }
    lines = ["", ""] if suffix == ".json" else [", line 20", ", line 21"]
    wanted |= {f"{file.name}{line}: 'tset' is not a split; use train, val, test" for line in lines}
    assert set(fatal(listing)) == wanted
    assert len(fatal(listing)) == len(wanted)
    assert names(listing) == {"train": PETS[:9], "val": PETS[10:15], "test": PETS[17:]}


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.json", "{"),
        ("a.json", "[]"),
        ("a.json", '{"train": "cat"}'),
        ("a.json", '{"train":' * 5000),
        ("a.csv", "name,part\ncat,train\n"),
        ("a.csv", "class,split\ncat\n"),
    ],
    ids=lambda text: text[:20],
)
def test_a_file_that_is_no_split_file(tmp_path, pets, find, name, content):
    (tmp_path / name).write_text(content)
    with pytest.raises(DataError, match="is not a split file: it must be JSON, such as"):
        find(Folder(split_file=tmp_path / name), pets)


def test_a_split_file_that_is_not_there(tmp_path, pets, find):
    with pytest.raises(DataError, match=r"the split file .*no\.json does not exist"):
        find(Folder(split_file=tmp_path / "no.json"), pets)


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"split": "flie"}, r"`split` is 'flie'.*Did you mean 'file'\?"),
        ({"split": "file"}, r"`split_file` is missing; give the file"),
        ({"split": "ratio", "split_file": "a.json"}, r"but `split_file` is a\.json; give only one"),
        ({"ratio": [0.5, 0.5]}, r"`ratio` must be three shares.*got \[0\.5, 0\.5\]\."),
        ({"ratio": [0.5, 0.5, 0.5]}, r"that add up to 1"),
        ({"ratio": [1.5, -0.5, 0]}, r"three shares"),
    ],
)
def test_options_that_do_not_fit(options, match):
    with pytest.raises(ConfigError, match=match):
        Folder(**options)


def test_size_and_channels():
    grey = Folder(size=28, num_channels=1)
    assert (grey.size, grey.num_channels, grey.mean, grey.std) == (28, 1, (0.5,), (0.5,))
    assert (Folder().size, Folder().num_channels) == (84, 3)


def test_empty_classes_and_odd_files(pets, find, fatal, notes, counts, png):
    for name in ("hollow", "barren"):
        (pets / name).mkdir()
    (pets / "barren" / "notes.txt").touch()
    for suffix in ("JPG", "jpeg", "bmp", "gif", "webp", "tif", "TIFF", "ppm"):
        (pets / PETS[0] / f"x.{suffix}").write_bytes(png)
    (pets / ".hidden").mkdir()
    (pets / "readme.md").touch()
    listing = find(Folder(split="test"), pets)
    assert counts(listing) == {"test": (25, 58)}
    assert sorted(fatal(listing)) == [
        "test/barren: the class has no images",
        "test/hollow: the class has no images",
    ]
    assert notes(listing) == ["barren: skipped files that are not images: notes.txt"]


def test_accents_are_the_same_on_every_system(tmp_path, find, make_classes):
    apart, together = "cafe\u0301", "caf\u00e9"
    listing = find(Folder(split="test"), make_classes(tmp_path / "a", [apart, "zoo"]))
    assert list(listing.classes["test"]) == sorted([together, "zoo"])


@pytest.mark.skipif(sys.platform != "linux", reason="other systems normalize names")
@pytest.mark.parametrize("form", ["NFC", "NFD"])
def test_a_split_file_may_spell_accents_in_either_way(tmp_path, find, make_classes, fatal, form):
    for name in ("café", "chat", "chien"):
        make_classes(tmp_path / "pets", [unicodedata.normalize(form, name)])
    for written in ("NFC", "NFD"):
        table = {"train": [unicodedata.normalize(written, "café")], "val": ["chat"]}
        file = write_split(tmp_path / "split.json", {**table, "test": ["chien"]})
        listing = find(Folder(split_file=file), tmp_path / "pets")
        assert fatal(listing) == []
        assert list(listing.classes["train"]) == ["café"]


def test_a_link_to_itself_is_a_problem_of_its_own(tmp_path, find, make_classes, fatal, counts):
    make_classes(tmp_path / "pets", ["cat"])
    (tmp_path / "pets/cat/loop.png").symlink_to("loop.png")
    listing = find(Folder(split="train"), tmp_path / "pets")
    assert fatal(listing) == ["cat/loop.png: is neither a file nor a link to an existing file"]


@pytest.mark.parametrize("suffix", ["pgm", "jfif", "JP2", "tga", "avif"])
def test_every_format_that_is_read_is_found(tmp_path, find, counts, png, suffix):
    (tmp_path / "pets/cat").mkdir(parents=True)
    (tmp_path / f"pets/cat/1.{suffix}").write_bytes(png)
    assert counts(find(Folder(split="train"), tmp_path / "pets")) == {"train": (1, 1)}


def test_accents_of_both_kinds_are_two_classes(tmp_path, find, make_classes):
    names = ["cafe\u0301", "caf\u00e9", "zoo"]
    listing = find(Folder(split="test"), make_classes(tmp_path / "a", names))
    assert {name: len(items) for name, items in listing.classes["test"].items()} == dict.fromkeys(
        sorted(names), 2
    )


@pytest.mark.skipif(sys.platform != "linux", reason="other systems require valid text")
@pytest.mark.parametrize("suffix", ["", ".zip"])
def test_names_that_are_no_text(tmp_path, find, make_classes, pack, suffix):
    strange = os.fsdecode(b"caf\xe9")
    folder = make_classes(tmp_path / strange, [strange, *PETS[:5]])
    if suffix:
        folder = pack(tmp_path / f"{strange}{suffix}", make_classes(tmp_path / "in", PETS[:6]))
    listing = find(Folder(), folder)
    found = [name for classes in listing.classes.values() for name in classes]
    assert len(found) == 6


@pytest.mark.parametrize("suffix", [".zip", ".tgz", ".tar"])
def test_archives(tmp_path, pets, find, counts, pack, suffix):
    (tmp_path / "in").mkdir()
    pets.rename(tmp_path / "in" / "pets")
    archive = pack(tmp_path / f"pets{suffix}", tmp_path / "in")
    for path in (archive, tmp_path):
        assert counts(find(Folder(split="val"), path)) == {"val": (25, 50)}


def test_several_folders_of_class_folders(tmp_path, find, make_classes):
    for name in ("cats", "dogs"):
        make_classes(tmp_path / name, PETS[:2])
    with pytest.raises(DataError, match=r"several folders with class folders \(cats, dogs\)"):
        find(Folder(), tmp_path)


@pytest.mark.parametrize("content", ["nothing", "images", "texts"])
def test_no_class_folders(tmp_path, find, content, png):
    root = tmp_path / "root"
    root.mkdir()
    if content == "images":
        (root / "1.png").write_bytes(png)
    elif content == "texts":
        (root / "a").mkdir()
        (root / "a" / "1.txt").touch()
    with pytest.raises(DataError, match=r"found no folder of class folders under .*; looked for"):
        find(Folder(), root)
    with pytest.raises(DataError, match="nowhere does not exist"):
        find(Folder(), tmp_path / "nowhere")


@pytest.mark.parametrize("name", ["vgg-flower", "traffic-sign"])
def test_datasets_for_test_only(tmp_path, find, make_classes, counts, notes, fatal, name):
    source = SOURCES.get(name)()
    ((_, (num_classes, num_images)),) = source.published.items()
    root = tmp_path / "data" / "Final_Training" / "Images"
    make_classes(root, [f"{n:05}" for n in range(num_classes)], suffix=".ppm")
    (root / "empty").mkdir()
    for path in (root, tmp_path):
        listing = find(source, path)
        assert counts(listing) == {"test": (num_classes, 2 * num_classes)}
        assert fatal(listing) == ["test/empty: the class has no images"]
        assert notes(listing) == [
            f"test: {2 * num_classes} images in {num_classes} classes, but the published split has "
            f"{num_images:,} in {num_classes}"
        ]
    with pytest.raises(DataError, match=f"found no {source.title} under"):
        find(source, root / "empty")
