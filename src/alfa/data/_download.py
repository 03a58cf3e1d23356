"""What can be downloaded, from where, and how: a cut connection costs nothing but time."""

from __future__ import annotations

import http.client
import re
import socket
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pooch

from alfa.errors import DataError
from alfa.lock import held

# Seconds to wait before each new attempt; as soon as bytes arrive, counting starts again.
_WAITS = (1.0, 2.0, 4.0, 8.0, 16.0)
_TIMEOUT = 30.0
_BLOCK = 1 << 16

OnProgress = Callable[[str, int, int | None], None]
"""Called with the file's name, the bytes that are there, and how many there will be, if known."""


@dataclass(frozen=True)
class RemoteFile:
    """A file that may be downloaded.

    Attributes:
        url: its address.
        name: what it is called on disk.
        num_bytes: its size.
        checksum: such as ``sha256:...``.
        page: where a person finds it, should the address have moved.
        tried: it has been downloaded from there by this very code.
    """

    url: str
    name: str
    num_bytes: int
    checksum: str
    page: str
    tried: bool = False


@dataclass(frozen=True)
class ByHand:
    """What nobody may, or can, download for the user.

    Attributes:
        why: not.
        what: to fetch.
        page: where it is to be found.
        then: what else to do with it.
    """

    why: str
    what: str
    page: str
    then: str = ""


# All are untried: there was no connection when this was written.
# Address and MD5 (eb9058c3a382ffc7106e4002c42a8d85): torchvision.datasets.cifar, CIFAR100.
# SHA-256 of the same address: keras.datasets.cifar100.
_CIFAR100 = RemoteFile(
    url="https://www.cs.toronto.edu/~kriz/cifar-100-python.tar.gz",
    name="cifar-100-python.tar.gz",
    num_bytes=169_001_437,
    checksum="sha256:85cd44d02ba6437773c5bbd22e183051d648de2e7d6b014e1ef29b855ba677a7",
    page="https://www.cs.toronto.edu/~kriz/cifar.html",
)
# Address, size and MD5: the CaltechDATA record 65de6-vp158, as public loaders of it give them; the
# size is also that of tensorflow_datasets, url_checksums/caltech_birds2011.
_CUB = RemoteFile(
    url="https://data.caltech.edu/records/65de6-vp158/files/CUB_200_2011.tgz",
    name="CUB_200_2011.tgz",
    num_bytes=1_150_585_339,
    checksum="md5:97eceeb196236b17998738112f37df78",
    page="https://www.vision.caltech.edu/datasets/cub_200_2011/",
)
# Addresses and MD5: torchvision.datasets.omniglot. Sizes and SHA-256: tensorflow_datasets,
# url_checksums/omniglot, where the same files have the older address below github.com.
_OMNIGLOT = tuple(
    RemoteFile(
        url=f"https://raw.githubusercontent.com/brendenlake/omniglot/master/python/{name}",
        name=name,
        num_bytes=num_bytes,
        checksum=f"sha256:{sha256}",
        page="https://github.com/brendenlake/omniglot",
    )
    for name, num_bytes, sha256 in (
        (
            "images_background.zip",
            9_464_212,
            "ad41ab679c8b5d90b271ef46be6987cc81211774a695c29dcc5367b2b26ee640",
        ),
        (
            "images_evaluation.zip",
            6_462_886,
            "1f61a8f3366785b057fc117d9228e78a16e3d976c8953b2a10fcc74cf0609cee",
        ),
    )
)
# Address, size and MD5: the archive of the benchmark at sid.erda.dk, as public loaders of it give
# them; torchvision.datasets.gtsrb has the same place, but other files of it.
_GTSRB = RemoteFile(
    url="https://sid.erda.dk/public/archives/daaeac0d7ce1152aea9b61d9f1e19370/"
    "GTSRB_Final_Training_Images.zip",
    name="GTSRB_Final_Training_Images.zip",
    num_bytes=276_294_756,
    checksum="md5:f33fd80ac59bff73c82d25ab499e03a3",
    page="https://benchmark.ini.rub.de/gtsrb_dataset.html",
)

DOWNLOADS: Mapping[str, Sequence[RemoteFile]] = {
    "cifar-fs": (_CIFAR100,),
    "cub": (_CUB,),
    "fc100": (_CIFAR100,),
    "omniglot": _OMNIGLOT,
    "md-birds": (_CUB,),
    "md-omniglot": _OMNIGLOT,
    "md-traffic-sign": (_GTSRB,),
    "traffic-sign": (_GTSRB,),
}

# The archives' names and the page: the README of renmengye/few-shot-ssl-public, which made
# tieredImageNet and offers both behind links of Google Drive.
_FEW_SHOT_SSL = "https://github.com/renmengye/few-shot-ssl-public"
_IMAGENET = "its images are ImageNet's, whose terms you must accept at https://image-net.org first"

BY_HAND: Mapping[str, ByHand] = {
    # What to fetch, and where: doc/dataset_conversion.md of google-research/meta-dataset.
    "md-aircraft": ByHand(
        "no checksum of its archive is known",
        "fgvc-aircraft-2013b.tar.gz (2.6 GB)",
        "https://www.robots.ox.ac.uk/~vgg/data/fgvc-aircraft/",
    ),
    "md-flower": ByHand(
        "no checksum of its archive is known",
        "102flowers.tgz and imagelabels.mat",
        "https://www.robots.ox.ac.uk/~vgg/data/flowers/102/",
        then="unpack the first beside the second, ",
    ),
    "md-fungi": ByHand(
        "no checksum of its archives is known",
        "fungi_train_val.tgz (13 GB) and train_val_annotations.tgz",
        "https://github.com/visipedia/fgvcx_fungi_comp",
        then="unpack both into one folder, ",
    ),
    "md-ilsvrc": ByHand(
        _IMAGENET,
        "ILSVRC2012_img_train.tar (138 GB)",
        "https://image-net.org",
        then="unpack it, and each archive in it into a folder of its name, ",
    ),
    "md-mscoco": ByHand(
        "no checksum of its archives is known",
        "train2017.zip (18 GB) and annotations_trainval2017.zip",
        "https://cocodataset.org",
        then="unpack both into one folder, ",
    ),
    "md-quickdraw": ByHand(
        "it has no archive, but a file for each class",
        "the files of the folder full/numpy_bitmap",
        "https://github.com/googlecreativelab/quickdraw-dataset",
    ),
    "md-textures": ByHand(
        "no checksum of its archive is known",
        "dtd-r1.0.1.tar.gz (0.6 GB)",
        "https://www.robots.ox.ac.uk/~vgg/data/dtd/",
    ),
    "miniimagenet": ByHand(_IMAGENET, "mini-imagenet.tar.gz (1.1 GB)", _FEW_SHOT_SSL),
    "tieredimagenet": ByHand(_IMAGENET, "tiered-imagenet.tar (12.9 GB)", _FEW_SHOT_SSL),
    # Names and page: torchvision.datasets.flowers102.
    "vgg-flower": ByHand(
        "its archive has the images of all classes in one folder",
        "102flowers.tgz and imagelabels.mat",
        "https://www.robots.ox.ac.uk/~vgg/data/flowers/102/",
        then="sort the images into a folder for each label, ",
    ),
}


def download(
    dataset: str, folder: Path, *, on_progress: OnProgress = lambda name, done, total: None
) -> list[Path]:
    """Download a dataset, or say how to get it by hand.

    Args:
        dataset: its name.
        folder: where its files go.
        on_progress: is told how far it is.

    Returns:
        The files.

    Raises:
        DataError: it cannot be downloaded, or not now; says what to do.
    """
    if dataset in BY_HAND:
        manual = BY_HAND[dataset]
        raise DataError(
            f"{dataset} must be fetched by hand: {manual.why}. Fetch {manual.what} from "
            f"{manual.page}, {manual.then}put it into {folder}, and run `alfa data prepare "
            f"{dataset}`."
        )
    if dataset not in DOWNLOADS:
        raise DataError(
            f"there is nothing to download for {dataset}; what can be downloaded is "
            f"{', '.join(DOWNLOADS)}."
        )
    return [fetch(file, folder, on_progress=on_progress) for file in DOWNLOADS[dataset]]


def fetch(
    file: RemoteFile,
    folder: Path,
    *,
    on_progress: OnProgress = lambda name, done, total: None,
    waits: Sequence[float] = _WAITS,
) -> Path:
    """Download one file, or the rest of it, and compare its checksum.

    Args:
        file: what to download.
        folder: where it goes; until it is complete and right, it is called ``.part`` there.
        on_progress: is told how far it is.
        waits: seconds before each new attempt after one that brought nothing.

    Raises:
        DataError: it cannot be had, or is not what it should be.
    """
    target = folder / file.name
    part = folder / f"{file.name}.part"
    try:
        if target.exists():
            _check(target, file, advice="move it away, and run this again")
            on_progress(file.name, target.stat().st_size, target.stat().st_size)
            return target
        folder.mkdir(parents=True, exist_ok=True)
        with _alone(part):
            if target.exists():
                # Another process was done a moment ago.
                return fetch(file, folder, on_progress=on_progress)
            _complete(file, part, on_progress, waits)
            bad = folder / f"{file.name}.bad"
            _check(part, file, bad=bad, advice=f"it is kept as {bad}; run this again for a new one")
            part.replace(target)
    except OSError as error:
        raise DataError(
            f"{file.name} could not be written to {folder}: {error.strerror or error}."
        ) from error
    return target


@contextmanager
def _alone(part: Path) -> Iterator[None]:
    """A file to add to, which no other process does; an empty one is nothing to go on with.

    Raises:
        DataError: another one does.
    """
    busy = DataError(f"another process is downloading {part.stem}; wait for it.")
    with held(part.with_name(f".{part.name}.lock"), otherwise=busy):
        try:
            part.touch()
            yield
        finally:
            if part.is_file() and not part.stat().st_size:
                part.unlink()


def _check(path: Path, file: RemoteFile, *, advice: str, bad: Path | None = None) -> None:
    kind, _, expected = file.checksum.partition(":")
    found = pooch.file_hash(str(path), alg=kind)
    if found == expected:
        return
    if bad is not None:
        path.replace(bad)
    raise DataError(
        f"{file.name} is not what it should be: its {kind} is {found}, expected was {expected}; "
        f"{advice}."
    )


class _CutError(Exception):
    """The connection failed, and a new one may do better."""


def _complete(
    file: RemoteFile, part: Path, on_progress: OnProgress, waits: Sequence[float]
) -> None:
    """Ask for what is missing until nothing is."""
    most, failures = part.stat().st_size, 0
    while part.stat().st_size != file.num_bytes:
        try:
            _ask(file, part, on_progress)
            return
        except _CutError as error:
            size = part.stat().st_size
            failures = 1 if size > most else failures + 1
            most = max(most, size)
            if failures > len(waits):
                raise DataError(
                    f"{file.url} cannot be downloaded: {error}; {size:,} bytes are kept in {part}, "
                    "and running this again goes on from there."
                ) from None
            time.sleep(waits[failures - 1])


def _ask(file: RemoteFile, part: Path, on_progress: OnProgress) -> None:
    """One request for what is missing; returns when all is there."""
    have = part.stat().st_size
    headers = {"User-Agent": "alfa", "Accept-Encoding": "identity"}
    if have:
        headers["Range"] = f"bytes={have}-"
    request = urllib.request.Request(file.url, headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=_TIMEOUT) as response:
            _receive(response, part, have, lambda *size: on_progress(file.name, *size))
    except urllib.error.HTTPError as error:
        with error:
            _refused(error, file, part, have)
    except urllib.error.URLError as error:
        reason = error.reason
        if isinstance(reason, ssl.SSLCertVerificationError) or (
            isinstance(reason, socket.gaierror | ConnectionRefusedError) and not have
        ):
            raise _unavailable(file, f"it cannot be reached ({reason})") from None
        raise _CutError(f"it cannot be reached ({reason})") from None
    except (ConnectionError, TimeoutError, http.client.HTTPException) as error:
        raise _cut_by(error) from None


def _cut_by(error: Exception) -> _CutError:
    return _CutError(f"the connection was cut ({str(error) or type(error).__name__})")


def _receive(
    response: http.client.HTTPResponse,
    part: Path,
    have: int,
    on_progress: Callable[[int, int | None], None],
) -> None:
    """Add what the server sends; a server that sends all of it again is taken at its word."""
    begin = re.match(r"bytes (\d+)-", response.headers.get("Content-Range", ""))
    goes_on = response.status == 206 and begin is not None and int(begin[1]) == have
    length = response.headers.get("Content-Length")
    done = have if goes_on else 0
    total = done + int(length) if length is not None else None
    with part.open("r+b") as out:
        out.truncate(done)
        out.seek(done)
        on_progress(done, total)
        while block := _next_block(response):
            out.write(block)
            done += len(block)
            on_progress(done, total)
    if total is not None and done < total:
        raise _CutError(f"the connection was cut after {done:,} of {total:,} bytes")


def _next_block(response: http.client.HTTPResponse) -> bytes:
    try:
        return response.read(_BLOCK)
    # Apart from what writing to the disk may raise, so that each is told for what it is.
    except (OSError, http.client.HTTPException) as error:
        raise _cut_by(error) from None


def _refused(error: urllib.error.HTTPError, file: RemoteFile, part: Path, have: int) -> None:
    """The server answered with an error; whether that is final depends on which."""
    if error.code == 416 and have:
        # There is nothing behind what is here, so that cannot be a part of what is there now.
        part.write_bytes(b"")
        raise _CutError("the file has changed on the server") from None
    if error.code == 429 or error.code >= 500:
        raise _CutError(f"the server answered {error.code} ({error.reason})") from None
    raise _unavailable(file, f"the server answered {error.code} ({error.reason})") from None


def _unavailable(file: RemoteFile, reason: str) -> DataError:
    untried = "" if file.tried else " (the address was never tried when this was written)"
    return DataError(
        f"{file.url} cannot be downloaded: {reason}{untried}; see {file.page} for where "
        f"{file.name} is now."
    )
