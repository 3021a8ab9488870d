"""Progress bars and messages: for terminals, and for files of logs."""

import pytest

from annotated.machinery import progress
from annotated.machinery.errors import one_line


@pytest.mark.parametrize("seconds, lines", [(10, 0), (45, 2), (300, 15)])
def test_a_file_gets_a_line_in_twenty_seconds(monkeypatch, capsys, seconds: int, lines: int):
    now = [1000.0]
    monkeypatch.setattr("tqdm.std.time", lambda: now[0])
    bar = progress.progress_bar(total=seconds * 10, unit=" pairs", leave=False)
    for _ in range(seconds * 10):
        now[0] += 0.1
        bar.update()
    assert abs(capsys.readouterr().err.count("pairs/s") - lines) <= 1
    bar.close()


def test_a_message_is_one_line_that_commands_no_terminal(capsys):
    progress.say("license \x1b[31mred\x1b[0m\nannotated: forged \u202e \x9b2J \ud800 ä 漢 ✓")
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and "ä 漢 ✓" in said and all(map(str.isprintable, said.strip()))
    assert len(one_line("x" * 10**6)) < 1010 and one_line("x" * 1000) == "x" * 1000
