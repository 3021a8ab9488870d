"""What charts of the book have in common."""

from book.charts import words


def test_pieces_are_named_by_words() -> None:
    assert words(["▁The", "▁l", "aw", ".", "▁(", "</s>", "<EOS>", "▁", "<s>"]) == [
        "The", "l", "…aw", ".", "(", "end", "end", "space", "<s>"
    ]  # fmt: skip
