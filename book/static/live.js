// Models on the page. The reader types a sentence and asks; then the model is loaded, and reads
// whatever is typed. A page from the disk may load scripts and nothing else, so a model is one.
(() => {
  const { make, shape } = window.elements;
  const END = 1;
  const MOST = 60; // pieces of a sentence that are read, its end included
  const LETTERS = 100; // a piece has fewer
  // What Python's `bare_text` takes from the ends of a text.
  const ENDS = "[\\u0000-\\u0020\\u007f-\\u00a0\\u00ad\\u1680\\u2000-\\u200b\\u200e\\u200f\\u2028-\\u202f\\u205f\\u2060\\u2066-\\u2069\\u3000\\ufeff]+";
  const AT_ENDS = new RegExp(`^${ENDS}|${ENDS}$`, "g");
  const BLANK = /^[\p{Z}\p{C}]*$/u; // for Python too such a sentence has an empty translation
  const COLORS = ["#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#8C564B", "#56B4E9", "#7F7F7F"];

  // ------------------------------------------------------------------------------ the model

  const models = {};
  window.liveModel = (name) => (models[name] ??= loadModel(name).catch((error) => {
    delete models[name]; // so that it may be asked for again
    throw error;
  }));

  async function loadModel(name) {
    const scripts = ["transformer.js", "tokenizers.js", `../models/${name}.js`];
    await Promise.all(scripts.map(loadScript));
    const { config, tokenizer, weights } = window.bookModels[name];
    delete window.bookModels[name]; // megabytes of text
    const packed = Uint8Array.from(atob(weights), (letter) => letter.charCodeAt(0));
    const unpacked = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
    const bytes = new Uint8Array(await new Response(unpacked).arrayBuffer());
    const transformer = new Transformer(config, bytes);
    return { transformer, breath, wordGroups, ...vocabulary(tokenizer) };
  }

  function vocabulary(file) {
    // Without them "</s>" in a text is text, as in Python.
    const tokenizer = new tokenizers.Tokenizer({ ...file, added_tokens: [] }, {});
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
  const breath = () => new Promise((resolve) => {
    const { port1, port2 } = new MessageChannel();
    port1.onmessage = () => { port1.close(); resolve(); };
    port2.postMessage(null);
  });

  // ------------------------------------------------------------------------------- elements

  // What may be wider than the page fades at the right and scrolls, with keys too, which then turn
  // no page.
  const fade = (box) => box.classList.toggle("fades", box.scrollLeft + box.clientWidth < box.scrollWidth - 4);
  const sizes = new ResizeObserver((entries) => entries.forEach(({ target }) => fade(target)));
  const wide = (...children) => {
    const box = make("div", {
      className: "wide", tabIndex: 0, onscroll: () => fade(box),
      onkeydown: (event) => { if (event.key.startsWith("Arrow")) event.stopPropagation(); },
    }, ...children);
    sizes.observe(box);
    return box;
  };

  // A list to choose from: pairs of what it shows and what that means.
  function choice(name, options, chosen, change) {
    const select = make("select", { onchange: change });
    const offer = (pairs, index) => {
      select.replaceChildren(...pairs.map(([text]) => new Option(text)));
      select.selectedIndex = index;
      select.meanings = pairs.map(([, meaning]) => meaning);
    };
    offer(options, chosen);
    const element = make("label", {}, `${name} `, select);
    return { element, select, offer, get value() { return select.meanings[select.selectedIndex]; } };
  }

  const count = (n) => Array.from({ length: n }, (_, i) => [`${i + 1}`, i]);
  const plain = (name) => (name === "<EOS>" ? "end" : name.replaceAll("▁", "") || "▁");

  // ---------------------------------------------------------------------------------- parts
  // What is shown of a run. A part has an `element`, and may have `arrange`, which changes what is
  // read; `options` for the search; `step`, called with the newest token of the best hypothesis;
  // `finish`, called with the result.

  function searchWays({ run }) {
    const ways = [["beam of 4", { beam: 4, nBest: 4 }], ["greedy", { beam: 1 }]];
    const way = choice("Search", ways, 0, run);
    const element = make("p", { className: "controls" }, way.element);
    return { element, options: () => way.value };
  }

  // The order of the pieces, and whether the encoder is told of it.
  function orders({ run }) {
    const shuffled = (ids) => ids.map((id, i) => [(i * 37 + 11) % 61, id]).sort(([a], [b]) => a - b).map(([, id]) => id);
    const order = choice("Order", [["as written", (ids) => ids], ["backwards", (ids) => ids.toReversed()], ["shuffled", shuffled]], 0, run);
    const positions = choice("Encoder", [["with positions", null], ["all at position 0", 0]], 0, run);
    return {
      element: make("p", { className: "controls" }, order.element, positions.element),
      arrange: (ids) => [...order.value(ids.slice(0, -1)), END],
      options: (ids) => (positions.value === null ? {} : { positions: ids.map(() => 0) }),
    };
  }

  // What was read, in the order in which it was.
  function reading({ names }) {
    const element = make("p", { className: "note" });
    return { element, finish: (_, ids) => { element.textContent = `Read: ${names(ids).map(plain).join(" ")}`; } };
  }

  // The complete hypotheses, the best first.
  function alternatives({ decode }) {
    const body = make("tbody");
    const heads = ["Complete outputs", "log-probability", "score"];
    const head = make("tr", {}, ...heads.map((textContent) => make("th", { scope: "col", textContent })));
    const element = wide(make("table", { className: "kept" }, make("thead", {}, head), body));
    const row = ({ token, score }) => make("tr", {},
      ...[decode(idsOf(token)), token.logProb.toFixed(2), score.toFixed(3)]
        .map((textContent) => make("td", { textContent })));
    return {
      element,
      step: () => body.replaceChildren(),
      finish: ({ hypotheses }) => body.replaceChildren(...hypotheses.map(row)),
    };
  }

  const idsOf = (token) => token.path.slice(1).map(({ id }) => id);

  // Cross-attention: a row for each piece that is written, a column for each that was read.
  function heatMap({ transformer: { N_decoder: N, h }, names }) {
    const mean = ["mean of all", null];
    const layer = choice("Layer", [mean, ...count(N)], N, draw);
    const head = choice("Head", [mean, ...count(h)], 0, draw);
    const top = make("tr"), body = make("tbody");
    const title = make("caption", { textContent: "Where each piece looked while it was written" });
    const table = make("table", { className: "looks" }, title, make("thead", {}, top), body);
    let last, rows = new Map();

    function weightsOf(token, keys) {
      const layers = layer.value === null ? token.cross : [token.cross[layer.value]];
      const heads = head.value === null ? [...Array(h).keys()] : [head.value];
      const share = 1 / (layers.length * heads.length);
      return keys.map((_, k) => {
        let sum = 0;
        for (const weights of layers) for (const i of heads) sum += weights[i * keys.length + k];
        return sum * share;
      });
    }
    function rowOf(token, keys) {
      const name = plain(names([token.id])[0]);
      const cells = weightsOf(token.before, keys).map((weight, k) => {
        const cell = make("td", { title: `${name} → ${plain(keys[k])}: ${weight.toFixed(2)}`, ariaLabel: weight.toFixed(2) });
        cell.style.setProperty("--weight", `${(100 * weight).toFixed(1)}%`);
        return cell;
      });
      return make("tr", {}, make("th", { scope: "row", textContent: name }), ...cells);
    }
    function step(token, ids) {
      const keys = names(ids), old = rows, written = token.path.slice(1);
      if (last?.ids !== ids) {
        const columns = keys.map((key) => make("span", { textContent: plain(key) }));
        top.replaceChildren(make("td"), ...columns.map((span) => make("th", { scope: "col" }, span)));
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
    const controls = make("p", { className: "controls" }, layer.element, head.element);
    return { element: make("div", {}, controls, wide(table)), step };
  }

  // The pieces of each word, as `word_groups` of the package finds them.
  function wordGroups(names) {
    const groups = [], letters = (text) => /^[\p{L}\p{N}]+$/u.test(text);
    names.forEach((name, i) => {
      const inside = i && letters(name) && letters(names[i - 1].replaceAll("▁", ""));
      if (inside || names[i - 1] === "▁") groups.at(-1).push(i);
      else groups.push([i]);
    });
    return groups;
  }

  // The encoder's attention to itself as lines, as in the paper's Figures 3 to 5.
  function lines({ transformer: { N, h }, names, first }) {
    const layer = choice("Layer", count(N), N - 2, draw);
    const from = choice("From", [["every word", null]], 0, () => isolate(from.value));
    const full = choice("Full color at", [0.1, 0.2, 0.5, 1].map((w) => [`${w}`, w]), first[0] ? 3 : 1, draw);
    const boxes = count(h).map(([text]) => make("input", { type: "checkbox", checked: true, onchange: draw, title: text }));
    const legend = make("fieldset", {}, make("legend", { textContent: "Heads" }), ...boxes.map((box, i) => {
      const swatch = make("span", { className: "swatch" });
      swatch.style.background = COLORS[i % COLORS.length];
      return make("label", {}, box, swatch, box.title);
    }));
    const drawing = wide();
    let read, groups, words, links, squares;

    function finish({ source }, ids) {
      const pieces = names(ids);
      [read, groups] = [source.weights, wordGroups(pieces)];
      words = groups.map((group) => plain(group.map((i) => pieces[i]).join("")));
      const options = words.map((word, i) => [`${i + 1} ${word}`, i]);
      from.offer([["every word", null], ...options], 1 + words.findIndex((word) => first.includes(word)));
      draw();
    }
    // What a word gives to another: the mean over its pieces, the sum over those of the other.
    function given(head, query, key) {
      const pieces = read[0].length;
      let sum = 0;
      for (const q of groups[query]) for (const k of groups[key]) sum += read[layer.value][q][head * pieces + k];
      return sum / groups[query].length;
    }
    function draw() {
      if (!read) return;
      const longest = Math.max(...words.map((word) => word.length));
      const top = Math.max(12 + 7 * longest, 12 * h), bottom = top + 110, x = (i) => 11 + 22 * i;
      const size = [22 * words.length, bottom + top];
      const heads = [...boxes.keys()].filter((i) => boxes[i].checked);
      const svg = shape("svg", { viewBox: `0 0 ${size.join(" ")}`, width: size[0], height: size[1], role: "img",
        "aria-label": "Lines between the words of the sentence: what each word looks at, one color a head" });
      [links, squares] = [[], []];
      words.forEach((_, query) => {
        links[query] = svg.appendChild(shape("g", {}));
        squares[query] = svg.appendChild(shape("g", {}));
        for (const head of heads) words.forEach((_, key) => {
          const weight = given(head, query, key), color = COLORS[head % COLORS.length];
          if (weight < 0.02) return;
          const strength = Math.min(1, weight / full.value).toFixed(2);
          links[query].append(shape("line", { x1: x(query), y1: top + 4, x2: x(key), y2: bottom - 4, stroke: color, "stroke-opacity": strength }));
          squares[query].append(shape("rect", { x: x(key) - 11, y: bottom + 12 * heads.indexOf(head), width: 22, height: 12, fill: color, "fill-opacity": strength }));
        });
      });
      words.forEach((word, i) => {
        for (const [y, anchor] of [[top, "start"], [bottom, "end"]]) {
          const text = shape("text", { transform: `translate(${x(i) + 4} ${y}) rotate(-90)`, "text-anchor": anchor }, word);
          const area = shape("rect", { x: x(i) - 11, y: y === top ? 0 : bottom, width: 22, height: top, "fill-opacity": 0 });
          svg.append(text, area);
          if (y === bottom) continue;
          area.onpointerenter = () => isolate(i);
          area.onpointerleave = () => isolate(from.value);
          area.onclick = () => { from.select.selectedIndex = from.value === i ? 0 : i + 1; };
        }
      });
      drawing.replaceChildren(svg);
      isolate(from.value);
    }
    function isolate(word) {
      const shown = (i) => word === null || i === word;
      links?.forEach((group, i) => { group.style.display = shown(i) ? "" : "none"; });
      squares?.forEach((group, i) => { group.style.display = i === word ? "" : "none"; });
    }
    const controls = make("p", { className: "controls" }, layer.element, from.element, full.element);
    return { element: make("div", {}, controls, legend, drawing), options: () => ({ beam: 4 }), finish };
  }

  // One query of one head of the encoder: its scores, and what a softmax makes of them.
  function scores({ transformer: { N, h, d_model }, names }) {
    const root = Math.sqrt(d_model / h);
    const layer = choice("Layer", count(N), 0, draw), head = choice("Head", count(h), 0, draw);
    const from = choice("From", [["", 0]], 0, draw);
    const scale = choice("Divided by", [["√dₖ", 1], ["1", root], ["10 √dₖ", 0.1]], 0, draw);
    const titles = ["piece", "score, less the largest", "", "weight", ""];
    const top = make("tr", {}, ...titles.map((textContent) => make(textContent ? "th" : "td", { textContent })));
    const body = make("tbody"), table = make("table", { className: "kept" }, make("thead", {}, top), body);
    let read, keys;

    function finish({ source }, ids) {
      [read, keys] = [source.weights, names(ids).map(plain)];
      from.offer(keys.map((key, i) => [`${i + 1} ${key}`, i]), Math.min(2, keys.length - 1));
      draw();
    }
    // The logarithm of a weight is its score up to a number that all scores of a row share.
    function draw() {
      if (!read) return;
      const row = read[layer.value][from.value].slice(head.value * keys.length).subarray(0, keys.length);
      const largest = Math.max(...row), logs = [...row].map((weight) => scale.value * Math.log(weight / largest));
      const least = Math.min(-6, ...logs), sum = logs.reduce((total, log) => total + Math.exp(log), 0);
      const bar = (share) => {
        const strip = make("div", { className: "bar" });
        strip.style.width = `${(6 * share).toFixed(2)}rem`;
        return strip;
      };
      body.replaceChildren(...keys.map((key, k) => {
        const weight = Math.exp(logs[k]) / sum;
        const cells = [key, logs[k].toFixed(2), bar(1 - logs[k] / least), weight.toFixed(3), bar(weight)];
        return make("tr", {}, ...cells.map((cell) => make("td", {}, cell)));
      }));
    }
    const controls = make("p", { className: "controls" }, ...[layer, head, from, scale].map(({ element }) => element));
    return { element: make("div", {}, controls, wide(table)), options: () => ({ beam: 1 }), finish };
  }

  // A switch for each head, in a row for each layer. What is off passes nothing on, and the sentence is
  // translated again. losses: rows of kind, layer, head (0: all of them) and loss, measured before.
  function switchboard({ transformer: { N, N_decoder, h, recurrent }, run, losses }) {
    const kinds = [["encoder", "Encoder, at its own words", N, (n) => `encoder.layers.${n}.self_attn`],
      ["cross", "Decoder, at the source", N_decoder, (n) => `decoder.layers.${n}.src_attn`]];
    if (!recurrent) kinds.push(["decoder", "Decoder, at what is written", N_decoder, (n) => `decoder.layers.${n}.self_attn`]);
    const loss = new Map(losses.map(([kind, layer, head, value]) => [`${kind} ${layer} ${head}`, value]));
    const whole = loss.get(" 0 0"), off = new Map(), buttons = [];
    const cost = (kind, layer, head) => loss.get(`${kind} ${layer} ${head}`) - whole;
    const told = (by) => `without it, ${Math.abs(by).toFixed(3)} nats per piece ${by < 0 ? "less" : "more"}`;
    const strength = (by) => `${(13 * Math.min(3.5, Math.max(0, Math.log10(Math.max(by, 1e-9)) + 2.5))).toFixed(0)}%`;
    const said = make("p", { className: "note", role: "status" });
    const legend = make("p", { className: "note legend" }, "Click a head to switch it off. Shade: what the loss gains without it, in nats per piece: ", ...[0.003, 0.03, 0.3, 3].map((by) => {
      const swatch = make("span", { className: "swatch" });
      swatch.style.setProperty("--weight", strength(by));
      return make("span", {}, swatch, ` ${by} `);
    }));
    const before = make("p", { className: "note" });
    let kept = {};

    // Switches: a button for some heads, each a name of a layer and a number.
    function button(text, label, by, heads) {
      const one = make("button", { type: "button", textContent: text, title: `${label}: ${told(by)}`, onclick: () => {
        const on = heads.some(([name, head]) => off.get(name)?.has(head));
        for (const [name, head] of heads) {
          if (!off.has(name)) off.set(name, new Set());
          off.get(name)[on ? "delete" : "add"](head);
        }
        show();
        said.textContent = on ? `${label} on.` : `${label} off; ${told(by)}.`;
        run();
      } });
      one.setAttribute("aria-label", label);
      one.style.setProperty("--weight", strength(by));
      buttons.push([one, heads]);
      return one;
    }
    function show() {
      for (const [one, heads] of buttons) {
        const all = heads.every(([name, head]) => off.get(name)?.has(head));
        one.setAttribute("aria-pressed", String(!all));
      }
    }
    const numbers = [...Array(h).keys()];
    const boards = kinds.map(([kind, title, layers, name]) => {
      const heads = (n) => numbers.map((head) => [name(n), head]);
      const every = [...Array(layers).keys()].flatMap(heads);
      const rows = [...Array(layers).keys()].map((n) => make("tr", {},
        make("th", { scope: "row" }, button(`layer ${n + 1}`, `${title}, layer ${n + 1}`, cost(kind, n + 1, 0), heads(n))),
        ...numbers.map((head) => make("td", {}, button(`${head + 1}`, `${title}, layer ${n + 1}, head ${head + 1}`,
          cost(kind, n + 1, head + 1), [[name(n), head]])))));
      const caption = make("caption", {}, button(title, title, cost(kind, 0, 0), every));
      return make("table", {}, caption, make("tbody", {}, ...rows));
    });
    const reset = make("button", { type: "button", textContent: "All on", onclick: () => {
      off.clear(), show(), said.textContent = "All heads on.", run();
    } });
    show();
    const options = () => {
      const list = [...off].map(([name, heads]) => [name, [...heads]]).filter(([, heads]) => heads.length);
      return { beam: 4, off: Object.fromEntries(list) };
    };
    function finish(_, ids, text) {
      const key = ids.join(" ");
      if (!Object.keys(options().off).length) kept = { key, text };
      before.textContent = kept.key === key && kept.text !== text ? `With all heads on: ${kept.text}` : "";
    }
    const board = make("div", { className: "switchboard" }, ...boards);
    return { element: make("div", {}, before, legend, wide(board), make("p", { className: "controls" }, reset), said), options, finish };
  }

  const SHOWN = {
    translator: [searchWays, heatMap, alternatives],
    lines: [lines],
    switchboard: [switchboard],
    order: [orders, reading],
    scores: [scores],
  };

  const VERBS = { lines: "Draw the lines", scores: "Compute the scores" };

  // ------------------------------------------------------------------------ a place on a page

  // A line to type a sentence in, buttons with examples, and a note.
  function asking(box, verb, about, run) {
    const examples = JSON.parse(box.dataset.sentences);
    const [from, to] = box.dataset.model.split("-").slice(-2);
    const language = new Intl.DisplayNames(["en"], { type: "language" });
    const input = make("input", { type: "text", value: examples[0], lang: from, autocomplete: "off", spellcheck: false });
    const note = make("p", { className: "note", ariaLive: "polite", textContent: about });
    const form = make("form", { onsubmit: (event) => { event.preventDefault(); run(); } },
      make("label", { className: "sentence" }, `${language.of(from)} `, input), make("button", { textContent: verb }));
    const others = make("p", { className: "examples" }, ...(examples.length > 1 ? examples : []).map((text) => make("button", {
      type: "button", textContent: text, onclick: () => { input.value = text; run(); },
    })));
    box.setAttribute("role", "group");
    box.setAttribute("aria-label", `A model that runs on this page, ${language.of(from)} to ${language.of(to)}`);
    box.append(form, others, note);
    return { input, note, to };
  }

  function fill(box) {
    const { show, model: name, megabytes, losses, word, result: known } = box.dataset;
    const about = `The first click loads the model (${megabytes} MB). It runs on this page; nothing is sent.`;
    const { input, note, to } = asking(box, VERBS[show] ?? "Translate", about, run);
    const result = make("p", { className: "translation", lang: to, textContent: known });
    const status = make("p", { className: "visually-hidden", role: "status" }); // speaks at the end only
    let model, parts, opening, latest = 0;

    box.append(result, status);
    input.oninput = () => model && run();

    async function open() {
      note.textContent = "Loading …";
      await breath();
      model = await window.liveModel(name);
      parts = SHOWN[show].map((part) => part({ ...model, run, first: word.split(" "), losses: losses && JSON.parse(losses) }));
      result.after(...parts.map(({ element }) => element));
    }

    async function run() {
      const turn = ++latest; // an older run sees that it is not the last, and ends
      result.ariaBusy = "true";
      try {
        await (opening ??= open());
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
      parts.forEach(({ element }) => { element.hidden = blank; });
      if (blank) {
        result.textContent = "";
        return;
      }
      const tell = (token) => {
        result.textContent = model.decode(idsOf(token));
        parts.forEach((part) => part.step?.(token, ids));
      };
      const ids = parts.reduce((sofar, part) => part.arrange?.(sofar) ?? sofar, typed);
      const options = Object.assign({}, ...parts.map((part) => part.options?.(ids)));
      const search = model.transformer.search(ids, options);
      for (;;) {
        const { done, value } = search.next();
        if (done) {
          tell(value.hypotheses[0].token);
          parts.forEach((part) => part.finish?.(value, ids, result.textContent));
          status.textContent = result.textContent;
          return;
        }
        if (value.open?.length) tell(value.open[0]);
        await breath();
        if (turn !== latest) return;
      }
    }
  }

  window.live = { END, MOST, BLANK, breath, wide, fade, choice, asking };
  for (const box of document.querySelectorAll("div.live[data-model]")) {
    if (SHOWN[box.dataset.show]) fill(box);
    else loadScript(`${box.dataset.show}.js`); // a view that draws before any model is there
  }
})();
