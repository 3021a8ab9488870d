// Figure 1, alive: the vectors of one sentence at every box. The numbers stand in the page.
window.figure1 = (() => {
  const { range, make, button, shape, slider, controls, check, dataOf, isCalm } = window.elements;
  const [CELLS, WIDTH, ROW, NAMES, STRIPS, CELL] = [32, 340, 20, 66, 100, 7.5];
  const STACKS = ["encoder", "decoder"];
  // Boxes count from the bottom, as data-box says: embedding and positions, a layer's, two on top.
  const [BEFORE, LINEAR, SOFTMAX] = [2, 8, 9];
  const INSIDE = { encoder: 4, decoder: 6 };
  const KIND = { "encoder 2": "encoder", "decoder 2": "decoder", "decoder 4": "cross" }; // attention
  const isInLayer = (box) => box >= BEFORE && box < LINEAR;

  // ------------------------------------------------------------------ places, numbers and texts
  // A view is what is shown: a stack, one of its boxes and its layer, how many pieces of the
  // translation are read, and the marked row of each stack.

  // All stops, in the order of computation; `pieces` of the translation are read by then.
  function stopsOf({ layers, target }) {
    const pass = (stack, pieces) => {
      const stop = (box, layer) => ({ stack, box, layer, pieces });
      const inside = range(INSIDE[stack]).map((i) => BEFORE + i);
      const top = stack === "decoder" ? [LINEAR, SOFTMAX] : [];
      return [
        ...range(BEFORE).map((box) => stop(box)),
        ...range(layers).flatMap((layer) => inside.map((box) => stop(box, layer))),
        ...top.map((box) => stop(box)),
      ];
    };
    return [...pass("encoder", 0), ...target.flatMap((_, i) => pass("decoder", i + 1))];
  }

  function indexOf(stops, { stack, box, layer, pieces }) {
    const fits = (stop) =>
      (stop.layer ?? layer) === layer && (stack === "encoder" || stop.pieces === pieces);
    return stops.findIndex((stop) => stop.stack === stack && stop.box === box && fits(stop));
  }

  // Milliseconds until the next stop: slowly where a box is new, then faster.
  function paceOf({ box, layer, pieces }, calm) {
    if (calm) return 1200;
    if (pieces > 1) return box === SOFTMAX ? 600 : 120;
    return layer ? 350 : 900;
  }

  const placeOf = ({ stack, box, layer }) => stack + (isInLayer(box) ? `, layer ${layer + 1}` : "");
  const wordsOf = ({ source, target }) => ({ encoder: source, decoder: target });
  const countOf = ({ stack, pieces }, { source }) => (stack === "encoder" ? source.length : pieces);
  const markedOf = (view, data) => Math.min(view.marks[view.stack], countOf(view, data) - 1);

  // The vectors that a box has made, among those of its stack.
  const vectorsOf = ({ stack, box, layer }, strips) =>
    strips[stack].at(box === LINEAR ? -1 : isInLayer(box) ? INSIDE[stack] * layer + box : box);

  // Words are rows, those of the translation below those of the sentence.
  const topOf = (stack, { source }) => ROW * (stack === "encoder" ? 1 : source.length + 2.5);
  const middleOf = (stack, i, data) => topOf(stack, data) + (i + 0.5) * ROW;

  // Lines from what is read to the rows that read it: of attention by weight, else straight ones.
  function linesOf(view, data) {
    const { stack, box, layer } = view;
    const kind = KIND[`${stack} ${box}`];
    const marked = markedOf(view, data);
    if (box === SOFTMAX) return [];
    const rows = range(countOf(view, data));
    const line = (of, from, to, weight) => {
      const [start, end] = [middleOf(of, from, data), middleOf(stack, to, data)];
      const bend = (NAMES + STRIPS) / 2;
      return {
        d: `M${NAMES} ${start}C${bend} ${start} ${bend} ${end} ${STRIPS - 3} ${end}`,
        "stroke-width": Math.max(1, 8 * weight),
        class: to === marked ? "marked" : "",
        "stroke-opacity": weight === 0 ? 1 : to === marked ? 0.35 + 0.65 * weight : 0.12,
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

  function spell(pairs) {
    const likely = pairs.slice(0, 3).filter(([, p]) => p > 0);
    return likely.map(([word, p]) => `“${word}” ${p.toFixed(2)}`).join(", ");
  }

  // What a view shows of its marked row, in a sentence.
  function tell(view, data, vectors) {
    const { stack, box, layer } = view;
    const words = wordsOf(data);
    const kind = KIND[`${stack} ${box}`];
    const marked = markedOf(view, data);
    if (kind) {
      const names = kind === "cross" ? words.encoder : words[stack];
      const row = data.weights[kind][layer][marked];
      const weights = row.map((percent, k) => [names[k], percent / 100]);
      return `“${words[stack][marked]}” attends to ${spell(weights.sort(([, a], [, b]) => b - a))}.`;
    }
    if (box === SOFTMAX) {
      return `After “${words[stack][marked]}”, the model expects ${spell(data.likely[marked])}.`;
    }
    const sizes = Array.from(vectors.subarray(0, countOf(view, data) * CELLS), Math.abs);
    const strongest = words[stack][Math.floor(sizes.indexOf(Math.max(...sizes)) / CELLS)];
    return `Each row is computed by itself; the strongest color is in the row of “${strongest}”.`;
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
    const size = { y: y + 3, width: CELL, height: ROW - 6 };
    const cells = range(CELLS).map((k) => shape("rect", { x: STRIPS + k * CELL, ...size }));
    const row = { class: "row", x: 1, y: y + 0.5, width: WIDTH - 2, height: ROW - 1, rx: 3 };
    const text = shape("text", { x: NAMES - 6, y: y + 14, "text-anchor": "end" }, word);
    const strip = shape("g", { class: "strip" }, ...cells);
    return shape("g", { "aria-label": word }, shape("rect", row), text, strip);
  }

  // A key of a color, above the first row.
  const drawKey = (of, name, x) => [
    shape("rect", { class: of, x, y: ROW - 14, width: 9, height: 9 }),
    shape("text", { x: x + 12, y: ROW - 6, class: "caption" }, name),
  ];

  function paint(rows, numbers, shown) {
    for (const [i, row] of rows.entries()) {
      row.ariaHidden = i >= shown;
      for (const [k, cell] of row.lastChild.childNodes.entries()) {
        const value = numbers ? numbers[i * CELLS + k] : 0;
        cell.setAttribute("class", value < 0 ? "below" : "above");
        cell.setAttribute("fill-opacity", (Math.abs(value) / 127).toFixed(3));
      }
    }
  }

  // What the softmax expects after the marked row, as bars between the rows.
  function drawBars(likely, marked, data) {
    const at = (i) => middleOf("decoder", i + 0.5, data);
    const from = middleOf("decoder", marked, data);
    const arm = (i) => `V${at(i)}H${STRIPS - 6}`;
    const down = `M${STRIPS - 12} ${from}${arm(likely.length - 1)}`;
    return [
      shape("path", { d: `M${NAMES + 2} ${from}H${STRIPS - 12}${arm(0)}${down}` }),
      ...likely.flatMap(([piece, p], i) => [
        shape("rect", { x: STRIPS, y: at(i) - 7, width: Math.max(1, 130 * p), height: 14 }),
        shape("text", { x: STRIPS + 130 * p + 6, y: at(i) + 4 }, `${piece} ${p.toFixed(2)}`),
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
    constructor(place) {
      const data = dataOf(place);
      const drawing = document.querySelector("svg.fig1");
      const [encoder, decoder] = STACKS.map((stack) => data.strips[stack].map(unpack));
      const strips = { encoder, decoder };
      Object.assign(this, { place, data, drawing, strips, stops: stopsOf(data) });
      this.marks = { encoder: 5, decoder: 3 }; // "bicycle", and what writes "Fahrrad"
      this.view = { ...this.stops[0], layer: 0, marks: this.marks };
      this.calm = isCalm();
      this.playing = null;
      this.build();
      this.show();
      new ResizeObserver(() => this.dock()).observe(this.panel);
    }

    get here() {
      return indexOf(this.stops, this.view);
    }

    build() {
      const { data, drawing, stops, place } = this;
      const stopAnd = (act) => () => {
        this.pause();
        act();
      };
      this.play = button({ onclick: () => (this.playing ? this.pause() : this.start()) });
      const step = stopAnd(() => {
        this.go(this.here + 1);
        this.follow();
      });
      this.next = button({ textContent: "Next", onclick: step });
      const jump = (index) => stopAnd(() => this.go(index))();
      const onchange = () => this.follow();
      this.slider = slider(stops.length - 1, "Step of the computation", jump, { onchange });
      this.reached = make("small");
      this.layers = make("select", {}, ...range(data.layers).map((i) => new Option(i + 1)));
      this.layers.onchange = stopAnd(() => this.change({ layer: this.layers.selectedIndex }));
      this.link = make("a");
      this.status = make("p", { className: "note", role: "status" });
      this.written = make("p", { className: "written" });
      this.buildPicture();
      this.boxes = readBoxes(drawing);
      const elements = this.boxes.map(({ element }) => element);
      const take = (i) => stopAnd(() => this.open(this.boxes[i]))();
      // The figure is read from the bottom up.
      this.setBox = choose(drawing, "Boxes of the Transformer", elements, take, 1);
      this.panel = place.querySelector(".live");
      this.controls = controls(this.play, this.next, this.slider, this.reached);
      const which = controls(this.link, make("label", {}, "Layer ", this.layers));
      this.panel.replaceChildren(this.controls, which, this.status, this.picture, this.written);
      const figure = drawing.closest(".figure");
      figure.before(place); // above the cell that made it
      place.prepend(figure);
    }

    buildPicture() {
      const { data, marks } = this;
      const labels = { encoder: "Words of the sentence", decoder: "Pieces of the translation" };
      this.height = middleOf("decoder", data.target.length, data);
      this.lines = shape("g", { class: "lines" });
      this.bars = shape("g", { class: "bars" });
      this.picture = shape("svg", { viewBox: `0 0 ${WIDTH} ${this.height}` }, this.lines);
      Object.assign(this, { rows: {}, captions: {}, setMark: {} });
      for (const stack of STACKS) {
        const top = topOf(stack, data);
        const rows = wordsOf(data)[stack].map((word, i) => drawRow(word, top + i * ROW));
        const group = shape("g", { class: stack }, ...rows);
        const mark = (i) => {
          marks[stack] = i;
          this.show();
        };
        this.rows[stack] = rows;
        this.captions[stack] = shape("text", { x: NAMES, y: top - 6, class: "caption" });
        this.setMark[stack] = choose(group, labels[stack], rows, mark);
        this.picture.append(this.captions[stack], group);
      }
      this.picture.append(...drawKey("below", "negative", WIDTH - 128));
      this.picture.append(...drawKey("above", "positive", WIDTH - 60), this.bars);
    }

    // ----------------------------------------------------------------------------- one view

    change(part) {
      Object.assign(this.view, part);
      this.show();
    }
    open({ stack, box }) {
      const { view, data } = this;
      const waits = stack === "decoder" && view.stack === "encoder" && view.pieces === 0;
      this.change({ stack, box, pieces: waits ? data.target.length : view.pieces });
    }

    show() {
      const { view, data, strips, rows, captions, setMark, drawing } = this;
      const place = placeOf(view);
      const vectors = vectorsOf(view, strips);
      const marked = markedOf(view, data);
      const writes = view.stack === "decoder"; // what the encoder has made stays as it is
      paint(rows.encoder, writes ? strips.encoder.at(-1) : vectors, data.source.length);
      paint(rows.decoder, writes && vectors, writes ? view.pieces : 0);
      captions.encoder.textContent = writes ? "the encoder’s memory" : place;
      captions.decoder.textContent = writes ? place : "the decoder waits for the encoder";
      setMark.encoder(view.marks.encoder);
      setMark.decoder(writes ? marked : -1);
      const chosen = this.boxes.findIndex(({ key }) => key === `${view.stack} ${view.box}`);
      const { link } = this.boxes[chosen];
      this.setBox(chosen);
      for (const text of drawing.querySelectorAll("[data-stack]")) {
        text.textContent = text.dataset.stack === view.stack ? place : text.dataset.stack;
      }
      const isLast = view.box === SOFTMAX;
      this.lines.replaceChildren(...linesOf(view, data).map((line) => shape("path", line)));
      this.bars.replaceChildren(...(isLast ? drawBars(data.likely[marked], marked, data) : []));
      this.picture.classList.toggle("likely", isLast);
      Object.assign(this.link, link);
      const name = `${link.textContent}, ${place}`;
      const where = make("span", { className: "visually-hidden" }, `${name}. `);
      this.status.replaceChildren(where, tell(view, data, vectors));
      const german = data.written.slice(0, writes ? view.pieces - !isLast : 0).join(" ");
      const text = { lang: german ? "de" : "en", textContent: german || "Nothing is written yet." };
      Object.assign(this.written, text);
      this.showStep(name);
      this.dock();
    }

    showStep(name) {
      const { here, stops } = this;
      this.layers.selectedIndex = this.view.layer;
      this.slider.value = here;
      this.slider.ariaValueText = name;
      this.reached.textContent = `step ${here + 1} of ${stops.length}`;
      this.next.disabled = here === stops.length - 1;
      this.play.textContent = this.playing ? "Pause" : "Play";
    }

    get isBegun() {
      return this.place.classList.contains("begun"); // the panel may then cover the figure
    }

    // On a phone the panel lies over the figure: at first its controls alone, then what the stack has.
    dock() {
      const [panel, rows, bar] = [this.panel, this.picture, this.controls].map((each) =>
        each.getBoundingClientRect(),
      );
      let shown = panel.bottom;
      if (!this.isBegun) shown = bar.bottom + 4;
      else if (this.view.stack === "encoder") {
        shown = rows.top + (rows.height * (topOf("decoder", this.data) - 1.2 * ROW)) / this.height;
      }
      this.panel.style.bottom = `${Math.min(0, Math.round(shown - panel.bottom))}px`;
    }

    // The box of this step comes into view if it is above the window or behind the panel.
    follow() {
      if (getComputedStyle(this.panel).position !== "sticky") return;
      const chosen = this.boxes.find(({ element }) => element.ariaChecked === "true").element;
      const { top, bottom } = chosen.getBoundingClientRect();
      const free = this.panel.getBoundingClientRect().top;
      if (top >= 56 && bottom <= free) return;
      scrollBy({ top: bottom - free + 24, behavior: this.calm ? "auto" : "smooth" });
    }

    // ----------------------------------------------------------------------------------- play

    go(index) {
      const stop = this.stops[index];
      const layer = stop.layer ?? (stop.box < BEFORE ? 0 : this.data.layers - 1);
      this.place.classList.add("begun");
      this.change({ ...stop, layer });
    }
    // Without motion each later piece is one stop.
    tick() {
      const { stops, calm } = this;
      let index = this.here + 1;
      if (calm && stops[index]?.pieces > 1) while (stops[index].box !== SOFTMAX) index++;
      if (index === stops.length) {
        this.pause();
        return;
      }
      this.go(index);
      if (stops[index].pieces <= 1) this.follow();
      this.playing = setTimeout(() => this.tick(), paceOf(stops[index], calm));
    }
    start() {
      this.playing = true;
      if (!this.isBegun || this.here === this.stops.length - 1) this.go(0);
      else this.show();
      this.follow();
      this.playing = setTimeout(() => this.tick(), 900);
    }
    pause() {
      this.place.classList.add("begun");
      clearTimeout(this.playing);
      if (!this.playing) return;
      this.playing = null;
      this.show();
    }
  }

  for (const place of document.querySelectorAll("div.alive")) new Alive(place);
  return { stopsOf, indexOf, paceOf, vectorsOf, linesOf, tell };
})();
