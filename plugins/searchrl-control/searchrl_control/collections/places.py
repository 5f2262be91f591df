"""From a name to the folder of a collection.

Owns the order in which a name is looked up: a path, a folder of `data`, the hub if that is allowed,
the made-up collection.
"""

from __future__ import annotations

from pathlib import Path

from searchrl import DataError, suggest, suggest_path
from searchrl_control.collections.demo import DEMO, write_demo
from searchrl_control.collections.hub import BEIR, download_beir


def find_collection(
    name: str, data: Path | None = None, *, hub: bool = False, cache: Path | None = None
) -> Path:
    """The folder of a collection.

    Args:
        name: a path, the name of a folder in `data`, a name of BEIR, or `demo`.
        data: a folder with collections by name, such as `datasets/scifact`.
        hub: whether one of BEIR may be downloaded from the Hugging Face hub.
        cache: where what is downloaded or made up lies; None: in the user's cache folder.

    Raises:
        DataError: there is no such collection; says what to do.
    """
    cache = cache or default_cache()
    if name == DEMO:
        return write_demo(cache)
    for folder in (Path(name).expanduser(), *([data / name] if data else [])):
        if folder.exists():
            return folder
    if hub and name in BEIR:
        return download_beir(name, cache)
    raise DataError(_say_missing(name, data))


def default_cache() -> Path:
    """The user's cache folder for collections, vectors and reformulations."""
    import platformdirs

    return platformdirs.user_cache_path("searchrl") / "control"


def _say_missing(name: str, data: Path | None) -> str:
    where = f" in '{data}'" if data else ""
    if name in BEIR:
        return (
            f"there is no collection '{name}'{where}. Put its BEIR folder (corpus.jsonl, "
            f"queries.jsonl, qrels/) there and set env.data, or set env.hub=true to download it"
        )
    near = suggest_path(data / name if data else name) or suggest(name, [*BEIR, DEMO])
    return f"there is no collection '{name}'{where}.{near} Set env.collection to a folder or a name"
