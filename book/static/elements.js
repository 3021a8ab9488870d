// What the pictures of this book are made of.
window.elements = (() => {
  const range = (n) => [...Array(n).keys()];
  const sum = (numbers) => numbers.reduce((total, number) => total + number, 0);
  const mean = (numbers) => sum(numbers) / numbers.length;
  // The mean of tables of numbers, place by place.
  const meanTable = (tables) =>
    tables[0].map((row, q) => row.map((_, k) => mean(tables.map((table) => table[q][k]))));

  // The mean over the heads of weights (h, len).
  const meanHeads = (weights, length) =>
    range(length).map((k) =>
      mean(range(weights.length / length).map((i) => weights[i * length + k])),
    );

  // The weights of one head among (layers, heads, rows, columns); of none, the mean of the last layer.
  const tableOf = ({ weights }, head) =>
    head ? weights[head[0]][head[1]] : meanTable(weights.at(-1));

  const plain = (piece) => (piece === "<EOS>" ? "end" : piece.replaceAll("▁", "") || "▁");
  // As the charts of the book name a piece: "…" continues a word.
  function wordOf(name) {
    const word = name.replaceAll("▁", "");
    if (name === "</s>" || name === "<EOS>") return "end";
    return word === name && /^\p{L}/u.test(name) ? `…${name}` : word || "space";
  }
  // Of a probability below one thousandth no more is told.
  const percent = (p) => (p < 0.001 ? "< 0.1%" : `${(100 * p).toFixed(1)}%`);

  // A head is a pair of layer and number, counted from zero; none stands for the mean of the last layer.
  const headName = (head, layers) =>
    head ? `Layer ${head[0] + 1}, head ${head[1] + 1}` : `Layer ${layers}, mean of its heads`;

  // ------------------------------------------------------------------------------- elements

  function make(tag, properties = {}, ...children) {
    const element = Object.assign(document.createElement(tag), properties);
    element.append(...children);
    return element;
  }
  const button = (properties, ...children) =>
    make("button", { type: "button", ...properties }, ...children);

  function shape(tag, attributes = {}, ...children) {
    const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    element.append(...children);
    return element;
  }

  // A table with names of its columns.
  function table(heads, body) {
    const cells = heads.map((textContent) =>
      textContent ? make("th", { scope: "col", textContent }) : make("td"),
    );
    return make("table", { className: "kept" }, make("thead", {}, make("tr", {}, ...cells)), body);
  }

  // Which one of several is chosen; the Tab key reaches it alone.
  function check(item, is) {
    Object.assign(item, { ariaChecked: is, tabIndex: is ? 0 : -1 });
  }

  // From 0 to a number; arrows move it, and turn no page.
  function slider(max, ariaLabel, change, more) {
    const oninput = () => change(input.valueAsNumber);
    const onkeydown = (event) => event.stopPropagation();
    const input = make("input", { type: "range", max, ariaLabel, oninput, onkeydown, ...more });
    return input;
  }

  // A line of buttons and choices.
  const controls = (...all) =>
    make("p", { className: "controls" }, ...all.map((each) => each.element ?? each));

  // A list to choose from: pairs of what it shows and what that means, or an object of them.
  function choice(name, options, chosen, change) {
    const select = make("select", { onchange: change });
    let meanings;
    const offer = (pairs, index) => {
      select.replaceChildren(...pairs.map(([text]) => new Option(text)));
      select.selectedIndex = index;
      meanings = pairs.map(([, meaning]) => meaning);
    };
    offer(Array.isArray(options) ? options : Object.entries(options), chosen);
    const element = make("label", {}, `${name} `, select);
    const value = { get: () => meanings[select.selectedIndex] };
    return Object.defineProperty({ element, select, offer }, "value", value);
  }

  // A line to type a sentence in.
  function sentenceForm(language, input, verb, submit) {
    const onsubmit = (event) => {
      event.preventDefault();
      submit();
    };
    const label = make("label", { className: "sentence" }, `${language} `, input);
    return make("form", { onsubmit }, label, make("button", { textContent: verb }));
  }

  // The outline of a curve that tapers from the word that attends to the one that it finds, in a
  // row above it or, turned, in a column to its left.
  function taper([x, y], [u, v], width, turned) {
    const [across, down] = [(x + u) / 2, (y + v) / 2];
    const bends = turned ? [across, y, across, v] : [x, down, u, down];
    const [xs, ys] = [0, 1].map((i) => [[x, y][i], bends[i], bends[i + 2], [u, v][i]]);
    const steps = range(25).map((i) => i / 24);
    const sides = [1, -1].map((side) =>
      steps.map((t) => {
        const s = 1 - t; // a Bézier curve, its direction, and half its width to one side
        const at = (of) => s ** 3 * of[0] + 3 * s * t * (s * of[1] + t * of[2]) + t ** 3 * of[3];
        const toward = (of) =>
          s * s * (of[1] - of[0]) + 2 * s * t * (of[2] - of[1]) + t * t * (of[3] - of[2]);
        const [dx, dy] = [toward(xs), toward(ys)];
        const half = (side * t * width) / 2 / Math.hypot(dx, dy);
        return `${(at(xs) - dy * half).toFixed(1)} ${(at(ys) + dx * half).toFixed(1)}`;
      }),
    );
    return `M${[...sides[0], ...sides[1].reverse()].join("L")}Z`;
  }

  // What may be wider than the page fades at the right and scrolls, with keys too, which then turn
  // no page.
  function fade(box) {
    box.classList.toggle("fades", box.scrollLeft + box.clientWidth < box.scrollWidth - 4);
  }
  let sizes;
  function wide(...children) {
    const onkeydown = (event) => {
      if (event.key.startsWith("Arrow")) event.stopPropagation();
    };
    const onscroll = () => fade(box);
    const box = make("div", { className: "wide", tabIndex: 0, onscroll, onkeydown }, ...children);
    sizes ??= new ResizeObserver((entries) => {
      for (const { target } of entries) fade(target);
    });
    sizes.observe(box);
    return box;
  }

  // The Tab key reaches one button of a box; arrows go to the others, and turn no page.
  function rove(box) {
    const step = { ArrowLeft: -1, ArrowUp: -1, ArrowRight: 1, ArrowDown: 1 };
    box.addEventListener("keydown", (event) => {
      const all = [...box.querySelectorAll("button:not(.unwritten)")];
      const { key } = event;
      const ends = { Home: 0, End: all.length - 1 };
      if (!(key in step || key in ends)) return;
      event.preventDefault();
      event.stopPropagation();
      all.at(ends[key] ?? (all.indexOf(event.target) + step[key]) % all.length).focus();
    });
    box.addEventListener("focusin", ({ target }) => {
      for (const each of box.querySelectorAll("button")) each.tabIndex = each === target ? 0 : -1;
    });
  }

  // The data that came with the page.
  const dataOf = (box) => JSON.parse(box.querySelector("script").textContent);
  const isCalm = () => matchMedia("(prefers-reduced-motion: reduce)").matches;

  const numbers = {
    range,
    sum,
    mean,
    meanTable,
    meanHeads,
    tableOf,
    plain,
    wordOf,
    percent,
    headName,
  };
  const parts = { make, button, shape, table, slider, controls, choice, sentenceForm };
  return { ...numbers, ...parts, taper, fade, wide, check, rove, dataOf, isCalm };
})();
