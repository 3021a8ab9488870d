"""Do heads follow grammar? Measures those of a model's encoder on GUM."""

from pathlib import Path

from annotated import load_pretrained
from benchmarks.heads.study import gum_study, write_study
from benchmarks.logs import make_parser


def main(given: list[str] | None = None) -> None:
    parser = make_parser("benchmarks.heads", __doc__)
    parser.add_argument("model", help="a model of the package, or a folder")
    text = "measure the same model before training, as a control"
    parser.add_argument("--untrained", action="store_true", help=text)
    parser.add_argument("--out", type=Path, help="JSON file to write")
    options = parser.parse_args(given)
    tables = gum_study(load_pretrained(options.model), options.untrained)
    for name, table in tables.items():
        print(f"\n{name}\n{table.round(3).to_string(index=False)}")
    if options.out is not None:
        write_study(options.out, tables, model=options.model, untrained=options.untrained)


if __name__ == "__main__":
    main()
