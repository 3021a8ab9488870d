// Figure 1, alive: the vectors of a sentence at every box. The numbers of the first one stand in the
// page; for the reader's own a model computes them.
window.figure1 = (() => {
  const { range, mean, meanHeads, wordOf, dataOf, isCalm } = window.elements;
  const { make, button, shape, taper, slider, controls, check } = window.elements;
  const [CELLS, WIDTH, ROW, TITLE, NAMES, STRIPS, CELL, RAY] = [32, 340, 24, 20, 66, 126, 5, 300];
  const [ROOM, LIKELY, UNKNOWN] = [20, 5, 3]; // pieces of a sentence, bars, an id
  const STACKS = ["encoder", "decoder"];
  // Boxes count from the bottom, as data-box says: embedding and positions, a layer's, two on top.
  const [BEFORE, LINEAR, SOFTMAX] = [2, 8, 9];
  const PARTS = {
    encoder: ["self_attn", "sublayer.0", "feed_forward", "sublayer.1"],
    decoder: ["self_attn", "sublayer.0", "src_attn", "sublayer.1", "feed_forward", "sublayer.2"],
  };
  const KIND = { "encoder 2": "encoder", "decoder 2": "decoder", "decoder 4": "cross" }; // attention
  const isInLayer = (box) => box >= BEFORE && box < LINEAR;

  // ------------------------------------------------------------------ places, numbers and texts
  // A view is what is shown: a stack, one of its boxes and its layer, how many pieces of the
  // translation are read, and the marked row of each stack.

  const paceOf = ({ said }) => 1500 + 45 * said.length; // milliseconds, to read what a stop says
  const placeOf = ({ stack, box, layer }) => stack + (isInLayer(box) ? `, layer ${layer + 1}` : "");
  const wordsOf = ({ source, target }) => ({ encoder: source, decoder: target });
  const countOf = ({ stack, pieces }, { source }) => (stack === "encoder" ? source.length : pieces);
  const markedOf = (view, data) => Math.min(view.marks[view.stack], countOf(view, data) - 1);

  // What a box has made, in a list of all boxes and layers of each stack.
  const madeBy = ({ stack, box, layer }, lists) =>
    lists[stack][isInLayer(box) ? PARTS[stack].length * layer + box : box];

  // Words are rows, those of the translation below those of the sentence.
  const topOf = (stack, { source }) =>
    TITLE + (stack === "encoder" ? 0 : ROW * source.length + TITLE + 8);
  const middleOf = (stack, i, data) => topOf(stack, data) + (i + 0.5) * ROW;

  // Lines from what is read to the rows that read it: of attention by weight, else straight ones.
  function linesOf(view, data) {
    const { stack, box, layer } = view;
    const kind = KIND[`${stack} ${box}`];
    const marked = markedOf(view, data);
    if (box >= LINEAR) return [];
    const rows = range(countOf(view, data));
    const line = (of, from, to, weight) => {
      const [start, end] = [middleOf(of, from, data), middleOf(stack, to, data)];
      return {
        d: taper([NAMES, start], [STRIPS - 6, end], Math.max(1, 8 * weight), true),
        class: `${kind ? "weight" : ""} ${to === marked ? "marked" : ""}`,
        opacity: weight === 0 ? 1 : to === marked ? 0.25 + 0.75 * weight : 0.04 + 0.2 * weight,
      };
    };
    if (!kind) return rows.map((i) => line(stack, i, i, 0));
    const order = [...rows.filter((i) => i !== marked), marked]; // the marked on top
    return order.flatMap((q) =>
      data.weights[kind][layer][q].flatMap((percent, k) =>
        percent > 1 ? [line(kind === "cross" ? "encoder" : stack, k, q, percent / 100)] : [],
      ),
    );
  }

  // A word, and which of those that are alike.
  function nameOf(words, i) {
    const alike = range(words.length).filter((j) => words[j] === words[i]);
    const which = ["first", "second", "third", "fourth", "fifth"][alike.indexOf(i)];
    return alike.length > 1 && which ? `the ${which} “${words[i]}”` : `“${words[i]}”`;
  }

  const ranked = (numbers) => range(numbers.length).sort((i, j) => numbers[j] - numbers[i]);

  function spell(names, numbers, unit) {
    const largest = ranked(numbers).filter((i) => numbers[i] > 0);
    return largest
      .slice(0, 3)
      .map((i) => `${nameOf(names, i)} ${numbers[i]}${unit}`)
      .join(", ");
  }

  // What a view that is no stop shows, in a sentence.
  function tell(view, data) {
    const { stack, box, layer } = view;
    const words = wordsOf(data);
    const kind = KIND[`${stack} ${box}`];
    const marked = markedOf(view, data);
    if (kind) {
      const names = kind === "cross" ? words.encoder : words[stack];
      const row = data.weights[kind][layer][marked];
      return `“${words[stack][marked]}” attends to ${spell(names, row, "%")}.`;
    }
    if (box >= LINEAR) {
      const [made, unit, at] = box === SOFTMAX ? ["probabilities", "%", 2] : ["scores", "", 1];
      const [names, numbers] = [0, at].map((column) => data.likely[marked].map((p) => p[column]));
      const best = spell(names, numbers, unit);
      return `The largest ${made} after “${words[stack][marked]}”: ${best}.`;
    }
    const turned = madeBy(view, data.turned)?.slice(0, countOf(view, data));
    if (!turned) return "Each row is computed from itself alone.";
    return `The rows that turn most: ${spell(words[stack], turned, "°")}.`;
  }

  // The stops on the way of a sentence, and what each has changed.
  function stopsOf({ source, target, written, likely, ...data }) {
    const [last, end] = [data.layers - 1, target.length - 1];
    const takes = (kind, layer, row) => {
      const numbers = data.weights[kind][layer][row];
      const names = kind === "decoder" ? target.slice(0, row + 1) : source;
      const named = (i) => `${nameOf(names, i)} (${numbers[i]}%)`;
      return `takes most from ${ranked(numbers).slice(0, 2).map(named).join(" and ")}`;
    };
    const turned = data.turned.encoder;
    const turns = (box, told = (i) => nameOf(source, i)) => {
      const [most, least] = [0, -1].map((at) => ranked(turned[box]).at(at));
      const [high, low] = [most, least].map((i) => turned[box][i]);
      if (high === low) return `turns every row by ${low}°`;
      return `turns ${told(most)} by ${high}° and ${told(least)} by only ${low}°`;
    };
    const long = (i) => `${nameOf(source, i)} (length ${data.lengths[i]})`;
    const [attention, network] = [3, 5].map((box) => Math.round(mean(turned[box])));
    const than = ["less than", "as much as", "more than"][1 + Math.sign(network - attention)];
    // The last word of the sentence, and the later row that reads it most.
    const marked = Math.max(0, ...range(source.length - 1).filter((i) => /\p{L}/u.test(source[i])));
    const word = `“${source[marked]}”`;
    const readers = data.weights.cross[last].slice(1, end).map((row) => row[marked]);
    const newest = Math.min(end, 1 + (ranked(readers)[0] ?? 0));
    const read = target.slice(1, newest + 1).map((piece) => `“${piece}”`);
    const those =
      read.length > 4 ? `the tokens from ${read[0]} to ${read.at(-1)}` : read.join(", ");
    const passes = (n) => `${n} ${n === 1 ? "pass" : "passes"}`;
    // What a row writes, which need not be the likeliest.
    const writes = (row, more) => {
      const [best, , chance] = likely[row][0];
      const [name, own] = [`“${written[row]}”`, data.chances[row]];
      if (best === written[row]) return `${name} has ${chance}%${more}`;
      return `“${best}” has ${chance}%, but the search writes ${name} (${own}%), because the translation with it scores best.`;
    };
    const [rival, , rest] = likely[newest][1];
    const final = target[end] === "." ? "the period" : `“${target[end]}”`;
    // Stack, box, layer, row; what is said.
    const story = `
      encoder 0 0 ${marked} Each token is looked up in a table and becomes a row of numbers. No row knows its position or its neighbors yet.
      encoder 1 0 ${marked} The pattern of its position, equally long for all, is added to each row. This ${turns(1, long)}.
      encoder 2 0 ${marked} For the first time, rows exchange information. ${word} ${takes("encoder", 0, marked)}.
      encoder 3 0 ${marked} What each row took is added to it, and the sum is normalized. This ${turns(3)}.
      encoder 5 0 ${marked} The network sees each row alone. With sum and norm, it turns the rows by ${network}° on average, ${than} attention did (${attention}°).
      encoder 5 ${last} ${marked} Three more layers repeat these steps. ${word} is now ${data.away[marked]}° away from its embedding. The rows are the memory, which no longer changes.
      decoder 1 0 0 The decoder begins with one row, for the start symbol ${target[0]}. It has no German word yet.
      decoder 4 ${last} 0 The row reads the memory. In the last layer it ${takes("cross", last, 0)}.
      decoder 9 ${last} 0 Every token of the vocabulary has a probability now. ${writes(0, " and is written; it becomes the next row.")}
      decoder 2 1 ${newest} After ${passes(newest)}, ${those} ${newest === 1 ? "is" : "are"} written and read. The newest row ${takes("decoder", 1, newest)}; no row sees a later one.
      decoder 4 ${last} ${newest} For the next token, the row of “${target[newest]}” reads the memory again. It ${takes("cross", last, newest)}.
      decoder 9 ${last} ${newest} ${writes(newest, `, its rival “${rival}” ${rest || "<1"}%.`)} Written once, a token is never revised.
      decoder 9 ${last} ${end} After ${final} the end symbol has ${data.chances[end]}%. The translation is complete, after ${passes(end + 1)} through the decoder and one through the encoder.`;
    const stops = story.match(/\S.*/g).map((line) => {
      const [, stack, said] = line.match(/^(\w+) \d+ \d+ \d+ (.*)/);
      const [box, layer, row] = line.match(/\d+/g).map(Number);
      return { stack, box, layer, pieces: stack === "encoder" ? 0 : row + 1, row, said };
    });
    // A translation may be empty or have one token.
    return stops.filter((_, i) => i < 8 || i === 12 || end > (i === 8 ? 0 : 1));
  }

  // --------------------------------------------------------------------- the reader's sentence

  // The first numbers of each vector as whole numbers from -127 to 127.
  function strip(rows) {
    const first = rows.flatMap((row) => [...row.slice(0, CELLS)]);
    const largest = Math.max(...first.map(Math.abs));
    return first.map((number) => Math.round((number * 127) / largest));
  }

  const dot = (one, two) => one.reduce((total, number, i) => total + number * two[i], 0);
  const lengthOf = (row) => Math.sqrt(dot(row, row));
  // Degrees between vectors, row by row.
  const angles = (before, after) =>
    before.map((row, i) => {
      const cosine = dot(row, after[i]) / lengthOf(row) / lengthOf(after[i]);
      return Math.round((Math.acos(Math.min(1, cosine)) * 180) / Math.PI);
    });

  // What the page has of its own sentence, for another one. The boxes have the names of the modules.
  async function follow({ transformer, names, decode, walk }, ids, isLast) {
    const { N, N_decoder } = transformer;
    const boxes = {};
    for (const [stack, side, layers] of [
      ["encoder", "src", N],
      ["decoder", "tgt", N_decoder],
    ]) {
      const layer = (n) => PARTS[stack].map((part) => `${stack}.layers.${n}.${part}`);
      boxes[stack] = [`${side}_embed.0`, `${side}_embed`, ...range(layers).flatMap(layer)];
    }
    const made = {};
    const keep = (name) => (rows) => {
      made[name] = rows.map((row) => row.slice());
    };
    const all = [...boxes.encoder, ...boxes.decoder, "generator.proj"];
    const touch = Object.fromEntries(all.map((name) => [name, keep(name)]));
    const found = await walk(transformer.search(ids, { touch }), isLast);
    if (!found) return null;
    const { source, hypotheses } = found;
    const [{ token }] = hypotheses;
    const { path, x } = transformer.follow(token.before.ids, source.memory, touch);
    const shares = transformer.predict(x, touch).map((row) => row.map(Math.exp));

    const pieces = (ids) => names(ids).map(wordOf);
    const percent = (share) => Math.round(100 * share);
    const percents = (weights, length) => meanHeads(weights, length).map(percent);
    const ofLayers = (rowsOf) =>
      range(N_decoder).map((n) => path.map((each, i) => rowsOf(each, n, i)));
    const strips = {};
    const turned = {};
    for (const stack of STACKS) {
      strips[stack] = boxes[stack].map((name) => strip(made[name]));
      let stream = made[boxes[stack][0]];
      turned[stack] = boxes[stack].map((name) => {
        if (!/sublayer|embed$/.test(name)) return null; // what a sub-layer has yet to add
        const before = stream;
        stream = made[name];
        return angles(before, stream);
      });
    }
    return {
      german: decode(token.ids),
      layers: N,
      source: pieces(ids),
      target: pieces(path.map(({ id }) => id)),
      written: pieces(token.ids),
      strips,
      turned,
      lengths: made["src_embed.0"].map((row) => Math.round(lengthOf(row))),
      away: angles(made.src_embed, made[boxes.encoder.at(-1)]),
      weights: {
        encoder: source.weights.map((rows) => rows.map((row) => percents(row, ids.length))),
        decoder: ofLayers(({ self }, n, i) => percents(self[n], i + 1)),
        cross: ofLayers(({ cross }, n) => percents(cross[n], ids.length)),
      },
      likely: made["generator.proj"].map((scores, i) => {
        const best = ranked(scores).slice(0, LIKELY);
        const told = (id) => [Math.round(10 * scores[id]) / 10, percent(shares[i][id])];
        return pieces(best).map((piece, k) => [piece, ...told(best[k])]);
      }),
      chances: token.ids.map((id, i) => percent(shares[i][id])),
    };
  }

  // ------------------------------------------------------------------------------- elements

  // One of several is chosen, by click or arrow key, as among radio buttons.
  function choose(group, label, items, take, up = -1) {
    const steps = { ArrowUp: up, ArrowDown: -up, ArrowLeft: -1, ArrowRight: 1, " ": 0, Enter: 0 };
    Object.assign(group, { role: "radiogroup", ariaLabel: label });
    for (const [i, item] of items.entries()) {
      item.role = "radio";
      item.addEventListener("click", () => take(i));
      item.addEventListener("keydown", (event) => {
        const step = steps[event.key];
        if (step === undefined) return;
        event.preventDefault();
        event.stopPropagation(); // arrows would turn the page
        const open = items.filter((each) => each.ariaHidden !== "true");
        const next = open[(open.indexOf(item) + step + open.length) % open.length];
        take(items.indexOf(next));
        next.focus();
      });
    }
    return (chosen) => {
      for (const [i, item] of items.entries()) check(item, i === chosen);
    };
  }

  function drawRow(word, y) {
    const size = { y: y + 4, width: CELL, height: ROW - 8 };
    const cells = range(CELLS).map((k) => shape("rect", { x: STRIPS + k * CELL, ...size }));
    const row = { class: "row", x: 1, y: y + 0.5, width: WIDTH - 2, height: ROW - 1, rx: 3 };
    const text = shape("text", { x: NAMES - 6, y: y + ROW / 2 + 4, "text-anchor": "end" }, word);
    const strip = shape("g", { class: "strip" }, ...cells);
    // Two rays, one of which turns, and their angle.
    const rays = [{}, { class: "ray" }].map((more) => shape("path", { d: "M0 0h10", ...more }));
    const at = { transform: `translate(${RAY} ${y + ROW / 2 + 4})` };
    const angle = shape("text", { x: WIDTH - RAY - 4, "text-anchor": "end" });
    const turn = shape("g", { class: "turn", ...at }, ...rays, angle);
    return shape("g", { "aria-label": word }, shape("rect", row), text, strip, turn);
  }

  // A long text is set narrower.
  function fit(text, width) {
    if (text.getComputedTextLength() <= width) return;
    text.setAttribute("textLength", width);
    text.setAttribute("lengthAdjust", "spacingAndGlyphs");
  }

  // A part of what scrolls comes into view.
  function scroll(box, part) {
    const [{ top, bottom }, seen] = [part, box].map((each) => each.getBoundingClientRect());
    box.scrollTop += Math.min(0, top - seen.top) || Math.max(0, bottom - seen.bottom);
  }

  // At the right end of a row: by how much it has turned, or what the marked row takes from it.
  function paint(rows, numbers, shown, turned, weights) {
    for (const [i, row] of rows.entries()) {
      row.ariaHidden = i >= shown;
      const [, , strip, turn] = row.childNodes;
      const degrees = turned?.[i];
      for (const ray of turn.querySelectorAll("path"))
        ray.setAttribute("visibility", degrees === undefined ? "hidden" : "inherit");
      turn.querySelector(".ray").style.transform = `rotate(${-(degrees ?? 0)}deg)`;
      const weight = weights?.[i] > 1 ? `${weights[i]}%` : "";
      turn.lastChild.textContent = degrees === undefined ? weight : `${degrees}°`;
      for (const [k, cell] of strip.childNodes.entries()) {
        const value = numbers ? numbers[i * CELLS + k] : 0;
        cell.setAttribute("class", value < 0 ? "below" : "above");
        cell.setAttribute("fill-opacity", (Math.abs(value) / 127).toFixed(3));
      }
    }
  }

  // What is expected after the marked row, as bars between the rows: scores or probabilities.
  function drawBars(box, marked, data) {
    const likely = data.likely[marked].map(([piece, score, percent]) =>
      box === SOFTMAX
        ? [`${piece} ${percent || "<1"}%`, percent / 100]
        : [`${piece} ${score}`, Math.max(0, score / data.likely[marked][0][1])],
    );
    const at = (i) => middleOf("decoder", i + 0.5, data);
    const from = middleOf("decoder", marked, data);
    const arm = (i) => `V${at(i)}H${STRIPS - 6}`;
    const down = `M${STRIPS - 12} ${from}${arm(likely.length - 1)}`;
    return [
      shape("path", { d: `M${NAMES + 2} ${from}H${STRIPS - 12}${arm(0)}${down}` }),
      ...likely.flatMap(([told, share], i) => [
        shape("rect", { x: STRIPS, y: at(i) - 7, width: Math.max(1, 104 * share), height: 14 }),
        shape("text", { x: STRIPS + 104 * share + 6, y: at(i) + 4 }, told),
      ]),
    ];
  }

  // The boxes of the figure, which are links without this script.
  function readBoxes(drawing) {
    return [...drawing.querySelectorAll("[data-box]")].map((element) => {
      const texts = [...element.querySelectorAll("text")].map((text) => text.textContent);
      const title = element.querySelector("title");
      const [href, key] = [element.getAttribute("href"), element.dataset.box];
      const [stack, number] = key.split(" ");
      title.remove();
      element.removeAttribute("href");
      element.setAttribute("aria-label", `${texts.join(" ")}, ${stack}`);
      const link = { href, textContent: texts.join(" "), title: title.textContent };
      return { element, key, stack, box: Number(number), link };
    });
  }

  const unpack = (text) => Int8Array.from(atob(text), (letter) => letter.charCodeAt(0));

  class Alive {
    constructor(place, asking) {
      const data = dataOf(place);
      for (const stack of STACKS) data.strips[stack] = data.strips[stack].map(unpack);
      const drawing = document.querySelector("svg.fig1");
      Object.assign(this, { place, drawing, first: data, begun: false });
      this.calm = isCalm();
      this.playing = null;
      this.build(data.layers);
      this.read(data);
      this.ask(asking);
    }

    build(layers) {
      const { drawing, place } = this;
      const stopAnd = (act) => () => {
        this.pause();
        act();
      };
      this.play = button({
        className: "run",
        onclick: () => (this.playing ? this.pause() : this.start()),
      });
      const go = (index) => stopAnd(() => this.go(index))();
      this.next = button({ textContent: "Next", onclick: () => go(this.after) });
      this.slider = slider(0, "Stop on the way", go);
      this.reached = make("small");
      this.layers = make("select", {}, ...range(layers).map((i) => new Option(i + 1)));
      this.layers.onchange = stopAnd(() => this.look({ layer: this.layers.selectedIndex }));
      this.link = make("a");
      this.status = make("p", { className: "note", role: "status" });
      const named = { role: "group", "aria-label": "Rows of both stacks" };
      this.picture = shape("svg", named);
      this.frame = make("div", { className: "rows" }, this.picture);
      this.boxes = readBoxes(drawing);
      const elements = this.boxes.map(({ element }) => element);
      const take = (i) => stopAnd(() => this.open(this.boxes[i]))();
      // The figure is read from the bottom up.
      this.setBox = choose(drawing, "Boxes of the Transformer", elements, take, 1);
      this.panel = place.querySelector(".live");
      const way = controls(this.play, this.next, this.slider, this.reached);
      // The boxes of the small figure of a phone are too close for a finger.
      const step = (name, textContent, by) =>
        button({
          ariaLabel: name,
          className: "step",
          textContent,
          onclick: () => take((this.chosen + by + elements.length) % elements.length),
        });
      const steps = [step("Box below", "↓", -1), step("Box above", "↑", 1)];
      const which = controls(this.link, ...steps, make("label", {}, "Layer ", this.layers));
      this.panel.replaceChildren(way, which, this.status, this.frame);
      const figure = drawing.closest(".figure");
      figure.before(place); // above the cell that made it
      place.prepend(figure);
    }

    // A sentence, at the stop that the reader has reached.
    read(data) {
      if (this.playing) this.pause();
      const stops = stopsOf(data);
      Object.assign(this, { data, stops, marks: {} });
      for (const { stack, row } of stops) this.marks[stack] ??= row;
      this.slider.max = stops.length - 1;
      this.drawRows();
      const opening = stops.findLastIndex(({ stack, box }) => KIND[`${stack} ${box}`] === "cross");
      this.arrive(this.begun ? Math.min(this.here, stops.length - 1) : opening);
    }

    drawRows() {
      const { data, first, marks, picture } = this;
      const labels = { encoder: "Words of the sentence", decoder: "Pieces of the translation" };
      // As high as for the first sentence, or higher.
      const heightOf = ({ target, ...more }) =>
        topOf("decoder", more) + ROW * Math.max(first.target.length, target.length);
      const height = Math.max(heightOf(first), heightOf(data));
      picture.setAttribute("viewBox", `0 0 ${WIDTH} ${height}`);
      this.lines = shape("g", { class: "lines" });
      this.bars = shape("g", { class: "bars" });
      picture.replaceChildren(this.lines);
      Object.assign(this, { rows: {}, captions: {}, heads: {}, setMark: {} });
      for (const stack of STACKS) {
        const top = topOf(stack, data);
        const rows = wordsOf(data)[stack].map((word, i) => drawRow(word, top + i * ROW));
        const group = shape("g", { class: stack }, ...rows);
        const mark = (i) => {
          marks[stack] = i;
          this.look({});
        };
        this.rows[stack] = rows;
        const caption = { y: top - 6, class: "caption" };
        this.captions[stack] = shape("text", { x: STRIPS, ...caption });
        this.heads[stack] = shape("text", { x: WIDTH, ...caption, "text-anchor": "end" });
        this.setMark[stack] = choose(group, labels[stack], rows, mark);
        picture.append(this.captions[stack], this.heads[stack], group);
        for (const { childNodes } of rows) fit(childNodes[1], NAMES - 6);
      }
      const swatch = (x, name, sign) => [
        shape("rect", { x, y: TITLE - 16, width: 10, height: 10, class: name }),
        shape("text", { x: x + 14, y: TITLE - 6, class: "caption" }, sign),
      ];
      picture.append(this.bars, ...swatch(0, "above", "+"), ...swatch(32, "below", "−"));
    }

    // ------------------------------------------------------------------ the reader's sentence

    ask(asking) {
      const { sentence } = this.first;
      const about = `Type a sentence, such as a photo’s caption, to follow it (loads the model, ${asking.dataset.megabytes} MB; nothing is sent).`;
      const said = make("p", { className: "said", role: "status", textContent: about });
      this.say = (text) => {
        said.textContent = text;
      };
      const answer = (...asked) => this.answer(...asked);
      const field = new window.Field(asking, sentence, this.say, answer);
      asking.replaceChildren(field.element, said);
      const own = new URLSearchParams(location.search).get("sentence");
      if (own) field.take(own);
    }

    async answer(sentence, load, isLast) {
      const { first } = this;
      if (sentence === first.sentence) return this.present(first, sentence);
      const model = await load();
      if (!isLast()) return;
      const { ids, cut } = model.encode(sentence);
      if (ids.length < 2) return this.say("Type an English sentence.");
      if (ids.length > ROOM) {
        const many = cut ? `more than ${ids.length}` : ids.length;
        this.say(`This sentence has ${many} tokens, but the figure has room for ${ROOM} only.`);
        return;
      }
      const data = await follow(model, ids, isLast);
      if (!data || !isLast()) return;
      const isUnknown = (word) => model.encode(word).ids.includes(UNKNOWN);
      const words = sentence.match(/[\p{L}\p{M}\p{N}]+|[^\s\p{L}\p{M}\p{N}]+/gu);
      this.present(data, sentence, words.filter(isUnknown));
    }

    present(data, sentence, unknown = []) {
      const names = unknown.map((word) => `“${word}”`).join(", ");
      const lost = names && ` The vocabulary does not know ${names} and reads <unk> instead.`;
      this.read(data);
      this.say(`In German: ${data.german}${lost}`);
      // The address keeps the sentence.
      const query = data === this.first ? "" : `?${new URLSearchParams({ sentence })}`;
      history.replaceState(null, "", location.pathname + query);
    }

    // ----------------------------------------------------------------------------- one view

    // A stop of the way, or what a reader chooses instead.
    arrive(index) {
      const { row, ...view } = this.stops[index];
      this.here = index;
      this.marks[view.stack] = row;
      this.view = { ...view, marks: this.marks };
      this.show();
    }
    look(part) {
      this.view = { ...this.view, ...part, said: null };
      this.show();
    }
    open({ stack, box }) {
      const { view, data } = this;
      const waits = stack === "decoder" && view.stack === "encoder" && view.pieces === 0;
      this.look({ stack, box, pieces: waits ? data.target.length : view.pieces });
    }

    show() {
      const { view, data, rows, captions, heads, setMark } = this;
      const place = placeOf(view);
      const { strips } = data;
      const [vectors, turned] = [strips, data.turned].map((lists) => madeBy(view, lists));
      const marked = markedOf(view, data);
      const writes = view.stack === "decoder"; // what the encoder has made stays as it is
      const { length } = data.source;
      const kind = KIND[`${view.stack} ${view.box}`];
      const reads = kind === "cross" ? "encoder" : view.stack;
      const weights = { [reads]: kind && data.weights[kind][view.layer][marked] };
      if (writes) paint(rows.encoder, strips.encoder.at(-1), length, null, weights.encoder);
      else paint(rows.encoder, vectors, length, turned, weights.encoder);
      paint(rows.decoder, writes && vectors, writes ? view.pieces : 0, turned, weights.decoder);
      captions.encoder.textContent = writes ? "memory" : place;
      captions.decoder.textContent = writes ? place : "waits for the encoder";
      for (const stack of STACKS) heads[stack].textContent = "";
      if (kind) heads[reads].textContent = `“${wordsOf(data)[view.stack][marked]}” reads`;
      else if (turned && view.box < LINEAR) heads[view.stack].textContent = "turned by";
      setMark.encoder(writes ? -1 : marked);
      setMark.decoder(writes ? marked : -1);
      this.chosen = this.boxes.findIndex(({ key }) => key === `${view.stack} ${view.box}`);
      const { link } = this.boxes[this.chosen];
      this.setBox(this.chosen);
      const isLast = view.box >= LINEAR;
      this.lines.replaceChildren(...linesOf(view, data).map((line) => shape("path", line)));
      this.bars.replaceChildren(...(isLast ? drawBars(view.box, marked, data) : []));
      for (const text of this.bars.querySelectorAll("text"))
        fit(text, WIDTH - Number(text.getAttribute("x")));
      this.picture.classList.toggle("likely", isLast);
      Object.assign(this.link, link);
      const name = `${link.textContent}, ${place}`;
      const where = make("span", { className: "visually-hidden" }, `${name}. `);
      this.status.replaceChildren(where, view.said ?? tell(view, data));
      this.showStep(name);
      scroll(this.frame, rows[view.stack][marked]);
    }

    showStep(name) {
      const { here, stops, view } = this;
      this.layers.selectedIndex = view.layer;
      this.slider.value = here;
      this.slider.ariaValueText = name;
      this.reached.textContent = view.said
        ? `stop ${here + 1} of ${stops.length}`
        : `${stops.length} stops`;
      this.play.textContent = this.playing ? "Pause" : "Play";
    }

    // ----------------------------------------------------------------------------------- play

    go(index) {
      this.begun = true;
      this.arrive(index);
      const behavior = this.calm ? "auto" : "smooth";
      this.place.scrollIntoView({ block: "nearest", behavior });
    }
    get after() {
      return (this.here + 1) % this.stops.length;
    }
    start() {
      const { stops } = this;
      const after = this.begun ? this.after : 0;
      this.playing = true;
      this.go(after);
      const next = after + 1 === stops.length ? () => this.pause() : () => this.start();
      this.playing = setTimeout(next, paceOf(stops[after]));
    }
    pause() {
      clearTimeout(this.playing);
      if (!this.playing) return;
      this.playing = null;
      this.show();
    }
  }

  for (const place of document.querySelectorAll("div.alive")) {
    new Alive(place, document.querySelector("div.own"));
  }
  return { paceOf, madeBy, linesOf, tell, stopsOf, follow };
})();
