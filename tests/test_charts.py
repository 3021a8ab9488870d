"""What charts of the book have in common."""

from book.charts import LAYERS, PALETTE, words


def test_pieces_are_named_by_words() -> None:
    assert words(["▁The", "▁l", "aw", ".", "▁(", "</s>", "<EOS>", "▁", "<s>"]) == [
        "The", "l", "…aw", ".", "(", "end", "end", "space", "<s>"
    ]  # fmt: skip


def test_no_two_kinds_of_layers_share_a_color() -> None:
    assert len(set(LAYERS.values())) == len(LAYERS) and set(LAYERS.values()) <= set(PALETTE)
