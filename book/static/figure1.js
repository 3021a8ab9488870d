// Figure 1, alive: the vectors of one sentence at every box. The numbers stand in the page.
window.figure1 = (() => {
  const { range, make, button, shape, taper, slider, controls, check, dataOf, isCalm } =
    window.elements;
  const [CELLS, WIDTH, ROW, TITLE, NAMES, STRIPS, CELL, RAY] = [32, 340, 24, 20, 66, 100, 6, 300];
  const STACKS = ["encoder", "decoder"];
  // Boxes count from the bottom, as data-box says: embedding and positions, a layer's, two on top.
  const [BEFORE, LINEAR, SOFTMAX] = [2, 8, 9];
  const INSIDE = { encoder: 4, decoder: 6 };
  const KIND = { "encoder 2": "encoder", "decoder 2": "decoder", "decoder 4": "cross" }; // attention
  const OPENING = -3; // the attention that finds "bicycle"
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
    lists[stack][isInLayer(box) ? INSIDE[stack] * layer + box : box];

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
        d: taper([NAMES, start], [STRIPS - 3, end], Math.max(1, 8 * weight), true),
        class: `${kind ? "weight" : ""} ${to === marked ? "marked" : ""}`,
        opacity: weight === 0 ? 1 : to === marked ? 0.35 + 0.65 * weight : 0.12,
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
    const largest = pairs.filter(([, number]) => number > 0).slice(0, 3);
    return largest.map(([word, number, unit]) => `“${word}” ${number}${unit}`).join(", ");
  }

  // What a view that is no stop shows, in a sentence.
  function tell(view, data) {
    const { stack, box, layer } = view;
    const words = wordsOf(data);
    const kind = KIND[`${stack} ${box}`];
    const marked = markedOf(view, data);
    const ranked = (pairs) => pairs.sort(([, a], [, b]) => b - a);
    if (kind) {
      const names = kind === "cross" ? words.encoder : words[stack];
      const row = data.weights[kind][layer][marked].map((percent, k) => [names[k], percent, "%"]);
      return `“${words[stack][marked]}” attends to ${spell(ranked(row))}.`;
    }
    if (box >= LINEAR) {
      const [made, unit] = box === SOFTMAX ? ["probabilities", "%"] : ["scores", ""];
      const best = data.likely[marked].map(([piece, score, p]) => [piece, unit ? p : score, unit]);
      return `The largest ${made} after “${words[stack][marked]}”: ${spell(best)}.`;
    }
    const turned = madeBy(view, data.turned)?.slice(0, countOf(view, data));
    if (!turned) return "Each row is computed from itself alone.";
    const rows = turned.map((degrees, i) => [words[stack][i], degrees, "°"]);
    return `The rows that turn most: ${spell(ranked(rows))}.`;
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

  function paint(rows, numbers, turned, shown) {
    for (const [i, row] of rows.entries()) {
      row.ariaHidden = i >= shown;
      const [, , strip, turn] = row.childNodes;
      const degrees = turned?.[i];
      turn.setAttribute("visibility", degrees === undefined ? "hidden" : "inherit");
      turn.querySelector(".ray").style.transform = `rotate(${-(degrees ?? 0)}deg)`;
      turn.lastChild.textContent = `${degrees}°`;
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
        shape("rect", { x: STRIPS, y: at(i) - 7, width: Math.max(1, 130 * share), height: 14 }),
        shape("text", { x: STRIPS + 130 * share + 6, y: at(i) + 4 }, told),
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
      Object.assign(this, { place, data, drawing, strips, stops: data.stops });
      this.marks = {};
      this.calm = isCalm();
      this.playing = null;
      this.build();
      for (const { stack, row } of this.stops) this.marks[stack] ??= row;
      this.arrive(this.stops.length + OPENING, -1);
      new ResizeObserver(() => this.dock()).observe(this.panel);
    }

    build() {
      const { data, drawing, stops, place } = this;
      const stopAnd = (act) => () => {
        this.pause();
        act();
      };
      this.play = button({ onclick: () => (this.playing ? this.pause() : this.start()) });
      const step = stopAnd(() => {
        this.go(this.after);
        this.follow();
      });
      this.next = button({ textContent: "Next", onclick: step });
      const jump = (index) => stopAnd(() => this.go(index))();
      const onchange = () => this.follow();
      this.slider = slider(stops.length - 1, "Stop on the way", jump, { onchange });
      this.reached = make("small");
      this.layers = make("select", {}, ...range(data.layers).map((i) => new Option(i + 1)));
      this.layers.onchange = stopAnd(() => this.look({ layer: this.layers.selectedIndex }));
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
      this.height = topOf("decoder", data) + ROW * data.target.length;
      this.lines = shape("g", { class: "lines" });
      this.bars = shape("g", { class: "bars" });
      const viewBox = `0 0 ${WIDTH} ${this.height}`;
      const named = { role: "group", "aria-label": "Rows of both stacks" };
      this.picture = shape("svg", { viewBox, ...named }, this.lines);
      Object.assign(this, { rows: {}, captions: {}, setMark: {} });
      for (const stack of STACKS) {
        const top = topOf(stack, data);
        const rows = wordsOf(data)[stack].map((word, i) => drawRow(word, top + i * ROW));
        const group = shape("g", { class: stack }, ...rows);
        const mark = (i) => {
          marks[stack] = i;
          this.look({});
        };
        this.rows[stack] = rows;
        this.captions[stack] = shape("text", { x: STRIPS, y: top - 6, class: "caption" });
        this.setMark[stack] = choose(group, labels[stack], rows, mark);
        this.picture.append(this.captions[stack], group);
      }
      this.picture.append(this.bars);
    }

    // ----------------------------------------------------------------------------- one view

    // A stop of the way, or what a reader chooses instead.
    arrive(index, here = index) {
      const { row, ...view } = this.stops[index];
      this.here = here;
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
      const { view, data, strips, rows, captions, setMark, drawing } = this;
      const place = placeOf(view);
      const [vectors, turned] = [strips, data.turned].map((lists) => madeBy(view, lists));
      const marked = markedOf(view, data);
      const writes = view.stack === "decoder"; // what the encoder has made stays as it is
      const { length } = data.source;
      if (writes) paint(rows.encoder, strips.encoder.at(-1), null, length);
      else paint(rows.encoder, vectors, turned, length);
      paint(rows.decoder, writes && vectors, turned, writes ? view.pieces : 0);
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
      const isLast = view.box >= LINEAR;
      this.lines.replaceChildren(...linesOf(view, data).map((line) => shape("path", line)));
      this.bars.replaceChildren(...(isLast ? drawBars(view.box, marked, data) : []));
      this.picture.classList.toggle("likely", isLast);
      Object.assign(this.link, link);
      const name = `${link.textContent}, ${place}`;
      const where = make("span", { className: "visually-hidden" }, `${name}. `);
      this.status.replaceChildren(where, view.said ?? tell(view, data));
      const isWritten = view.box === SOFTMAX;
      const german = data.written.slice(0, writes ? view.pieces - !isWritten : 0).join(" ");
      const text = { lang: german ? "de" : "en", textContent: german || "Nothing is written yet." };
      Object.assign(this.written, text);
      this.showStep(name);
      this.dock();
    }

    showStep(name) {
      const { here, stops } = this;
      this.layers.selectedIndex = this.view.layer;
      this.slider.value = Math.max(0, here);
      this.slider.ariaValueText = name;
      this.reached.textContent =
        here < 0 ? `${stops.length} stops` : `${here + 1} of ${stops.length}`;
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
        shown = rows.top + (rows.height * (topOf("decoder", this.data) - TITLE)) / this.height;
      }
      this.panel.style.bottom = `${Math.min(0, Math.round(shown - panel.bottom))}px`;
    }

    // The whole figure comes into view, or where it is too high, or lies behind the panel, this box.
    follow() {
      const chosen = this.boxes.find(({ element }) => element.ariaChecked === "true").element;
      const [figure, panel] = [this.drawing, this.panel].map((each) =>
        each.getBoundingClientRect(),
      );
      const { top, bottom } = chosen.getBoundingClientRect();
      const isBelow = panel.left < figure.right; // on phones
      const free = isBelow ? Math.min(panel.top, innerHeight) - 24 : innerHeight - 8;
      const fits = !isBelow && figure.height < free - 56;
      const lowest = isBelow ? bottom : Math.max(bottom, panel.bottom);
      const [first, last] = fits ? [figure.top, figure.bottom] : [top, lowest];
      if (first >= 56 && last <= free) return;
      scrollBy({ top: last - free, behavior: this.calm ? "auto" : "smooth" });
    }

    // ----------------------------------------------------------------------------------- play

    go(index) {
      this.place.classList.add("begun");
      this.arrive(index);
    }
    get after() {
      return (this.here + 1) % this.stops.length;
    }
    start() {
      const { after, stops } = this;
      this.playing = true;
      this.go(after);
      this.follow();
      const next = after + 1 === stops.length ? () => this.pause() : () => this.start();
      this.playing = setTimeout(next, paceOf(stops[after]));
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
  return { paceOf, madeBy, linesOf, tell };
})();
