// The reader as the decoder, beside a beam search whose hypotheses are ribbons, as wide as their
// share of the beam's probability at each step. What the search for the first sentence needs comes with the page; all else is computed.
window.decoder = (() => {
  const { range, sum, meanHeads, make, button, shape, controls } = window.elements;
  const { choice, wide, fade, dataOf, percent, wordOf } = window.elements;
  const { START, END, Token, Beam, score } = window.search;
  const [EXTRA, TEN, NARROW] = [50, 10, 500];
  const [MASS, SLOT] = [110, 15]; // the width of all ribbons; room for labels

  // ------------------------------------------------------------------------ numbers and texts

  const minus = (number, digits = 3) => number.toFixed(digits).replace("-", "−");
  const chanceOf = ({ logProb }) => percent(Math.exp(logProb));

  // The likeliest ids that may follow, and their log-probabilities.
  const likeliest = (row) => {
    const ids = range(row.length).filter((id) => row[id] > -Infinity);
    ids.sort((one, two) => row[two] - row[one]);
    return new Map(ids.slice(0, TEN).map((id) => [id, row[id]]));
  };

  function bestOf(steps, alpha) {
    const complete = steps.flat().filter(({ ended }) => ended);
    return complete.reduce((one, two) => (score(two, alpha) > score(one, alpha) ? two : one));
  }

  const first = ({ next }) => next?.keys().next().value; // the likeliest piece
  // Where the likeliest piece leaves the path of the beam's output.
  const partingOf = (path) => path.findIndex((each, i) => path[i + 1]?.id !== first(each));

  function verdictOf(mine, best, alpha) {
    const [yours, theirs] = [mine, best].map((each) => minus(score(each, alpha)));
    if (yours === theirs) return `A draw: you and the beam score ${yours}.`;
    return score(mine, alpha) > score(best, alpha)
      ? `You win: your score is ${yours}, the beam’s ${theirs}.`
      : `The beam wins: its score is ${theirs}, yours ${yours}.`;
  }

  // What a step did: which piece the reader wrote, if any, and what the beam keeps.
  function tellStep(time, written, kept, isAmong) {
    const told = written ? [`you write ${written}`] : [];
    const yours = written && (isAmong ? ", yours among them" : ", yours not among them");
    told.push(kept ? `the beam keeps ${kept.length}${yours || ""}` : "the beam has ended");
    return `Step ${time}: ${told.join("; ")}.`;
  }

  // A complete hypothesis, as it waits at step t for the others to end.
  const waiting = (each, t) =>
    Object.create(each, {
      before: { value: each },
      length: { value: t },
      of: { value: each.of ?? each },
    });

  // Columns of hypotheses, one for each step, in the order of the tree, so that no two ribbons cross.
  // Each hypothesis gets a place: x and y of its beginning, its length and width, and where on the
  // edge of the hypothesis before it begins, as wide as its share of what that one may become.
  function placesOf({ steps, path, time, size, width, widthOf }) {
    const isNarrow = width < NARROW;
    const height = MASS + SLOT * (size + 2);
    const columns = [];
    for (const t of range(Math.max(steps.length, path.length))) {
      const complete = (columns[t - 1] ?? []).filter(({ ended }) => ended);
      const reached = new Set([...(steps[t] ?? []), ...path.slice(t, t + 1)]);
      columns.push([...reached, ...complete.map((each) => waiting(each, t))]);
    }
    const broads = columns.map((column, t) => (t ? Math.max(...column.map(widthOf)) : 6));
    // Between pieces that are written; where it is not narrow, all of them fit.
    const written = broads.slice(0, time + 1);
    const room = width - sum(written) - 6 * (columns.length - written.length);
    const GAP = isNarrow ? 12 : Math.max(6, Math.min(20, room / written.length));
    // Where there is little room, what was written before the last piece takes hardly any.
    const isPast = (t) => isNarrow && t > 0 && t < time && time < columns.length - 1;
    const past = Math.max(6, Math.min(18, 60 / time));
    const taken = (t) => (isPast(t) ? past : broads[t] + GAP);
    // What is not yet written fits into the room that is left; the next pieces have names.
    const left = width - sum(range(Math.min(time + 1, columns.length)).map(taken));
    const next = Math.min(broads[time + 1] ?? 0, left * 0.3);
    const span = Math.max(6, (left - next) / (columns.length - time - 1));
    const gap = Math.min(GAP, span / 2);
    const places = new Map();
    let x = 0;
    for (const [t, column] of columns.entries()) {
      const order = (each) => places.get(each.before)?.order ?? 0;
      column.sort((one, two) => order(one) - order(two) || two.logProb - one.logProb);
      const later = Math.min(span - gap + (t === time + 1 ? next : 0), broads[t]);
      const broad = isPast(t) ? 2 : t > time ? later : broads[t];
      placeColumn(column, places, { x, broad }, t === 0, height);
      x += t > time ? broad + gap : t ? taken(t) : broads[0] + GAP;
    }
    return { columns, places, width: x, height };
  }

  function placeColumn(column, places, at, isFirst, height) {
    let [y, pull, weight] = [0, 0, 0]; // towards the hypotheses before
    const all = sum(column.map(({ logProb }) => Math.exp(logProb)));
    for (const [order, each] of column.entries()) {
      const parent = places.get(each.before);
      const tall = Math.max(1.5, (MASS * Math.exp(each.logProb)) / all);
      const part = parent ? parent.tall * Math.exp(each.logProb - each.before.logProb) : tall;
      const room = Math.max(tall, SLOT) + 2;
      const from = parent ? parent.y + parent.used : 0;
      // What is written over a thin ribbon has room there.
      const over = tall < SLOT && !each.ended ? room - tall - 1 : (room - tall) / 2;
      const place = { ...at, order, tall, part, from, y: y + over, used: 0 };
      if (parent) parent.used += part;
      pull += tall * (from - place.y);
      weight += tall;
      places.set(each, place);
      y += room;
    }
    const fitted = Math.max(0, Math.min(height - y, pull / weight));
    const shift = isFirst ? (height - MASS) / 2 : fitted;
    for (const each of column) places.get(each).y += shift;
  }

  // Both edges of a ribbon, from the hypothesis before on, and its way back.
  function ribbonOf({ x, y, broad, tall, part, from }, parent) {
    const [left, start] = parent ? [parent.x + parent.broad, from] : [x, y];
    const middle = (left + x) / 2;
    const edge = (begin, y) =>
      `M${left} ${begin}C${middle} ${begin} ${middle} ${y} ${x} ${y}h${broad}`;
    const [over, under] = [edge(start, y), edge(start + part, y + tall)];
    const end = `C${middle} ${y + tall} ${middle} ${start + part} ${left} ${start + part}Z`;
    return { area: `${over}v${tall}h${-broad}${end}`, contour: over + under };
  }

  // ------------------------------------------------------------------------------ the sources

  // What is known of a sentence, and what a model finds out: `extend` gives hypotheses the ten
  // likeliest next pieces, and where the decoder looked for them.
  class Reader {
    constructor(box, tell) {
      this.known = dataOf(box);
      this.first = JSON.parse(box.dataset.sentences)[0];
      this.tell = tell;
      this.name = box.dataset.model;
    }
    nameOf(id) {
      return id === END ? "</s>" : (this.known.names[id] ?? this.model.names([id])[0]);
    }
    textOf({ ids }) {
      const names = ids.filter((id) => id !== END).map((id) => this.nameOf(id));
      return names.join("").replaceAll("▁", " ").trim();
    }

    open() {
      this.opening ??= (async () => {
        this.tell("Loading …");
        await window.live.breath();
        this.model = await window.liveModel(this.name);
        this.tell("The model is loaded.");
      })();
      return this.opening;
    }
    reset() {
      if (!this.model) this.opening = null; // so that the next click tries again
    }

    async read(text) {
      if (text === this.first) return { ...this.known, text };
      await this.open();
      const { ids, cut } = this.model.encode(text);
      const { MOST } = window.live;
      if (cut) this.tell(`Only the first ${MOST} pieces of this text are read.`);
      return { ids, text, source: ids.map((id) => this.nameOf(id)), hypotheses: {} };
    }
    async extend(hypotheses, source) {
      for (const each of hypotheses) {
        if (each.next || each.ended) continue;
        const [pairs, looks] =
          source.hypotheses[each.ids.join(" ")] ?? (await this.compute(each, source));
        Object.assign(each, { next: new Map(pairs), looks });
      }
    }
    async compute(hypothesis, source) {
      await this.open();
      const { transformer, encode } = this.model;
      const { length } = source.source;
      const ids = source.ids ?? encode(source.text).ids;
      source.memory ??= await window.live.walk(transformer.encode(ids));
      await window.live.breath();
      let row;
      for (const each of hypothesis.path) {
        // those that came with the page have no keys and values
        if (each.cross.length && each !== hypothesis) continue;
        [row] = transformer.continuations([each], source.memory.memory, length + EXTRA);
      }
      return [likeliest(row), meanHeads(hypothesis.cross.at(-1), length)];
    }

    async search(root, source, beam) {
      const found = new Beam(root, { beam });
      while (found.canWin()) {
        await this.extend(found.open, source);
        found.extend();
      }
      return found.steps;
    }
  }

  // --------------------------------------------------------------------------- what is seen

  // The ten pieces to choose from.
  function drawPieces(write) {
    return range(TEN).map((i) => {
      const parts = ["name", "number"].map((className) => make("span", { className }));
      const element = button({ onclick: () => write(i) }, ...parts);
      const show = (name, logProb, isOver) => {
        element.style.visibility = name === undefined ? "hidden" : "";
        if (name === undefined) return;
        const probability = Math.exp(logProb);
        parts[0].textContent = name;
        element.style.setProperty("--share", probability.toFixed(4));
        parts[1].textContent = percent(probability);
        Object.assign(element, {
          ariaLabel: `${name}, ${percent(probability)}`,
          ariaDisabled: isOver,
        });
      };
      return { element, show };
    });
  }

  function drawLook(name, weight) {
    const style = `--share: ${weight.toFixed(3)}`;
    const square = make("span", { className: "weight", title: weight.toFixed(2), style });
    return make("span", {}, square, name === "</s>" ? "end" : name.replaceAll("▁", ""));
  }

  function drawTree(scroller, { steps, mine, time, size }, best, alpha, reader) {
    const { path } = mine;
    const widthOf = (each) => (each.ended ? 0 : 10 + 7 * wordOf(reader.nameOf(each.id)).length);
    const wordsOf = (each) => reader.textOf(each).match(/[\p{L}\p{N}]+/gu) ?? [];
    const endings = [...steps.flat(), mine].filter(({ ended }) => ended);
    // Of ends that are all to come, two words are told.
    const isNear = endings.some(({ length }) => length <= time);
    const from = isNear ? -1 : -2;
    const endOf = (each) => `… ${wordsOf(each).slice(from).join(" ")}`;
    const longest = Math.max(...endings.map((each) => endOf(each).length));
    const beyond = (isNear ? 46 : 8) + 7 * longest; // and a score
    const room = { width: scroller.clientWidth - beyond, widthOf };
    // Of what is to come after the next pieces, the beginnings that end are drawn.
    const ending = new Set(endings.flatMap(({ path }) => path));
    const ahead = steps.map((step, t) =>
      t > time + 1 ? step.filter((it) => ending.has(it)) : step,
    );
    const given = { steps: ahead, path, time, size, ...room };
    const { columns, places, height, ...placed } = placesOf(given);
    const width = placed.width + beyond;
    const inBeam = new Set(steps.flat());
    // Named are the ways to what is open now or complete.
    const written = steps.slice(0, time + 1).flat();
    const goals = [mine, ...written.filter((each) => each.ended || each.length === time)];
    const alive = new Set(goals.flatMap(({ path }) => path));
    const told = (each) => `${reader.textOf(each)} ${chanceOf(each)}`;
    const label = `The beam after step ${time}: ${(steps[time] ?? steps.at(-1)).map(told).join("; ")}`;
    const viewBox = `0 0 ${width} ${height}`;
    const svg = shape("svg", { width, height, viewBox, role: "img", "aria-label": label });
    for (const each of columns.flat()) {
      const place = places.get(each);
      const parent = places.get(each.before);
      const middle = place.y + place.tall / 2;
      // The words of a ribbon that hardly bends stand on one line.
      place.middle = Math.abs(middle - parent?.middle) < 5 ? parent.middle : middle;
      const [it, later] = [each.of ?? each, each.length > time];
      const { area, contour } = ribbonOf(place, parent);
      const kinds = {
        own: path.includes(it),
        dropped: !inBeam.has(it),
        later: later && inBeam.has(it),
        dead: !later && !alive.has(it),
        thin: place.tall < SLOT,
        best: best?.path.includes(it),
      };
      const lower = kinds.thin && !each.ended ? -4 : 4; // over a thin ribbon, or in it
      const style = `font-size: ${scroller.clientWidth < NARROW ? 12 : 13}px`;
      if (kinds.dead && place.broad < 5) continue; // beside what is drawn narrow
      const names = Object.keys(kinds).filter((kind) => kinds[kind]);
      const group = shape("g", { class: names.join(" ") }, shape("path", { d: area }));
      group.append(shape("path", { class: "contour", d: contour }));
      const write = (text, x, anchor) =>
        group.append(
          shape("text", { x, y: place.middle + lower, "text-anchor": anchor, style }, text),
        );
      if (each.ended && columns.at(-1).includes(each)) {
        write(endOf(it), place.x + place.broad + 5, "start");
        if (it.length <= time) write(minus(score(it, alpha), 2), width, "end");
      }
      // Of what is to come, only the next pieces are named, where they fit.
      const isNext = each.length === time + 1 && !kinds.thin && place.broad >= widthOf(each) / 2;
      // Nor are those before the last, where they are drawn narrow.
      const isOpen = (it) => alive.has(it) && place.broad >= widthOf(it) / 2;
      const isNamed = parent && !each.ended && (later ? isNext : isOpen(each));
      if (isNamed) write(wordOf(reader.nameOf(each.id)), place.x + place.broad / 2, "middle");
      if (parent && !later) {
        group.append(shape("title", {}, `${reader.textOf(it)}: ${chanceOf(it)}`));
      }
      svg.append(group);
    }
    scroller.replaceChildren(svg);
    const now = places.get(columns[Math.min(time, columns.length - 1)][0]);
    scroller.scrollLeft = now.x - scroller.clientWidth * 0.6;
    fade(scroller);
  }

  // ------------------------------------------------------------------- what the reader does

  // The state: the beam's steps for a source, what the reader has written (`mine`) until a time, and
  // what is said of it. An act makes a new state.
  class Game {
    constructor(box) {
      const about = `The search for this sentence is on the page. A piece outside it, a wider beam or another sentence loads the model (${box.dataset.megabytes} MB) at the first click. It runs on this page; nothing is sent.`;
      const { input, note, to } = window.live.asking(box, "Begin", about, () => this.begin());
      this.input = input;
      this.tell = (text) => {
        note.textContent = this.status.textContent = text;
      };
      this.reader = new Reader(box, this.tell);
      Object.assign(this, { state: null, timer: null, latest: 0 });
      this.build(box, note, to);
      this.begin(true);
    }

    build(box, note, to) {
      const numbers = (all) => all.map((n) => [`${n}`, n]);
      const widths = numbers([1, 2, 3, 4, 6, 8]);
      const alphas = numbers([0, 0.3, 0.6, 1, 2]);
      this.width = choice("Beam width", widths, 3, () => this.begin());
      this.penalty = choice("Length penalty α", alphas, 2, () => this.show());
      this.back = button({ textContent: "Back", onclick: () => this.move(() => this.goBack()) });
      this.next = button({ textContent: "Step", onclick: () => this.move(() => this.step()) });
      this.play = button({ textContent: "Play", onclick: () => this.toggle() });
      this.scroller = wide();
      this.status = make("p", { className: "told", role: "status" });
      [this.aim, this.about] = [make("strong"), make("span")];
      this.looks = make("div", { className: "looks" });
      this.pieces = drawPieces((i) => {
        const { mine } = this.state;
        if (!mine.ended) this.move(() => this.write([...mine.next.keys()][i]));
      });
      this.cells = ["You", "Beam"].map((name) =>
        [name, "", ""].map((textContent) => make("td", { textContent })),
      );
      for (const row of this.cells) row[1].lang = to;
      this.result = Object.assign(this.cells[0][1], { className: "translation" });
      const body = make("tbody", {}, ...this.cells.map((row) => make("tr", {}, ...row)));
      const buttons = this.pieces.map(({ element }) => element);
      const say = (tag, textContent) => make(tag, { textContent });
      const choosing = make("div", { className: "choosing" }, ...buttons);
      const acts = controls(this.back, this.next, this.play);
      const others = this.input.form.nextElementSibling;
      const folded = [
        ...[this.input.form, others, note, controls(this.width, this.penalty)],
        ...[say("p", "Where it looks (last layer, mean of the heads):"), wide(this.looks)],
      ];
      const name = say("summary", "Another sentence, settings, attention");
      box.classList.add("decoder");
      box.append(
        make("p", { className: "chart-title" }, this.aim, this.about),
        this.scroller,
        make("div", { className: "acts" }, this.status, choosing, acts),
        make("table", { className: "kept" }, body),
        make("details", {}, name, ...folded),
      );
    }

    get alpha() {
      return this.penalty.value;
    }
    get isOver() {
      const { mine, time, steps } = this.state;
      return mine.ended && time >= steps.length - 1;
    }

    // An act that a later one has overtaken is forgotten.
    async act(work) {
      const turn = ++this.latest;
      this.result.ariaBusy = "true";
      try {
        const made = await work();
        if (turn === this.latest) {
          this.state = made ?? this.state;
          this.show();
        }
      } catch (error) {
        this.tell(`This did not work: ${error.message}`);
        this.reader.reset();
        this.stop();
      }
      if (turn === this.latest) this.result.ariaBusy = "false";
    }
    move(work) {
      this.stop();
      return this.act(work);
    }

    begin(isFirst = false) {
      if (window.live.BLANK.test(this.input.value)) return;
      this.move(async () => {
        const source = await this.reader.read(this.input.value);
        const [root, size] = [new Token(START), this.width.value];
        const steps = await this.reader.search(root, source, size);
        const { path } = bestOf(steps, this.alpha);
        const time = isFirst ? Math.max(0, partingOf(path)) : 0;
        const said = time
          ? `${time} pieces are written. Which one comes next?`
          : "Nothing is written yet. Which piece comes first?";
        return { source, root, size, steps, mine: path[time], time, said };
      });
    }
    async write(id) {
      const { mine: before, time, steps, source } = this.state;
      const mine = before.ended ? before : before.follow(id, before.next.get(id));
      await this.reader.extend([mine], source);
      const kept = steps[time + 1];
      const chance = percent(Math.exp(mine.logProb - before.logProb));
      const written = mine === before ? "" : `${wordOf(this.reader.nameOf(id))} (${chance})`;
      const said = tellStep(time + 1, written, kept, kept?.includes(mine));
      return { ...this.state, mine, time: time + 1, said };
    }
    step() {
      return this.isOver ? this.state : this.write(first(this.state.mine));
    }
    goBack() {
      const { state } = this;
      const time = Math.max(0, state.time - 1);
      const mine = state.mine.path[Math.min(time, state.mine.length)];
      return { ...state, time, mine, said: `Back at step ${time}.` };
    }

    stop() {
      clearInterval(this.timer);
      this.timer = null;
      this.play.textContent = "Play";
    }
    async toggle() {
      if (this.timer) return this.stop();
      const go = async () => {
        await this.act(() => this.step());
        if (this.isOver) this.stop();
      };
      this.play.textContent = "Pause";
      this.timer = setInterval(go, 1000);
      const start = { mine: this.state.root, time: 0, said: "Nothing is written yet." };
      if (this.isOver) await this.act(() => ({ ...this.state, ...start }));
      else await go();
    }

    show() {
      const { state, alpha, reader, isOver } = this;
      const { mine, time, steps, source, said } = state;
      const best = isOver ? bestOf(steps, alpha) : steps[Math.min(time, steps.length - 1)][0];
      const asked = mine.ended ? mine.before : mine; // of a sentence that has ended, its last step stays
      const options = [...asked.next];
      drawTree(this.scroller, state, isOver ? best : null, alpha, reader);
      for (const [i, { show }] of this.pieces.entries()) {
        const [id, logProb] = options[i] ?? [];
        const name = id === undefined ? id : wordOf(reader.nameOf(id));
        show(name, logProb, mine.ended);
      }
      this.looks.replaceChildren(...source.source.map((name, i) => drawLook(name, asked.looks[i])));
      for (const [row, each] of [mine, best].entries()) {
        const text = `${reader.textOf(each)}${each.ended ? "" : " …"}`;
        this.cells[row][1].textContent = text;
        this.cells[row][2].textContent = minus(score(each, alpha));
      }
      const aim = minus(score(bestOf(steps, alpha), alpha));
      this.aim.textContent = `Can you match the beam? Translate “${source.text}”`;
      this.about.textContent = `It scores ${aim}, and 0 is best. Wider bands are likelier, pale ones are to come`;
      this.status.textContent = isOver ? verdictOf(mine, best, alpha) : said;
      this.back.ariaDisabled = time === 0;
      this.next.ariaDisabled = isOver;
    }
  }

  for (const box of document.querySelectorAll("div.live[data-show=decoder]")) new Game(box);
  return { likeliest, bestOf, verdictOf, tellStep, placesOf, ribbonOf };
})();
