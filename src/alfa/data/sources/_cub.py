"""CUB-200-2011: 200 species of birds."""

from alfa.data.sources._base import RemoteFile, published_counts, register_source
from alfa.data.sources._published import PublishedSource

TERMS = (
    "For non-commercial research and education only. Cite Wah et al., The Caltech-UCSD "
    "Birds-200-2011 Dataset, 2011"
)


@register_source("cub")
class CUB(PublishedSource):
    """CUB-200-2011 with the split of Chen et al."""

    title = "CUB-200-2011"
    size = 84
    published = published_counts(100, 50, 50, images=(5_885, 2_950, 2_953))
    list_name = "cub"
    archives = ("*cub*",)
    layouts = (
        "CUB_200_2011/images/<class>/*.jpg, with classes such as 002.Laysan_Albatross",
        "folders {train,val,test}/<class>/*.jpg or {base,val,novel}/<class>/*.jpg",
        "either in a zip or tar archive, such as CUB_200_2011.tgz",
    )
    terms = (
        f"{TERMS}, and, for the split, Chen et al., A Closer Look at Few-Shot Classification, 2019."
    )
    # Address, size, and MD5: CaltechDATA record 65de6-vp158; tensorflow_datasets
    # (url_checksums/caltech_birds2011) records the same size.
    downloads = (
        RemoteFile(
            url="https://data.caltech.edu/records/65de6-vp158/files/CUB_200_2011.tgz",
            name="CUB_200_2011.tgz",
            num_bytes=1_150_585_339,
            checksum="md5:97eceeb196236b17998738112f37df78",
            page="https://www.vision.caltech.edu/datasets/cub_200_2011/",
        ),
    )
