// The book's first picture: a sentence, its translation, and where each word looked while it was
// written. The examples come with the page; the model is loaded for the reader's own sentence.
(() => {
  const { make, shape, rove } = window.elements;
  const BROADEST = 18; // pixels, of a curve whose weight is 1
  const LEAST = 0.03; // smaller weights are not drawn
  const PACE = 380; // milliseconds for each word
  const END = "<EOS>";
  const list = new Intl.ListFormat("en");
  const sum = (numbers) => numbers.reduce((total, number) => total + number, 0);
  const percent = (weight) => `${Math.round(100 * weight)}%`;
  const called = (word) => ({ [END]: "the end symbol", ".": "the period" })[word] ?? `“${word}”`;
  const same = (one, two) => one?.[0] === two?.[0] && one?.[1] === two?.[1];

  // A translation that the model has found, in words: `merge_words` of the package.
  function inWords({ path }, ids, { transformer: { N_decoder, h }, names, wordGroups }) {
    const tokens = path.slice(1), pieces = [names(ids), names(tokens.map(({ id }) => id))];
    const groups = pieces.map(wordGroups);
    const [source, target] = groups.map((words, side) => words.map((group) => (
      group.map((i) => pieces[side][i]).join("").replaceAll("▁", "") || "▁")));
    const weight = (layer, head, q, k) => tokens[q].before.cross[layer][head * ids.length + k];
    const weights = [...Array(N_decoder).keys()].map((layer) => [...Array(h).keys()].map((head) => (
      groups[1].map((from) => groups[0].map((to) => (
        sum(from.flatMap((q) => to.map((k) => weight(layer, head, q, k)))) / from.length))))));
    return { source, target, weights };
  }

  const mean = (tables) => tables[0].map((row, q) => row.map((_, k) => sum(tables.map((table) => table[q][k])) / tables.length));

  function fill(box) {
    const examples = JSON.parse(box.querySelector("script").textContent);
    for (const each of examples) {
      each.weights = each.weights.map((heads) => heads.map((rows) => rows.map((row) => row.map((n) => n / 100))));
    }
    const longest = Math.max(...examples.flatMap(({ source, target }) => [source.length, target.length]));
    const { model: name, megabytes } = box.dataset, last = examples[0].weights.length - 1;
    let shown, table, words, curves, written, timer; // what is seen
    let head = null, hovered = null, chosen = null; // [layer, head]; [side, word]
    let width; // of the box, when it was drawn
    let turn = 0; // an older translation sees that it is not the last, and ends

    const sides = ["English sentence", "German translation"].map((ariaLabel, side) => (
      make("div", { className: "words", lang: ["en", "de"][side], role: "toolbar", ariaLabel })));
    const svg = shape("svg", { "aria-hidden": "true" });
    const picture = make("div", { className: "picture" }, ...sides, svg);
    const said = make("p", { className: "said", role: "status",
      textContent: "Choose a word: what it attends to lights up. The width of a curve is its attention weight." });
    const replay = make("button", { type: "button", className: "replay", textContent: "Replay", onclick: write });
    const heads = make("div", { className: "heads", role: "radiogroup", ariaLabel: "Attention heads" });

    function show(example) {
      [shown, hovered, chosen, written] = [example, null, null, example.target.length];
      clearTimeout(timer);
      words = [shown.source, shown.target].map((texts, side) => texts.map((text, i) => {
        const here = [side, i], end = text === END, choose = () => light(() => { chosen = here; });
        return make("button", {
          type: "button", textContent: end ? "end" : text, className: end ? "end" : "", tabIndex: i ? -1 : 0,
          onpointerenter: ({ pointerType }) => pointerType === "mouse" && light(() => { hovered = here; }),
          onpointerleave: () => light(() => { hovered = null; }),
          onfocus: choose, onclick: choose,
        });
      }));
      sides.forEach((side, i) => side.replaceChildren(...words[i]));
      buttons.forEach((button, i) => { button.ariaPressed = shown === examples[i]; });
      const tile = (each, here, title) => {
        const choose = () => same(head, here) || look(here, title);
        return make("button", { type: "button", role: "radio", title, ariaLabel: title, here, onfocus: choose, onclick: choose }, small(each));
      };
      const group = (title, ...buttons) => make("div", {}, make("span", { textContent: title }), ...buttons);
      heads.replaceChildren(group("all", tile(mean(shown.weights[last]), null, `Layer ${last + 1}, mean of its heads`)),
        ...shown.weights.map((layer, n) => group(`layer ${n + 1}, heads 1–${layer.length}`,
          ...layer.map((each, i) => tile(each, [n, i], `Layer ${n + 1}, head ${i + 1}`)))));
      draw();
    }

    function small(weights) {
      const drawing = shape("svg", { viewBox: "0 0 40 36", "aria-hidden": "true", preserveAspectRatio: "none" });
      weights.forEach((row, q) => row.forEach((weight, k) => {
        const [x, u] = [40 * (k + 0.5) / row.length, 40 * (q + 0.5) / weights.length];
        if (weight > 0.15) drawing.append(shape("path", { d: `M${x} 1C${x} 18 ${u} 18 ${u} 35`, "stroke-opacity": weight }));
      }));
      return drawing;
    }

    // In two rows if they fit, otherwise in two columns.
    function draw() {
      width = box.clientWidth;
      table = head ? shown.weights[head[0]][head[1]] : mean(shown.weights[last]);
      for (const each of heads.querySelectorAll("button")) {
        each.ariaChecked = same(head, each.here);
        each.tabIndex = same(head, each.here) ? 0 : -1;
      }
      picture.classList.remove("columns");
      const columns = width < 600 || sides.some((side) => side.scrollWidth > side.clientWidth);
      picture.classList.toggle("columns", columns);
      picture.style.minHeight = columns ? `${1.8 * longest}rem` : "";
      const [from, to] = words.map((row, side) => row.map(({ offsetLeft: x, offsetTop: y, offsetWidth: w, offsetHeight: h }) => (
        columns ? [x + w * (1 - side), y + h / 2] : [x + w / 2, y + h * (1 - side)])));
      curves = [];
      svg.replaceChildren(...table.map((row, q) => {
        const group = shape("g"), drawn = [...row.keys()].filter((k) => row[k] >= LEAST);
        let along = -BROADEST * sum(drawn.map((k) => row[k])) / 2;
        for (const k of drawn) {
          const width = BROADEST * row[k], [x, y] = from[k], [u, v] = to[q];
          const middle = along + width / 2, bend = columns ? (x + u) / 2 : (y + v) / 2;
          const d = columns ? `M${x} ${y}C${bend} ${y} ${bend} ${v + middle} ${u} ${v + middle}`
            : `M${x} ${y}C${x} ${bend} ${u + middle} ${bend} ${u + middle} ${v}`;
          along += width;
          curves.push([group.appendChild(shape("path", { d, "stroke-width": width.toFixed(2) })), k, q]);
        }
        return group;
      }));
      paint();
    }

    function paint() {
      const newest = written < shown.target.length ? [1, written - 1] : null;
      const lit = hovered ?? chosen ?? newest;
      picture.classList.toggle("lit", Boolean(lit));
      words.forEach((row, side) => row.forEach((word, i) => {
        const other = lit && lit[0] !== side, weight = (other && (side ? table[i][lit[1]] : table[lit[1]]?.[i])) || 0;
        word.style.setProperty("--weight", percent(weight));
        word.classList.toggle("near", weight >= 0.05);
        word.classList.toggle("on", Boolean(lit) && same(lit, [side, i]));
        word.classList.toggle("unwritten", side === 1 && i >= written);
      }));
      curves.forEach(([curve, ...ends]) => curve.classList.toggle("on", Boolean(lit) && ends[lit[0]] === lit[1]));
      [...svg.children].forEach((group, q) => group.classList.toggle("unwritten", q >= written));
    }

    function light(change) {
      change();
      paint();
      if (hovered ?? chosen) said.textContent = sentence(hovered ?? chosen);
    }

    function sentence([side, i]) {
      const row = side ? table[i] : table.map((each) => each[i]), ends = side ? shown.source : shown.target;
      const best = [...row.keys()].sort((a, b) => row[b] - row[a]).slice(0, 3).filter((j) => row[j] >= 0.05);
      const names = list.format(best.map((j) => `${called(ends[j])} (${percent(row[j])})`));
      const word = called((side ? shown.target : shown.source)[i]);
      const told = best.length ? `${word} ${side ? "attends to" : "is attended to by"} ${names}.`
        : `no German word gives ${word} 5% of its attention.`;
      const text = head ? `in layer ${head[0] + 1}, head ${head[1] + 1}, ${told}` : told;
      return text[0].toUpperCase() + text.slice(1);
    }

    function look(here, title) {
      head = here;
      draw();
      const sinks = sum(table.map((row) => sum(row.filter((_, k) => [END, "."].includes(shown.source[k])))));
      said.textContent = chosen ? sentence(chosen)
        : `${title}: ${percent(sinks / table.length)} of the weight is on the period and the end symbol.`;
    }

    // The German sentence, word after word, with its curves.
    function write() {
      clearTimeout(timer);
      [hovered, chosen, written] = [null, null, 0];
      const next = () => {
        paint();
        if (written < shown.target.length) timer = setTimeout(next, PACE);
        written = Math.min(written + 1, shown.target.length);
      };
      next();
    }

    const own = make("button", { type: "button", className: "own", textContent: `Type your own (${megabytes} MB)`, onclick: open });
    const buttons = examples.map((example) => make("button", { type: "button", textContent: example.english, onclick: () => {
      turn++;
      show(example);
      said.textContent = `In German: ${example.german}`;
    } }));

    async function open() {
      own.disabled = true;
      said.textContent = "Loading the model. It runs on this page; nothing is sent.";
      try {
        await window.loadScript("live.js");
        const model = await window.liveModel(name);
        const input = make("input", { type: "text", value: shown.english, autocomplete: "off", spellcheck: false, maxLength: 300 });
        input.oninput = () => translate(model, input.value);
        const onsubmit = (event) => { event.preventDefault(); input.oninput(); };
        own.remove();
        box.prepend(make("form", { onsubmit }, make("label", { className: "sentence" }, "English ", input), make("button", { textContent: "Translate" })));
        input.select();
        said.textContent = "The model is loaded. Type an English sentence.";
      } catch (error) {
        said.textContent = `This did not work: ${error.message}`;
        own.disabled = false;
      }
    }

    async function translate(model, english) {
      const mine = ++turn, { ids } = model.encode(english);
      if (!english.trim()) return;
      const search = model.transformer.search(ids, { beam: 4 });
      let step = search.next();
      for (; !step.done; step = search.next()) {
        await model.breath();
        if (mine !== turn) return;
      }
      const { token } = step.value.hypotheses[0];
      show({ english, ...inWords(token, ids, model) });
      said.textContent = `In German: ${model.decode(token.path.slice(1).map(({ id }) => id))}`;
    }

    Object.assign(box, { role: "group", ariaLabel: "A translation, and what each of its words attends to" });
    box.replaceChildren(picture, make("div", { className: "below" }, said, replay), heads, make("div", { className: "examples" }, ...buttons, own));
    [...sides, heads].forEach(rove);
    box.addEventListener("keydown", ({ key }) => key === "Escape" && light(() => { chosen = null; }));
    document.addEventListener("pointerdown", ({ target }) => box.contains(target) || light(() => { chosen = null; }));
    show(examples[0]);
    new ResizeObserver(() => box.clientWidth === width || draw()).observe(box); // twice, it would move
    if (!matchMedia("(prefers-reduced-motion: reduce)").matches) write();
  }

  document.querySelectorAll("div.hero").forEach(fill);
})();
