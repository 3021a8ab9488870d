// The reader as the decoder, beside a beam search whose hypotheses are ribbons, as wide as they are
// probable. What the search for the first sentence needs comes with the page; all else is computed.
(() => {
  const { make, shape } = window.elements;
  const { END, MOST, BLANK, breath, wide, fade, choice, asking } = window.live;
  const NEVER = [0, 2, 3], EXTRA = 50, TEN = 10; // start symbol, padding, unknown
  const [MASS, SLOT] = [130, 15]; // the width of certainty; room for a label

  class Hypothesis {
    constructor(id, before = null, logProb = 0) {
      Object.assign(this, { id, before, logProb, children: new Map(), path: [...(before?.path ?? []), this] });
      this.length = this.path.length - 1;
    }
    get ended() { return this.id === END; }
    get ids() { return this.path.slice(1).map(({ id }) => id); }
    follow(id) {
      const [, logProb] = this.next.find(([each]) => each === id);
      if (!this.children.has(id)) this.children.set(id, new Hypothesis(id, this, this.logProb + logProb));
      return this.children.get(id);
    }
  }

  function fill(box) {
    const known = JSON.parse(box.querySelector("script").textContent);
    const about = `The search for this sentence is on the page. A piece outside it, a wider beam or another sentence loads the model (${box.dataset.megabytes} MB) at the first click. It runs on this page; nothing is sent.`;
    const { input, note, to } = asking(box, "Begin", about, () => begin());
    const first = input.value;
    let model, opening, state, timer, latest = 0;

    const width = choice("Beam width", [1, 2, 3, 4, 6, 8].map((n) => [`${n}`, n]), 3, () => begin());
    const alpha = choice("Length penalty α", [0, 0.3, 0.6, 1, 2].map((n) => [`${n}`, n]), 2, () => show());
    const button = (textContent, onclick) => make("button", { type: "button", textContent, onclick });
    const back = button("Back", () => move(goBack)), next = button("Step", () => move(step)), play = button("Play", toggle);
    const key = [["own", "yours"], ["beam", "the beam’s"], ["dropped", "not kept by the beam"]]
      .map(([className, textContent]) => make("span", { className, textContent }));
    const scroller = wide(), status = make("p", { className: "told", role: "status" });
    const pieces = Array.from({ length: TEN }, (_, i) => {
      const parts = ["name", "share", "number"].map((className) => make("span", { className }));
      const one = button("", () => state.mine.ended || move(() => write(state.mine.next[i][0])));
      one.append(...parts);
      return [one, ...parts];
    });
    const looks = make("div", { className: "looks" });
    const cells = ["You", "Beam"].map((name) => [name, ...Array(3).fill("")].map((textContent) => make("td", { textContent })));
    const heads = ["decoder", "translation", "log P", "score"].map((textContent) => make("th", { scope: "col", textContent }));
    const table = make("table", { className: "kept" }, make("thead", {}, make("tr", {}, ...heads)),
      make("tbody", {}, ...cells.map((row) => make("tr", {}, ...row))));
    const result = Object.assign(cells[0][1], { className: "translation" });
    for (const row of cells) row[1].lang = to;
    box.classList.add("decoder");
    box.append(make("p", {}, make("b", { textContent: "You against a beam search" })), make("p", { className: "controls" }, back, next, play, width.element, alpha.element),
      make("p", { className: "key" }, ...key), scroller, status,
      make("div", { className: "choosing" },
        make("div", {}, make("p", { textContent: "Your next piece (blue: the beam keeps it)" }), ...pieces.map(([one]) => one)),
        make("div", {}, make("p", { textContent: "Where it looks (last layer, mean of the heads)" }), wide(looks))),
      wide(table), input.form, input.form.nextElementSibling, note);

    // ------------------------------------------------------------------------ what is computed

    const minus = (number) => number.replace("-", "−");
    const nameOf = (id) => (id === END ? "</s>" : known.names[id] ?? model.names([id])[0]);
    // As the charts of the book name a piece: "…" continues a word.
    const wordOf = (id) => {
      const name = nameOf(id), word = name.replaceAll("▁", "");
      return id === END ? "end" : word === name && /^\p{L}/u.test(name) ? `…${name}` : word || "space";
    };
    const textOf = ({ ids }) => ids.filter((id) => id !== END).map(nameOf).join("").replaceAll("▁", " ").trim();
    const scoreOf = ({ logProb, length }) => logProb / ((5 + length) / 6) ** alpha.value;
    const bestOf = (steps) => steps.flat().filter(({ ended }) => ended).reduce((one, two) => (scoreOf(two) > scoreOf(one) ? two : one));

    async function open() {
      note.textContent = "Loading …";
      await breath();
      model = await window.liveModel(box.dataset.model);
      note.textContent = "The model is loaded. Choose any piece, or type a sentence of yours.";
    }

    async function read(text) {
      if (text === first) return { ...known, text };
      await (opening ??= open());
      const { ids, cut } = model.encode(text);
      if (cut) note.textContent = `Only the first ${MOST} pieces of this text are read.`;
      return { ids, text, source: ids.map(nameOf), hypotheses: {} };
    }

    // Gives hypotheses the ten likeliest next pieces, and where the decoder looked for them.
    async function extend(hypotheses, source) {
      for (const each of hypotheses) {
        if (each.next || each.ended) continue;
        [each.next, each.looks] = source.hypotheses[each.ids.join(" ")] ?? await compute(each, source);
      }
    }
    async function compute(hypothesis, source) {
      await (opening ??= open());
      if (!source.memory) {
        const encoding = model.transformer.encode(source.ids ?? model.encode(source.text).ids);
        let part = encoding.next();
        for (; !part.done; part = encoding.next()) await breath();
        source.memory = part.value.memory;
      }
      await breath();
      let row;
      for (const each of hypothesis.path) { // those that came with the page have no keys and values
        if (each.token && each !== hypothesis) continue;
        each.token = new Transformer.Token(each.id, each.before?.token);
        [row] = model.transformer.decode([each.token], source.memory);
      }
      for (const id of NEVER) row[id] = -Infinity;
      const all = hypothesis.length + 1 === source.source.length + EXTRA ? [END] : [...row.keys()];
      const best = all.sort((one, two) => row[two] - row[one]).slice(0, TEN).map((id) => [id, row[id]]);
      const cross = hypothesis.token.cross.at(-1), n = source.source.length, h = cross.length / n;
      const looks = source.source.map((_, k) => Array.from({ length: h }, (_, i) => cross[i * n + k]).reduce((a, b) => a + b) / h);
      return [best, looks];
    }

    // The steps of a beam search, each a list of hypotheses.
    async function search(root, source, size) {
      const steps = [[root]];
      for (let open = [root], places = size; open.length;) {
        await extend(open, source);
        const all = open.flatMap((each) => each.next.map(([id]) => each.follow(id)));
        steps.push(all.sort((one, two) => two.logProb - one.logProb).slice(0, places));
        open = steps.at(-1).filter(({ ended }) => !ended);
        places -= steps.at(-1).length - open.length;
      }
      return steps;
    }

    // ------------------------------------------------------------------------- what the reader does

    // An act makes a new state; one that a later act has overtaken is forgotten.
    async function act(work) {
      const turn = ++latest;
      result.ariaBusy = "true";
      try {
        const made = await work();
        if (turn === latest) show(state = made ?? state);
      } catch (error) {
        note.textContent = `This did not work: ${error.message}`;
        if (!model) opening = null; // so that the next click tries again
        stop();
      }
      if (turn === latest) result.ariaBusy = "false";
    }
    const move = (work) => { stop(); return act(work); };
    const over = () => state.mine.ended && state.time >= state.steps.length - 1;

    // The page opens where the likeliest piece leaves the path of the beam's output.
    function begin(opened = false) {
      if (BLANK.test(input.value)) return;
      move(async () => {
        const source = await read(input.value), root = new Hypothesis(0), size = width.value;
        const steps = await search(root, source, size), { path } = bestOf(steps);
        const parting = path.findIndex((each, i) => path[i + 1]?.id !== each.next?.[0][0]), time = opened ? Math.max(0, parting) : 0;
        const said = time ? `${time} pieces are written. Which one comes next?` : "Nothing is written yet. Which piece comes first?";
        return { source, root, size, steps, mine: path[time], time, said };
      });
    }
    async function write(id) {
      const { mine: before, time, steps, source } = state, mine = before.ended ? before : before.follow(id);
      await extend([mine], source);
      const kept = steps[time + 1], told = [];
      if (mine !== before) told.push(`you write ${wordOf(id)} (${Math.exp(mine.logProb - before.logProb).toFixed(3)})`);
      if (!kept) told.push("the beam has ended");
      else told.push(`the beam keeps ${kept.length}${mine === before ? "" : kept.includes(mine) ? ", yours among them" : ", yours not among them"}`);
      return { ...state, mine, time: time + 1, said: `Step ${time + 1}: ${told.join("; ")}.` };
    }
    const step = () => (over() ? state : write(state.mine.next?.[0][0]));
    function goBack() {
      const time = Math.max(0, state.time - 1), mine = state.mine.path[Math.min(time, state.mine.length)];
      return { ...state, time, mine, said: `Back at step ${time}.` };
    }

    function stop() {
      clearInterval(timer);
      timer = null;
      play.textContent = "Play";
    }
    async function toggle() {
      if (timer) return stop();
      const go = async () => {
        await act(step);
        if (over()) stop();
      };
      play.textContent = "Pause";
      timer = setInterval(go, 1000);
      if (over()) await act(() => ({ ...state, mine: state.root, time: 0, said: "Nothing is written yet." }));
      else await go();
    }

    // ------------------------------------------------------------------------------- what is seen

    function show() {
      const { mine, time, steps, source, said } = state, done = over(), inBeam = new Set(steps.flat());
      const best = done ? bestOf(steps) : steps[Math.min(time, steps.length - 1)][0];
      const asked = mine.ended ? mine.before : mine; // of a sentence that has ended, its last step stays
      draw(inBeam, done && best);
      pieces.forEach(([one, name, bar, number], i) => {
        const [id, logProb] = asked.next[i] ?? [], kept = inBeam.has(asked.children.get(id));
        one.style.visibility = id === undefined ? "hidden" : "";
        if (id === undefined) return;
        name.textContent = wordOf(id);
        number.textContent = Math.exp(logProb).toFixed(3);
        bar.style.setProperty("--share", Math.exp(logProb).toFixed(4));
        one.classList.toggle("both", kept);
        one.setAttribute("aria-label", `${name.textContent}, ${number.textContent}${kept ? ", the beam keeps it" : ""}`);
        one.setAttribute("aria-disabled", mine.ended);
      });
      looks.replaceChildren(...source.source.map((name, i) => {
        const square = make("span", { className: "weight", title: asked.looks[i].toFixed(2) });
        square.style.setProperty("--share", asked.looks[i].toFixed(3));
        return make("span", {}, square, name === "</s>" ? "end" : name.replaceAll("▁", ""));
      }));
      [mine, best].forEach((each, row) => {
        const told = [`${textOf(each)}${each.ended ? "" : " …"}`, minus(each.logProb.toFixed(3)), each.ended ? minus(scoreOf(each).toFixed(3)) : "–"];
        told.forEach((text, i) => { cells[row][i + 1].textContent = text; });
      });
      const [yours, theirs] = [mine, best].map((each) => minus(scoreOf(each).toFixed(3)));
      const verdict = yours === theirs ? `A draw: you and the beam score ${yours}.`
        : scoreOf(mine) > scoreOf(best) ? `You win: your score is ${yours}, the beam’s ${theirs}.` : `The beam wins: its score is ${theirs}, yours ${yours}.`;
      status.textContent = done ? verdict : said;
      back.setAttribute("aria-disabled", time === 0);
      next.setAttribute("aria-disabled", done);
    }

    // Columns in the order of the tree, so that no two ribbons cross.
    function draw(inBeam, best) {
      const GAP = scroller.clientWidth < 500 ? 12 : 22; // between pieces that are written
      const { mine, time, steps, size } = state, { path } = mine, mass = ({ logProb }) => Math.max(1.5, MASS * Math.exp(logProb));
      const height = MASS + SLOT * (size + 2), places = new Map();
      const columns = Array.from({ length: Math.max(steps.length, path.length) }, (_, t) => [...new Set([...(steps[t] ?? []), ...path.slice(t, t + 1)])]);
      const broads = columns.map((column, t) => (t ? 8 + 7 * Math.max(...column.map(({ id }) => wordOf(id).length)) : 6));
      // What is not yet written has no names, and fits into the room that is left.
      const left = scroller.clientWidth - broads.slice(0, time + 1).reduce((sum, broad) => sum + broad + GAP, 0);
      const span = Math.max(30, left / (columns.length - time - 1)), gap = Math.min(GAP, span / 2);
      let x = 0;
      columns.forEach((column, t) => {
        const order = (each) => places.get(each.before)?.order ?? 0;
        column.sort((one, two) => order(one) - order(two) || two.logProb - one.logProb);
        const room = (each) => Math.max(mass(each), each.ended ? 2 * SLOT : SLOT) + 2;
        const broad = t > time ? Math.min(span - gap, broads[t]) : broads[t];
        let y = 0, pull = 0, weight = 0; // towards the hypotheses before
        column.forEach((each, order) => {
          const parent = places.get(each.before), tall = mass(each);
          const place = { order, x, broad, y: y + (room(each) - tall) / 2, used: 0, from: parent ? parent.y + parent.used : 0 };
          if (parent) parent.used += tall;
          pull += tall * (place.from - place.y);
          weight += tall;
          places.set(each, place);
          y += room(each);
        });
        const shift = t ? Math.max(0, Math.min(height - y, pull / weight)) : (height - MASS) / 2;
        for (const each of column) places.get(each).y += shift;
        x += broad + (t > time ? gap : GAP);
      });
      const svg = shape("svg", { width: x, height, viewBox: `0 0 ${x} ${height}`, role: "img" });
      const kept = (steps[time] ?? steps.at(-1)).map((each) => `${textOf(each)} ${Math.exp(each.logProb).toFixed(3)}`);
      svg.setAttribute("aria-label", `The beam after step ${time}: ${kept.join("; ")}`);
      columns.flat().forEach((each) => {
        const { x, y, broad, from } = places.get(each), tall = mass(each), parent = places.get(each.before);
        const later = each.length > time, own = path.includes(each);
        const group = shape("g", { class: [own && "own", !inBeam.has(each) && "dropped", later && "later", tall < SLOT && "thin", best && best.path.includes(each) && "best"].filter(Boolean).join(" ") });
        const left = parent ? parent.x + parent.broad : x, start = parent ? from : y, middle = (left + x) / 2;
        const [over, under] = [0, tall].map((dy) => `M${left} ${start + dy}C${middle} ${start + dy} ${middle} ${y + dy} ${x} ${y + dy}h${broad}`);
        const back = `v${tall}h${-broad}C${middle} ${y + tall} ${middle} ${start + tall} ${left} ${start + tall}Z`;
        group.append(shape("path", { d: over + back }), shape("path", { class: "contour", d: over + under }));
        if (parent && !later) {
          const label = (text, dy) => shape("text", { x: x + broad / 2, y: y + tall / 2 + dy, "text-anchor": "middle" }, text);
          group.append(label(wordOf(each.id), each.ended ? -2 : 4), shape("title", {}, `${textOf(each)}: ${Math.exp(each.logProb).toFixed(3)}`));
          if (each.ended) group.append(label(minus(scoreOf(each).toFixed(2)), 11));
        }
        svg.append(group);
      });
      scroller.replaceChildren(svg);
      const now = places.get(columns[Math.min(time, columns.length - 1)][0]);
      scroller.scrollLeft = now.x - scroller.clientWidth * 0.6;
      fade(scroller);
    }

    begin(true);
  }

  document.querySelectorAll("div.live[data-show=decoder]").forEach(fill);
})();
