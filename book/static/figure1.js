// Figure 1, alive: the vectors of one sentence at every box. The numbers stand in the page.
(() => {
  const { range, make, shape } = window.elements;
  const CELLS = 32, WIDTH = 340, ROW = 20, NAMES = 66, STRIPS = 100, CELL = 7.5;
  // Boxes count from the bottom, as data-box says: embedding and positions, a layer's, two on top.
  const BEFORE = 2, INSIDE = { encoder: 4, decoder: 6 }, LINEAR = 8, SOFTMAX = 9;
  const KIND = { "encoder 2": "encoder", "decoder 2": "decoder", "decoder 4": "cross" }; // attention

  // One of several is chosen, by click or arrow key, as among radio buttons.
  function choose(group, label, items, take, up = -1) {
    group.setAttribute("role", "radiogroup");
    group.setAttribute("aria-label", label);
    items.forEach((item, i) => {
      item.setAttribute("role", "radio");
      item.addEventListener("click", () => take(i));
      item.addEventListener("keydown", (event) => {
        const step = { ArrowUp: up, ArrowDown: -up, ArrowLeft: -1, ArrowRight: 1, " ": 0, Enter: 0 }[event.key];
        if (step === undefined) return;
        event.preventDefault();
        event.stopPropagation(); // arrows would turn the page
        const open = items.filter((each) => each.getAttribute("aria-hidden") !== "true");
        const next = open[(open.indexOf(item) + step + open.length) % open.length];
        take(items.indexOf(next));
        next.focus();
      });
    });
    return (chosen) => items.forEach((item, i) => {
      item.setAttribute("aria-checked", i === chosen);
      item.setAttribute("tabindex", i === chosen ? 0 : -1);
    });
  }

  function fill(place) {
    const data = JSON.parse(place.querySelector("script").textContent);
    const calm = matchMedia("(prefers-reduced-motion: reduce)").matches;
    const drawing = document.querySelector("svg.fig1"), figure = drawing.closest(".figure");
    const words = { encoder: data.source, decoder: data.target };
    const top = { encoder: ROW, decoder: ROW * (data.source.length + 2.5) };
    const middle = (stack, i) => top[stack] + (i + 0.5) * ROW;
    const unpack = (text) => Int8Array.from(atob(text), (letter) => letter.charCodeAt(0));
    const strips = { encoder: data.strips.encoder.map(unpack), decoder: data.strips.decoder.map(unpack) };

    // All stops, in the order of computation; `pieces` of the translation are read by then.
    const stops = [];
    const pass = (stack, pieces) => {
      const stop = (box, layer) => stops.push({ stack, box, layer, pieces });
      for (const i of range(BEFORE)) stop(i);
      for (const layer of range(data.layers)) for (const i of range(INSIDE[stack])) stop(BEFORE + i, layer);
      if (stack === "decoder") for (const i of [LINEAR, SOFTMAX]) stop(i);
    };
    pass("encoder", 0);
    data.target.forEach((_, i) => pass("decoder", i + 1));

    let { stack, box, pieces } = stops[0], layer = 0;
    const marks = { encoder: 5, decoder: 3 }; // "bicycle", and what writes "Fahrrad"
    let playing = null;
    const here = () => stops.findIndex((stop) => stop.stack === stack && stop.box === box
      && (stop.layer ?? layer) === layer && (stack === "encoder" || stop.pieces === pieces));

    // ------------------------------------------------------------------------------- elements

    const play = make("button", { type: "button", onclick: () => (playing ? pause() : start()) });
    const next = make("button", { type: "button", textContent: "Next", onclick: () => { pause(); go(here() + 1); follow(); } });
    const slider = make("input", { type: "range", max: stops.length - 1 });
    slider.setAttribute("aria-label", "Step of the computation");
    slider.oninput = () => { pause(); go(slider.valueAsNumber); };
    slider.onchange = () => follow();
    slider.onkeydown = (event) => event.stopPropagation();
    const reached = make("small");
    const layers = make("select", {}, ...range(data.layers).map((i) => new Option(i + 1)));
    layers.onchange = () => { pause(); layer = layers.selectedIndex; show(); };
    const link = make("a");
    const status = make("p", { className: "note", role: "status" });
    const written = make("p", { className: "written" });

    const lines = shape("g", { class: "lines" }), bars = shape("g", { class: "bars" });
    const rows = {}, caption = {};
    const height = middle("decoder", data.target.length);
    const picture = shape("svg", { viewBox: `0 0 ${WIDTH} ${height}` }, lines);
    const setMark = {}, labels = { encoder: "Words of the sentence", decoder: "Pieces of the translation" };
    for (const each of ["encoder", "decoder"]) {
      rows[each] = words[each].map((word, i) => {
        const y = middle(each, i) - ROW / 2;
        const cells = range(CELLS).map((k) => shape("rect", { x: STRIPS + k * CELL, y: y + 3, width: CELL, height: ROW - 6 }));
        return shape("g", { "aria-label": word },
          shape("rect", { class: "row", x: 1, y: y + 0.5, width: WIDTH - 2, height: ROW - 1, rx: 3 }),
          shape("text", { x: NAMES - 6, y: y + 14, "text-anchor": "end" }, word),
          shape("g", { class: "strip" }, ...cells));
      });
      caption[each] = shape("text", { x: NAMES, y: top[each] - 6, class: "caption" });
      const group = shape("g", { class: each }, ...rows[each]);
      setMark[each] = choose(group, labels[each], rows[each], (i) => { marks[each] = i; show(); });
      picture.append(caption[each], group);
    }
    const key = (of, name, x) => [shape("rect", { class: of, x, y: top.encoder - 14, width: 9, height: 9 }),
      shape("text", { x: x + 12, y: top.encoder - 6, class: "caption" }, name)];
    picture.append(...key("below", "negative", WIDTH - 128), ...key("above", "positive", WIDTH - 60), bars);

    const boxes = [...drawing.querySelectorAll("[data-box]")];
    const info = Object.fromEntries(boxes.map((element) => {
      const name = [...element.querySelectorAll("text")].map((text) => text.textContent).join(" ");
      const title = element.querySelector("title"), href = element.getAttribute("href");
      title.remove();
      element.removeAttribute("href");
      element.setAttribute("aria-label", `${name}, ${element.dataset.box.split(" ")[0]}`);
      return [element.dataset.box, { name, href, title: title.textContent }];
    }));
    const setBox = choose(drawing, "Boxes of the Transformer", boxes, (i) => {
      pause();
      const [to, number] = boxes[i].dataset.box.split(" ");
      if (to === "decoder" && stack === "encoder" && pieces === 0) pieces = data.target.length;
      [stack, box] = [to, +number];
      show();
    }, 1); // the figure is read from the bottom up
    const panel = place.querySelector(".live"), controls = make("p", { className: "controls" }, play, next, slider, reached);
    panel.replaceChildren(
      controls, make("p", { className: "controls" }, link, make("label", {}, "Layer ", layers)), status, picture, written,
    );
    figure.before(place); // above the cell that made it
    place.prepend(figure);

    // ------------------------------------------------------------------------------- one stop

    function paint(of, numbers, shown) {
      rows[of].forEach((row, i) => {
        row.setAttribute("aria-hidden", i >= shown);
        row.lastChild.childNodes.forEach((cell, k) => {
          const value = numbers ? numbers[i * CELLS + k] : 0;
          cell.setAttribute("class", value < 0 ? "below" : "above");
          cell.setAttribute("fill-opacity", (Math.abs(value) / 127).toFixed(3));
        });
      });
    }

    function line(from, to, weight, marked) {
      const bend = (NAMES + STRIPS) / 2;
      lines.append(shape("path", {
        d: `M${NAMES} ${from}C${bend} ${from} ${bend} ${to} ${STRIPS - 3} ${to}`,
        "stroke-width": Math.max(1, 8 * weight), class: marked ? "marked" : "",
        "stroke-opacity": weight === 0 ? 1 : marked ? 0.35 + 0.65 * weight : 0.12,
      }));
    }

    const spell = (pairs) => pairs.slice(0, 3).filter(([, p]) => p > 0)
      .map(([word, p]) => `“${word}” ${p.toFixed(2)}`).join(", ");

    function show() {
      const key = `${stack} ${box}`, kind = KIND[key], { name, href, title } = info[key];
      const count = stack === "encoder" ? data.source.length : pieces;
      const marked = Math.min(marks[stack], count - 1), inLayer = box >= BEFORE && box < LINEAR;
      const place = stack + (inLayer ? `, layer ${layer + 1}` : "");
      const vectors = strips[stack].at(box === LINEAR ? -1 : inLayer ? INSIDE[stack] * layer + box : box);
      const writes = stack === "decoder"; // what the encoder has made stays as it is
      paint("encoder", writes ? strips.encoder.at(-1) : vectors, data.source.length);
      paint("decoder", writes && vectors, writes ? pieces : 0);
      caption.encoder.textContent = writes ? "the encoder’s memory" : place;
      caption.decoder.textContent = writes ? place : "the decoder waits for the encoder";
      setMark.encoder(marks.encoder);
      setMark.decoder(writes ? marked : -1);
      setBox(boxes.findIndex((element) => element.dataset.box === key));
      drawing.querySelectorAll("[data-stack]").forEach((text) => {
        text.textContent = text.dataset.stack === stack ? place : text.dataset.stack;
      });

      lines.replaceChildren();
      bars.replaceChildren();
      picture.classList.toggle("likely", box === SOFTMAX);
      let said;
      if (kind) {
        const of = kind === "cross" ? "encoder" : stack, weights = data.weights[kind][layer];
        const order = range(count).filter((i) => i !== marked).concat(marked); // the marked on top
        for (const q of order) {
          weights[q].forEach((percent, k) => percent > 1 && line(middle(of, k), middle(stack, q), percent / 100, q === marked));
        }
        const most = weights[marked].map((percent, k) => [words[of][k], percent / 100]).sort(([, a], [, b]) => b - a);
        said = `“${words[stack][marked]}” attends to ${spell(most)}.`;
      } else if (box === SOFTMAX) {
        const likely = data.likely[marked], at = (i) => middle("decoder", i + 0.5); // between rows
        bars.append(shape("path", { d: `M${NAMES + 2} ${middle(stack, marked)}H${STRIPS - 12}V${at(0)}H${STRIPS - 6}M${STRIPS - 12} ${middle(stack, marked)}V${at(likely.length - 1)}H${STRIPS - 6}` }));
        likely.forEach(([piece, p], i) => bars.append(
          shape("rect", { x: STRIPS, y: at(i) - 7, width: Math.max(1, 130 * p), height: 14 }),
          shape("text", { x: STRIPS + 130 * p + 6, y: at(i) + 4 }, `${piece} ${p.toFixed(2)}`),
        ));
        said = `After “${words[stack][marked]}”, the model expects ${spell(likely)}.`;
      } else {
        for (const i of range(count)) line(middle(stack, i), middle(stack, i), 0, i === marked);
        const sizes = Array.from(vectors.subarray(0, count * CELLS), Math.abs);
        const strongest = Math.floor(sizes.indexOf(Math.max(...sizes)) / CELLS);
        said = `Each row is computed by itself; the strongest color is in the row of “${words[stack][strongest]}”.`;
      }
      Object.assign(link, { href, textContent: name, title });
      status.replaceChildren(make("span", { className: "visually-hidden" }, `${name}, ${place}. `), said);
      const german = data.written.slice(0, writes ? pieces - (box < SOFTMAX) : 0).join(" ");
      Object.assign(written, { lang: german ? "de" : "en", textContent: german || "Nothing is written yet." });
      layers.selectedIndex = layer;
      slider.value = here();
      slider.setAttribute("aria-valuetext", `${name}, ${place}`);
      reached.textContent = `step ${here() + 1} of ${stops.length}`;
      next.disabled = here() === stops.length - 1;
      play.textContent = playing ? "Pause" : "Play";
      dock();
    }

    // On a phone the panel lies over the figure: at first its controls alone, then what the stack has.
    function dock() {
      const edge = panel.getBoundingClientRect(), rows = picture.getBoundingClientRect();
      const shown = !place.classList.contains("begun") ? controls.getBoundingClientRect().bottom + 4
        : stack === "encoder" ? rows.top + rows.height * (top.decoder - 1.2 * ROW) / height : edge.bottom;
      panel.style.bottom = `${Math.min(0, Math.round(shown - edge.bottom))}px`;
    }

    // The box of this step comes into view if it is above the window or behind the panel.
    function follow() {
      if (getComputedStyle(panel).position !== "sticky") return;
      const { top: high, bottom: low } = boxes.find((each) => each.ariaChecked === "true").getBoundingClientRect();
      const free = panel.getBoundingClientRect().top;
      if (high < 56 || low > free) scrollBy({ top: low - free + 24, behavior: calm ? "auto" : "smooth" });
    }

    // ------------------------------------------------------------------------------------ play

    const begin = () => place.classList.add("begun"); // the panel may now cover the figure
    function go(index) {
      begin();
      ({ stack, box, pieces } = stops[index]);
      layer = stops[index].layer ?? (box < BEFORE ? 0 : data.layers - 1);
      show();
    }
    // Slowly where a box is new, then faster; without motion each later piece is one stop.
    function tick() {
      let index = here() + 1;
      if (calm && stops[index]?.pieces > 1) while (stops[index].box !== SOFTMAX) index++;
      if (index === stops.length) return pause();
      go(index);
      const { pieces: read, layer: deep } = stops[index];
      if (read <= 1) follow();
      playing = setTimeout(tick, calm ? 1200 : read > 1 ? (box === SOFTMAX ? 600 : 120) : deep ? 350 : 900);
    }
    function start() {
      playing = true;
      if (!place.classList.contains("begun") || here() === stops.length - 1) go(0);
      else show();
      follow();
      playing = setTimeout(tick, 900);
    }
    function pause() {
      begin();
      clearTimeout(playing);
      if (playing) { playing = null; show(); }
    }
    show();
    new ResizeObserver(dock).observe(panel);
  }

  document.querySelectorAll("div.alive").forEach(fill);
})();
