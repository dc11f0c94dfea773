"""Whatever bytes an archive has: PackageError or a target with files inside it only."""

import io
import stat
import tempfile
import zipfile
from pathlib import Path

from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.support.effort import examples

from squall_common.errors import PackageError
from squall_common.packaging.archive.members import Limits
from squall_common.packaging.archive.unpack import extract

LIMITS = Limits(entries_max=50, total_bytes_max=100_000)


def attempt(data: bytes) -> bool:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        target = root / "deep" / "target"
        target.mkdir(parents=True)
        archive = root / "package.zip"
        archive.write_bytes(data)
        try:
            done = extract(archive, target, LIMITS)
        except PackageError:
            done = None
        inside = list(target.rglob("*"))
        outside = [p for p in root.rglob("*") if p not in inside]
        assert sorted(outside) == sorted([archive, target.parent, target])
        assert all(stat.S_ISREG(p.lstat().st_mode) or p.is_dir() for p in inside)
        assert sum(p.stat().st_size for p in inside if p.is_file()) <= LIMITS.total_bytes_max
        if done is not None:
            assert done.files == sum(p.is_file() for p in inside)
        return done is not None


def sample() -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as zip_file:
        zip_file.writestr("a.py", b"print('hello')\n" * 20)
        zip_file.writestr("p/b.txt", bytes(range(256)))
        zip_file.writestr("d/", b"")
    return file.getvalue()


SAMPLE = sample()


def test_the_sample_is_fine() -> None:
    assert attempt(SAMPLE)


@settings(max_examples=examples(100), deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, len(SAMPLE) - 1), st.integers(0, 255)), min_size=1, max_size=6
    )
)
def test_flipped_bytes(flips: list[tuple[int, int]]) -> None:
    data = bytearray(SAMPLE)
    for position, value in flips:
        data[position] = value
    attempt(bytes(data))


@settings(max_examples=examples(60), deadline=None)
@given(st.integers(0, len(SAMPLE)))
def test_truncated_archives(length: int) -> None:
    assert attempt(SAMPLE[:length]) == (length == len(SAMPLE))


@settings(max_examples=examples(80), deadline=None)
@given(
    st.lists(
        st.tuples(
            st.text(alphabet="aA.b/\\\0é ", max_size=8).filter(bool),
            st.integers(0, 0xFFFF),
            st.binary(max_size=20),
        ),
        max_size=6,
    )
)
@example([("a", stat.S_IFLNK | 0o777, b".."), ("a/b", 0, b"")])
def test_any_names_and_modes(members: list[tuple[str, int, bytes]]) -> None:
    import warnings

    file = io.BytesIO()
    with warnings.catch_warnings(), zipfile.ZipFile(file, "w") as zip_file:
        warnings.simplefilter("ignore")
        for name, mode, data in members:
            info = zipfile.ZipInfo("x")
            info.filename = name
            info.external_attr = mode << 16
            zip_file.writestr(info, data)
    attempt(file.getvalue())
