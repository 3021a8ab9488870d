// Where the difference between two sentences travels: each cell of the map is one token's vector after
// one layer, taken over from the other sentence.
(() => {
  const { range, plain, make, button, controls, choice, wide, rove, sentenceForm } =
    window.elements;
  const { MOST, BLANK, walk, breath } = window.live;
  const LAYERS = (n) => (n ? `layer ${n}` : "embedding");

  // Of two outputs, the places where they differ: what is written before, and the two next pieces.
  // Where one is longer, only the first difference is between the same places.
  function differences(one, other) {
    const places = range(Math.min(one.length, other.length)).filter((i) => one[i] !== other[i]);
    if (one.length !== other.length) places.splice(1);
    return places.map((i) => ({ beginning: one.slice(0, i), pair: [one[i], other[i]] }));
  }

  // The numbers of one run, with one row from another.
  function take(rows, others, place) {
    const all = rows.map((row, i) => (i === place ? others[i] : row));
    return Float32Array.from(all.flatMap((row) => [...row]));
  }

  function fill(box) {
    const examples = JSON.parse(box.dataset.sentences).map((pair) => pair.split(" | "));
    const [from, to] = box.dataset.model.split("-").slice(-2);
    const language = new Intl.DisplayNames(["en"], { type: "language" });
    const typed = examples[0].map((value) =>
      make("input", { type: "text", value, lang: from, autocomplete: "off", spellcheck: false }),
    );
    const [first, second] = typed;
    const form = sentenceForm(language.of(from), first, "Compare", () => run());
    form.lastChild.before(make("label", { className: "sentence" }, "Instead ", second));
    const offered = examples.map((pair) =>
      button({
        textContent: pair.join(" | "),
        onclick() {
          [first.value, second.value] = pair;
          run();
        },
      }),
    );
    const about = `The first click loads the model (${box.dataset.megabytes} MB). It runs on this page; nothing is sent.`;
    const note = make("p", { className: "note", ariaLive: "polite", textContent: about });
    const told = make("p", { className: "translation", lang: to, textContent: box.dataset.result });
    const next = choice("Next word", [], 0, () => draw());
    const line = controls(next);
    line.hidden = true;
    const map = wide();
    const status = make("p", { className: "note", role: "status" });
    box.append(
      form,
      make("p", { className: "examples" }, ...offered),
      note,
      told,
      line,
      map,
      status,
    );
    Object.assign(box, { role: "group", ariaLabel: "Two sentences and what differs between them" });
    let [model, opening, latest, seen] = [null, null, 0, null];

    async function open() {
      note.textContent = "Loading …";
      await breath();
      model = await window.liveModel(box.dataset.model);
    }

    async function run() {
      const turn = ++latest;
      box.ariaBusy = "true";
      try {
        opening ??= open();
        await opening;
        if (turn === latest) await read(turn);
      } catch (error) {
        note.textContent = `This did not work: ${error.message}`;
        if (!model) opening = null; // so that the next click tries again
      }
      if (turn === latest) box.ariaBusy = "false";
    }

    // Both translations, and the words between which they decide differently.
    async function read(turn) {
      map.replaceChildren();
      line.hidden = true;
      told.textContent = "";
      status.textContent = "";
      const sides = typed.map((input) => model.encode(input.value));
      const [one, other] = sides.map(({ ids }) => ids);
      const blank = typed.some((input) => BLANK.test(input.value));
      const say = (text) => {
        note.textContent = text;
      };
      if (blank) return say("Type two sentences.");
      if (sides.some(({ cut }) => cut)) return say(`A sentence has more than ${MOST} pieces.`);
      if (one.length !== other.length)
        return say(
          `These sentences have ${one.length} and ${other.length} pieces. A part of one can take the place of the other's only if the numbers are equal: choose words that are one piece each.`,
        );
      const apart = range(one.length).filter((i) => one[i] !== other[i]);
      if (!apart.length) return say("These sentences are the same.");
      say("");
      const outputs = [];
      for (const ids of [one, other]) {
        const found = await walk(model.transformer.search(ids, { beam: 1 }), () => turn === latest);
        if (!found) return;
        outputs.push(found.hypotheses[0].token.ids);
      }
      const texts = outputs.map((ids) => model.decode(ids));
      told.textContent = texts.join(" | ");
      const places = differences(...outputs);
      if (!places.length) return say("Both have the same translation, so nothing has to travel.");
      const named = (ids) => model.names(ids).map(plain).join(" or ");
      seen = { one, other, apart };
      next.offer(
        places.map((place) => [named(place.pair), place]),
        places.length - 1,
      );
      line.hidden = false;
      await draw(turn);
    }

    // The map: one cell after the other, each a run of the model.
    async function draw(turn = ++latest) {
      status.textContent = "";
      const { one, other, apart } = seen;
      const { transformer } = model;
      const { beginning, pair } = next.value;
      const names = ["src_embed", ...range(transformer.N).map((n) => `encoder.layers.${n}`)];
      const last = () => turn === latest;
      const ask = (ids, touch, from) =>
        walk(transformer.contrast(ids, beginning, pair, touch, from), last);
      // A contrast, and the rows after each layer.
      const record = async (ids) => {
        const kept = [];
        const keep = (rows) => kept.push(rows.map((row) => row.slice()));
        return [await ask(ids, Object.fromEntries(names.map((name) => [name, keep]))), kept];
      };
      const [clean, here] = await record(one);
      const [far, there] = await record(other);
      if (!last()) return;
      const nats = (clean - far).toFixed(1).replace("-", "−");
      if (Math.abs(clean - far) < 1) {
        map.replaceChildren();
        status.textContent = `At this word the sentences differ by only ${nats} nats, too little for a map: it depends on what has been written.`;
        return;
      }
      const tokens = model.names(one).map((name, i) => {
        const word = plain(name);
        return apart.includes(i) ? `${word} → ${plain(model.names([other[i]])[0])}` : word;
      });
      const cells = names.map((_, layer) =>
        tokens.map((token, place) =>
          button({ disabled: true, onclick: () => patch({ layer, token, place }) }),
        ),
      );
      const head = (textContent) => make("th", { scope: "row", textContent });
      const rows = cells.map((row, layer) =>
        make("tr", {}, head(LAYERS(layer)), ...row.map((cell) => make("td", {}, cell))),
      );
      const top = tokens.map((textContent) => make("th", { scope: "col", textContent }));
      const titles = make("thead", {}, make("tr", {}, make("td"), ...top));
      const caption = `Of ${nats} nats between the sentences, what moves with each vector:`;
      const body = make("tbody", {}, ...rows.toReversed());
      const table = make("table", {}, make("caption", { textContent: caption }), titles, body);
      map.replaceChildren(make("div", { className: "switchboard" }, table));
      rove(table);
      for (const [layer, row] of cells.entries()) {
        for (const [place, cell] of row.entries()) {
          const x = take(here[layer], there[layer], place);
          const found = await ask(one, {}, { layers: layer, x });
          if (!last()) return;
          const share = (clean - found) / (clean - far);
          const textContent = (Math.round(100 * share) / 100 || 0).toFixed(2).replace("-", "−");
          const style = `--weight: ${(50 * Math.min(1, Math.max(0, share))).toFixed(0)}%`;
          const ariaLabel = `${LAYERS(layer)}, ${tokens[place]}: ${textContent}`;
          Object.assign(cell, { textContent, style, ariaLabel, disabled: false });
        }
      }
      Object.assign(seen, { here, there });
      status.textContent = "Choose a cell to translate with this vector from the other sentence.";
    }

    async function patch({ layer, token, place }) {
      const turn = ++latest;
      const { one, here, there } = seen;
      const from = { layers: layer, x: take(here[layer], there[layer], place) };
      const search = model.transformer.search(one, { beam: 4, from });
      const found = await walk(search, () => turn === latest);
      if (!found) return;
      const said = model.decode(found.hypotheses[0].token.ids);
      status.textContent = `With “${token}” after ${LAYERS(layer)} from the other sentence: ${said}`;
    }
  }

  for (const box of document.querySelectorAll('div.live[data-show="circuit"]')) fill(box);
})();
