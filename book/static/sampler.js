// The next token of a small language model: what a draw may choose, and how often.
window.sampler = (() => {
  const { range, sum, make, button, slider, sentenceForm, rove, dataOf, isCalm } = window.elements;
  const { END, Token } = window.search;
  const ROWS = 8; // bars
  const MOST = 60; // tokens of a text
  const PAUSE = 150; // milliseconds between two tokens
  const TENTHS = range(20).map((i) => (i + 1) / 10);
  const TWENTIETHS = range(20).map((i) => (i + 1) / 20);
  const DIALS = [
    {
      name: "Temperature",
      key: "temperature",
      values: TENTHS,
      tell: (value) => value.toFixed(1),
      does: "divides the scores",
    },
    {
      name: "Top-k",
      key: "topK",
      values: [1, 2, 3, 5, 10, 20, 50, 100, Infinity],
      tell: (k) => (k < 1000 ? `${k}` : "all"),
      does: "keeps the k likeliest tokens",
    },
    {
      name: "Top-p",
      key: "topP",
      values: TWENTIETHS,
      tell: (value) => value.toFixed(2),
      does: "keeps the likeliest, up to this sum",
    },
  ];

  // All ids, the likeliest first, and how often each of the first is drawn, as `draw` of the package
  // has it; the others are cut.
  function drawn(logProbs, { temperature, topK, topP }) {
    const ids = range(logProbs.length).sort((one, two) => logProbs[two] - logProbs[one]);
    const weights = ids
      .slice(0, topK)
      .map((id) => Math.exp((logProbs[id] - logProbs[ids[0]]) / temperature));
    const most = topP < 1 ? topP * sum(weights) : Infinity;
    let before = 0;
    const kept = weights.filter((weight) => {
      before += weight;
      return before - weight < most;
    });
    const all = sum(kept);
    return { ids, shares: kept.map((weight) => weight / all) };
  }

  // The id in whose share a number from 0 to 1 is.
  function pick({ ids, shares }, chance) {
    let rest = chance;
    const place = shares.findIndex((share) => {
      rest -= share;
      return rest < 0;
    });
    return ids[place < 0 ? 0 : place]; // rounded sums may be less than 1
  }

  const percent = (share) =>
    share < 0.001 ? "< 0.1%" : `${(100 * share).toFixed(share < 0.0995 ? 1 : 0)}%`;

  const curly = (words) => words.replaceAll("'", "’"); // as printed

  // A button for each of the likeliest tokens, which chooses it, and a line for all others.
  function bars(choose) {
    const element = make("div", { className: "shares" });
    let rows = [];
    const parts = range(ROWS + 1).map((i) => {
      const spans = ["name", "number", "stripe"].map((className) => make("span", { className }));
      const onclick = () => choose(rows[i][3]);
      element.append(i < ROWS ? button({ onclick }, ...spans) : make("p", {}, ...spans));
      return spans;
    });
    rove(element);
    // Of each: name, probability, share of the draws (0: cut), id.
    function show(shown) {
      rows = shown;
      const most = Math.max(...rows.flatMap(([, probability, share]) => [probability, share]));
      element.style.setProperty("--full", Math.ceil(10 * most) / 10);
      for (const [i, [name, number, bar]] of parts.entries()) {
        const [text, probability, share] = rows[i];
        name.textContent = text;
        number.textContent = share ? percent(share) : "cut";
        bar.style = `--probability: ${probability}; --share: ${share}`;
        const row = element.children[i];
        row.classList.toggle("cut", !share);
        row.title = `${text}: ${percent(probability)} for the model`;
      }
    }
    return { element, show };
  }

  function fill(box) {
    const { beginnings, rows, vocab, texts } = dataOf(box);
    const settings = { temperature: texts[0][0], topK: Infinity, topP: 1 };
    let [model, opening, latest, start, last] = [null, null, 0, null, null];

    const input = make("input", { type: "text", value: beginnings[0], lang: "en" });
    Object.assign(input, { autocomplete: "off", spellcheck: false, oninput: () => turn(read) });
    const offered = beginnings.slice(1).map((textContent) => {
      const onclick = () => {
        input.value = textContent;
        turn(read);
      };
      return button({ textContent, onclick });
    });
    const dials = DIALS.map(({ name, key, values, tell, does }) => {
      const told = make("output");
      const set = (place) => {
        settings[key] = values[place];
        told.textContent = dial.ariaValueText = tell(values[place]);
        if (model) draw();
      };
      const dial = slider(values.length - 1, name, set);
      dial.value = values.indexOf(settings[key]);
      set(dial.valueAsNumber);
      return make("label", {}, make("span", {}, name), dial, told, make("small", {}, does));
    });
    const [typed, written] = [make("span"), make("b")];
    const text = make("p", { className: "translation", lang: "en", role: "status" });
    text.append(typed, written);
    const note = make("p", { className: "note" });
    note.textContent = `A recording. The first touch loads the model (${box.dataset.megabytes}\u00a0MB), which then runs on this page.`;
    const title = make("strong", {}, "A temperature below 1 favors the likeliest tokens");
    const key = make("span", {}, "Bar: how often drawn. Line: the model’s probability");
    const list = make("ul", { ariaLabel: "The last texts" });
    const shares = bars((id) => turn(() => follow(id)));
    const form = sentenceForm("Beginning", input, "Write on", () => turn(write));
    form.append(
      button({ textContent: "Next token", onclick: () => turn(step) }),
      button({ textContent: "Again", onclick: () => turn(again) }),
    );
    box.append(
      form,
      make("p", { className: "examples" }, ...offered),
      text,
      note,
      make("p", { className: "chart-title" }, title, key),
      make(
        "div",
        { className: "draws" },
        shares.element,
        make("div", { className: "dials" }, ...dials),
      ),
      list,
    );
    Object.assign(box, { role: "group", ariaLabel: "A language model that runs on this page" });
    box.addEventListener("focusin", () => model || turn(() => {}));
    show(beginnings[0], texts[0][1], rows);
    for (const [temperature, written] of texts.slice(1))
      list.append(keptText(`${beginnings[0]}${written}`, { ...settings, temperature }));
    let isRecorded = true;

    async function open() {
      note.textContent = "Loading …";
      model = await window.liveModel(box.dataset.model);
      read();
    }
    // Does something once the model is there; what was begun before ends.
    async function turn(act) {
      const mine = ++latest;
      try {
        opening ??= open();
        await opening;
        if (mine === latest) await act(() => mine === latest);
        if (mine === latest) text.ariaBusy = "false";
      } catch (error) {
        note.textContent = `This did not work: ${error.message}`;
        if (!model) opening = null; // so that the next touch tries again
      }
    }

    // The typed beginning, after the end of another sentence.
    function read() {
      const ids = model.encode(input.value).ids.slice(0, -1);
      start = ids.reduce((token, id) => token.follow(id, 0), new Token(END));
      last = start;
      [last.next] = model.transformer.decode(start.path).slice(-1);
      draw();
    }
    const isOver = () => last !== start && (last.ended || last.length >= MOST);
    // What is drawn from: at the end of a text, what the end was drawn from.
    const place = () => (isOver() ? last.before : last);
    function follow(id) {
      last = place().follow(id, 0);
      if (isOver()) keep();
      else last.next ??= model.transformer.decode([last])[0];
      draw();
    }
    function keptText(said, drawnWith) {
      const isSet = ({ key, values }) => key === "temperature" || drawnWith[key] !== values.at(-1);
      const how = DIALS.filter(isSet).map(({ name, key, tell }) => {
        const dial = name.toLowerCase().replace("-", "\u2011");
        return `${dial}\u00a0${tell(drawnWith[key])}`;
      });
      return make("li", {}, curly(said), make("small", { textContent: how.join(", ") }));
    }
    function keep() {
      if (isRecorded) list.replaceChildren();
      isRecorded = false;
      list.prepend(keptText(model.decode(last.ids), settings));
      if (list.children.length > 2) list.lastChild.remove();
    }
    function step() {
      if (isOver()) read();
      follow(pick(drawn(last.next, settings), Math.random()));
    }
    async function write(isLast) {
      text.ariaBusy = "true";
      do {
        step();
        await new Promise((resolve) => setTimeout(resolve, isCalm() ? 0 : PAUSE));
      } while (isLast() && !isOver());
    }
    function again(isLast) {
      read();
      return write(isLast);
    }

    const nameOf = (id) =>
      id === END ? "(the end)" : model.names([id])[0].replace("▁", "") || "▁";
    function draw() {
      const { next } = place();
      const { ids, shares: kept } = drawn(next, settings);
      const first = range(ROWS).map((i) => [
        nameOf(ids[i]),
        Math.exp(next[ids[i]]),
        kept[i] ?? 0,
        ids[i],
      ]);
      const others = Math.max(0, 1 - sum(first.map(([, probability]) => probability)));
      first.push([`${(vocab - ROWS).toLocaleString("en")} others`, others, sum(kept.slice(ROWS))]);
      const before = model.decode(start.ids);
      show(before, model.decode(last.ids).slice(before.length), first);
      const n = last.length - start.length;
      const said = `${n} ${n === 1 ? "token" : "tokens"} drawn`;
      const from = `${kept.length.toLocaleString("en")} of ${vocab.toLocaleString("en")}`;
      note.textContent = isOver() ? `${said}: the end.` : `${said}; the next, from ${from}.`;
    }
    function show(before, after, shown) {
      typed.textContent = curly(before);
      written.textContent = curly(after);
      shares.show(shown);
    }
  }

  for (const box of document.querySelectorAll('div.live[data-show="sampler"]')) fill(box);
  return { drawn, pick };
})();
