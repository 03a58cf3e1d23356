import os
import pickle
import subprocess

import numpy as np
import pytest

from alfa.data._unpickle import as_text, get_entry, load_plain
from alfa.errors import DataError

PROTOCOLS = range(pickle.HIGHEST_PROTOCOL + 1)
RNG = np.random.default_rng(0)
PLAIN = {
    "cifar": {
        b"filenames": [b"apple_s_000027.png", b""],
        b"fine_labels": [0, 3],
        b"data": RNG.integers(0, 256, (2, 3072), dtype=np.uint8),
    },
    "mini": {
        "image_data": RNG.integers(0, 256, (3, 4, 4, 3), dtype=np.uint8),
        "class_dict": {"n01532829": [0, 2], "n01558993": [1]},
    },
    "tiered-images": [RNG.integers(0, 256, (n, 1), dtype=np.uint8) for n in (5, 0, 7)],
    "tiered-labels": {
        "label_specific": np.arange(3, dtype=np.int32),
        "label_general": np.zeros(3, ">i8"),
        "label_specific_str": ["house finch", "robin, Turdus migratorius", "n01532829"],
    },
    "others": (1, -2.5, True, None, "é", b"\xff", np.float32(0.5), np.int64(2**40), [()]),
    "arrays": [
        np.asfortranarray(RNG.normal(size=(3, 4))),
        RNG.normal(size=(4, 6))[::2, ::3],
        np.array(["a", "bcd"]),
        np.array([b"a", b"bcd"]),
        np.array([True, False]),
        np.array(5, np.uint16),
        np.zeros((0, 3), np.float16),
    ],
}


def same(one, other):
    if isinstance(one, np.ndarray):
        assert type(other) is np.ndarray
        assert one.dtype == other.dtype
        np.testing.assert_array_equal(one, other)
    elif isinstance(one, dict):
        assert list(one) == list(other)
        same(list(one.values()), list(other.values()))
    elif isinstance(one, list | tuple):
        assert type(one) is type(other)
        assert len(one) == len(other)
        for a, b in zip(one, other, strict=True):
            same(a, b)
    else:
        assert one == other


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("kind", PLAIN)
def test_plain_data_is_read_as_it_was_written(kind, protocol, tmp_path):
    file = tmp_path / "data.pkl"
    file.write_bytes(pickle.dumps(PLAIN[kind], protocol=protocol))
    same(PLAIN[kind], load_plain(file))
    same(PLAIN[kind], load_plain(file.read_bytes()))


@pytest.mark.parametrize("core", [b"numpy.core", b"numpy._core"])
def test_the_pickles_of_any_numpy_are_read(core):
    content = pickle.dumps(PLAIN["mini"], protocol=2)
    for name in (b"numpy.core", b"numpy._core"):
        content = content.replace(b"c" + name + b".multiarray\n", b"c" + core + b".multiarray\n")
    same(PLAIN["mini"], load_plain(content))


U1 = b"cnumpy\ndtype\n(U\x02u1I0\nI1\ntR(I3\nU\x01|NNNI-1\nI-1\nI0\ntb"
EMPTY = b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(I0\ntU\x01btR"


def array(dtype=U1, shape=b"(I2\nt", data=b"U\x02\x01\xfe", kind=EMPTY):
    """The opcodes that Python 2 writes for an array, without the end."""
    return kind + b"(I1\n" + shape + dtype + b"I00\n" + data + b"tb"


def test_the_strings_of_python_2_come_as_bytes(tmp_path):
    content = b"\x80\x02}(U\x04data" + array() + b"U\x05names](U\x03catU\x03dogeu."
    table = load_plain(content)
    same({b"data": np.array([1, 254], np.uint8), b"names": [b"cat", b"dog"]}, table)
    same(np.array([1, 254], np.uint8), get_entry(table, "data", where=tmp_path))
    assert [as_text(name) for name in get_entry(table, "names", where=tmp_path)] == ["cat", "dog"]


def test_an_entry_that_is_missing_is_named(tmp_path):
    for table in ({"names": []}, ["data"]):
        with pytest.raises(DataError, match=r"meta has no entry 'data'"):
            get_entry(table, "data", where=tmp_path / "meta")


class Exploit:
    def __init__(self, function, *arguments):
        self.call = function, arguments

    def __reduce__(self):
        return self.call


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("wrap", [lambda x: x, lambda x: {"data": [(1, x)]}], ids=["bare", "deep"])
@pytest.mark.parametrize("function", [os.system, subprocess.check_output, eval, exec])
def test_an_exploit_is_refused_and_not_run(tmp_path, monkeypatch, function, wrap, protocol):
    monkeypatch.chdir(tmp_path)
    python = "__import__('pathlib').Path('hacked').touch()"
    command = python if function in (eval, exec) else "echo > hacked"
    arguments = (["touch", "hacked"],) if function is subprocess.check_output else (command,)
    file = tmp_path / "mini-imagenet-cache-train.pkl"
    file.write_bytes(pickle.dumps(wrap(Exploit(function, *arguments)), protocol=protocol))
    with pytest.raises(DataError) as caught:
        load_plain(file)
    assert not (tmp_path / "hacked").exists()
    assert f"{file} is refused: it contains " in str(caught.value)
    assert function.__name__ in str(caught.value)
    assert "only arrays, lists, dictionaries, strings, and numbers" in str(caught.value)
    # The exploit is a real one: read by pickle itself, it runs.
    pickle.loads(file.read_bytes())
    assert (tmp_path / "hacked").exists()


OBJECT = b"cnumpy\ndtype\n(U\x02O8I0\nI1\ntR"
FORGED = {
    "an array of objects": array(OBJECT, data=b"](NNe"),
    "objects as bytes": array(OBJECT, shape=b"(I1\nt", data=b"U\x08AAAAAAAA"),
    "an object as a number": b"cnumpy._core.multiarray\nscalar\n(" + OBJECT + b"U\x08AAAAAAAAtR",
    "a type that is no type": array(b"U\x02u1"),
    "a list for bytes": array(data=b"](I1\nI2\ne"),
    "a compound type": array(U1[:-1] + b"b(I3\nU\x01|NU\x01a}I4\nI1\nI0\ntb"),
    "raw memory": array(b"cnumpy\ndtype\n(U\x02V8I0\nI1\ntR"),
    "a subclass": array(kind=EMPTY.replace(b"cnumpy\nndarray\n", b"cnumpy\nmemmap\n")),
    "a type for an array": array(kind=EMPTY.replace(b"cnumpy\nndarray\n", b"cnumpy\ndtype\n")),
    "room for a huge array": EMPTY.replace(b"(I0\nt", b"(I999999999999\nt"),
    "a negative shape": array(shape=b"(I-1\nt"),
    "a shape that is no numbers": array(shape=b"U\x012"),
    "a call of ndarray": b"cnumpy\nndarray\n((I5\ntU\x01OtR",
    "a codec that unpacks": b"c_codecs\nencode\n(U\x04AAAAU\x04zlibtR",
    "text by another codec": b"c_codecs\nencode\n(X\x01\x00\x00\x00aU\x04zlibtR",
    "a function": b"cnumpy\ndtype\n",
    "a changed function": b"cnumpy\ndtype\n}U\x09_functionU\x01xsb",
    "slots of a function": b"cnumpy\ndtype\n(N}U\x09_functionU\x01xstb",
    "an array without content": EMPTY,
    "a type": U1,
    "a key that is an array": b"}" + array() + b"I1\ns",
    "a set": pickle.dumps({1, 2}, protocol=4)[:-1],
    "a number of two parts": pickle.dumps(1j, protocol=2)[:-1],
    "something outside": b"Psomewhere\n",
    "a module below": b"cnumpy.core.multiarray\nfromfile\n(U\x0b/etc/passwdtR",
    "a dotted name": b"\x80\x04\x8c\x05numpy\x8c\x0bdtype.mro()\x93",
}


@pytest.mark.parametrize("what", FORGED)
def test_what_is_forged_is_refused(what):
    with pytest.raises(DataError, match="the pickle is refused: it contains "):
        load_plain(FORGED[what] + b".")
    # The attempt has no lasting effect.
    same(PLAIN["arrays"], load_plain(pickle.dumps(PLAIN["arrays"], protocol=2)))


def test_arrays_of_objects_are_refused():
    for values in ([None, "a"], [[1], [2, 3]]):
        content = np.empty(2, object)
        content[:] = values
        with pytest.raises(DataError, match="an array of the type 'O8'"):
            load_plain(pickle.dumps({"data": content}))


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"no pickle at all",
        b"<!DOCTYPE html>",
        pickle.dumps(PLAIN["cifar"])[:-20],
        array(shape=b"(I3\nt") + b".",
        array(data=b"U\x00") + b".",
        b"\x82\x01.",
        b"\x8e\xff\xff\xff\xff\xff\xff\xff\x7f.",
        b"(" * 10,
        b"]" * 2000 + b"a" * 1999 + b".",
    ],
    ids=[
        "empty",
        "text",
        "page",
        "cut",
        "too short",
        "no data",
        "extension",
        "endless",
        "marks",
        "deep",
    ],
)
def test_what_is_damaged_is_named(tmp_path, content):
    file = tmp_path / "train"
    file.write_bytes(content)
    with pytest.raises(
        DataError, match=r"train is damaged or not a pickle \(.*; download it again"
    ):
        load_plain(file)


def test_a_list_that_holds_itself_is_read():
    endless: list = [1]
    endless.append(endless)
    read = load_plain(pickle.dumps(endless))
    assert read[0] == 1
    assert read[1] is read


def test_what_is_shared_is_looked_at_once():
    # Written out, these would be 2 to the 60 tuples.
    laugh: tuple = ()
    for _ in range(60):
        laugh = (laugh, laugh)
    read = load_plain(pickle.dumps(laugh))
    assert read[0] is read[1]


def test_a_missing_file_is_not_called_damaged(tmp_path):
    with pytest.raises(FileNotFoundError):
        load_plain(tmp_path / "nothing")
