"""Folders of prose: sections, pieces, ids, and what is left out."""

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from searchrl.data.problems import Problems
from searchrl.data.text_folder import (
    read_text_folder,
    split_markdown,
    split_prose,
)

HANDBOOK = """---
layout: page
---
Preface.

# Handbook

## Library
Opens at nine.

```sh
# not a heading
```

## Closed on Mondays
## Sport ##
### Pool
Caps are required.
#hashtag is text
"""


def test_markdown_becomes_one_passage_per_section() -> None:
    assert list(split_markdown(HANDBOOK.split("---\n")[2])) == [
        ((), "Preface."),
        (("Handbook", "Library"), "Opens at nine.\n\n```sh\n# not a heading\n```"),
        (("Handbook", "Closed on Mondays"), "Closed on Mondays"),
        (("Handbook", "Sport", "Pool"), "Caps are required.\n#hashtag is text"),
    ]


def test_folder_is_read_recursively_in_path_order(tmp_path: Path) -> None:
    (tmp_path / "sub" / ".git").mkdir(parents=True)
    (tmp_path / "b_rules.md").write_text(HANDBOOK, encoding="utf-8")
    (tmp_path / "a-note.txt").write_bytes(b"\xef\xbb\xbfShort note.\r\n# not a heading")
    (tmp_path / "sub" / "c.MD").write_text("# Only\nOne section.")
    (tmp_path / "sub" / "empty.txt").write_text(" \n")
    (tmp_path / "sub" / "data.csv").write_text("a,b")
    (tmp_path / "sub" / ".git" / "x.txt").write_text("hidden")
    problems = Problems()
    passages = read_text_folder(tmp_path, problems)
    assert not problems.found
    assert [(p.id, p.title) for p in passages] == [
        ("a-note.txt", "a note"),
        ("b_rules.md#1", "b rules"),
        ("b_rules.md#2", "Handbook > Library"),
        ("b_rules.md#3", "Handbook > Closed on Mondays"),
        ("b_rules.md#4", "Handbook > Sport > Pool"),
        ("sub/c.MD", "Only"),
    ]
    assert passages[0].text == "Short note.\n# not a heading"
    assert all("layout" not in p.text for p in passages)


def test_unreadable_text_is_reported_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "bad.txt").write_bytes(b"fine\nfine\ncaf\xe9\n")
    (tmp_path / "good.txt").write_text("fine")
    problems = Problems()
    assert len(read_text_folder(tmp_path, problems)) == 1
    assert [str(p) for p in problems.found] == [
        f"{tmp_path / 'bad.txt'}:3: not UTF-8 text; save the file as UTF-8"
    ]


def test_long_text_is_cut_at_paragraphs_then_sentences_then_anywhere() -> None:
    assert split_prose("aa\n\nbb\n\ncc", 7) == ["aa\n\nbb", "cc"]
    assert split_prose("One two. Three four. Five.", 12) == ["One two.", "Three four.", "Five."]
    assert split_prose("学校规定。" * 3, 11) == ["学校规定。 学校规定。", "学校规定。"]
    assert split_prose("x" * 25, 10) == ["x" * 10, "x" * 10, "x" * 5]
    assert split_prose(" \n\n ") == []


@given(st.text(alphabet="# ab\n`", max_size=200))
def test_sections_keep_every_word(text: str) -> None:
    kept = " ".join(" ".join(headings) + " " + own for headings, own in split_markdown(text))
    assert set(kept.replace("#", " ").split()) == set(text.replace("#", " ").split())
