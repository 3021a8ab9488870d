// Models on the page. The reader types a sentence and asks; then the model is loaded, and reads
// whatever is typed. A page from the disk may load scripts and nothing else, so a model is one.
(() => {
  const { range, sum, mean, plain, make, button, shape, table } = window.elements;
  const { controls, choice, slider, wide, sentenceForm, dataOf } = window.elements;
  const { END } = window.search;
  const MOST = 60; // pieces of a sentence that are read, its end included
  const LETTERS = 100; // a piece has fewer
  // What Python's `bare_text` takes from the ends of a text.
  const ENDS =
    "[\\u0000-\\u0020\\u007f-\\u00a0\\u00ad\\u1680\\u2000-\\u200b\\u200e\\u200f\\u2028-\\u202f\\u205f\\u2060\\u2066-\\u2069\\u3000\\ufeff]+";
  const AT_ENDS = new RegExp(`^${ENDS}|${ENDS}$`, "g");
  const BLANK = /^[\p{Z}\p{C}]*$/u; // for Python too such a sentence has an empty translation
  const colorOf = (head) => `var(--head-${head % 9})`;
  const swatch = (style) => make("span", { className: "swatch", style });

  // ------------------------------------------------------------------------------ the model

  const models = {};
  window.liveModel = (name) => {
    models[name] ??= loadModel(name).catch((error) => {
      delete models[name]; // so that it may be asked for again
      throw error;
    });
    return models[name];
  };

  async function loadModel(name) {
    const scripts = ["transformer.js", "tokenizers.js", `../models/${name}.js`];
    await Promise.all(scripts.map((script) => window.loadScript(script)));
    const { config, tokenizer, weights } = window.bookModels[name];
    delete window.bookModels[name]; // megabytes of text
    const bytes = await unpack(weights);
    const transformer = new window.Transformer(config, bytes);
    const known = vocabulary(JSON.parse(new TextDecoder().decode(await unpack(tokenizer))));
    return { transformer, config, bytes, walk, wordGroups, ...known };
  }

  async function unpack(text) {
    const packed = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
    const unpacked = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
    return new Uint8Array(await new Response(unpacked).arrayBuffer());
  }

  function vocabulary(file) {
    // Without them "</s>" in a text is text, as in Python.
    const tokenizer = new window.tokenizers.Tokenizer({ ...file, added_tokens: [] }, {});
    return {
      // The beginning of a text as ids, closed by the end symbol; cut: whether more was there.
      encode(text) {
        text = text.toWellFormed().replace(AT_ENDS, "");
        const ids = [...tokenizer.encode(text.slice(0, MOST * LETTERS)).ids, END];
        const cut = ids.length > MOST || text.length > MOST * LETTERS;
        if (ids.length > MOST) ids.splice(MOST - 1, ids.length, END);
        return { ids, cut };
      },
      decode(ids) {
        const said = ids.filter((id) => id > 3);
        return said.length ? tokenizer.decode(said, { clean_up_tokenization_spaces: false }) : "";
      },
      // Pieces as text; "▁" stands for a space before them.
      names: (ids) => ids.map((id) => (id === END ? "<EOS>" : tokenizer.id_to_token(id))),
    };
  }

  // Lets the page draw and hear the reader. A timer would wait four milliseconds each time.
  const breath = () =>
    new Promise((resolve) => {
      const { port1, port2 } = new MessageChannel();
      port1.onmessage = () => {
        port1.close();
        resolve();
      };
      port2.postMessage(null);
    });

  // Runs a search to its end, with a breath after each step; nothing comes of one that is not the last.
  async function walk(steps, isLast = () => true, show = () => {}) {
    for (;;) {
      const { done, value } = steps.next();
      if (done) return value;
      show(value);
      await breath();
      if (!isLast()) return null;
    }
  }

  const count = (n) => range(n).map((i) => [`${i + 1}`, i]);

  // ---------------------------------------------------------------------------------- parts
  // What is shown of a run. A part has an `element`, and may have `arrange`, which changes what is
  // read; `options` for the search; `step`, called with the newest token of the best hypothesis;
  // `finish`, called with the result.

  function searchWays({ run }) {
    const ways = { "beam of 4": { beam: 4, nBest: 4 }, greedy: { beam: 1 } };
    const way = choice("Search", ways, 0, run);
    const speed = make("span", { className: "speed" });
    let start;
    const options = () => {
      start = performance.now();
      return way.value;
    };
    const finish = ({ hypotheses: [{ token }] }) => {
      const each = (1000 * token.length) / (performance.now() - start);
      speed.textContent = `${each.toFixed(0)} tokens a second here`;
    };
    return { element: controls(way, speed), options, finish };
  }

  // The order of the pieces, and whether the encoder is told of it.
  function orders({ run }) {
    const key = (i) => (i * 37 + 11) % 61;
    const shuffled = (ids) => {
      const order = range(ids.length).sort((one, two) => key(one) - key(two));
      return order.map((i) => ids[i]);
    };
    const backwards = (ids) => ids.toReversed();
    const ways = { "as written": (ids) => ids, backwards, shuffled };
    const order = choice("Order", ways, 0, run);
    const places = { "with positions": null, "all at position 0": 0 };
    const positions = choice("Encoder", places, 0, run);
    return {
      element: controls(order, positions),
      arrange: (ids) => [...order.value(ids.slice(0, -1)), END],
      options: (ids) => (positions.value === null ? {} : { positions: ids.map(() => 0) }),
    };
  }

  // What was read, in the order in which it was.
  function reading({ names }) {
    const element = make("p", { className: "note" });
    const finish = (_, ids) => element.replaceChildren(`Read: ${names(ids).map(plain).join(" ")}`);
    return { element, finish };
  }

  // The complete hypotheses, the best first.
  function alternatives({ decode }) {
    const body = make("tbody");
    const element = wide(table(["Complete outputs", "log-probability", "score"], body));
    const row = ({ token, score }) => {
      const texts = [decode(token.ids), token.logProb.toFixed(2), score.toFixed(3)];
      return make("tr", {}, ...texts.map((textContent) => make("td", { textContent })));
    };
    const finish = ({ hypotheses }) => body.replaceChildren(...hypotheses.map(row));
    return { element, step: () => body.replaceChildren(), finish };
  }

  // Cross-attention: a row for each piece that is written, a column for each that was read.
  function heatMap({ transformer: { N_decoder: N, h }, names }) {
    const all = ["mean of all", null];
    const layer = choice("Layer", [all, ...count(N)], N, draw);
    const head = choice("Head", [all, ...count(h)], 0, draw);
    const [top, body] = [make("tr"), make("tbody")];
    const title = make("caption", { textContent: "Where each piece looked while it was written" });
    const map = make("table", { className: "looks" }, title, make("thead", {}, top), body);
    let [last, rows] = [null, new Map()];

    function weightsOf(token, keys) {
      const layers = layer.value === null ? token.cross : [token.cross[layer.value]];
      const heads = head.value === null ? range(h) : [head.value];
      return keys.map((_, k) =>
        mean(layers.map((row) => mean(heads.map((i) => row[i * keys.length + k])))),
      );
    }
    function rowOf(token, keys) {
      const name = plain(names([token.id])[0]);
      const cells = weightsOf(token.before, keys).map((weight, k) => {
        const [ariaLabel, style] = [weight.toFixed(2), `--weight: ${(100 * weight).toFixed(1)}%`];
        const title = `${name} → ${plain(keys[k])}: ${ariaLabel}`;
        return make("td", { title, ariaLabel, style });
      });
      return make("tr", {}, make("th", { scope: "row", textContent: name }), ...cells);
    }
    function step(token, ids) {
      const [keys, old, written] = [names(ids), rows, token.path.slice(1)];
      if (last?.ids !== ids) {
        const span = (key) => make("span", { textContent: plain(key) });
        const columns = keys.map((key) => make("th", { scope: "col" }, span(key)));
        top.replaceChildren(make("td"), ...columns);
      }
      last = { token, ids };
      rows = new Map(written.map((each) => [each, old.get(each) ?? rowOf(each, keys)]));
      let kept = 0; // most steps only add a row
      while (kept < body.rows.length && body.rows[kept] === rows.get(written[kept])) kept++;
      while (body.rows.length > kept) body.lastChild.remove();
      body.append(...[...rows.values()].slice(kept));
    }
    function draw() {
      rows.clear();
      if (last) step(last.token, last.ids);
    }
    return { element: make("div", {}, controls(layer, head), wide(map)), step };
  }

  // The pieces of each word, as `word_groups` of the package finds them.
  function wordGroups(names) {
    const groups = [];
    const letters = (text) => /^[\p{L}\p{N}]+$/u.test(text);
    for (const [i, name] of names.entries()) {
      const inside = i && letters(name) && letters(names[i - 1].replaceAll("▁", ""));
      if (inside || names[i - 1] === "▁") groups.at(-1).push(i);
      else groups.push([i]);
    }
    return groups;
  }

  // The encoder's attention to itself as lines, as in the paper's Figures 3 to 5.
  function lines({ transformer: { N, h }, names, first }) {
    const layer = choice("Layer", count(N), N - 2, draw);
    const from = choice("From", [["every word", null]], 0, () => isolate(from.value));
    const colors = range(h).map((i) =>
      make("span", {}, swatch(`background: ${colorOf(i)}`), `${i + 1} `),
    );
    const legend = make("p", { className: "note" }, "Heads ", ...colors);
    const drawing = wide();
    let [read, groups, words, columns] = [null, [], [], []];

    function finish({ source }, ids) {
      const pieces = names(ids);
      [read, groups] = [source.weights, wordGroups(pieces)];
      words = groups.map((group) => plain(group.map((i) => pieces[i]).join("")));
      const options = words.map((word, i) => [`${i + 1} ${word}`, i]);
      const chosen = words.findIndex((word) => first.includes(word));
      from.offer([["every word", null], ...options], 1 + chosen);
      draw();
    }
    // What a word gives to another: the mean over its pieces, the sum over those of the other.
    function given(head, query, key) {
      const from = head * read[0].length;
      return mean(
        groups[query].map((q) => sum(groups[key].map((k) => read[layer.value][q][from + k]))),
      );
    }
    const x = (i) => 11 + 22 * i;
    // The lines from a word, and below each other word a square for each head.
    function column(query, top, bottom) {
      const [lines, squares] = [shape("g"), shape("g")];
      for (const head of range(h)) {
        for (const key of words.keys()) {
          const weight = given(head, query, key);
          if (weight < 0.02) continue;
          const [color, opacity] = [colorOf(head), weight.toFixed(2)];
          const ends = { x1: x(query), y1: top + 4, x2: x(key), y2: bottom - 4 };
          const square = { x: x(key) - 11, y: bottom + 12 * head, width: 22, height: 12 };
          lines.append(shape("line", { ...ends, stroke: color, "stroke-opacity": opacity }));
          squares.append(shape("rect", { ...square, fill: color, "fill-opacity": opacity }));
        }
      }
      return { lines, squares };
    }
    // A word above or below its lines, and the area that answers to the pointer.
    function label(i, isTop, y, height) {
      const transform = `translate(${x(i) + 4} ${isTop ? height : y}) rotate(-90)`;
      const text = { transform, "text-anchor": isTop ? "start" : "end" };
      const area = shape("rect", { x: x(i) - 11, y, width: 22, height, "fill-opacity": 0 });
      if (isTop) {
        area.onpointerenter = () => isolate(i);
        area.onpointerleave = () => isolate(from.value);
        area.onclick = () => {
          from.select.selectedIndex = from.value === i ? 0 : i + 1;
        };
      }
      return [shape("text", text, words[i]), area];
    }
    function draw() {
      if (!read) return;
      const top = Math.max(12 + 7 * Math.max(...words.map((word) => word.length)), 12 * h);
      const [width, height, bottom] = [22 * words.length, 2 * top + 110, top + 110];
      columns = words.map((_, query) => column(query, top, bottom));
      const said =
        "Lines between the words of the sentence: what each word looks at, one color a head";
      const size = { viewBox: `0 0 ${width} ${height}`, width, height };
      const svg = shape(
        "svg",
        { ...size, role: "img", "aria-label": said },
        ...columns.flatMap(({ lines, squares }) => [lines, squares]),
        ...words.flatMap((_, i) => [...label(i, true, 0, top), ...label(i, false, bottom, top)]),
      );
      drawing.replaceChildren(svg);
      isolate(from.value);
    }
    function isolate(word) {
      for (const [i, { lines, squares }] of columns.entries()) {
        lines.style.display = word === null || i === word ? "" : "none";
        squares.style.display = i === word ? "" : "none";
      }
    }
    return { element: make("div", {}, controls(layer, from), legend, drawing), finish };
  }

  // One query of one head of the encoder: its scores, and the softmax with and without the scale.
  function scores({ transformer: { N, h, d_model }, names }) {
    const root = Math.sqrt(d_model / h);
    const [layer, head] = [choice("Layer", count(N), 0, draw), choice("Head", count(h), 0, draw)];
    const from = choice("From", { "": 0 }, 0, draw);
    const titles = ["piece", "score, less the largest", "divided by √dₖ", "", "not divided", ""];
    const body = make("tbody");
    let [read, keys] = [null, []];

    function finish({ source }, ids) {
      [read, keys] = [source.weights, names(ids).map(plain)];
      const options = keys.map((key, i) => [`${i + 1} ${key}`, i]);
      from.offer(options, Math.min(2, keys.length - 1));
      draw();
    }
    // The logarithm of a weight is its divided score up to a number that a row's scores share.
    function draw() {
      if (!read) return;
      const start = head.value * keys.length;
      const scaled = [...read[layer.value][from.value]].slice(start, start + keys.length);
      const largest = Math.max(...scaled);
      const logs = scaled.map((weight) => root * Math.log(weight / largest));
      const total = sum(logs.map(Math.exp));
      const width = (share) => `width: calc(${share.toFixed(3)} * min(8rem, 11vw))`;
      const bar = (share) => make("div", { className: "bar", style: width(share) });
      const rows = keys.map((key, k) => {
        const weights = [scaled[k], Math.exp(logs[k]) / total];
        const cells = weights.flatMap((weight) => [weight.toFixed(3), bar(weight)]);
        const score = logs[k].toFixed(2).replace("-", "−");
        return make("tr", {}, ...[key, score, ...cells].map((cell) => make("td", {}, cell)));
      });
      body.replaceChildren(...rows);
    }
    const element = make("div", {}, controls(layer, head, from), wide(table(titles, body)));
    return { element, options: () => ({ beam: 1 }), finish };
  }

  // Decoded translations of one sentence, to be told beside the present one where they differ.
  function reminder() {
    const element = make("p", { className: "note" });
    let [last, texts] = ["", {}];
    function tell(ids, text, name) {
      const key = ids.join(" ");
      if (key !== last) texts = {};
      last = key;
      if (name) texts[name] = text;
      const others = Object.entries(texts).filter(([, other]) => other !== text);
      element.replaceChildren(
        ...others.flatMap(([label, other]) => [`${label}: ${other}`, make("br")]),
      );
    }
    return { element, tell, forget: (name) => delete texts[name] };
  }

  // A switch for each head, in a row for each layer, beside the encoder's lines. What is off gives its
  // mean over other sentences, and the sentence is translated again. data: the log of
  // `benchmarks.switches`.
  function switchboard(given) {
    const { transformer, run, data } = given;
    const { N, N_decoder, h, d_model, recurrent } = transformer;
    const drawn = lines(given);
    const kinds = [
      ["encoder", "Encoder, at its own words", N, (n) => `encoder.layers.${n}.self_attn`],
      ["cross", "Decoder, at the source", N_decoder, (n) => `decoder.layers.${n}.src_attn`],
      ["decoder", "Decoder, at what is written", N_decoder, (n) => `decoder.layers.${n}.self_attn`],
    ].slice(0, recurrent ? 2 : 3);
    const loss = new Map(
      data.losses.map(([kind, layer, head, value]) => [`${kind} ${layer} ${head}`, value]),
    );
    const names = Object.fromEntries(kinds.map(([kind, , , name]) => [kind, name]));
    const order = data.order.map(([kind, layer, head]) => [names[kind](layer - 1), head - 1]);
    const [buttons, every] = [[], order.length];
    let off = new Map();
    let yours = null; // while the board has the book's choice instead
    const cost = (kind, layer, head) => loss.get(`${kind} ${layer} ${head}`) - loss.get(" 0 0");
    const told = (by) =>
      `without it, ${Math.abs(by).toFixed(3)} nats per piece ${by < 0 ? "less" : "more"}`;
    const shade = (by) => {
      const strength = Math.min(3.5, Math.max(0, Math.log10(Math.max(by, 1e-9)) + 3));
      return `--weight: ${(13 * strength).toFixed(0)}%`;
    };
    const said = make("p", { className: "note", role: "status" });
    const shades = [0.001, 0.01, 0.1, 1].map((by) =>
      make("span", {}, swatch(shade(by)), ` ${by} `),
    );
    const about =
      "Click a head to switch it off: it then outputs its mean over other sentences. Shade: how much the loss rises without it, in nats per piece: ";
    const legend = make("p", { className: "note legend" }, about, ...shades);
    const others = reminder();

    const count = () => sum([...off.values()].map(({ size }) => size));
    function setOff(heads, on = false) {
      for (const [name, head] of heads) {
        if (!off.has(name)) off.set(name, new Set());
        off.get(name)[on ? "delete" : "add"](head);
      }
    }
    // On pairs that chose nothing, how much the loss rises without the book's first n heads, and
    // without n random ones.
    function rises(n) {
      const stride = every / (data.random.length - 1);
      const [below, rest] = [Math.floor(n / stride), (n % stride) / stride];
      const [one, next] = [data.random[below], data.random[below + 1] ?? 0];
      const found = [data.order[n - 1][3], (1 - rest) * one + rest * next];
      const [book, chance] = found.map((value) =>
        (value - data.heldOut).toFixed(2).replace("-", "−"),
      );
      return `On 100 other pairs, the book’s ${n} add ${book} nats per piece, ${n} random heads ${chance}.`;
    }
    // Shows what is on, and says what was switched.
    function change(text) {
      for (const [one, heads] of buttons) {
        one.ariaPressed = !heads.every(([name, head]) => off.get(name)?.has(head));
      }
      const n = count();
      said.textContent = `${text} ${n} of ${every} heads are off. ${n ? rises(n) : ""}`;
      exchange.textContent = yours ? `Your ${n} again` : `The book’s ${n} instead`;
      exchange.hidden = !n;
      slide.value = n;
    }
    // Switches: a button for some heads, each a name of a layer and a number.
    function switchOf(textContent, ariaLabel, by, heads) {
      const onclick = () => {
        const on = heads.some(([name, head]) => off.get(name)?.has(head));
        yours = null;
        setOff(heads, on);
        change(on ? `${ariaLabel} on.` : `${ariaLabel} off; ${told(by)}.`);
        run();
      };
      const title = `${ariaLabel}: ${told(by)}`;
      const one = button({ textContent, title, ariaLabel, style: shade(by), onclick });
      buttons.push([one, heads]);
      return one;
    }
    const row = ([kind, title, , name], n) => {
      const label = `${title}, layer ${n + 1}`;
      const heads = range(h).map((head) => [name(n), head]);
      const all = switchOf(`layer ${n + 1}`, label, cost(kind, n + 1, 0), heads);
      const cells = heads.map((one, i) => {
        const by = cost(kind, n + 1, i + 1);
        return make("td", {}, switchOf(`${i + 1}`, `${label}, head ${i + 1}`, by, [one]));
      });
      return make("tr", {}, make("th", { scope: "row" }, all), ...cells);
    };
    const boards = kinds.map((each) => {
      const [kind, title, layers, name] = each;
      const rows = range(layers).map((n) => row(each, n));
      const heads = range(layers).flatMap((n) => range(h).map((head) => [name(n), head]));
      const every = make("caption", {}, switchOf(title, title, cost(kind, 0, 0), heads));
      return make("table", {}, every, make("tbody", {}, ...rows));
    });
    // Some heads off, and no others.
    function only(heads, text) {
      off = new Map();
      setOff(heads);
      change(text);
      run();
    }
    const all = () => {
      yours = null;
      only([], "All heads on.");
    };
    const reset = button({ textContent: "All on", onclick: all });
    const slide = slider(every, "Heads off in the book’s order", (n) => {
      yours = null;
      only(order.slice(0, n), "In the book’s order:");
    });
    const swap = () => {
      const back = yours;
      yours = back ? null : [...off].flatMap(([name, heads]) => [...heads].map((i) => [name, i]));
      only(back ?? order.slice(0, count()), back ? "Your choice:" : "The book’s choice:");
    };
    const exchange = button({ onclick: swap });
    const ordered = make("label", {}, "The book’s order, cheapest first ", slide);
    change("");
    const silence = (name, heads) => (rows) => {
      for (const row of rows)
        for (const head of heads)
          for (let i = (head * d_model) / h; i < ((head + 1) * d_model) / h; i++)
            row[i] = data.means[name][i] / 10_000;
    };
    const options = () => {
      const list = [...off].map(([name, heads]) => [`${name}.w_o:in`, silence(name, heads)]);
      return { beam: 4, touch: Object.fromEntries(list) };
    };
    function finish(found, ids, text) {
      drawn.finish(found, ids);
      const name = count() ? "With your choice" : "With all heads on";
      if (!count()) others.forget("With your choice");
      others.tell(ids, text, yours ? null : name);
    }
    const board = make("div", { className: "switchboard" }, wide(...boards), drawn.element);
    const line = controls(reset, ordered, exchange);
    const element = make("div", {}, others.element, legend, board, line, said);
    return { element, options, finish };
  }

  // Cells of the decoder's memory, held between their values after nouns of either gender. data: the
  // log of `benchmarks.gender`. A new sentence is first translated with the memory free.
  function dial({ run, data: { layer, cells, f, m } }) {
    const name = `decoder.layers.${layer}.self_attn`;
    const own = reminder();
    const said = make("p", { className: "note", role: "status" });
    let [held, asked] = [null, ""];
    const hold = (rows) => {
      const share = (held + 1) / 2;
      for (const row of rows)
        for (const [i, cell] of cells.entries()) row[cell] = m[i] + share * (f[i] - m[i]);
    };
    function set(value) {
      held = value;
      input.value = value ?? 0;
      input.ariaValueText = value === null ? "free" : `${value}`;
      free.ariaPressed = value === null;
    }
    const turn = (value) => {
      set(value);
      run();
    };
    const more = { min: -1, step: 0.1 };
    const input = slider(1, "Gender in the memory, −1 masculine to 1 feminine", turn, more);
    const free = button({ textContent: "Let go", onclick: () => turn(null) });
    set(null);
    function options(ids) {
      const key = ids.join(" ");
      if (key !== asked) set(null);
      asked = key;
      return { beam: 4, touch: held === null ? {} : { [name]: hold } };
    }
    function finish(_, ids, text) {
      own.tell(ids, text, held === null ? "With the memory free" : null);
      const state = held === null ? "free" : `held at ${held.toFixed(1).replace("-", "−")}`;
      said.textContent = `The three cells are ${state}.`;
    }
    const element = make(
      "div",
      {},
      own.element,
      controls("masculine", input, "feminine", free),
      said,
    );
    return { element, options, finish };
  }

  const SHOWN = {
    translator: [searchWays, heatMap, alternatives],
    switchboard: [switchboard],
    dial: [dial],
    order: [orders, reading],
    scores: [scores],
  };

  const VERBS = { scores: "Compute the scores" };

  // ------------------------------------------------------------------------ a place on a page

  // A line to type a sentence in, buttons with examples, and a note.
  function asking(box, verb, about, run) {
    const examples = JSON.parse(box.dataset.sentences);
    const [from, to] = box.dataset.model.split("-").slice(-2);
    const language = new Intl.DisplayNames(["en"], { type: "language" });
    const text = { type: "text", value: examples[0], lang: from };
    const input = make("input", { ...text, autocomplete: "off", spellcheck: false });
    const note = make("p", { className: "note", ariaLive: "polite", textContent: about });
    const form = sentenceForm(language.of(from), input, verb, run);
    const take = (value) => {
      input.value = value;
      run();
    };
    const offer = (textContent) => button({ textContent, onclick: () => take(textContent) });
    const isShown = box.dataset.show === "translator"; // the first, with its translation
    const offered = examples.length > 1 ? examples.slice(Number(isShown)).map(offer) : [];
    const others = make("p", { className: "examples" }, ...offered);
    const pair = `${language.of(from)} to ${language.of(to)}`;
    Object.assign(box, { role: "group", ariaLabel: `A model that runs on this page, ${pair}` });
    box.append(form, others, note);
    return { form, input, note, to };
  }

  function fill(box) {
    const { show, model: name, megabytes, word, result: known, wrong } = box.dataset;
    const data = box.querySelector("script") && dataOf(box);
    const about = `The first click loads the model (${megabytes} MB). It runs on this page; nothing is sent.`;
    const { input, note, to } = asking(box, VERBS[show] ?? "Translate", about, run);
    const result = make("p", { className: "translation", lang: to, textContent: known });
    if (wrong) {
      const [before, after] = known.split(wrong);
      result.replaceChildren(before, make("del", { textContent: wrong }), after);
    }
    const status = make("p", { className: "visually-hidden", role: "status" }); // speaks at the end only
    let [model, parts, opening, latest] = [null, null, null, 0];

    if (show === "translator") {
      const language = new Intl.DisplayNames(["en"], { type: "language" }).of(to);
      box.querySelector("form").after(make("div", { className: "sentence" }, language, result));
    } else note.before(result);
    box.append(status);
    input.oninput = () => model && run();

    async function open() {
      note.textContent = "Loading …";
      await breath();
      model = await window.liveModel(name);
      parts = SHOWN[show].map((part) => part({ ...model, run, first: word.split(" "), data }));
      note.after(...parts.map(({ element }) => element));
    }

    async function run() {
      const turn = ++latest; // an older run sees that it is not the last, and ends
      result.ariaBusy = "true";
      try {
        opening ??= open();
        await opening;
        if (turn === latest) await read(turn);
      } catch (error) {
        note.textContent = `This did not work: ${error.message}`;
        if (!model) opening = null; // so that the next click tries again
      }
      if (turn === latest) result.ariaBusy = "false";
    }

    async function read(turn) {
      const { ids: typed, cut } = model.encode(input.value);
      note.textContent = cut ? `Only the first ${MOST} pieces of this text are read.` : "";
      const blank = BLANK.test(input.value);
      for (const { element } of parts) element.hidden = blank;
      if (blank) {
        result.textContent = "";
        return;
      }
      const tell = (token) => {
        result.textContent = model.decode(token.ids);
        for (const part of parts) part.step?.(token, ids);
      };
      const ids = parts.reduce((sofar, part) => part.arrange?.(sofar) ?? sofar, typed);
      const options = Object.assign({}, ...parts.map((part) => part.options?.(ids)));
      const search = model.transformer.search(ids, options);
      const show = ({ open }) => open?.length && tell(open[0]);
      const found = await walk(search, () => turn === latest, show);
      if (!found) return;
      tell(found.hypotheses[0].token);
      for (const part of parts) part.finish?.(found, ids, result.textContent);
      status.textContent = result.textContent;
    }
  }

  // What a view says that shows a first sentence before any model is there.
  const loads = (megabytes) =>
    `Your own sentence loads the model (${megabytes} MB) at the first click. It runs on this page; nothing is sent.`;

  window.live = { MOST, BLANK, breath, walk, asking, loads, wordGroups };
  for (const box of document.querySelectorAll("div.live[data-model]")) {
    if (SHOWN[box.dataset.show]) fill(box);
    else window.loadScript(`${box.dataset.show}.js`); // a view that draws before any model is there
  }
})();
