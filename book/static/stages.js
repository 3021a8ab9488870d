// What the decoder's vectors resemble after each of its sub-layers: a table of pieces, read from the
// bottom up, and the five likeliest of the cell that the reader touches. The numbers for the first
// sentence stand in the page; for another one a model finds them.
window.stages = (() => {
  const { range, make, button, wide, dataOf, percent, wordOf } = window.elements;
  const [PARTS, FIVE] = [["masked", "source", "network"], 5];
  const ABOUT = "Read upward; darker: more probable";

  // A piece that goes in or comes out at its column, or another one.
  const kindOf = (piece, read, next) =>
    piece === next ? "next" : piece === read ? "input" : "other";

  // Where a column last shows another piece than the one that it writes: row, column.
  function undecided({ rows, read, next }) {
    for (const y of range(rows.length).reverse()) {
      const x = rows[y].findIndex(([[piece]], x) => kindOf(piece, read[x], next[x]) !== "next");
      if (x >= 0) return [y, x];
    }
    return [rows.length - 1, 0];
  }

  const nameOf = (y) => (y ? `layer ${Math.ceil(y / 3)}, ${PARTS[(y - 1) % 3]}` : "embedding");

  // Rows from the embedding to the last sub-layer: for each position, pairs of piece and probability.
  async function follow(model, ids) {
    const { transformer, names } = model;
    const { hypotheses, source } = await window.live.walk(transformer.search(ids));
    const [{ token }] = hypotheses;
    const made = [];
    const keep = (rows) => made.push(rows);
    const boxes = range(transformer.N_decoder).flatMap((n) =>
      range(PARTS.length).map((i) => `decoder.layers.${n}.sublayer.${i}`),
    );
    const touch = Object.fromEntries(["tgt_embed", ...boxes].map((name) => [name, keep]));
    const { path } = transformer.follow(token.before.ids, source.memory, touch);
    const words = (ids) => names(ids).map(wordOf);
    const likeliest = (row) => {
      const best = [...row.keys()].sort((a, b) => row[b] - row[a]).slice(0, FIVE);
      return words(best).map((piece, i) => [piece, Math.exp(row[best[i]])]);
    };
    const rows = [];
    for (const vectors of made) {
      rows.push(vectors.map((vector) => likeliest(transformer.predict(vector)[0])));
      await window.live.breath();
    }
    return { rows, read: words(path.map(({ id }) => id)), next: words(token.ids) };
  }

  // ------------------------------------------------------------------------------- elements

  // The five likeliest pieces of a cell, as bars.
  function drawLikely() {
    const title = make("p");
    const bars = range(FIVE).map(() =>
      make("p", {}, ...["name", "share", "number"].map((className) => make("span", { className }))),
    );
    const show = (told, pairs, kinds) => {
      title.textContent = told;
      for (const [i, [piece, p]] of pairs.entries()) {
        const [name, share, number] = bars[i].children;
        [name.textContent, number.textContent] = [piece, percent(p)];
        share.className = `share ${kinds[i]}`;
        share.style = `--share: ${(p / pairs[0][1]).toFixed(4)}`;
      }
    };
    return { element: make("div", { className: "likely", role: "status" }, title, ...bars), show };
  }

  // The table; arrows move between its cells.
  function drawTable({ rows, read, next }, show) {
    const told = (y, x) => `${nameOf(y)}, after “${read[x]}”`;
    const cells = rows.map((row, y) =>
      row.map((pairs, x) => {
        const [[piece, p]] = pairs;
        const choose = () => {
          for (const each of cells.flat()) each.tabIndex = each === cell ? 0 : -1;
          for (const each of cells.flat()) each.ariaPressed = each === cell;
          for (const row of cells)
            for (const [i, each] of row.entries()) each.classList.toggle("along", i === x);
          const kinds = pairs.map(([one]) => kindOf(one, read[x], next[x]));
          show(told(y, x), pairs, kinds);
        };
        const cell = button({
          textContent: piece,
          className: kindOf(piece, read[x], next[x]),
          style: `--p: ${p.toFixed(3)}`,
          ariaLabel: `${piece}: ${told(y, x)}`,
          onclick: choose,
          onfocus: choose,
          onpointerenter: choose,
        });
        return cell;
      }),
    );
    const head = (textContent, more) => make("th", { textContent, scope: "row", ...more });
    const lines = cells.map((row, y) => {
      const more = { rowSpan: 3, scope: "rowgroup", ariaLabel: `layer ${y / 3}` };
      const layer = y % 3 ? [] : [make("th", more, make("span", {}, "layer "), `${y / 3}`)];
      const names = y ? [...layer, head(PARTS[(y - 1) % 3])] : [head("embedding", { colSpan: 2 })];
      return make("tr", {}, ...names, ...row.map((cell) => make("td", {}, cell)));
    });
    const element = make("table", {}, make("tbody", {}, ...lines.reverse()));
    element.onkeydown = (event) => {
      const [dy, dx] = {
        ArrowUp: [1, 0],
        ArrowDown: [-1, 0],
        ArrowLeft: [0, -1],
        ArrowRight: [0, 1],
      }[event.key] ?? [0, 0];
      const y = cells.findIndex((row) => row.includes(event.target));
      if (y < 0 || (!dx && !dy)) return;
      event.preventDefault();
      event.stopPropagation(); // arrows would turn the page
      cells[y + dy]?.[cells[y].indexOf(event.target) + dx]?.focus();
    };
    return { element, cells };
  }

  function draw(box, data) {
    const likely = drawLikely();
    const { element, cells } = drawTable(data, likely.show);
    const kinds = { input: "token read", next: "token to write", other: "another" };
    const key = Object.entries(kinds).map(([className, textContent]) =>
      make("span", { className, textContent }),
    );
    // On a phone the shares may be out of sight.
    element.onclick = () => likely.element.scrollIntoView({ block: "nearest" });
    box.replaceChildren(
      make(
        "p",
        { className: "chart-title" },
        make("strong", {}, data.title),
        " ",
        make("span", {}, ABOUT),
      ),
      make("p", { className: "key" }, make("span", {}, ...key)),
      make("div", { className: "columns" }, wide(element), likely.element),
    );
    const [y, x] = undecided(data);
    cells[y][x].onclick();
  }

  function fill(box, form) {
    const first = dataOf(box);
    Object.assign(box, { role: "group", ariaLabel: "The decoder, sub-layer by sub-layer" });
    draw(box, first);
    const { megabytes, model: name, sentences } = form.dataset;
    const about = window.live.loads(megabytes);
    const { input, note } = window.live.asking(form, "Follow it", about, run);
    let latest = 0;

    async function run() {
      const turn = ++latest;
      const { value } = input;
      if (window.live.BLANK.test(value)) return;
      if (value === JSON.parse(sentences)[0]) return draw(box, first);
      try {
        note.textContent = "Loading …";
        const model = await window.liveModel(name);
        note.textContent = "Translating …";
        await window.live.breath();
        const found = await follow(model, model.encode(value).ids);
        if (turn !== latest) return;
        note.textContent = "";
        draw(box, { ...found, title: value });
        box.scrollIntoView({ block: "nearest" });
      } catch (error) {
        note.textContent = `This did not work: ${error.message}`;
      }
    }
  }

  for (const box of document.querySelectorAll("div.stages")) {
    fill(box, document.querySelector("div.live[data-show=stages]"));
  }
  return { kindOf, undecided, follow };
})();
