"""What charts of the book have in common."""

from book.charts import grouped, words


def test_pieces_are_named_by_words() -> None:
    assert words(["▁The", "▁l", "aw", ".", "▁(", "</s>", "<EOS>", "▁", "<s>"]) == [
        "The", "l", "…aw", ".", "(", "end", "end", "space", "<s>"
    ]  # fmt: skip


def test_rows_stand_below_their_headings_and_are_told_apart_by_them() -> None:
    encoding = grouped({"search": ["ours", "torch"], "training": ["ours"]}, 150).to_dict()
    rows = ["search", "search|ours", "search|torch", "training| ", "training", "training|ours"]
    assert encoding["scale"]["domain"] == rows and encoding["axis"]["labelPadding"] == 150
