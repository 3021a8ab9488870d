// The book's first picture: a sentence, its translation, and where each word looked while it was
// written. At first it shows the strongest look. The examples come with the page; the model is loaded for the reader's own sentence.
window.hero = (() => {
  const { Field } = window;
  const { range, sum, tableOf, headName, dataOf, isCalm } = window.elements;
  const { make, button, shape, taper, check, controls, rove } = window.elements;
  const BROADEST = 18; // pixels, of a curve whose weight is 1
  const LEAST = 0.03; // smaller weights are not drawn
  const PACE = 380; // milliseconds for each word
  const END = "<EOS>";
  const percent = (weight) => `${Math.round(100 * weight)}%`;
  const called = (word) => ({ [END]: "the end symbol", ".": "the period" })[word] ?? `“${word}”`;
  const same = (one, two) => one?.[0] === two?.[0] && one?.[1] === two?.[1];

  // ------------------------------------------------------------------------ numbers and texts
  // An example has words of both sides and weights (layers, heads, German, English). A head is a pair
  // of layer and number, a word a pair of side and place.

  const shares = (percent) => (Array.isArray(percent) ? percent.map(shares) : percent / 100);
  const read = ({ weights, ...example }) => ({ ...example, weights: shares(weights) });

  // A translation that the model has found, in words: `merge_words` of the package.
  function inWords(token, ids, { transformer: { N_decoder, h }, names, wordGroups }) {
    const pieces = [names(ids), names(token.ids)];
    const groups = pieces.map(wordGroups);
    const joined = (parts) => parts.join("").replaceAll("▁", "") || "▁";
    const [source, target] = groups.map((words, side) =>
      words.map((group) => joined(group.map((i) => pieces[side][i]))),
    );
    const weight = (layer, head, q, k) => token.path[q].cross[layer][head * ids.length + k];
    const between = (layer, head, from, to) =>
      sum(from.flatMap((q) => to.map((k) => weight(layer, head, q, k)))) / from.length;
    const weights = range(N_decoder).map((layer) =>
      range(h).map((head) =>
        groups[1].map((from) => groups[0].map((to) => between(layer, head, from, to))),
      ),
    );
    return { source, target, weights };
  }

  // For each German word the curves that end at it, side by side: from which word, how wide, and
  // how far beside its middle.
  const bundle = (table) =>
    table.map((row) => {
      const drawn = range(row.length).filter((k) => row[k] >= LEAST);
      let along = (-BROADEST * sum(drawn.map((k) => row[k]))) / 2;
      return drawn.map((k) => {
        const width = BROADEST * row[k];
        along += width;
        return { k, width, aside: along - width / 2 };
      });
    });

  // What a word attends to, or is attended to by.
  function tell([side, i], { source, target }, table, head) {
    const row = side ? table[i] : table.map((each) => each[i]);
    const [own, others] = side ? [target, source] : [source, target];
    const order = range(row.length).sort((a, b) => row[b] - row[a]);
    const best = order.slice(0, 3).filter((j) => row[j] >= 0.05);
    const list = new Intl.ListFormat("en");
    const names = list.format(best.map((j) => `${called(others[j])} (${percent(row[j])})`));
    const word = called(own[i]);
    const told = best.length
      ? side
        ? `to write ${word}, the model attends to ${names}.`
        : `${word} is attended to for ${names}.`
      : `${word} gets 5% of the attention for no German word.`;
    const text = head ? `${headName(head).replace("L", "in l")}, ${told}` : told;
    return text[0].toUpperCase() + text.slice(1);
  }

  // How much of the weight goes where nothing is meant.
  function tellSinks({ source, weights }, table, head) {
    const lost = (row) => sum(row.filter((_, k) => [END, "."].includes(source[k])));
    const share = percent(sum(table.map(lost)) / table.length);
    return `${headName(head, weights.length)}: ${share} of the weight is on the period and the end symbol.`;
  }

  // --------------------------------------------------------------------------------- drawings

  // A button for each of the heads that are offered; none stands for the mean of the last layer.
  function headButtons(example, named, choose) {
    return named.map(([name, head]) => {
      const act = () => choose(head);
      const title = headName(head, example.weights.length);
      return button({ role: "radio", title, head, onfocus: act, onclick: act, textContent: name });
    });
  }

  // Where the words of both sides touch the curves: in two rows, or in two columns.
  const endsOf = (words, columns) =>
    words.map((row, side) =>
      row.map(({ offsetLeft: x, offsetTop: y, offsetWidth: width, offsetHeight: height }) =>
        columns
          ? [x + width * (1 - side), y + height / 2]
          : [x + width / 2, y + height * (1 - side)],
      ),
    );

  class Hero {
    constructor(box) {
      this.box = box;
      const { examples, named } = dataOf(box);
      Object.assign(this, { examples: examples.map(read), named, head: null });
      const lengths = this.examples.flatMap(({ source, target }) => [source.length, target.length]);
      this.longest = Math.max(...lengths);
      this.build();
      const asked = new URLSearchParams(location.search);
      this.head = this.named[asked.get("head")]?.[1] ?? null;
      this.show(this.examples[0]);
      const fit = () => box.clientWidth === this.width || this.draw(); // twice, it would move
      new ResizeObserver(fit).observe(box);
      if (asked.get("sentence")) this.field.take(asked.get("sentence"));
      else this.lightStrongest();
    }

    build() {
      const { box, examples } = this;
      const labels = ["English sentence", "German translation"];
      this.sides = labels.map((ariaLabel, side) =>
        make("div", { className: "words", lang: ["en", "de"][side], role: "toolbar", ariaLabel }),
      );
      this.svg = shape("svg", { "aria-hidden": "true" });
      this.picture = make("div", { className: "picture" }, ...this.sides, this.svg);
      this.said = make("p", { className: "said", role: "status" });
      const play = button({ textContent: "Play", onclick: () => this.write() });
      play.hidden = isCalm();
      const group = { className: "heads", role: "radiogroup", ariaLabel: "Attention heads" };
      this.heads = make("div", group);
      const say = (text) => {
        this.said.textContent = text;
      };
      this.field = new Field(box, examples[0].english, say, (...asked) => this.translate(...asked));
      this.buttons = examples.map(({ english }) =>
        button({ textContent: english, onclick: () => this.field.take(english) }),
      );
      const copy = button({ textContent: "Copy link", onclick: () => this.copy() });
      this.figure = box.querySelector("a");
      const others = make("div", { className: "examples" }, "or ", ...this.buttons);
      const acts = controls(play, this.figure, copy);
      const foot = make("div", { className: "below" }, this.heads, acts);
      const ariaLabel = "A translation, and what the model attends to for each word";
      Object.assign(box, { role: "group", ariaLabel });
      box.replaceChildren(this.field.element, others, this.picture, this.said, foot);
      for (const each of [...this.sides, this.heads]) rove(each);
      const letGo = () => this.light({ chosen: null });
      box.addEventListener("keydown", ({ key }) => key === "Escape" && letGo());
      document.addEventListener("pointerdown", ({ target }) => box.contains(target) || letGo());
    }

    show(example, said) {
      clearTimeout(this.timer);
      Object.assign(this, { shown: example, hovered: null, chosen: null });
      this.written = example.target.length;
      const word = (text, here) => {
        const choose = () => this.light({ chosen: here });
        const hover = (hovered) => this.light({ hovered });
        const onpointerenter = ({ pointerType }) => pointerType === "mouse" && hover(here);
        const events = { onpointerenter, onpointerleave: () => hover(null), onfocus: choose };
        const end = text === END ? { textContent: "end", className: "end" } : {};
        const tabIndex = here[1] ? -1 : 0;
        return button({ textContent: text, tabIndex, ...events, onclick: choose, ...end });
      };
      const texts = [example.source, example.target];
      this.words = texts.map((row, side) => row.map((text, i) => word(text, [side, i])));
      for (const [i, side] of this.sides.entries()) side.replaceChildren(...this.words[i]);
      for (const [i, each] of this.buttons.entries())
        each.ariaPressed = example === this.examples[i];
      const choose = (head) => same(this.head, head) || this.look(head);
      this.heads.replaceChildren("Head ", ...headButtons(example, this.named, choose));
      this.draw();
      this.figure.search = new URLSearchParams({ sentence: example.english });
      if (said) this.said.textContent = said;
    }

    // In two rows if they fit, otherwise in two columns.
    draw() {
      const { box, picture, sides, svg, words, head } = this;
      this.width = box.clientWidth;
      this.table = tableOf(this.shown, head);
      for (const each of this.heads.querySelectorAll("button")) check(each, same(head, each.head));
      picture.classList.remove("columns");
      const cut = ({ scrollWidth, clientWidth }) => scrollWidth > clientWidth;
      const columns = this.width < 600 || sides.some(cut);
      picture.classList.toggle("columns", columns);
      picture.style.minHeight = columns ? `${1.8 * this.longest}rem` : "";
      const [from, to] = endsOf(words, columns);
      this.curves = bundle(this.table).map((curves, q) =>
        curves.map(({ k, width, aside }) => {
          const end = to[q].map((place, axis) => place + (axis === Number(columns) ? aside : 0));
          return { ends: [k, q], path: shape("path", { d: taper(from[k], end, width, columns) }) };
        }),
      );
      const groups = this.curves.map((curves) => shape("g", {}, ...curves.map(({ path }) => path)));
      svg.replaceChildren(...groups);
      this.paint();
    }

    paint() {
      const { table, written, words } = this;
      const newest = written < this.shown.target.length ? [1, written - 1] : null;
      const lit = this.hovered ?? this.chosen ?? newest;
      const weightOf = (side, i) => {
        if (!lit || lit[0] === side) return 0;
        return (side ? table[i][lit[1]] : table[lit[1]]?.[i]) || 0;
      };
      this.picture.classList.toggle("lit", Boolean(lit));
      for (const [side, row] of words.entries()) {
        for (const [i, word] of row.entries()) {
          const weight = weightOf(side, i);
          word.style.setProperty("--weight", percent(weight));
          word.classList.toggle("near", weight >= 0.05);
          word.classList.toggle("on", Boolean(lit) && same(lit, [side, i]));
          word.classList.toggle("unwritten", side === 1 && i >= written);
        }
      }
      for (const { path, ends } of this.curves.flat()) {
        path.classList.toggle("on", Boolean(lit) && ends[lit[0]] === lit[1]);
      }
      for (const [q, group] of [...this.svg.children].entries()) {
        group.classList.toggle("unwritten", q >= written);
      }
    }

    light(change) {
      Object.assign(this, change);
      this.paint();
      const lit = this.hovered ?? this.chosen;
      if (lit) this.said.textContent = tell(lit, this.shown, this.table, this.head);
    }

    lightStrongest() {
      const { source, target } = this.shown;
      const empty = (word) => [END, "."].includes(word);
      const weight = ([q, k]) => (empty(target[q]) || empty(source[k]) ? 0 : this.table[q][k]);
      const all = this.table.flatMap((row, q) => row.map((_, k) => [q, k]));
      const [best] = all.reduce((one, other) => (weight(other) > weight(one) ? other : one));
      this.light({ chosen: [1, best] });
      this.said.textContent += ` Choose another word, or type a caption (this loads ${this.box.dataset.megabytes} MB; nothing is sent).`;
    }

    look(head) {
      this.head = head;
      this.draw();
      this.keep();
      const { chosen, shown, table } = this;
      this.said.textContent = chosen
        ? tell(chosen, shown, table, head)
        : tellSinks(shown, table, head);
    }

    // The German sentence, word after word, with its curves.
    write() {
      clearTimeout(this.timer);
      Object.assign(this, { hovered: null, chosen: null, written: 0 });
      const { length } = this.shown.target;
      const next = () => {
        this.paint();
        if (this.written < length) this.timer = setTimeout(next, PACE);
        this.written = Math.min(this.written + 1, length);
      };
      next();
    }

    // ------------------------------------------------------------------- the reader's sentence

    async translate(english, load, isLast) {
      this.picture.hidden = !english.trim();
      if (this.picture.hidden) return;
      const example = this.examples.find((each) => each.english === english);
      const shown = example ?? (await this.found(english, await load(), isLast));
      if (!shown || !isLast()) return;
      this.show(shown, `In German: ${shown.german}`);
      this.keep();
    }
    async found(english, model, isLast) {
      const { ids } = model.encode(english);
      const found = await model.walk(model.transformer.search(ids, { beam: 4 }), isLast);
      if (!found) return null;
      const { token } = found.hypotheses[0];
      return { english, german: model.decode(token.ids), ...inWords(token, ids, model) };
    }

    // The address keeps the sentence and the head.
    keep() {
      const head = this.named.findIndex(([, head]) => same(head, this.head) || head === this.head);
      const settings = new URLSearchParams({ sentence: this.shown.english, head });
      history.replaceState(null, "", `?${settings}`);
    }
    async copy() {
      this.keep();
      await navigator.clipboard.writeText(location.href);
      this.said.textContent = "The address of this sentence and head is copied.";
    }
  }

  for (const box of document.querySelectorAll("div.hero")) new Hero(box);
  return { read, inWords, bundle, tell, tellSinks };
})();
