"""Checksums: whole files pass, every change is seen and named, and nothing that is read hangs."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest
from damage import DAMAGES, without_overrides
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from searchrl.errors import DamagedError
from searchrl.run_folder.sealing import (
    CHECKSUMS,
    SEAL,
    encode_sealed,
    read_sealed,
    verify_folder,
    write_checksums,
)

VALUE = {"step": 3, "texts": ["ü", "\u2028"], "inner": {"x": 0.1, "none": None}}


INFINITE = {"a.bin": {"bytes": float("inf"), "sha256": ""}}


def _seal(path: Path, value: dict[str, object]) -> None:
    """As a stranger would: with values that `encode_sealed` refuses."""
    plain = json.dumps(value, sort_keys=True, separators=(",", ":"))
    path.write_text(json.dumps(value | {SEAL: hashlib.sha256(plain.encode()).hexdigest()}))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    place = tmp_path / "folder"
    (place / "inner").mkdir(parents=True)
    (place / "a.bin").write_bytes(bytes(range(256)))
    (place / "inner" / "b.txt").write_text("some text")
    (place / "none.txt").write_bytes(b"")
    (place / "README.md").write_text("for people")
    write_checksums(place)
    return place


def test_sealed_file_comes_back_and_is_plain_json(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_bytes(encode_sealed(VALUE))
    assert read_sealed(path) == VALUE
    assert json.loads(path.read_text("utf-8"))["inner"] == VALUE["inner"]
    path.write_text(json.dumps(dict(reversed(json.loads(path.read_text("utf-8")).items()))))
    assert read_sealed(path) == VALUE, "whatever the order of its keys"
    for text in ("[" * 100_000, "{", "[1]"):
        path.write_text(text)
        with pytest.raises(DamagedError, match="it is not JSON|it holds list"):
            read_sealed(path)
    path.write_text(json.dumps(VALUE))
    with pytest.raises(DamagedError, match="it has no checksum"):
        read_sealed(path)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=200)
@given(place=st.integers(0, 10**6), mask=st.integers(1, 255))
def test_no_changed_byte_of_a_sealed_file_passes(tmp_path: Path, place: int, mask: int) -> None:
    path, data = tmp_path / "x.json", bytearray(encode_sealed(VALUE))
    data[place % len(data)] ^= mask
    path.write_bytes(data)
    try:
        value = read_sealed(path)
    except DamagedError as error:
        assert f"'{path}' is damaged" in str(error)
    else:
        assert value == VALUE  # space between words may change


def test_number_that_is_not_finite_is_not_sealed() -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        encode_sealed({"x": float("nan")})


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("name", ["a.bin", "inner/b.txt", CHECKSUMS])
def test_each_damage_of_a_folder_is_found(folder: Path, name: str, damage: str) -> None:
    assert set(verify_folder(folder)) == {"a.bin", "inner/b.txt", "none.txt"}
    DAMAGES[damage](folder / name)
    with without_overrides(), pytest.raises(DamagedError) as caught:
        verify_folder(folder, way_on="Do this")
    assert str(caught.value).startswith(f"'{folder / name}' is damaged: ")
    assert str(caught.value).endswith("Do this")


def test_sizes_alone_see_what_is_cut_off_but_not_what_is_flipped(folder: Path) -> None:
    DAMAGES["flipped"](folder / "a.bin")
    verify_folder(folder, deep=False)
    assert verify_folder(folder, "inner/") == ["inner/b.txt"]
    for name in ("inner/b.txt", "none.txt"):
        with (folder / name).open("a") as file:
            file.write("x")
        with pytest.raises(DamagedError, match="it has .* bytes"):
            verify_folder(folder, name, deep=False)
    DAMAGES["truncated"](folder / "a.bin")
    with pytest.raises(DamagedError, match="it has 128 bytes and was written with 256"):
        verify_folder(folder, deep=False)


@pytest.mark.parametrize(
    "files", [[], {"a.bin": 1}, {"a.bin": {"bytes": "x", "sha256": ""}}, None, INFINITE]
)
def test_list_of_another_shape_is_damaged(folder: Path, files: object) -> None:
    _seal(folder / CHECKSUMS, {"files": files})
    with pytest.raises(DamagedError, match="does not list files"):
        verify_folder(folder)


@pytest.mark.parametrize("name", ["../x", "inner/../../x", "/etc/hosts", "a\0b", "\ud800", ""])
def test_list_leads_out_of_no_folder(folder: Path, name: str) -> None:
    (folder.parent / "x").write_text("mine")
    _seal(folder / CHECKSUMS, {"files": {name: {"bytes": 4, "sha256": ""}}})
    with pytest.raises(DamagedError, match="it is missing"):
        verify_folder(folder, deep=False)
