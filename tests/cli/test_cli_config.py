"""`searchrl config`: what it prints, and that it stays light."""

import json

from command_line import succeed

from searchrl.config.keys import config_keys


def printed(*arguments: str) -> str:
    return succeed("config", *arguments).stdout


def test_one_key_with_all_that_is_known_of_it() -> None:
    lines = printed("optim.lr").splitlines()
    assert lines[0] == "optim.lr = 2e-5  number ≥ 0 ≤ 1, --lr"
    assert lines[1].startswith("    Peak learning rate.")


def test_the_whole_tree_has_every_key_below_its_section() -> None:
    text = printed()
    heads = [line.split()[0].rstrip(":") for line in text.splitlines() if line[:1] != " "]
    assert [head for head in heads if head != "The"] == [key.key for key in config_keys()]
    assert "](" not in text and "`" not in text


def test_json_is_machine_readable() -> None:
    (row,) = json.loads(printed("env", "--json"))
    assert (row["key"], row["default"], row["flags"]) == ("tasks[].env", "regulations", ["--env"])
    assert len(json.loads(printed("--json"))) == len(config_keys())
