"""GTSRB: 43 classes of traffic signs, for test only."""

from alfa.data.sources._base import RemoteFile, published_counts, register_source
from alfa.data.sources._published import OnlyTestSource


@register_source("traffic-sign")
class TrafficSign(OnlyTestSource):
    """The training images of the German Traffic Sign Recognition Benchmark, for test."""

    title = "GTSRB traffic signs"
    size = 32
    published = published_counts(0, 0, 43, images=(0, 0, 39_209))
    layouts = (
        "GTSRB/Final_Training/Images/<class>/*.ppm, with classes such as 00014",
        "class folders <class>/*",
        "either in a zip or tar archive, such as GTSRB_Final_Training_Images.zip",
    )
    terms = (
        "For research only. Cite Stallkamp et al., Man vs. Computer: Benchmarking Machine Learning "
        "Algorithms for Traffic Sign Recognition, 2012."
    )
    # Address, size, and MD5: the benchmark's archive at sid.erda.dk; torchvision.datasets.gtsrb
    # downloads other files from the same place.
    downloads = (
        RemoteFile(
            url="https://sid.erda.dk/public/archives/daaeac0d7ce1152aea9b61d9f1e19370/"
            "GTSRB_Final_Training_Images.zip",
            name="GTSRB_Final_Training_Images.zip",
            num_bytes=276_294_756,
            checksum="md5:f33fd80ac59bff73c82d25ab499e03a3",
            page="https://benchmark.ini.rub.de/gtsrb_dataset.html",
        ),
    )
