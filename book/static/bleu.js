// BLEU while a reader types, for the page "BLEU by hand": two outputs against their references.
window.bleu = (() => {
  const { range, sum, make, button } = window.elements;
  const REFERENCES = [
    "Ein Mann fährt auf einem Fahrrad durch die Stadt.",
    "Zwei Hunde spielen im tiefen Schnee.",
  ];
  const OUTPUTS = ["Ein Mann fährt mit dem Rad durch eine Stadt.", "Zwei Hunde spielen im Schnee."];
  const TRIES = [OUTPUTS[0], "Ein Mann fährt auf einem Rad durch die Stadt.", "Ein Mann fährt."];

  const wordsOf = (text) =>
    text
      .replace(/([.,!?;:"()])/g, " $1 ")
      .trim()
      .split(/\s+/);
  const runs = (n, words) =>
    range(Math.max(0, words.length - n + 1)).map((i) => words.slice(i, i + n).join(" "));

  // Of n-grams, how many an output shares with its reference, each at most as often as there.
  function shared(n, output, reference) {
    const counts = new Map();
    for (const run of runs(n, reference)) counts.set(run, (counts.get(run) ?? 0) + 1);
    return runs(n, output).filter((run) => {
      const rest = counts.get(run) ?? 0;
      counts.set(run, rest - 1);
      return rest > 0;
    }).length;
  }

  // The shares for n from 1 to 4, the penalty and the score of outputs, without smoothing.
  function score(outputs, references) {
    const sides = [outputs, references].map((side) => side.map(wordsOf));
    const of = range(4).map((i) => {
      const both = sum(sides[0].map((words, k) => shared(i + 1, words, sides[1][k])));
      return [both, sum(sides[0].map((words) => runs(i + 1, words).length))];
    });
    const [ours, theirs] = sides.map((side) => sum(side.map((words) => words.length)));
    const penalty = Math.min(1, Math.exp(1 - theirs / ours));
    const mean = of.reduce((product, [both, all]) => product * (both / (all || 1)), 1) ** (1 / 4);
    return { of, penalty, bleu: 100 * penalty * mean };
  }

  function fill(box) {
    const value = TRIES[0];
    const input = make("input", { type: "text", value, lang: "de", spellcheck: false });
    Object.assign(input, { autocomplete: "off", maxLength: 200 });
    const said = make("p", { role: "status" });
    const bar = make("div");
    const show = () => {
      const { of, penalty, bleu } = score([input.value, OUTPUTS[1]], REFERENCES);
      const number = make("b", { textContent: bleu.toFixed(0) });
      number.style.fontSize = "1.5rem";
      const shares = of.map(([both, all]) => `${both}/${all}`).join(", ");
      const short = penalty < 1 ? `; penalty ${penalty.toFixed(2)}` : "";
      said.replaceChildren(number, ` BLEU: shares ${shares}${short}`);
      const filled = `var(--layer) ${bleu.toFixed(0)}%, #8883 0`;
      bar.style.cssText = `background: linear-gradient(90deg, ${filled}); height: 4px; margin: 0.5rem 0 0.75rem`;
    };
    const take = (text) => {
      input.value = text;
      show();
    };
    input.oninput = show;
    input.onkeydown = (event) => event.stopPropagation(); // arrows turn no page
    const buttons = TRIES.map((text) => button({ textContent: text, onclick: () => take(text) }));
    const label = make("label", { className: "sentence" }, "Output ", input);
    const onsubmit = (event) => event.preventDefault();
    const reference = make("p", { className: "note" }, `Reference: ${REFERENCES[0]}`);
    box.replaceChildren(
      make("form", { onsubmit }, label),
      reference,
      said,
      bar,
      make("div", { className: "examples" }, ...buttons),
    );
    show();
  }

  document.querySelectorAll("div.bleu").forEach(fill);
  return { score };
})();
