"""Manifests: whole files pass, every change is seen and named, and nothing that is read hangs."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest
from damage import DAMAGES, without_overrides
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from searchrl.errors import DamagedError
from searchrl.run_folder.checkpoints import read_manifest
from searchrl.run_folder.manifest import CHECKSUMS, STATE, Manifest, find_fault, make_entry

VALUE = {"step": 3, "texts": ["ü", "\u2028"], "inner": {"x": 0.1, "none": None}}


INFINITE = {"a.bin": {"bytes": float("inf"), "sha256": ""}}


def _seal(path: Path, value: dict[str, object]) -> None:
    """As a stranger would: with values that `Manifest.write` refuses."""
    plain = json.dumps(value, sort_keys=True, separators=(",", ":"))
    path.write_text(json.dumps(value | {"sha256": hashlib.sha256(plain.encode()).hexdigest()}))


def verify(folder: Path, below: str = "", *, deep: bool = True, way_on: str = "") -> Manifest:
    manifest = Manifest.read(folder / CHECKSUMS, way_on)
    manifest.verify(folder, below, deep=deep, way_on=way_on)
    return manifest


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    place = tmp_path / "folder"
    (place / "inner").mkdir(parents=True)
    (place / "a.bin").write_bytes(bytes(range(256)))
    (place / "inner" / "b.txt").write_text("some text")
    (place / "none.txt").write_bytes(b"")
    (place / "README.md").write_text("for people")
    Manifest.of(place, {}).write(place / CHECKSUMS)
    return place


def test_sealed_file_comes_back_and_is_plain_json(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    Manifest(VALUE, {}).write(path)
    assert Manifest.read(path) == Manifest(VALUE, {})
    assert json.loads(path.read_text("utf-8"))["inner"] == VALUE["inner"]
    path.write_text(json.dumps(dict(reversed(json.loads(path.read_text("utf-8")).items()))))
    assert Manifest.read(path) == Manifest(VALUE, {}), "whatever the order of its keys"
    for text in ("[" * 100_000, "{", "[1]"):
        path.write_text(text)
        with pytest.raises(DamagedError, match="it is no JSON object"):
            Manifest.read(path)
    path.write_text(json.dumps(VALUE))
    with pytest.raises(DamagedError, match="it has no checksum"):
        Manifest.read(path)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=200)
@given(place=st.integers(0, 10**6), mask=st.integers(1, 255))
def test_no_changed_byte_of_a_sealed_file_passes(tmp_path: Path, place: int, mask: int) -> None:
    path = tmp_path / "x.json"
    Manifest(VALUE, {}).write(path)
    data = bytearray(path.read_bytes())
    data[place % len(data)] ^= mask
    path.write_bytes(data)
    try:
        manifest = Manifest.read(path)
    except DamagedError as error:
        assert f"'{path}' is damaged" in str(error)
    else:
        assert manifest == Manifest(VALUE, {})  # space between words may change


def test_number_that_is_not_finite_is_not_sealed(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        Manifest({"x": float("nan")}, {}).write(tmp_path / "x.json")


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("name", ["a.bin", "inner/b.txt", CHECKSUMS])
def test_each_damage_of_a_folder_is_found(folder: Path, name: str, damage: str) -> None:
    assert set(verify(folder).files) == {"a.bin", "inner/b.txt", "none.txt"}
    DAMAGES[damage](folder / name)
    with without_overrides(), pytest.raises(DamagedError) as caught:
        verify(folder, way_on="Do this")
    assert str(caught.value).startswith(f"'{folder / name}' is damaged: ")
    assert str(caught.value).endswith("Do this")


def test_sizes_alone_see_what_is_cut_off_but_not_what_is_flipped(folder: Path) -> None:
    DAMAGES["flipped"](folder / "a.bin")
    verify(folder, deep=False)
    verify(folder, "inner/")
    for name in ("inner/b.txt", "none.txt"):
        with (folder / name).open("a") as file:
            file.write("x")
        with pytest.raises(DamagedError, match="it has .* bytes"):
            verify(folder, name, deep=False)
    DAMAGES["truncated"](folder / "a.bin")
    with pytest.raises(DamagedError, match="it has 128 bytes and was written with 256"):
        verify(folder, deep=False)


@pytest.mark.parametrize(
    "files", [[], {"a.bin": 1}, {"a.bin": {"bytes": "x", "sha256": ""}}, None, INFINITE]
)
def test_list_of_another_shape_is_damaged(folder: Path, files: object) -> None:
    _seal(folder / CHECKSUMS, {"files": files})
    with pytest.raises(DamagedError, match="does not list files"):
        verify(folder)


@pytest.mark.parametrize("name", ["../x", "inner/../../x", "/etc/hosts", "a\0b", "\ud800", ""])
def test_list_leads_out_of_no_folder(folder: Path, name: str) -> None:
    (folder.parent / "x").write_text("mine")
    _seal(folder / CHECKSUMS, {"files": {name: {"bytes": 4, "sha256": ""}}})
    with pytest.raises(DamagedError, match="it is missing"):
        verify(folder, deep=False)


def test_what_may_grow_begins_with_what_was_written(folder: Path) -> None:
    file = folder / "a.bin"
    entry = make_entry(file)
    file.write_bytes(file.read_bytes() + b"more")
    assert find_fault(file, entry, may_grow=True) == "" != find_fault(file, entry)
    file.write_bytes(b"x" + file.read_bytes()[1:])
    assert find_fault(file, entry, may_grow=True) == "its content is not what was written"


def test_a_checkpoint_whose_files_nobody_lists_is_refused(folder: Path) -> None:
    Manifest({"step": 1}, {}).write(folder / STATE)
    with pytest.raises(DamagedError, match="lists no files"):
        read_manifest(folder)
